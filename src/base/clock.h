// Time as a number that comes from outside, so that the same code runs on real and on virtual time.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tutti {

// Nanoseconds since an arbitrary start; never goes back.
using TimeNs = int64_t;

inline constexpr TimeNs ns_per_us = 1'000;
inline constexpr TimeNs ns_per_ms = 1'000'000;
inline constexpr TimeNs ns_per_s = 1'000'000'000;

// The machine's monotonic clock (about 20 ns a reading).
inline TimeNs now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What a waiting rank asks for instead of the machine's clock and cores, where it is simulated.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs now() noexcept = 0;
  virtual void yield() noexcept = 0;  // somebody else has work to do
  // Until one of `n` descriptors is ready, as poll(2) does.
  virtual void sleep(pollfd* fds, size_t n, int timeout_ms) noexcept = 0;
};

}  // namespace tutti
