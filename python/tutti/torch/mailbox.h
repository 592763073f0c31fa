// Receives that were posted, and messages that came before the receive that asks for them.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "calls.h"
#include "device.h"
#include "work.h"

namespace tutti_torch {

class Mailbox {
 public:
  static constexpr int any = -1;

  struct Receive {
    CallPointer call;
    at::Tensor tensor;  // where the caller wants it
    std::shared_ptr<Reached> free;  // of a device's tensor: when it may be written; else null
    int source = any;
    int64_t tag = 0;
  };
  struct Early {
    int source;
    int64_t tag;
    std::vector<uint8_t> bytes;
  };

  // `untouched`: what counts the posted receives, among others.
  explicit Mailbox(std::atomic<int>& untouched) : untouched_(untouched) {}

  // True where the message was here already; then the receive is over.
  bool post(const Receive& receive) {
    std::unique_lock lock(mutex_);
    const auto early =
        std::find_if(early_.begin(), early_.end(), [&](const Early& e) { return fits(receive, e.source, e.tag); });
    if (early == early_.end()) {
      posted_.push_back(receive);
      ++untouched_;
      lock.unlock();
      changed_.notify_all();
      return false;
    }
    const Early message = std::move(*early);
    early_.erase(early);
    lock.unlock();
    Patience patience(receive.call->longest_wait());
    deliver_early(receive, message, patience);
    return true;
  }

  enum class Next { deliver, put_aside, closed };
  // What to do with a message that has arrived: waits until somebody wants it, or what comes after it.
  Next match(int source, int64_t tag, Receive& wanted) {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto found =
          std::find_if(posted_.begin(), posted_.end(), [&](const Receive& r) { return fits(r, source, tag); });
      if (found != posted_.end()) {
        wanted = std::move(*found);
        take(found);
        return Next::deliver;
      }
      if (closed_) return Next::closed;
      const auto waits = [&](const Receive& r) { return r.source == source || r.source == any; };
      if (std::any_of(posted_.begin(), posted_.end(), waits)) return Next::put_aside;
      changed_.wait(lock);
    }
  }
  void put_aside(Early message, Patience& patience) {
    std::unique_lock lock(mutex_);
    // The receive may have been posted while the bytes were on their way.
    const auto found = std::find_if(posted_.begin(), posted_.end(),
                                    [&](const Receive& r) { return fits(r, message.source, message.tag); });
    if (found == posted_.end()) {
      early_.push_back(std::move(message));
      return;
    }
    const Receive receive = std::move(*found);
    take(found);
    lock.unlock();
    deliver_early(receive, message, patience);
  }

  // Gives `bytes` bytes, which `fill`(address) writes, to a receive and completes it. fill may throw; where the size is
  // wrong it writes to memory that nobody sees, so that the next message is found. by_host: it writes to memory of the
  // host alone.
  template <class Fill>
  static void deliver(const Receive& receive, int source, size_t bytes, Fill fill, Patience& patience,
                      bool by_host = false) {
    std::exception_ptr error;
    try {
      const at::NoGradGuard no_grad;
      if (receive.tensor.nbytes() != bytes) {
        std::vector<uint8_t> nowhere(bytes);
        fill(nowhere.data());
        refuse("rank " + std::to_string(source) + " sent " + std::to_string(bytes) + " bytes with tag " +
               std::to_string(receive.tag) + ", but the tensor to be received has " +
               std::to_string(receive.tensor.nbytes()));
      }
      if (receive.free) patience.wait_for(*receive.free);
      const at::Tensor room = by_host && receive.free ? room_on_host(receive.tensor) : plain_room(receive.tensor);
      fill(room.data_ptr());
      put_back(room, receive.tensor);
      if (receive.free) patience.wait_for(Reached(receive.tensor.device()));
    } catch (...) {
      error = std::current_exception();
    }
    receive.call->came_from(source);
    receive.call->complete(error);
  }

  // Nothing more will come from `source`.
  void fail(int source, const std::exception_ptr& error, bool all_sources_ended) {
    std::vector<Receive> failed;
    {
      const std::lock_guard lock(mutex_);
      for (auto r = posted_.begin(); r != posted_.end();) {
        const bool hopeless = r->source == source || (r->source == any && all_sources_ended);
        if (hopeless) failed.push_back(std::move(*r));
        r = hopeless ? take(r) : std::next(r);
      }
    }
    for (const Receive& receive : failed) receive.call->complete(error);
  }
  // Whether a receive waits for a message of `source`.
  bool wants(int source) {
    const std::lock_guard lock(mutex_);
    return std::any_of(posted_.begin(), posted_.end(),
                       [&](const Receive& r) { return r.source == source || r.source == any; });
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::list<Receive>::iterator take(std::list<Receive>::iterator receive) {
    --untouched_;
    return posted_.erase(receive);
  }
  static at::Tensor room_on_host(const at::Tensor& tensor) {
    return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).memory_format(at::MemoryFormat::Contiguous));
  }
  static void deliver_early(const Receive& receive, const Early& message, Patience& patience) {
    const auto fill = [&](void* to) {
      if (!message.bytes.empty()) std::memcpy(to, message.bytes.data(), message.bytes.size());
    };
    deliver(receive, message.source, message.bytes.size(), fill, patience, true);
  }
  static bool fits(const Receive& receive, int source, int64_t tag) {
    return (receive.source == any || receive.source == source) && receive.tag == tag;
  }

  std::atomic<int>& untouched_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Receive> posted_;
  std::list<Early> early_;
  bool closed_ = false;
};

}  // namespace tutti_torch
