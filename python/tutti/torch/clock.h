// A clock that ticks as long as calls are made.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti_torch {

// Calls look() every now and then, and sleeps when a while has passed without calls.
class Clock {
 public:
  explicit Clock(std::function<void()> look) : look_(std::move(look)) {}
  ~Clock() { close(); }

  // After a call was made.
  void tell() {
    calls_.fetch_add(1);  // before it is asked whether the clock ticks; rest() does the opposite
    if (ticks_.load()) return;
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    if (!thread_.joinable()) thread_ = std::thread([this] { be_thread(); });
    changed_.notify_all();
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  static constexpr std::chrono::microseconds pause{100};
  static constexpr int looks_max = 50;  // without a new call

  void be_thread() {
    std::unique_lock lock(mutex_);
    for (uint64_t seen = 0; !closed_;) {
      rest(lock, seen);
      for (int looks = 0; looks < looks_max && !closed_; ++looks) {
        changed_.wait_for(lock, pause);
        lock.unlock();
        look_();
        lock.lock();
        if (calls_.load() != seen) looks = 0;
        seen = calls_.load();
      }
    }
  }
  void rest(std::unique_lock<std::mutex>& lock, uint64_t seen) {
    ticks_.store(false);
    changed_.wait(lock, [&] { return closed_ || calls_.load() != seen; });
    ticks_.store(true);
  }

  std::function<void()> look_;
  std::atomic<uint64_t> calls_{0};
  std::atomic<bool> ticks_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace tutti_torch
