// What the control plane asks of the operating system: sockets, time, threads, the host's name. Where it is null, which is
// everywhere but in simulations, the machine's own is asked.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "bootstrap/bootstrap.h"

namespace tutti {

// One process's. What returns a number behaves as the system call of its name does, errno included; no call blocks but
// poll, sleep_until, wait and join.
class System : public Descriptors {
 public:
  virtual TimeNs now() noexcept = 0;
  virtual void sleep_until(TimeNs time) noexcept = 0;
  virtual std::string host_name() = 0;
  virtual int64_t process_id() = 0;
  virtual std::vector<JobId::Address> addresses() = 0;  // of this host; their ports are 0

  virtual int listen(uint16_t port) noexcept = 0;  // port 0: any
  virtual int accept(int listener) noexcept = 0;
  virtual int connect(const JobId::Address& address) noexcept = 0;  // begun; ready to write: see connect_result
  virtual int connect_result(int fd) noexcept = 0;                  // 0 or an error number
  virtual ssize_t send(int fd, const std::byte* data, size_t bytes) noexcept = 0;
  virtual ssize_t recv(int fd, std::byte* data, size_t bytes) noexcept = 0;
  virtual void finish_output(int fd) noexcept = 0;
  virtual JobId::Address local_address(int fd) noexcept = 0;
  virtual JobId::Address peer_address(int fd) noexcept = 0;
  virtual int make_event() noexcept = 0;       // an eventfd
  virtual void ring(int event) noexcept = 0;   // it is ready to read, until
  virtual void clear(int event) noexcept = 0;
  virtual int poll(std::span<pollfd> fds, TimeNs deadline) noexcept = 0;

  // A thread of this process, by its number.
  virtual uint64_t start(std::function<void()> body) = 0;
  virtual void join(uint64_t thread) noexcept = 0;
  // Until wake(condition), or until the deadline.
  virtual void wait(const void* condition, TimeNs deadline) noexcept = 0;
  virtual void wake(const void* condition) noexcept = 0;

 protected:
  ~System() = default;
};

// Only systems make descriptors that are not the kernel's.
inline System* system_of(const Fd& fd) noexcept { return static_cast<System*>(fd.of()); }

inline TimeNs now_ns(System* system) noexcept { return system == nullptr ? now_ns() : system->now(); }

inline void sleep_until(System* system, TimeNs time) noexcept {
  if (system != nullptr) return system->sleep_until(time);
  std::this_thread::sleep_until(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time)));
}

// A condition variable.
class Condition {
 public:
  using Lock = std::unique_lock<std::mutex>;

  explicit Condition(System* system) : system_(system) {}

  void notify_all() noexcept {
    if (system_ != nullptr) system_->wake(this);
    else condition_.notify_all();
  }
  // What `holds` says at the end.
  template <class Predicate>
  bool wait_until(Lock& lock, TimeNs deadline, Predicate holds) {
    if (system_ == nullptr)
      return condition_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline)), holds);
    while (!holds()) {
      if (system_->now() >= deadline) return false;
      // Simulated threads take turns, so nothing comes between.
      lock.unlock();
      system_->wait(this, deadline);
      lock.lock();
    }
    return true;
  }
  template <class Predicate>
  bool wait_for(Lock& lock, TimeNs time, Predicate holds) {
    return wait_until(lock, now_ns(system_) + time, holds);
  }

 private:
  System* const system_;
  std::condition_variable condition_;
};

// A thread of the control plane, with all signals blocked. It is joined or detached before its end.
class Thread {
 public:
  Thread() = default;
  // Throws Error(system_error).
  Thread(System* system, std::function<void()> body);

  void join() {
    if (system_ != nullptr) system_->join(number_);
    else thread_.join();
  }
  void detach() {
    if (system_ == nullptr) thread_.detach();
  }

 private:
  System* system_ = nullptr;
  uint64_t number_ = 0;
  std::thread thread_;
};

}  // namespace tutti
