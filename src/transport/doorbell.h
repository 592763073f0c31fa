// What a sleeping rank waits on, and what others ring: a descriptor that becomes readable.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/error.h"
#include "base/fd.h"

namespace tutti {

// Owned by the communicator, shared by its transports, which pass its descriptor to peers of the same host. Anyone who
// has news for the sleeper (a peer's message, a verdict, an abort) stores the news first and rings then. ring() is for
// any thread and safe in signal handlers.
class Doorbell {
 public:
  // Throws Error(system_error).
  Doorbell() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!fd_.valid())
      throw system_error("cannot make a doorbell (eventfd); where too many files are open, raise `ulimit -n`", errno);
  }

  // Readable while rung; poll it for POLLIN.
  int fd() const noexcept { return fd_.get(); }
  void ring() noexcept { ring(fd_.get()); }
  // Not rung any more. The sleeper calls it after waking and looks for news after that.
  void drain() noexcept {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t result = ::read(fd_.get(), &count, sizeof count);  // fails where it was not rung
  }

  // Rings another process's doorbell through a descriptor that it passed here.
  static void ring(int fd) noexcept {
    const int error_before = errno;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t result = ::write(fd, &one, sizeof one);  // fails only where it rings already
    errno = error_before;
  }

 private:
  Fd fd_;
};

}  // namespace tutti
