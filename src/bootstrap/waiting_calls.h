// Calls that ranks wait in for long, and how those show that calls do not match although no message of one rank's ever meets
// one of another's: a state without links, threads or clocks, which Liveness feeds.
//
// All ranks number the collective calls of a communicator alike, from 0. Who waits for long in one of them tells all which it
// is, unless it has heard of that already. Whoever hears of two different calls with one number, one of them its own perhaps,
// be it over or not, has found a mismatch. Who has not come to that number yet looks again later.
//
// All may have gone on from calls that do not match, and then stand in one that does: where messages of the former, which nobody
// takes, fill what leads to a rank. So the calls before are told along.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "bootstrap/bootstrap.h"

namespace tutti {

struct WaitingCall {
  int rank = -1;
  uint64_t number = 0;
  uint64_t signature = 0;
  std::vector<uint64_t> before;  // signatures of the calls before it, the last one first: as many as are known, or told
};

// "rank 0 called barrier() while rank 1 called …"
std::string differing_calls(std::string_view rank, std::string_view call, std::string_view other, std::string_view others_call);

class WaitingCalls {
 public:
  static constexpr size_t calls_max = 64;   // that are kept, those with the highest numbers
  static constexpr size_t before_max = 64;  // calls that are told along with one

  explicit WaitingCalls(int rank) : rank_(rank) {}

  void compare_with(OwnCalls own) { own_ = std::move(own); }
  // This rank's call, to be told.
  WaitingCall own(uint64_t number, uint64_t signature) const;
  // Another rank waits in this call, or this one does. True: that is news, and goes on to others.
  bool hear(const WaitingCall& call, TimeNs now);
  // Two calls of one number that differ, the first ones that do, the lower rank's before the other's.
  using Pair = std::array<WaitingCall, 2>;
  std::optional<Pair> look(TimeNs now);
  // When to look again: this rank may have come to more of them by then. None: only once there is news.
  std::optional<TimeNs> look_again_ns() const;

  bool empty() const noexcept { return known_.empty(); }
  std::vector<WaitingCall> known() const;
  std::string describe(uint64_t signature) const;

 private:
  struct Known {
    WaitingCall call;
    TimeNs heard_ns = 0;
    bool matches = false;  // this rank's own call
  };
  const int rank_;
  OwnCalls own_;
  std::map<uint64_t, Known> known_;  // by number
  std::optional<Pair> differing_;
  TimeNs looked_ns_ = 0;
};

}  // namespace tutti
