// A call that was made, and the queue in which the calls of one communicator run in their order.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "calls.h"
#include "device.h"
#include "python_thread.h"

namespace tutti_torch {

class Call;

// What runs calls. Who waits for one of them helps, which spares small calls the way to another thread and back.
class Runner {
 public:
  virtual ~Runner() = default;
  // Runs calls on this thread until `call` is over or another thread runs one. `asked`: how long the caller said that it
  // would wait; 0: it did not.
  virtual void help(Call& call, milliseconds asked) = 0;
};

// Done once; whoever runs it calls complete().
class Call : public c10d::Work {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Body = std::function<void()>;

  // `body` throws what went wrong. Of calls that something other than a queue completes it is empty. `turn`: of a call
  // that its body puts on a stream of a device. Then it counts as run when its body has returned, which may be (with
  // TUTTI_DEVICE_ASYNC) before the device is through with it: so wait() lets the caller's stream wait, too.
  Call(int rank, c10d::OpType type, const char* title, const Tensors& inputs, Tensors outputs, Body body,
       std::shared_ptr<Turn> turn = nullptr)
      : Work(rank, type, at::hasCallbacks() ? title : nullptr, profiled(inputs)),
        title_(title),
        outputs_(std::move(outputs)),
        body_(std::move(body)),
        turn_(std::move(turn)) {}

  void run() noexcept {
    std::exception_ptr error;
    try {
      const at::NoGradGuard no_grad;
      body_();
    } catch (...) {
      error = std::current_exception();
    }
    be_known_to_python();
    body_ = nullptr;  // what it holds is let go before anybody is told
    complete(error);
  }

  void complete(std::exception_ptr error) {
    c10::intrusive_ptr<at::ivalue::Future> future;
    std::function<void()> recorded;
    {
      const std::lock_guard lock(mutex_);
      if (completed_) return;
      completed_ = true;
      exception_ = std::move(error);
      future = future_;
      recorded = std::exchange(recordFunctionEndCallback_, nullptr);
    }
    cv_.notify_all();
    if (recorded) recorded();
    if (future) settle(*future);
  }

  // From here on wait() helps to run this call and what stands before it.
  void stands_in(std::shared_ptr<Runner> runner) { runner_ = std::move(runner); }
  // Who waits without saying how long gives up after so long. 0: never, since the call has a deadline of its own.
  void waits_at_most(milliseconds timeout) { timeout_ = timeout; }
  milliseconds longest_wait() const { return timeout_; }
  void came_from(int rank) { source_ = rank; }
  bool is_on_device() const { return turn_ != nullptr; }
  // Whether it has run, or failed: of a call on a device, the device may still be at it.
  bool has_run() {
    const std::lock_guard lock(mutex_);
    return completed_;
  }

  bool isCompleted() override {
    const std::lock_guard lock(mutex_);
    return completed_ && (exception_ || !turn_ || turn_->passed());
  }
  bool wait(milliseconds timeout = milliseconds(0)) override;
  void synchronize() override { wait(); }
  void abort() override {
    complete(std::make_exception_ptr(std::runtime_error(std::string("tutti: ") + title_ + " was aborted")));
  }
  std::vector<at::Tensor> result() override { return outputs_; }
  int sourceRank() const override { return source_; }

  c10::intrusive_ptr<at::ivalue::Future> getFuture() override {
    c10::intrusive_ptr<at::ivalue::Future> made;
    {
      const std::lock_guard lock(mutex_);
      if (future_) return future_;
      std::vector<c10::Device> devices;
      if (const auto device = device_of(outputs_)) devices.push_back(*device);
      made = future_ = c10::make_intrusive<at::ivalue::Future>(at::ListType::create(at::TensorType::get()), devices);
      if (!completed_) return made;
    }
    settle(*made);
    return made;
  }

 private:
  void hold_or_wait(milliseconds timeout);
  [[noreturn]] void raise_not_over(milliseconds timeout) const;
  static std::optional<Tensors> profiled(const Tensors& inputs) {
    return at::hasCallbacks() ? std::optional(inputs) : std::nullopt;
  }
  void settle(at::ivalue::Future& future) {
    if (exception_) return future.setErrorIfNeeded(exception_);
    std::optional<c10::StreamGuard> own;  // whose work the future's users come after
    if (turn_) own.emplace(turn_->own());
    future.markCompleted(at::IValue(outputs_));
  }

