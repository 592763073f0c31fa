// A counter in memory that threads of any process share; who waits for it sleeps in the kernel.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>
#include <type_traits>

#include "base/clock.h"

namespace tutti {

// Zeroed memory is a counter that stands at 0. It wraps at 2^32. A line of its own, so that two that raise different
// counters do not meet.
class alignas(64) SharedCounter {
 public:
  // What the caller wrote before is seen by whoever sees the counter raised. A system call only where somebody sleeps.
  // The counter must outlive the call, though a waiter may be gone by then.
  void raise() noexcept {
    value_.fetch_add(1, std::memory_order_seq_cst);  // pairs with value(); and before the look at sleepers_
    if (sleepers_.load(std::memory_order_seq_cst) != 0) futex(FUTEX_WAKE, INT_MAX, nullptr);
  }
  uint32_t value() const noexcept { return value_.load(std::memory_order_acquire); }  // pairs with raise

  // Sleeps for at most `longest_ns`, and not at all where the counter does not stand at `seen`. May wake for nothing.
  void sleep_at(uint32_t seen, TimeNs longest_ns) noexcept {
    const timespec longest{time_t(longest_ns / ns_per_s), long(longest_ns % ns_per_s)};
    sleepers_.fetch_add(1, std::memory_order_seq_cst);  // before the kernel's look at value_; pairs with raise
    futex(FUTEX_WAIT, seen, &longest);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  // Not the private kind: the sleeper may be another process.
  void futex(int operation, uint32_t number, const timespec* longest) noexcept {
    ::syscall(SYS_futex, &value_, operation, number, longest, nullptr, 0);
  }

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};
static_assert(sizeof(SharedCounter) == 64 && std::is_trivially_destructible_v<SharedCounter>);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

}  // namespace tutti
