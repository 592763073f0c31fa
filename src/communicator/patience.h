// How a rank waits: it spins while there are cores for it, then yields, then sleeps.
#pragma once

#include <sched.h>

#include <cstdint>

#include "base/clock.h"
#include "base/cpu.h"

namespace tutti {

struct PatiencePolicy {
  TimeNs spin_ns = 20 * ns_per_us;    // 0: yield at once (more ranks than cores)
  TimeNs yield_ns = 500 * ns_per_us;  // after spinning
  Clock* clock = nullptr;             // null: the machine's
};

// crowded: more ranks than cores, so somebody else has work to do: yield from the start.
inline PatiencePolicy patience_policy(bool crowded, TimeNs spin_ns) {
  PatiencePolicy policy;
  policy.spin_ns = crowded ? 0 : spin_ns;
  return policy;
}

// One wait, perhaps for many things in a row. Does not read the clock in its first rounds: a short wait costs nothing but
// the looking.
class Patience {
 public:
  enum class Next : uint8_t { look, sleep };

  explicit Patience(const PatiencePolicy& policy) : policy_(&policy) {}

  // After a look that found nothing: relaxes the core, or gives it away, or says that it is time to sleep.
  Next next() noexcept {
    if (policy_->spin_ns == 0 || phase_ == Phase::yielding) {
      if (phase_ != Phase::sleeping) yield();
    } else {
      cpu_relax();
    }
    if (++rounds_ % rounds_per_clock == 0) advance();
    return phase_ == Phase::sleeping ? Next::sleep : Next::look;
  }

  // After a look that found something, though not all: patience is as at the start.
  void moved() noexcept {
    phase_ = Phase::spinning;
    idle_since_ns_ = 0;
  }

  // Time since this wait's first clock reading (some µs after its start).
  TimeNs waited_ns() const noexcept { return start_ns_ == 0 ? 0 : last_ns_ - start_ns_; }
  // After a sleep.
  void woke() noexcept { last_ns_ = now(); }

 private:
  enum class Phase : uint8_t { spinning, yielding, sleeping };
  static constexpr uint32_t rounds_per_clock = 64;

  TimeNs now() const noexcept { return policy_->clock == nullptr ? now_ns() : policy_->clock->now(); }
  void yield() const noexcept {
    if (policy_->clock == nullptr) ::sched_yield();
    else policy_->clock->yield();
  }

  void advance() noexcept {
    last_ns_ = now();
    if (start_ns_ == 0) start_ns_ = last_ns_;
    if (idle_since_ns_ == 0) idle_since_ns_ = last_ns_;
    const TimeNs waited = last_ns_ - idle_since_ns_;
    if (waited >= policy_->spin_ns + policy_->yield_ns) phase_ = Phase::sleeping;
    else if (waited >= policy_->spin_ns) phase_ = Phase::yielding;
  }

  const PatiencePolicy* policy_;
  uint32_t rounds_ = 0;
  Phase phase_ = Phase::spinning;
  TimeNs start_ns_ = 0;
  TimeNs idle_since_ns_ = 0;
  TimeNs last_ns_ = 0;
};

}  // namespace tutti