  const char* title_;
  Tensors outputs_;
  Body body_;
  std::shared_ptr<Turn> turn_;
  std::shared_ptr<Runner> runner_;
  milliseconds timeout_{0};
  int source_ = -1;
  c10::intrusive_ptr<at::ivalue::Future> future_;
};

using CallPointer = c10::intrusive_ptr<Call>;

// Runs calls one after the other: on a thread of its own, or on the caller's thread where nothing stands before. Must be
// closed before it is let go; then it runs nothing.
class Queue : public Runner, public std::enable_shared_from_this<Queue> {
 public:

  // Runs `body` on this thread, as a call that nobody has a hold on, and throws what it throws. False, and nothing is run,
  // where other calls stand before it, or the queue is closed.
  template <class Body>
  bool run_now(const Body& body) {
    std::unique_lock lock(mutex_);
    if (closed_ || busy_ || !calls_.empty()) return false;
    busy_ = true;
    lock.unlock();
    const Busy until_return(*this);
    const at::NoGradGuard no_grad;
    body();
    return true;
  }

  // caller_waits: the caller does nothing before the call is over, so that it may run at once.
  void submit(const CallPointer& call, bool caller_waits) {
    std::unique_lock lock(mutex_);
    if (closed_) {
      lock.unlock();
      call->complete(std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, uint32_t(__LINE__)},
                                                                   "tutti: the process group has been shut down")));
      return;
    }
    if (caller_waits && !busy_ && calls_.empty()) {
      run_one(call, lock);
      return;
    }
    call->stands_in(shared_from_this());
    calls_.push_back(call);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    lock.unlock();
    changed_.notify_one();
  }

  void help(Call& call, milliseconds asked) override {
    if (asked.count() > 0 && call.is_on_device()) return;  // who may give up before the device comes to it
    std::unique_lock lock(mutex_);
    while (!busy_ && !calls_.empty() && !call.has_run()) run_front(lock);
  }

  // Waits for what is enqueued, then refuses.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
  }

 private:
  // The end of a call, however it ends.
  class Busy {
   public:
    explicit Busy(Queue& queue) : queue_(queue) {}
    ~Busy() {
      const std::lock_guard lock(queue_.mutex_);
      queue_.idle();
    }

   private:
    Queue& queue_;
  };
  void idle() {
    busy_ = false;
    if (!calls_.empty() || closed_) changed_.notify_all();
  }
  void run_one(const CallPointer& call, std::unique_lock<std::mutex>& lock) {
    busy_ = true;
    lock.unlock();
    call->run();
    lock.lock();
    idle();
  }
  void run_front(std::unique_lock<std::mutex>& lock) {
    CallPointer call = std::move(calls_.front());
    calls_.pop_front();
    run_one(call, lock);
    lock.unlock();
    call.reset();  // may free tensors, which may need Python's lock
    lock.lock();
  }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !busy_ && (!calls_.empty() || closed_); });
      if (calls_.empty()) return;
      run_front(lock);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CallPointer> calls_;
  bool busy_ = false;
  bool closed_ = false;
  std::thread thread_;
};

inline bool Call::wait(milliseconds timeout) {
  if (runner_ && !has_run()) runner_->help(*this, timeout);
  const milliseconds asked = timeout;
  if (timeout.count() <= 0) timeout = timeout_;
  std::unique_lock lock(mutex_);
  const auto completed = [this] { return completed_; };
  if (timeout.count() <= 0) {
    cv_.wait(lock, completed);
  } else if (!cv_.wait_for(lock, timeout, completed)) {
    lock.unlock();
    raise_not_over(timeout);
  }
  if (exception_) std::rethrow_exception(exception_);
  lock.unlock();
  if (turn_) hold_or_wait(asked);
  return true;
}

// Who says how long waits for the device; else the caller's stream does.
inline void Call::hold_or_wait(milliseconds timeout) {
  turn_->hold();
  if (timeout.count() <= 0) return;
  constexpr std::chrono::microseconds pause{20};
  for (const auto until = std::chrono::steady_clock::now() + timeout; !turn_->passed();
       std::this_thread::sleep_for(pause))
    if (std::chrono::steady_clock::now() > until) raise_not_over(timeout);
}

inline void Call::raise_not_over(milliseconds timeout) const {
  raise(tuttiTimeout, "rank " + std::to_string(rank_) + " waited " + std::to_string(timeout.count()) + " ms for " +
                          title_ + ", which is not over");
}

}  // namespace tutti_torch
