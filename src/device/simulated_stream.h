// Streams and events of simulated devices: ordered queues, each with a thread of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>

#include "base/fd.h"
#include "device/device.h"
#include "memory/memory_file.h"

namespace tutti {

// What ends a device: the first failure of what was on its streams. Shared by its streams; thread-safe.
class SimulatedFate {
 public:
  bool is_lost() const noexcept { return lost_.load(std::memory_order_acquire); }  // pairs with lose's store
  void lose(const std::string& sentence) noexcept;
  const std::atomic<bool>& lost() const noexcept { return lost_; }
  // success while it lives.
  Outcome outcome() const;

 private:
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  std::string sentence_;
};

// How often it was recorded, and the last of them that its stream has passed: two words, in a memory file where other
// processes may look at them.
class SimulatedEvent {
 public:
  // Throw Error.
  SimulatedEvent(bool shared, const SimulatedFate& fate);
  SimulatedEvent(const ExportedEvent& exported, const SimulatedFate& fate);

  uint32_t record() noexcept { return 1 + words_->recorded.fetch_add(1, std::memory_order_acq_rel); }
  void complete(uint32_t number) noexcept;
  uint32_t recorded() const noexcept { return words_->recorded.load(std::memory_order_acquire); }
  // pairs with complete()'s store
  bool passed(uint32_t number) const noexcept {
    return int32_t(words_->completed.load(std::memory_order_acquire) - number) >= 0;
  }
  // Blocks until passed(), `fate` is sealed, or who records it is gone: then the sentence says so.
  std::string await(uint32_t number, const SimulatedFate& fate) const;
  const SimulatedFate& fate() const noexcept { return fate_; }
  bool imported() const noexcept { return process_ != 0; }
  ExportedEvent exported() const;

 private:
  struct Words {
    std::atomic<uint32_t> recorded{0};
    std::atomic<uint32_t> completed{0};
  };
  const SimulatedFate& fate_;
  Fd file_;
  Mapping mapping_;
  Words own_;
  Words* words_ = &own_;
  int process_ = 0;  // of an imported event: whose it is
};

class SimulatedStream {
 public:
  // A piece of work, on the stream's thread; the sentence of a failure, which is the end of the device, or "".
  using Work = std::function<std::string()>;

  // delay_us_max: before each piece of work it rests a random while up to this.
  SimulatedStream(int device, SimulatedFate& fate, int delay_us_max, uint64_t seed);
  // Lets what is on it end, on its own.
  ~SimulatedStream();

  int device() const noexcept { return device_; }
  void enqueue(Work work);
  // Blocks until what is on it now is done.
  void wait();
  bool is_idle() const;

 private:
  // The thread's, which may outlive the stream.
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Work> works;
    uint64_t enqueued = 0, done = 0;
    bool ending = false;
  };
  static void run(Queue& queue, SimulatedFate& fate, int delay_us_max, uint64_t seed);

  int device_;
  std::shared_ptr<Queue> queue_;
};

}  // namespace tutti
