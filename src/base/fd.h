// A file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <utility>

namespace tutti {

// Whose descriptors they are, where they are not the kernel's but simulated.
class Descriptors {
 public:
  virtual void close(int fd) noexcept = 0;

 protected:
  ~Descriptors() = default;
};

// Owns one descriptor, or none (-1). Movable, not copyable.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd, Descriptors* of = nullptr) noexcept : fd_(fd), of_(of) {}
  Fd(Fd&& other) noexcept : fd_(other.release()), of_(other.of_) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this == &other) return *this;
    reset(other.release());
    of_ = other.of_;
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  Descriptors* of() const noexcept { return of_; }  // null: the kernel's
  // Gives the descriptor to the caller, who closes it.
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0 && of_ != nullptr) of_->close(fd_);
    else if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
  Descriptors* of_ = nullptr;
};

}  // namespace tutti
