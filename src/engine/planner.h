// From a call to a plan: prices a collective at its first call, keeps thresholds, and looks plans up in a few
// nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/signature.h"
#include "schedule/plan.h"
#include "schedule/price.h"
#include "schedule/user_schedule.h"

namespace tutti {

// One algorithm's prediction for one call.
struct Candidate {
  std::string_view algorithm;
  int pipeline = 1;
  double time_ns = 0;  // the mean of a call alone and one of many that follow each other: what the choice goes by
};

struct PlannerOptions {
  int rank = 0;
  int n = 1;
  CostModel costs;             // the same on all ranks: every rank chooses alone and all must choose alike
  std::vector<int> host_of;    // of every rank
  size_t message_bytes_max = 256 * 1024;
  // Of messages of plans by which every rank sends every other one of its own; the same on all ranks. See
  // Transport::spread_bytes_max().
  size_t spread_bytes_max = ~size_t{0};
  // What inputs and outputs of all ranks of this host may have of its last cache together, for Plan::uncached_bytes_min.
  size_t cached_bytes_max = size_t{24} << 20;
  // The same where the kernel copies nothing, if that is less: of sums, in memory that ranks reach themselves, and where nothing is lent.
  size_t kept_bytes_max = ~size_t{0};
  size_t kept_bytes() const noexcept { return std::min(cached_bytes_max, kept_bytes_max); }
  double reached_factor() const noexcept { return double(cached_bytes_max) / double(kept_bytes()); }  // as Plan's
  // Where ranks write at once, outputs are stored to the caches for so many times as much: where copies are good ones to memory,
  // too (reduce/copy.h). Sums and broadcasts only begin later to store past them, broadcasts half as much later.
  size_t cached_copies_factor = 1;
  std::string forced;          // an algorithm's name for every collective that has it; "" none
  const Log* log = nullptr;    // is told where the forced name gives way; outlives the planner
  // Proven, the same on all ranks; they outlive the planner. Those for n ranks are candidates beside the catalog's,
  // where the root is theirs.
  std::span<const UserSchedule> schedules{};
};

// What a call asks of its algorithm, beside being fast.
struct Demand {
  bool rank_order = false;  // operands keep the order of ranks: the operator does not commute
  bool wide = false;        // an element is larger than 64 bytes, up to opaque_bytes_max
  bool left_fold = false;   // sums are made as Claim::left_fold says: then their bits depend on the inputs alone
  bool of_pairs = false;    // only two ranks know a block's size: each goes straight from the one to the other
  // With left_fold: a rank gives several vectors, so its input goes straight to whoever adds it, and lies nowhere else.
  bool several_inputs = false;

  constexpr size_t number() const {
    return size_t{rank_order} + 2 * size_t{wide} + 4 * size_t{left_fold} + 8 * size_t{of_pairs} +
           16 * size_t{several_inputs};
  }
  static constexpr size_t count = 32;
};

// Plans of one step: a message to or from a peer. The sender's input and the receiver's output may have cached_bytes_max of
// a cache. divides: messages of a middling size are cut, though they had room, so that a rank that sends and receives at once can copy
// both ways by turns; the same on both ranks. And what exceeds the cache goes past it as a whole.
struct PointToPointPlans {
  // Of up to bytes_max bytes, and more than the cut before it says.
  struct Cut {
    uint64_t bytes_max, message_bytes_max;
  };
  static constexpr std::array<Cut, 2> cuts{{{128 << 10, 64 << 10}, {512 << 10, 128 << 10}}};

  PointToPointPlans(int peer, bool sending, size_t cached_bytes_max, bool divides, double reached_factor = 1);

  const Plan& of(uint64_t bytes) const noexcept {
    if (bytes <= cuts[0].message_bytes_max) return whole;
    for (size_t i = 0; i < cuts.size(); ++i)
      if (bytes <= cuts[i].bytes_max) return cut[i];
    return whole;
  }

  Plan whole;
  std::array<Plan, cuts.size()> cut;
};

// Not thread-safe: used by the thread that drives the communicator.
class Planner {
 public:
  // Throws Error(invalid_argument) where `forced` names no algorithm of any collective and none of `schedules`; the
  // sentence lists the names.
  explicit Planner(PlannerOptions options);
  ~Planner();

  // The plan for a call of `bytes` bytes: the whole buffer's, all ranks' blocks together; the same on all ranks.
  // in_place: input and output are the same memory. The first call of a (kind, size class, root, in_place) records and
  // lowers, and the first of a kind prices its algorithms (an all_reduce: 120 ms among 64 ranks, 6 ms among 8; so a
  // communicator that is made pays for none of them); later ones only look up. A demand is stronger than a forced name.
  // Every kind has an algorithm for every demand.
  const Plan& plan(Collective collective, size_t bytes, int root, bool in_place, Demand demand = {});

  // The same by an algorithm that the call names: one of named(). Costs a search of the plans made so far.
  const Plan& plan_named(std::string_view algorithm, Collective collective, size_t bytes, int root, bool in_place,
                         Demand demand);

  // An algorithm that a call names: the name, as the catalog or a user's schedule holds it, and its number among those of
  // its collective, from 1, as Terms has it (numbers beyond signature_algorithm_max share that). Throws
  // Error(invalid_argument) where there is none for the collective and root, or it does not meet the demand; the
  // sentence lists those that do. Any thread.
  struct Named {
    std::string_view algorithm;
    uint8_t number;
  };
  Named named(std::string_view algorithm, Collective collective, int root, Demand demand) const;
  // The name of a number; "" where there is none. Any thread.
  std::string_view name_of(Collective collective, int number) const;

  // All candidates for a call, best first, priced now. For tutti-topo --explain.
  std::vector<Candidate> explain(Collective collective, size_t bytes, int root) const;

 private:
  struct Table;
  PlannerOptions options_;
  std::unique_ptr<Table> table_;
};

}  // namespace tutti
