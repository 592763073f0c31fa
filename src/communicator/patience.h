// How a rank waits: it spins while there are cores for it, then yields, as long as nobody else has use for the core, then sleeps.
#pragma once

#include <sched.h>

#include <cstdint>

#include "base/clock.h"
#include "base/cpu.h"

namespace tutti {

struct PatiencePolicy {
  TimeNs spin_ns = 20 * ns_per_us;  // 0: yield at once (more ranks than cores)
  // After spinning, while a core that is given away comes back at once. A rank that has slept is woken late, by 7 to 30 µs, often on
  // the core of the rank that woke it, and then they take turns for some ms. So ranks stay awake for as long as ranks are late in
  // most programs; in a wait of a second that is 2 % of a core.
  TimeNs calm_ns = 20 * ns_per_ms;
  // In a wait in which nothing has moved for so long, others are told which call it is.
  TimeNs tell_ns = 250 * ns_per_ms;
  // And for so long, what it waits for, so that ranks which wait for each other are found.
  TimeNs stuck_ns = 2 * ns_per_s;
  Clock* clock = nullptr;  // null: the machine's
};

// crowded: more ranks than cores, so somebody else has work to do: yield from the start.
inline PatiencePolicy patience_policy(bool crowded, TimeNs spin_ns) {
  PatiencePolicy policy;
  policy.spin_ns = crowded ? 0 : spin_ns;
  return policy;
}

// Whether others want the core on which a thread waits, known by how long it is away when it yields. Beside a thread that
// computes that is a slice of the scheduler's (4 ms, mostly) for every two or three looks, while one that sleeps gets the core as
// soon as it is woken. So once a core has been away for long, its thread no longer yields but sleeps, for a while. Not at the first
// slice: two ranks may have been put on one core, and are seen to be too many for it only as long as both want to run.
class CoreDemand {
 public:
  static constexpr TimeNs slice_ns = 200 * ns_per_us;  // no less counts
  static constexpr TimeNs away_max_ns = 12 * ns_per_ms;
  static constexpr TimeNs remembered_ns = ns_per_s;
  static constexpr uint32_t calm_yields = 1'000;  // in a row, and all is forgotten

  bool is_wanted(TimeNs now_ns) const noexcept { return now_ns < wanted_until_ns_; }
  // A yield is over, and took `away_ns`.
  void came_back(TimeNs away_ns, TimeNs now_ns) noexcept {
    if (away_ns < slice_ns) {
      if (++calm_ >= calm_yields) away_ns_ = 0;
      return;
    }
    calm_ = 0;
    away_ns_ += away_ns;
    if (away_ns_ >= away_max_ns) wanted_until_ns_ = now_ns + remembered_ns;  // and then one slice renews it
  }

  // Gives the core away, unless others are known to want it. Whether it came back at once.
  bool yield() noexcept {
    const TimeNs before = tutti::now_ns();
    if (is_wanted(before)) return false;
    ::sched_yield();
    const TimeNs after = tutti::now_ns();
    came_back(after - before, after);
    return after - before < slice_ns;
  }

 private:
  TimeNs away_ns_ = 0;
  TimeNs wanted_until_ns_ = 0;
  uint32_t calm_ = 0;
};

// One wait, perhaps for many things in a row. Does not read the clock in its first rounds: a short wait costs nothing but
// the looking.
class Patience {
 public:
  enum class Next : uint8_t { look, sleep };

  // demand: of this thread, outlives this; null: it yields without asking who else wants the core, as where ranks share cores.
  explicit Patience(const PatiencePolicy& policy, CoreDemand* demand = nullptr)
      : policy_(&policy), demand_(policy.spin_ns > 0 ? demand : nullptr) {}

  // After a look that found nothing: relaxes the core, or gives it away, or says that it is time to sleep.
  Next next() noexcept {
    ++rounds_;
    switch (phase_) {
      case Phase::spinning:
        if (policy_->spin_ns > 0) cpu_relax();
        else yield();
        if (rounds_ % (policy_->spin_ns > 0 ? rounds_per_clock : yields_per_clock) == 0) advance(now());
        break;
      case Phase::yielding:
        // In a long wait seldom: a core next to this one has more use for what a system call takes.
        if (last_ns_ - idle_since_ns_ > policy_->spin_ns + often_ns && rounds_ % rounds_per_yield != 0) cpu_relax();
        else if (demand_ == nullptr && policy_->clock != nullptr && rounds_ % rounds_per_clock != 0) yield();  // asking takes time there
        else yield_and_ask();
        break;
      case Phase::sleeping: break;
    }
    return phase_ == Phase::sleeping ? Next::sleep : Next::look;
  }

  // After a look that found something, though not all: patience is as at the start.
  void moved() noexcept {
    phase_ = Phase::spinning;
    idle_since_ns_ = 0;
  }

  // Time since this wait's first clock reading (some µs after its start).
  TimeNs waited_ns() const noexcept { return start_ns_ == 0 ? 0 : last_ns_ - start_ns_; }
  // Since something moved, or since this wait's first clock reading.
  TimeNs idle_ns() const noexcept { return idle_since_ns_ == 0 ? 0 : last_ns_ - idle_since_ns_; }
  // After a sleep.
  void woke() noexcept { last_ns_ = now(); }

 private:
  enum class Phase : uint8_t { spinning, yielding, sleeping };
  static constexpr uint32_t rounds_per_clock = 64, yields_per_clock = 8, rounds_per_yield = 16;
  static constexpr TimeNs often_ns = 500 * ns_per_us;

  TimeNs now() const noexcept { return policy_->clock == nullptr ? now_ns() : policy_->clock->now(); }
  void yield() const noexcept {
    if (policy_->clock == nullptr) ::sched_yield();
    else policy_->clock->yield();
  }

  void yield_and_ask() noexcept {
    const TimeNs before = demand_ != nullptr ? now() : 0;
    yield();
    const TimeNs after = now();
    if (demand_ != nullptr) demand_->came_back(after - before, after);
    advance(after);
  }

  void advance(TimeNs now_ns) noexcept {
    last_ns_ = now_ns;
    if (start_ns_ == 0) start_ns_ = now_ns;
    if (idle_since_ns_ == 0) idle_since_ns_ = now_ns;
    const TimeNs waited = now_ns - idle_since_ns_;
    if (waited < policy_->spin_ns) return;
    const bool unwelcome = demand_ != nullptr && demand_->is_wanted(now_ns);
    phase_ = unwelcome || waited >= policy_->spin_ns + policy_->calm_ns ? Phase::sleeping : Phase::yielding;
  }

  const PatiencePolicy* policy_;
  CoreDemand* demand_;
  uint32_t rounds_ = 0;
  Phase phase_ = Phase::spinning;
  TimeNs start_ns_ = 0;
  TimeNs idle_since_ns_ = 0;
  TimeNs last_ns_ = 0;
};

}  // namespace tutti
