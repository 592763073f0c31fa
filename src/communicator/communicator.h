// A rank's membership in a communicator: its links to the other ranks, and the operations that run over them.
//
// Threads: one thread at a time drives it (the caller's, or a stream's: see admission below); abort(), failure() and
// waiting for admission may come from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/signature.h"
#include "bootstrap/bootstrap.h"
#include "communicator/patience.h"
#include "engine/engine.h"
#include "engine/planner.h"
#include "topology/topology.h"
#include "transport/doorbell.h"
#include "transport/transport.h"

namespace tutti {

// Settings, with the environment already looked up.
struct CommunicatorOptions {
  int timeout_ms = 300000;
  std::string algorithm;        // forced, or ""
  std::string transports;       // comma list allowed, or "" for all
  std::string interface_names;  // comma list allowed, or "" for all
  int channels = -1;            // -1: decide
};

// One call as its caller made it; arguments are checked.
struct Request {
  Call call;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int peer = -1;          // send_recv
  bool sending = false;   // send_recv
};

class Communicator {
 public:
  // Joins; blocks until all ranks have. Throws Error.
  static std::unique_ptr<Communicator> join(const JobId& id, int rank, int size, const CommunicatorOptions& options);
  ~Communicator();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  const Log& log() const noexcept { return log_; }

  // Runs one call on the calling thread until it is done. success, or the code of failure().
  Code run(const Request& request) noexcept;

  // --- For sets of calls that progress together (groups); the caller drives them.

  // Prepares `operation` for a request. False: the communicator has failed.
  bool begin(Operation& operation, const Request& request) noexcept;
  // Moves what can move. failed: the communicator has failed, failure() is set.
  Status progress(Operation& operation) noexcept;
  // The deadline has passed while this operation waited: fails the communicator with a sentence that says so.
  void expire(const Operation& operation) noexcept;

  // --- Waiting; see drive() in wait.h.
  const PatiencePolicy& patience() const noexcept { return patience_; }
  TimeNs timeout_ns() const noexcept { return timeout_ns_; }
  void arm() noexcept;
  void disarm() noexcept;
  // Writes the descriptors whose readiness means that progress() may move something.
  size_t poll_fds(std::span<pollfd> space) noexcept;

  // --- Failure; any thread. Null while healthy; never changes once set.
  const Verdict* failure() const noexcept { return bootstrap_->verdict(); }
  // Fails the communicator on all ranks.
  void fail(Code code, const std::string& sentence) noexcept;
  void abort() noexcept;

  // --- Admission: calls enter in the order of their tickets, one at a time.
  // The next place in the order. Called by the thread that makes the call.
  uint64_t take_ticket() noexcept { return next_ticket_++; }
  // True where nothing is pending on any stream: then a call on the calling thread needs no ticket.
  bool idle() const noexcept { return serving_.load(std::memory_order_acquire) == next_ticket_; }
  void await_turn(uint64_t ticket) noexcept;
  void end_turn() noexcept;

  // Says that this rank calls no more; pending operations must be over.
  void leave() noexcept;
  bool has_left() const noexcept { return left_; }

  // "self", "shm", "tcp".
  const char* transport_to(int peer) const noexcept;
  // The algorithm that a call would run.
  std::string_view algorithm_for(Collective collective, size_t bytes);

 private:
  Communicator(std::unique_ptr<Bootstrap> bootstrap, const CommunicatorOptions& options, Log log);
  void make_transports(const CommunicatorOptions& options);
  void make_planner(const CommunicatorOptions& options);
  void agree_on(const CommunicatorOptions& options);
  const Plan& plan_of(const Request& request);
  void reserve_scratch(const Plan& plan);
  void settle(const Operation& operation) noexcept;
  std::string waiting_sentence(const Operation& operation, const WaitingOn& waiting) const;

  Log log_;
  Doorbell doorbell_;  // outlives bootstrap_, whose thread rings it
  std::unique_ptr<Bootstrap> bootstrap_;
  int rank_;
  int size_;
  TimeNs timeout_ns_;
  bool left_ = false;

  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<Endpoint*> endpoints_;  // [channel * size + peer]; the last channel is point to point's
  std::vector<const char*> transport_names_;
  int channels_ = 1;                  // of collectives
  size_t message_bytes_max_ = 0;
  std::vector<Place> places_;

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Planner> planner_;
  PatiencePolicy patience_;
  std::vector<Plan> send_plans_, recv_plans_;  // one a peer
  struct ScratchDeleter {
    void operator()(std::byte* p) const noexcept;
  };
  std::unique_ptr<std::byte, ScratchDeleter> scratch_;
  size_t scratch_bytes_ = 0;
  Operation operation_;               // of run()

  uint64_t next_ticket_ = 0;                // the calling thread's
  std::atomic<uint64_t> serving_{0};        // release by end_turn, acquire by await_turn and idle
};

}  // namespace tutti
