// Algorithms reach the bounds of bytes and rounds that their rows claim, by counting what they send.
#include "tools/schedule/report.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "algorithms/catalog.h"
#include "base/error.h"
#include "schedule/bounds.h"
#include "schedule/check.h"
#include "schedule/collective.h"
#include "tools/schedule/document.h"

namespace tutti {
namespace {

constexpr double bytes_slack = 1.02;

// What a row claims to reach, counted.
void reaches_its_bounds(const Algorithm& algorithm, int n, int root) {
  if (algorithm.optimal_rounds == Rounds::none && !algorithm.optimal_bytes) return;
  Group group;
  group.n = n;
  group.root = root;
  group.pipeline = algorithm.pipelined ? 4 : 1;
  const std::string who = full_name(algorithm) + " n " + std::to_string(n) + " root " + std::to_string(root);
  const Proof proof = check(algorithm, group, {.slots = 2});
  ASSERT_FALSE(proof.violation) << who << ": " << proof.violation->sentence;
  if (algorithm.optimal_bytes) {
    const double bytes = double(proof.chunks_sent_max) / algorithm.shape(group).output;
    EXPECT_LE(bytes, bytes_slack * bytes_bound(algorithm.collective, n)) << who;
    EXPECT_GE(bytes, bytes_bound(algorithm.collective, n) - 1e-9) << who << ": the bound is none";
  }
  const int bound = rounds_bound(algorithm.optimal_rounds, n);
  if (algorithm.optimal_rounds == Rounds::one) {
    EXPECT_EQ(proof.rounds, bound) << who;
  }
  if (algorithm.optimal_rounds != Rounds::one_partner) return;
  std::vector<Schedule> schedules;
  for (group.rank = 0; group.rank < n; ++group.rank) schedules.push_back(record(algorithm, group));
  EXPECT_EQ(one_partner_rounds(schedules), bound) << who;
  EXPECT_LE(proof.rounds, bound) << who;
}

void all_reach_their_bounds(int n) {
  for (const Algorithm& algorithm : catalog()) {
    reaches_its_bounds(algorithm, n, 0);
    if (meaning(algorithm.collective).rooted) reaches_its_bounds(algorithm, n, n / 2);
  }
}

TEST(Bounds, AreReachedByAFewNumbersOfRanks) {
  for (const int n : {2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 100}) all_reach_their_bounds(n);
}

TEST(Bounds, AreReachedUpTo256) {
  for (int n = 2; n <= 256; ++n) all_reach_their_bounds(n);
}

// No row sends less than the bound of its collective, whatever it claims.
TEST(Bounds, AreBelowEveryAlgorithm) {
  for (const Algorithm& algorithm : catalog())
    for (const int n : {2, 3, 4, 5, 7, 8, 12, 33, 64})
      for (const int pipeline : {1, 2, 5}) {
        Group group;
        group.n = n;
        group.root = n / 2;
        group.pipeline = pipeline;
        EXPECT_GE(algorithm.claim(group).bytes_sent, bytes_bound(algorithm.collective, n) - 1e-9)
            << full_name(algorithm) << " " << n;
      }
}

// Every collective has an algorithm of the fewest rounds and one of the least bytes, so that neither claim is rare.
TEST(Bounds, AreClaimedForEveryCollective) {
  for (const Collective collective : planned_collectives) {
    int rounds = 0, bytes = 0;
    for (const Algorithm& algorithm : catalog()) {
      if (algorithm.collective != collective) continue;
      rounds += algorithm.optimal_rounds != Rounds::none;
      bytes += algorithm.optimal_bytes;
    }
    EXPECT_GE(rounds, 1) << name(collective);
    EXPECT_GE(bytes, 1) << name(collective);
  }
}

TEST(Report, RefusesABoundThatIsClaimedAndMissed) {
  const auto refusal = [](Algorithm row) {
    try {
      prove_all(row, 5, {}, {}, 0);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Algorithm tree = *find_algorithm(Collective::all_reduce, "tree");
  EXPECT_EQ(refusal(tree), "");
  tree.optimal_bytes = true;
  EXPECT_EQ(refusal(tree),
            "all_reduce/tree with 5 ranks, root 0: claims the least bytes, but sends 1.875 times as many");
  Algorithm ring = *find_algorithm(Collective::all_gather, "ring");
  for (const auto& [rounds, sentence] : {std::pair(Rounds::one, "claims the fewest rounds, 1, but needs 4"),
                                         std::pair(Rounds::one_partner, "claims the fewest rounds, 3, but needs 4")}) {
    ring.optimal_rounds = rounds;
    EXPECT_EQ(refusal(ring), std::string("all_gather/ring with 5 ranks, root 0: ") + sentence);
  }
}

TEST(Report, CountsWhatIsProven) {
  Report sum;
  for (int n = 1; n <= 5; ++n)
    sum.add(prove_all(*find_algorithm(Collective::all_reduce, "two_shot"), n, {}, {}, 0));
  EXPECT_EQ(
      to_text(sum),
      "all_reduce/two_shot            n = 1..5: proven (20 proofs, 40 in the memory of all), 2 rounds, 1.000 x least bytes, 0.00 x scratch, 1 "
      "slots, same bits, rank order, left fold");
  const Report tree = prove_all(*find_algorithm(Collective::all_reduce, "double_tree"), 7, {}, {}, 3);
  EXPECT_EQ(tree.proofs, 4);
  EXPECT_FALSE(tree.rank_order);
}

TEST(Report, ThrowsWithTheFirstViolation) {
  Algorithm ring = *find_algorithm(Collective::all_reduce, "ring");
  ring.claim = [](const Group&) { return Claim{1, 1, 1}; };
  try {
    prove_all(ring, 4, {}, {}, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "all_reduce/ring with 4 ranks, root 0, out of place: claims 1 rounds but needs 6");
  }
}

}  // namespace
}  // namespace tutti
