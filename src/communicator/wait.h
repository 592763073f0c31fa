// The wait loop: drives a set of communicators until something is done, fails, or the deadline passes.
#pragma once

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <span>

#include "communicator/calling_thread.h"
#include "communicator/communicator.h"

namespace tutti {

enum class WaitResult : uint8_t { done, failed, expired };
// How long nothing has moved: PatiencePolicy's tell_ns, or stuck_ns.
enum class Stall : uint8_t { none, waits, is_stuck };

// Sleeps until one of the members' descriptors is ready, at most `timeout_ms`. Data path.
void sleep_on(std::span<Communicator* const> members, int timeout_ms) noexcept;

// How long to sleep at most: as long as the wait has lasted so far, and never longer than 100 ms. Where a kernel's
// membarrier misses a core (see ShmTransport::arm), a lost wake-up then doubles one wait and hangs nothing.
inline int sleep_ms(TimeNs waited_ns, TimeNs left_ns) noexcept {
  return int(std::min(std::clamp<TimeNs>(waited_ns, ns_per_ms, 100 * ns_per_ms), left_ns) / ns_per_ms) + 1;
}

// Whether a peer that was told to leave this rank's memory is out of it, at the latest at `until`. One that is gone is not waited
// for, and one in this process always: a thread may be slow, but it cannot stop alone.
inline bool await_leaving(const Endpoint& peer, bool is_gone, TimeNs until) noexcept {
  while (peer.is_entered() && (peer.shares_process() || (!is_gone && now_ns() < until))) ::sched_yield();
  return !peer.is_entered();
}

// Where ranks share cores: gives the core to others a few times, while it comes back at once, and looks (Status()) after each. For
// who must not wait long.
template <class Look>
Status look_after_turns(Status status, Look look) noexcept {
  constexpr int turns_max = 4;
  CoreDemand& demand = CallingThread::current().core_demand;
  bool at_once = true;
  for (int turn = 0; turn < turns_max && at_once && status == Status::again; ++turn) {
    at_once = demand.yield();
    status = look();
  }
  return status;
}

// Calls `look` (Status()) until it says done or failed, the verdict of a member is out, or `timeout_ns` (TimeNs(), asked
// again after each sleep) has passed since the wait began. Calls `tell` (void(Stall)) where nothing has moved for long. Between
// looks it spins, yields or sleeps as the first member's policy says, anew whenever `position` (uint64_t()) says that
// something moved: one stall of a long operation is as short as another.
template <class Timeout, class Look, class Position, class Tell>
WaitResult drive(std::span<Communicator* const> members, Timeout timeout_ns, Look look, Position position,
                 Tell tell) noexcept {
  const PatiencePolicy& policy = members[0]->patience();
  // Ranks in virtual time share a thread.
  Patience patience(policy, policy.clock == nullptr ? &CallingThread::current().core_demand : nullptr);
  uint64_t last_position = position();
  Stall told = Stall::none;
  for (;;) {
    const Status status = look();
    if (status != Status::again) return status == Status::done ? WaitResult::done : WaitResult::failed;
    const uint64_t now_at = position();
    if (now_at != last_position) {
      patience.moved();
      told = Stall::none;
    }
    last_position = now_at;
    for (const Communicator* member : members)
      if (member->failure() != nullptr) return WaitResult::failed;
    // What moves again and again, and never long enough rests to sleep, has a deadline too.
    if (patience.next() == Patience::Next::look && patience.waited_ns() < timeout_ns()) continue;
    const TimeNs left_ns = timeout_ns() - patience.waited_ns();
    if (left_ns <= 0) return WaitResult::expired;
    if (told == Stall::none && patience.idle_ns() >= policy.tell_ns) tell(told = Stall::waits);
    else if (told == Stall::waits && patience.idle_ns() >= policy.stuck_ns) tell(told = Stall::is_stuck);
    for (Communicator* member : members) member->arm();
    const Status last_look = look();
    if (last_look == Status::again) sleep_on(members, sleep_ms(patience.waited_ns(), left_ns));
    for (Communicator* member : members) member->disarm();
    patience.woke();
    if (last_look != Status::again) return last_look == Status::done ? WaitResult::done : WaitResult::failed;
  }
}

}  // namespace tutti
