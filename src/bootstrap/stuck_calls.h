// Calls in which nothing moves for long, and how those show that ranks wait for each other in a circle, as where one receives what
// another would send after a collective that the first has yet to call: a state without links, threads or clocks, which Liveness feeds.
//
// A rank that is stuck says in which call, and what it had done before: how many collectives it had begun, and, of who waits to
// receive from it, that it had not sent more than they have received. Calls of a communicator are made one after the other, so it will
// do no more of either until that call ends. Where such calls wait for each other in a circle none of them ever ends: the first to do
// so would need that the next one had. That holds however old what was said is (an AND model of waiting: Chandy, Misra and Haas,
// Distributed Deadlock Detection, 1983).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tutti {

struct StuckCall {
  int rank = -1;
  uint32_t serial = 0;       // counts the stuck calls of that rank
  uint64_t signature = 0;
  bool receives = false;     // from one rank; else the call is a collective
  int first = 0, end = 0;    // the ranks whose part the call cannot end without, itself apart
  uint64_t number = 0;       // of the collective; else how much has come from the sender (Endpoint::passed)
  uint64_t collectives = 0;  // how many that rank has begun
  struct Unserved {
    int receiver;  // has received all that this rank had sent it before the call, and waits for more
    uint32_t serial;
    friend bool operator==(const Unserved&, const Unserved&) = default;
  };
  std::vector<Unserved> unserved;
};

class StuckCalls {
 public:
  explicit StuckCalls(int rank) : rank_(rank) {}

  // This rank's own call; its rank and serial, and whom it leaves unserved, are found out here. sent: by rank, what it has sent to each
  // (Endpoint::passed).
  void stick(StuckCall call, std::vector<uint32_t> sent);
  // Another rank's. True: that is news, and goes on to others.
  bool hear(const StuckCall& call);
  // This rank's own, once after each change: to be told. A collective only once somebody waits to receive who has yet to call it, so
  // that one slow rank, for which all others wait in one, costs no message.
  std::optional<StuckCall> own_news();

  // Each waits for the next, and the last for the first, which has the lowest rank. Empty: none do.
  std::vector<StuckCall> circle() const;

  std::vector<StuckCall> known() const;
  bool empty() const noexcept { return known_.empty(); }

 private:
  void serve(const StuckCall& receiver);
  bool waits_for(const StuckCall& call, const StuckCall& other) const;

  const int rank_;
  std::map<int, StuckCall> known_;  // the last one of each rank
  std::vector<uint32_t> sent_;      // before the own one
  bool has_news_ = false;
};

}  // namespace tutti
