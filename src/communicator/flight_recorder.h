// What a communicator did: always its last thousand runs of calls, and, where a trace is wanted, every call with its waits.
//
// Threads: the thread that drives the communicator records; any thread may write what is recorded to a file.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"

namespace tutti {

struct FlightRecorderOptions {
  int rank = 0;
  int size = 1;
  std::string host;         // equal where clocks are
  std::string trace_file;   // "": no trace; else its beginning: ".RANK.json" is appended
  std::string record_file;  // "": none is written by itself; else as above, when the communicator fails
};

class FlightRecorder {
 public:
  explicit FlightRecorder(FlightRecorderOptions options);
  ~FlightRecorder();  // writes the trace

  // --- Recording. noexcept; no allocation but for the trace.

  // A call begins. Calls that equal the one before are counted with it: a loop of millions is one run.
  void begin(const Operation& operation, uint64_t signature) noexcept;
  // As begin, for a call that has just been made before: costs one addition, and reads no clock.
  void again(uint64_t signature) noexcept {
    Run& run = runs_[runs_begun_.load(std::memory_order_relaxed) % runs_.size()];
    if (run.signature.load(std::memory_order_relaxed) != signature) [[unlikely]] return begin_run(signature);
    run.times.store(run.times.load(std::memory_order_relaxed) + 1, std::memory_order_release);  // pairs: collective()
  }

  // --- Collectives by number, from 0: how many of them began before. The same on all ranks, whatever they send each other.

  // How many have begun; by the thread that records.
  uint64_t collectives() const noexcept;
  // The signature of the one with a number, where it has begun and its run is among those that are kept. Any thread.
  std::optional<uint64_t> collective(uint64_t number) const noexcept;

  bool tracing() const noexcept { return tracing_; }
  // While tracing: what the operation waits for now; that it has ended.
  void waits(const Operation& operation, const WaitingOn& waiting) noexcept;
  void ended(const Operation& operation) noexcept;

  // --- Writing; throw Error(system_error) where the file cannot be written, naming it.

  // The last runs as JSON; `failure` is the communicator's sentence, or "".
  void write_record(const std::string& file, std::string_view failure) const;
  // To record_file, where there is one; of a failure the first time only. A file that was there before is left alone:
  // "-2" and so on is added to the rank. Never throw: say what fails to the log of the process.
  void write_record_of_failure(std::string_view failure) noexcept;
  void write_record_on_request(std::string_view failure) noexcept;
  // The calls and waits so far, as Chrome and Perfetto read them.
  void write_trace(const std::string& file) const;

 private:
  static constexpr size_t runs_kept = 1024;
  // Stored with release, so that collective() sees whether a run has become another one; who writes a record while calls run
  // does not ask, and may see a run that is half the next one.
  struct Run {
    std::atomic<uint64_t> signature{0};
    std::atomic<uint64_t> times{0};
    std::atomic<TimeNs> begin_ns{0};
    std::atomic<uint64_t> collectives_before{0};
  };
  struct Span {
    uint64_t sequence;  // of the call among those of this communicator
    uint64_t signature;
    std::string_view algorithm;
    size_t bytes;
    TimeNs begin_ns;
    TimeNs end_ns;
    WaitingOn waiting;  // peer < 0: the call itself
  };
  struct Open {
    const Operation* operation;
    Span call;
    Span wait;
    bool waits;
  };
  void begin_run(uint64_t signature) noexcept;
  void close_wait(Open& open, TimeNs now);
  std::vector<Open>::iterator find(const Operation& operation) noexcept;

  const FlightRecorderOptions options_;
  const bool tracing_;
  std::array<Run, runs_kept> runs_;
  std::atomic<uint64_t> runs_begun_{0};
  std::atomic<bool> failure_written_{false};
  std::mutex record_mutex_;
  std::string own_record_file_;  // once something was written
  uint64_t calls_traced_ = 0;
  std::vector<Open> open_;
  mutable std::mutex spans_mutex_;
  std::vector<Span> spans_;
};

}  // namespace tutti
