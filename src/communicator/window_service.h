// The way to window memory that cannot be mapped: a thread of each rank carries its requests and serves those of others.
//
// A request is a small header on the first channel between two ranks, with a put's bytes behind it in tiles; what it
// returns (a get's tiles, an empty message for a flush) comes on the second channel, in the order of the requests. The
// service reads a peer's next request when it has sent the answer to the one before; answers are always taken in, so no
// two ranks wait for each other.
#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "communicator/links.h"
#include "communicator/patience.h"
#include "communicator/window_link.h"

namespace tutti {

struct WindowServiceOptions {
  std::vector<bool> peers;  // by rank: served, in one direction or both; the same on both sides of a pair
  std::string transports;   // allowed; "": all
  PatiencePolicy patience;
  TimeNs timeout_ns = 0;    // of the connecting
};

class WindowService {
 public:
  // Collective over all ranks, also those that no request leads to or from. Peers write to `memory` and raise
  // counters[rank]; both outlive the service. Starts a thread where a peer is served. Throws Error.
  WindowService(Bootstrap& bootstrap, const WindowServiceOptions& options, std::span<std::byte> memory,
                std::span<SharedCounter> counters);
  // Requests that are not done end as failed.
  ~WindowService();

  // Any thread. The request's counter is raised when it is done, in any case: no wait for it needs another end.
  void submit(int peer, std::shared_ptr<WindowRequest> request) noexcept;
  // From now on a peer may close its links: it has no more requests, nor has this rank.
  void expect_end() noexcept { end_expected_.store(true, std::memory_order_release); }  // pairs with the load in settle

 private:
  void work() noexcept;
  bool look() noexcept;
  bool take_submitted() noexcept;
  void settle(int peer) noexcept;
  void drop_all() noexcept;
  void sleep(std::span<const std::unique_ptr<Transport>> transports) noexcept;
  void end() noexcept;

  Bootstrap& bootstrap_;
  PatiencePolicy patience_;
  Doorbell doorbell_;  // outlives links_
  Links links_;
  std::vector<std::unique_ptr<WindowLink>> peers_;  // by rank; null where none is needed
  std::mutex mutex_;
  std::vector<RequestQueue> submitted_;      // by rank, under mutex_
  std::atomic<bool> any_submitted_{false};   // changed under mutex_
  bool asleep_ = false;                      // under mutex_
  std::atomic<bool> end_expected_{false};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace tutti
