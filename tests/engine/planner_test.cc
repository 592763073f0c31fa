// The planner: the same choice on all ranks, thresholds that grow, plans made once.
#include "engine/planner.h"

#include <gtest/gtest.h>

#include "algorithms/catalog.h"
#include "base/error.h"

namespace tutti {
namespace {

PlannerOptions options_of(int n, int rank = 0) {
  PlannerOptions options;
  options.rank = rank;
  options.n = n;
  options.costs.n = n;
  options.costs.classes = {LinkCost{200, 50, 0.1}};
  options.costs.link_class.assign(size_t(n) * size_t(n), 0);
  options.costs.step_ns = 5;
  options.costs.copy_byte_ns = 0.05;
  options.costs.reduce_byte_ns = 0.05;
  options.host_of.assign(size_t(n), 0);
  return options;
}

TEST(Planner, GivesTheSamePlanForEveryCallOfAClass) {
  Planner planner(options_of(4));
  const Plan& plan = planner.plan(Collective::all_reduce, 1000, 0, false);
  EXPECT_EQ(&plan, &planner.plan(Collective::all_reduce, 999, 0, false));
  EXPECT_NE(find_algorithm(Collective::all_reduce, plan.algorithm), nullptr);
  EXPECT_FALSE(plan.steps.empty());
}

TEST(Planner, ChoosesAlikeOnEveryRank) {
  for (const int n : {1, 2, 3, 4, 7, 8}) {
    Planner first(options_of(n));
    for (int rank = 1; rank < n; ++rank) {
      Planner other(options_of(n, rank));
      for (size_t bytes = 1; bytes <= (size_t{1} << 30); bytes *= 4) {
        for (const Collective collective : {Collective::all_reduce, Collective::broadcast, Collective::barrier}) {
          const Plan& a = first.plan(collective, bytes, 0, false);
          const Plan& b = other.plan(collective, bytes, 0, true);
          EXPECT_EQ(a.algorithm, b.algorithm);
          EXPECT_EQ(a.shape.output, b.shape.output);
          EXPECT_EQ(a.message_chunks_max, b.message_chunks_max);
        }
      }
    }
  }
}

TEST(Planner, TakesFewRoundsForSmallAndFewBytesForLargeCalls) {
  Planner planner(options_of(8));
  EXPECT_EQ(planner.plan(Collective::all_reduce, 8, 0, false).shape.output, 1u);
  EXPECT_GT(planner.plan(Collective::all_reduce, size_t{64} << 20, 0, false).shape.output, 1u);
}

TEST(Planner, HasAPlanForEveryRootAndPlace) {
  Planner planner(options_of(5, 3));
  for (int root = 0; root < 5; ++root) {
    const Plan& plan = planner.plan(Collective::broadcast, 4096, root, false);
    size_t received = 0;
    for (const Fold& fold : plan.steps) received += fold.n_from;
    EXPECT_EQ(received > 0, root != 3);
  }
  const Plan& apart = planner.plan(Collective::all_reduce, 4096, 0, false);
  EXPECT_NE(&apart, &planner.plan(Collective::all_reduce, 4096, 0, true));
}

TEST(Planner, RunsABarrierAsAnAllReduceWithoutBytes) {
  Planner planner(options_of(4));
  EXPECT_EQ(&planner.plan(Collective::barrier, 0, 0, false), &planner.plan(Collective::all_reduce, 0, 0, false));
}

TEST(Planner, ObeysAForcedNameWhereverItExists) {
  PlannerOptions options = options_of(6);
  options.forced = "ring";
  Planner planner(options);
  for (const size_t bytes : {size_t{0}, size_t{8}, size_t{1} << 30}) {
    EXPECT_EQ(planner.plan(Collective::all_reduce, bytes, 0, false).algorithm, "ring");
    EXPECT_NE(planner.plan(Collective::broadcast, bytes, 0, false).algorithm, "ring");
  }
  options.forced = "double_tree";
  Planner both(options);
  EXPECT_EQ(both.plan(Collective::all_reduce, 8, 0, false).algorithm, "double_tree");
  EXPECT_EQ(both.plan(Collective::broadcast, 8, 0, false).algorithm, "double_tree");
}

TEST(Planner, RefusesANameThatNoCollectiveHasAndListsThoseThatExist) {
  PlannerOptions options = options_of(2);
  options.forced = "rnig";
  try {
    Planner planner(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("rnig"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("recursive_doubling"), std::string::npos);
  }
}

TEST(Planner, ExplainsEveryCandidateBestFirst) {
  const Planner planner(options_of(8));
  const std::vector<Candidate> candidates = planner.explain(Collective::all_reduce, 1 << 20, 0);
  ASSERT_GE(candidates.size(), 7u);
  for (size_t i = 1; i < candidates.size(); ++i) EXPECT_LE(candidates[i - 1].time_ns, candidates[i].time_ns);
  EXPECT_GT(candidates.front().time_ns, 0);
}

TEST(Planner, EstimatesLargeGroups) {
  Planner planner(options_of(500));
  const std::string_view small = planner.plan(Collective::all_reduce, 8, 0, false).algorithm;
  EXPECT_TRUE(small == "recursive_doubling" || small == "tree" || small == "double_tree") << small;
  EXPECT_FALSE(planner.explain(Collective::broadcast, 1 << 20, 7).empty());
}

}  // namespace
}  // namespace tutti
