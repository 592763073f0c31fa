// The wait loop: drives a set of communicators until something is done, fails, or the deadline passes.
#pragma once

#include <poll.h>

#include <array>
#include <span>

#include "communicator/communicator.h"

namespace tutti {

enum class WaitResult : uint8_t { done, failed, expired };

// Sleeps until one of the members' descriptors is ready, at most `timeout_ms`. Data path.
void sleep_on(std::span<Communicator* const> members, int timeout_ms) noexcept;

inline constexpr int sleep_ms_max = 100;  // so that clocks and verdicts are looked at even if a wake-up were lost

// Calls `look` (Status()) until it says done or failed, the verdict of a member is out, or a member's deadline passes.
// Between looks it spins, yields or sleeps as the first member's policy says.
template <class Look>
WaitResult drive(std::span<Communicator* const> members, Look look) noexcept {
  Patience patience(members[0]->patience());
  TimeNs timeout_ns = members[0]->timeout_ns();
  for (const Communicator* member : members) timeout_ns = std::min(timeout_ns, member->timeout_ns());
  for (;;) {
    const Status status = look();
    if (status != Status::again) return status == Status::done ? WaitResult::done : WaitResult::failed;
    for (const Communicator* member : members)
      if (member->failure() != nullptr) return WaitResult::failed;
    if (patience.next() == Patience::Next::look) continue;
    if (patience.waited_ns() >= timeout_ns) return WaitResult::expired;
    for (Communicator* member : members) member->arm();
    const Status last_look = look();
    if (last_look == Status::again) {
      const TimeNs left_ms = (timeout_ns - patience.waited_ns()) / ns_per_ms + 1;
      sleep_on(members, int(std::min<TimeNs>(left_ms, sleep_ms_max)));
    }
    for (Communicator* member : members) member->disarm();
    patience.woke();
    if (last_look != Status::again) return last_look == Status::done ? WaitResult::done : WaitResult::failed;
  }
}

}  // namespace tutti
