// What an algorithm is: a row of the catalog.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/signature.h"
#include "schedule/bounds.h"
#include "schedule/plan.h"
#include "schedule/verbs.h"

namespace tutti {

// For whom a schedule is recorded.
struct Group {
  int rank = 0;
  int n = 1;
  int root = 0;                    // rooted collectives only
  int pipeline = 1;                // chunks that a pipelined algorithm keeps in flight; others ignore it
  std::span<const int> host_of{};  // host number of every rank, for hierarchical algorithms; empty: one host
  std::span<const int> core_of{};  // number of the core that a rank is bound to; empty: each has one of its own

  int host(int r) const { return host_of.empty() ? 0 : host_of[size_t(r)]; }
  int core(int r) const { return core_of.empty() ? r : core_of[size_t(r)]; }
};

// What an algorithm claims of itself, proven by the checker to be exact; per rank, the largest. rank_order and left_fold
// may be false where they happen to be true.
struct Claim {
  int rounds = 0;         // messages on the longest chain of dependent messages
  double bytes_sent = 0;  // in units of the whole buffer (count × element bytes)
  int slots = 1;          // messages per FIFO with which the schedule ends; plans need at least 2
  bool rank_order = false;  // every sum is that of the ranks in their order, so that operands need not commute
  // Every sum is made by one rank in one step, of all ranks' inputs in their order: x0 + x1 + x2 + …, from the left. It has
  // the same bits in every algorithm that claims this, and nothing is rounded that other ranks' inputs are yet to join.
  bool left_fold = false;
};

struct Algorithm {
  std::string_view name;  // "ring": what TUTTI_ALGO takes
  Collective collective;
  bool pipelined;  // uses Group::pipeline
  void (*record)(Recorder&, const Group&);
  Shape (*shape)(const Group&);
  Claim (*claim)(const Group&);
  std::string_view sentence;  // what it does and when it is best
  std::string_view source;    // the paper or origin
  // Which lower bounds it reaches for every number of ranks on one host; proven with the rest.
  Rounds optimal_rounds = Rounds::none;
  bool optimal_bytes = false;  // the busiest rank sends bytes_bound()
  bool of_shared_cores = false;  // another one's equal where each rank has a core of its own
};

}  // namespace tutti
