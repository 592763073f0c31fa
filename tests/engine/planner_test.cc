// The planner: the same choice on all ranks, thresholds that grow, plans made once.
#include "engine/planner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithms/catalog.h"
#include "base/error.h"
#include "schedule/check.h"
#include "sanitizer.h"
#include "schedule/collective.h"
#include "topology/cost.h"

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
        for (size_t kind = size_t(Collective::all_reduce); kind < collective_names.size(); ++kind) {
          const Collective collective{uint8_t(kind)};
          if (collective == Collective::send_recv) continue;
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

// However a rank is placed in a plan, and whether in place or not: all must cut alike.
TEST(Planner, BoundsMessagesWhereEveryRankSendsEveryOtherItsOwn) {
  constexpr size_t bound = 16 * 1024;
  const auto bound_of = [&](int n, int rank, Collective collective, std::string_view name, bool in_place) {
    PlannerOptions options = options_of(n, rank);
    options.spread_bytes_max = bound;
    const int root = n / 2;
    return Planner(options).plan_named(name, collective, 1 << 20, root, in_place, {}).message_bytes_max;
  };
  for (const int n : {3, 5, 8}) {
    for (int rank = 0; rank < n; ++rank) {
      for (const bool in_place : {false, true}) {
        for (const auto& [collective, name] : std::vector<std::pair<Collective, std::string_view>>{
                 {Collective::all_to_all, "direct"}, {Collective::all_to_all, "pairwise"},
                 {Collective::reduce_scatter, "direct"}, {Collective::all_reduce, "two_shot"}})
          EXPECT_EQ(bound_of(n, rank, collective, name, in_place), bound) << name;
        for (const auto& [collective, name] : std::vector<std::pair<Collective, std::string_view>>{
                 {Collective::all_gather, "direct"}, {Collective::all_gather, "ring"}, {Collective::broadcast, "direct"},
                 {Collective::scatter, "direct"}, {Collective::gather, "direct"}, {Collective::all_reduce, "one_shot"},
                 {Collective::all_reduce, "ring"}})
          EXPECT_GT(bound_of(n, rank, collective, name, in_place), bound) << name;
      }
    }
  }
  EXPECT_EQ(Planner(options_of(8)).plan_named("direct", Collective::all_to_all, 1 << 20, 0, false, {}).message_bytes_max,
            ~uint64_t{0});
}

TEST(Planner, TakesFewRoundsForSmallAndFewBytesForLargeCalls) {
  Planner planner(options_of(8));
  EXPECT_EQ(planner.plan(Collective::all_reduce, 8, 0, false).shape.output, 1u);
  EXPECT_GT(planner.plan(Collective::all_reduce, size_t{64} << 20, 0, false).shape.output, 1u);
}

TEST(Planner, TakesTheSimplerOfTwoWhosePricesAreCloserThanTheyAreTrue) {
  Planner planner(options_of(2));
  const std::vector<Candidate> candidates = planner.explain(Collective::reduce, 8 << 20, 0);
  ASSERT_EQ(candidates.front().algorithm, "chain");  // by so little
  const auto direct = std::find_if(candidates.begin(), candidates.end(), [](const Candidate& c) { return c.algorithm == "direct"; });
  ASSERT_NE(direct, candidates.end());
  ASSERT_LT(direct->time_ns, 1.01 * candidates.front().time_ns);
  EXPECT_EQ(planner.plan(Collective::reduce, 8 << 20, 0, false).algorithm, "direct");
}

// Each of two ranks sends as many bytes either way, but what it has beforehand goes out in a row.
TEST(Planner, GivesTwoRanksOneShotOverTheLoopback) {
  std::vector<Place> places(2);
  for (int rank = 0; rank < 2; ++rank) places[size_t(rank)].cores_allowed = {rank};
  PlannerOptions options;
  options.n = 2;
  options.host_of.assign(2, 0);
  options.message_bytes_max = 255 << 10;
  options.costs = cost_model(places, std::vector<LinkKind>(4, LinkKind::tcp), {});
  Planner planner(options);
  for (const size_t bytes : {size_t{64} << 10, size_t{1} << 20, size_t{16} << 20, size_t{256} << 20})
    for (const bool in_place : {false, true})
      EXPECT_EQ(planner.plan(Collective::all_reduce, bytes, 0, in_place).algorithm, "one_shot") << bytes;
}

// Whose turn comes late finds the messages of all others complete: one round of many messages is better than few
// messages in many rounds, each of which costs all ranks a turn.
TEST(Planner, PutsSmallCallsOfRanksThatShareCoresInOneRound) {
  for (const int n : {4, 8}) {
    std::vector<Place> places(static_cast<size_t>(n));
    for (Place& place : places) {
      place.cores_allowed = {0, 1};
      place.last_cache = 0;
    }
    PlannerOptions options;
    options.n = n;
    options.host_of.assign(size_t(n), 0);
    options.costs = cost_model(places, std::vector<LinkKind>(size_t(n) * size_t(n), LinkKind::shm), {});
    Planner planner(options);
    for (const size_t bytes : {8, 512, 1024, 2048, 4096})
      EXPECT_EQ(planner.plan(Collective::all_reduce, bytes, 0, false).algorithm, "one_shot") << n << " ranks " << bytes;
    for (const size_t bytes : {512, 4096, 16384})
      for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all})
        EXPECT_EQ(planner.plan(kind, bytes, 0, false).algorithm, "direct") << n << " ranks " << name(kind) << bytes;
  }
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

TEST(Planner, MeetsDemandsEvenAgainstAForcedName) {
  const int many = test::sanitized ? 7 : 31;
  for (const char* forced : {"", "ring", "chain", "circulant", "binomial", "double_tree"})
    for (const int n : {1, 2, 3, 6, 8, many}) {
      PlannerOptions options = options_of(n);
      options.forced = forced;
      options.message_bytes_max = 8192;
      Planner planner(options);
      for (const Collective collective : planned_collectives)
        for (size_t bytes = 1; bytes <= (size_t{1} << 26); bytes *= test::sanitized ? 512 : 8)
          for (const Demand demand : {Demand{true, false}, Demand{false, true}, Demand{true, true},
                                      Demand{false, false, true}, Demand{true, true, true},
                                      Demand{.left_fold = true, .several_inputs = true}}) {
            const Plan& plan = planner.plan(collective, bytes, n - 1, false, demand);
            Group group;
            group.n = n;
            group.root = n - 1;
            const Claim claim = find_algorithm(collective, plan.algorithm)->claim(group);
            EXPECT_TRUE(claim.rank_order || !demand.rank_order || !meaning(collective).reduces) << plan.algorithm;
            EXPECT_TRUE(claim.left_fold || !demand.left_fold || !meaning(collective).reduces) << plan.algorithm;
            EXPECT_TRUE(!demand.wide || plan.message_chunks_max <= 2) << plan.algorithm;
          }
      const std::string_view free = planner.plan(Collective::all_reduce, 1 << 20, 0, false).algorithm;
      EXPECT_TRUE(forced != std::string_view("ring") || free == "ring");
    }
}

// Where only two ranks know how large a block is, whatever is forced.
TEST(Planner, SendsBlocksOfPairsStraight) {
  for (const char* forced : {"", "bruck", "binomial", "pairwise"})
    for (const int n : {1, 2, 3, 6, 31, 100}) {
      PlannerOptions options = options_of(n);
      options.forced = forced;
      Planner planner(options);
      for (const Collective kind : {Collective::gather_v, Collective::scatter_v, Collective::all_to_all_v})
        for (size_t bytes = 1; bytes <= (size_t{1} << 26); bytes *= 32) {
          const Plan& plan = planner.plan(kind, bytes, 0, false, {.of_pairs = true});
          EXPECT_TRUE(plan.algorithm == "direct" || plan.algorithm == "pairwise") << plan.algorithm;
          EXPECT_EQ(plan.message_chunks_max, 1u);
          EXPECT_EQ(plan.shape.scratch, 0u);
        }
    }
}

// Nothing where the cache holds both ends' buffers, everything where one fills it, and in between the first part, or everything where
// messages are divided.
TEST(Planner, SaysFromWhichSizeOnAMessageGoesPastTheCaches) {
  for (const bool sending : {false, true})
    for (const bool divides : {false, true}) {
      const Plan plan = PointToPointPlans(1, sending, 24'000'000, divides).whole;
      EXPECT_EQ(plan.streamed_tiles(11'999'999, 10), 0u);
      EXPECT_GT(plan.streamed_tiles(16'000'000, 10), 0u);
      EXPECT_EQ(plan.streamed_tiles(16'000'000, 10) == 10u, divides);
      EXPECT_EQ(plan.streamed_tiles(24'000'000, 10), 10u);
      EXPECT_EQ(plan.steps.size(), 1u);
      EXPECT_EQ(plan.steps[0].n_to, sending ? 1u : 0u);
      EXPECT_EQ(plan.steps[0].n_from, sending ? 0u : 1u);
    }
}

// Its plans are another algorithm's where each rank has a core.
TEST(Planner, TakesWhatIsForSharedCoresWhereRanksShareThem) {
  const auto algorithm = [](const PlannerOptions& options) {
    Planner planner(options);
    return planner.plan(Collective::all_reduce, 1 << 20, 0, false).algorithm;
  };
  const auto is_candidate = [](const PlannerOptions& options) {
    for (const Candidate& candidate : Planner(options).explain(Collective::all_reduce, 1 << 20, 0))
      if (candidate.algorithm == "by_core") return true;
    return false;
  };
  PlannerOptions options = options_of(8);
  EXPECT_FALSE(is_candidate(options));
  options.costs.contention = 4;
  options.costs.core_of = {0, 0, 0, 0, 4, 4, 4, 4};
  options.costs.classes = {LinkCost{6000, 30, 0.04}, LinkCost{6000, 30, 0.02}};
  for (size_t from = 0; from < 8; ++from)
    for (size_t to = 0; to < 8; ++to) options.costs.link_class[8 * from + to] = from / 4 == to / 4;
  EXPECT_TRUE(is_candidate(options));
  EXPECT_EQ(algorithm(options), "by_core");
  options.costs.core_of.clear();
  EXPECT_EQ(algorithm(options), "two_shot");
  options.forced = "by_core";
  EXPECT_EQ(algorithm(options), "by_core") << "who asks for it has it";
}

// The more buffers all ranks of the host have, the sooner they exceed the cache. What ranks copy of their own goes past it first, and is
// counted no more.
TEST(Planner, SaysFromWhichSizeOnOutputsGoPastTheCaches) {
  constexpr uint64_t never = ~uint64_t{0};
  size_t copies_factor = 1;
  uint64_t uncached = 0, copies = 0;
  const auto from = [&](Collective kind, int n, std::vector<int> hosts = {}) {
    PlannerOptions options = options_of(n);
    options.cached_copies_factor = copies_factor;
    if (!hosts.empty()) options.host_of = std::move(hosts);
    options.cached_bytes_max = 24'000'000;
    Planner planner(options);
    const uint64_t bytes = planner.plan(kind, 1 << 20, 0, false).streamed_bytes_min;
    uncached = planner.plan(kind, 1 << 20, 0, false).uncached_bytes_min;
    copies = planner.plan(kind, 1 << 20, 0, false).copies_streamed_bytes_min;
    EXPECT_EQ(planner.plan(kind, 1 << 20, 0, true).copies_streamed_bytes_min, never) << "in place nothing is copied";
    EXPECT_EQ(planner.plan(kind, 8, 0, false).streamed_bytes_min, bytes) << "whatever plan it is";
    return bytes;
  };
  EXPECT_EQ(from(Collective::all_reduce, 1), 12'000'000u);
  EXPECT_EQ(from(Collective::all_reduce, 2), 6'000'000u);
  EXPECT_EQ(copies, never) << "it copies nothing";
  EXPECT_EQ(from(Collective::reduce_scatter, 4), 4'800'000u);
  EXPECT_EQ(copies, never);
  EXPECT_EQ(from(Collective::all_to_all, 4), 3'428'571u) << "7 of 8 blocks are no copies";
  EXPECT_EQ(copies, 3'000'000u) << "all of them fill the cache";
  EXPECT_EQ(from(Collective::all_gather, 2), 12'000'000u) << "inputs are one block each";
  EXPECT_EQ(copies, 8'000'000u);
  EXPECT_EQ(from(Collective::broadcast, 5), 4'800'000u) << "the root alone has an input";
  EXPECT_EQ(copies, 3'000'000u) << "and it alone copies, so that comes sooner";
  EXPECT_EQ(from(Collective::gather, 2), 13'000'000u) << "the root alone has an output";
  EXPECT_EQ(copies, 9'000'000u);
  EXPECT_EQ(from(Collective::all_reduce, 4, {0, 0, 1, 1}), 6'000'000u) << "others have caches of their own";
  copies_factor = 2;
  EXPECT_EQ(from(Collective::all_to_all, 2), 12'000'000u);
  EXPECT_EQ(copies, never);
  EXPECT_EQ(from(Collective::all_reduce, 2), 12'000'000u);
  EXPECT_EQ(from(Collective::reduce, 2), 8'000'000u) << "the root alone writes an output";
  EXPECT_EQ(from(Collective::broadcast, 5), 6'000'000u) << "its root may write nothing";
  EXPECT_EQ(from(Collective::all_gather, 2), 16'000'000u);
  EXPECT_EQ(uncached, 8'000'000u) << "they exceed the cache all the same";
  EXPECT_EQ(from(Collective::scatter, 2), 24'000'000u) << "the root has a block to copy, too";
  EXPECT_EQ(from(Collective::gather, 2), 12'000'000u) << "the root alone writes an output";
}

// Where less of the caches is kept than the kernel may copy by way of, sums go past them sooner, and what lies in memory that ranks reach.
TEST(Planner, KeepsOfTheCachesWhatItIsToldTo) {
  PlannerOptions options = options_of(2);
  options.cached_bytes_max = 24'000'000;
  const auto from = [&](Collective kind) { return Planner(options).plan(kind, 1 << 20, 0, false).streamed_bytes_min; };
  const auto reached = [&](Collective kind) { return Planner(options).plan(kind, 1 << 20, 0, false).reached_factor; };
  const uint64_t all_to_all = from(Collective::all_to_all), broadcast = from(Collective::broadcast);
  EXPECT_EQ(reached(Collective::all_to_all), 1);
  options.kept_bytes_max = 12'000'000;
  EXPECT_EQ(from(Collective::all_reduce), 3'000'000u) << "two inputs and two outputs";
  EXPECT_EQ(from(Collective::reduce_scatter), 4'000'000u);
  EXPECT_EQ(from(Collective::reduce), 4'000'000u);
  EXPECT_EQ(from(Collective::scan), 3'000'000u);
  EXPECT_EQ(from(Collective::all_to_all), all_to_all);
  EXPECT_EQ(from(Collective::broadcast), broadcast);
  EXPECT_EQ(reached(Collective::all_to_all), 2);
  EXPECT_EQ(reached(Collective::all_reduce), 1) << "it goes past them as soon wherever it lies";
  options.kept_bytes_max = 48'000'000;
  EXPECT_EQ(from(Collective::all_reduce), 6'000'000u) << "what fits is no more for sums than for all";
  EXPECT_EQ(reached(Collective::all_to_all), 1);
}

// What the root of a gather would keep in the caches of its output drives out its inputs, but in place.
TEST(Planner, HasAllOfAGatherGoPastTheCachesOrNothing) {
  constexpr size_t tiles = 10;
  for (const Collective kind : {Collective::gather, Collective::gather_v, Collective::scatter, Collective::reduce})
    for (const size_t factor : {size_t{1}, size_t{2}})
      for (const bool in_place : {false, true}) {
        PlannerOptions options = options_of(2);
        options.cached_bytes_max = 24'000'000;
        options.cached_copies_factor = factor;
        Planner planner(options);
        const Plan& plan = planner.plan(kind, 1 << 20, 0, in_place);
        if (plan.streamed_bytes_min == ~uint64_t{0}) continue;
        EXPECT_EQ(plan.streamed_tiles(plan.streamed_bytes_min - 1, tiles), 0u);
        const bool is_gather = kind == Collective::gather || kind == Collective::gather_v;
        const size_t streamed = plan.streamed_tiles(plan.streamed_bytes_min + plan.streamed_bytes_min / 8, tiles);
        if (is_gather && factor == 1 && !in_place) EXPECT_EQ(streamed, tiles) << name(kind);
        else EXPECT_LT(streamed, tiles) << name(kind);
      }
}

// In place, what is written has just been read: but by the root of a gather, which writes to what it has not read.
TEST(Planner, StoresPastTheCachesInPlaceAtTheRootOfAGatherOnly) {
  for (const int n : {2, 3, 8}) {
    PlannerOptions options = options_of(n);
    options.cached_bytes_max = 24'000'000;
    Planner planner(options);
    for (const Collective kind : {Collective::all_reduce, Collective::reduce, Collective::all_gather, Collective::all_to_all,
                                  Collective::broadcast, Collective::reduce_scatter, Collective::scatter, Collective::scan})
      EXPECT_EQ(planner.plan(kind, 1 << 20, 0, true).streamed_tiles(uint64_t{1} << 40, 10), 0u) << name(kind);
    for (const int root : {0, n - 1}) {
      const Plan& plan = planner.plan(Collective::gather, 1 << 20, root, true);
      const double buffers = 1 + double(n - 1) / n;  // the root's input is a part of its output
      const auto fits = uint64_t(24'000'000 / buffers);
      EXPECT_EQ(plan.streamed_tiles(fits - 1, 10), 0u) << n << ' ' << root;
      EXPECT_GT(plan.streamed_tiles(fits + 4'000'000, 10), 0u) << n << ' ' << root;
      EXPECT_EQ(plan.streamed_tiles(24'000'000, 10), 10u) << n << ' ' << root;
    }
  }
}

// What fits the cache beside the inputs is kept there, so that time grows with size, not by a leap.
TEST(Planner, KeepsTheLastPartOfOutputsInTheCache) {
  PlannerOptions options = options_of(2);
  options.cached_bytes_max = 24'000'000;
  Planner planner(options);
  const auto streamed = [&](Collective kind, uint64_t bytes) {
    return planner.plan(kind, 1 << 20, 0, false).streamed_tiles(bytes, 100);
  };
  EXPECT_EQ(streamed(Collective::all_reduce, 5'999'999), 0u);
  EXPECT_EQ(streamed(Collective::all_reduce, 6'000'000), 0u) << "inputs and outputs fill the cache";
  EXPECT_EQ(streamed(Collective::all_reduce, 8'000'000), 50u) << "16 of 24 are inputs: half of the outputs are left";
  EXPECT_EQ(streamed(Collective::all_reduce, 11'999'999), 100u);
  EXPECT_EQ(streamed(Collective::all_reduce, 12'000'000), 100u) << "inputs fill it";
  EXPECT_EQ(streamed(Collective::all_gather, 12'000'000), 0u) << "12 are inputs, and half of 24 fits: the half that is no copy";
  EXPECT_EQ(streamed(Collective::all_gather, 16'000'000), 50u);
  for (const Collective kind : {Collective::all_gather, Collective::broadcast, Collective::reduce_scatter, Collective::gather}) {
    size_t before = 0;
    for (uint64_t bytes = 1'000'000; bytes < 100'000'000; bytes += 77'777) {
      EXPECT_GE(streamed(kind, bytes), before) << bytes;
      before = streamed(kind, bytes);
    }
    EXPECT_EQ(before, 100u);
  }
  options.cached_copies_factor = 2;
  Planner later(options);
  const auto begins_later = [&](uint64_t bytes) {
    return later.plan(Collective::broadcast, 1 << 20, 0, false).streamed_tiles(bytes, 100);
  };
  EXPECT_EQ(begins_later(12'000'000), 0u);
  EXPECT_EQ(begins_later(16'000'000), 50u);
  EXPECT_EQ(begins_later(24'000'000), 100u) << "as soon as the inputs fill it";
  Plan plan;
  EXPECT_EQ(plan.streamed_tiles(uint64_t{1} << 40, 7), 0u) << "no plan says so by itself";
  plan.streamed_bytes_min = 0;
  EXPECT_EQ(plan.streamed_tiles(0, 7), 7u);
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

TEST(Planner, TakesTheForcedNameForEachKindThatHasItAndChoosesForTheOthers) {
  PlannerOptions options = options_of(5);
  options.forced = "bruck";
  Planner planner(options);
  EXPECT_EQ(planner.plan(Collective::all_gather, 1 << 20, 0, false).algorithm, "bruck");
  Planner free(options_of(5));
  EXPECT_EQ(planner.plan(Collective::all_to_all, 1 << 20, 0, false).algorithm, "bruck");
  for (const Collective other : {Collective::reduce_scatter, Collective::gather, Collective::scan})
    EXPECT_EQ(planner.plan(other, 1 << 20, 0, false).algorithm, free.plan(other, 1 << 20, 0, false).algorithm);
}

TEST(Planner, RunsWhatACallNamesWhateverIsForced) {
  PlannerOptions options = options_of(6);
  options.forced = "ring";
  Planner planner(options);
  for (const char* name : {"tree", "one_shot", "ring", "double_tree"}) {
    const Planner::Named named = planner.named(name, Collective::all_reduce, 0, {});
    EXPECT_EQ(planner.name_of(Collective::all_reduce, named.number), name);
    for (const size_t bytes : {size_t{0}, size_t{1} << 20})
      EXPECT_EQ(planner.plan_named(named.algorithm, Collective::all_reduce, bytes, 0, true, {}).algorithm, name);
  }
  EXPECT_EQ(planner.plan(Collective::all_reduce, 1 << 20, 0, false).algorithm, "ring");
  EXPECT_EQ(planner.name_of(Collective::all_reduce, 0), "");
  EXPECT_EQ(planner.name_of(Collective::all_reduce, 63), "");
}

TEST(Planner, RefusesANameThatACallsCollectiveDoesNotHaveOrThatDoesNotMeetItsDemand) {
  Planner planner(options_of(6));
  const auto refusal = [&](std::string_view name, Collective collective, Demand demand) -> std::string {
    try {
      planner.named(name, collective, 0, demand);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("ring", Collective::all_to_all, {}),
            "algorithm \"ring\" is none of all_to_all: there are direct, pairwise, bruck");
  EXPECT_EQ(refusal("ring", Collective::reduce_scatter, {false, false, true}),
            "algorithm \"ring\" is none of reduce_scatter that adds as this call's determinism asks: there is direct");
  EXPECT_EQ(refusal("bruck", Collective::all_to_all_v, {.of_pairs = true}),
            "algorithm \"bruck\" is none of all_to_all_v that sends each block straight: there are direct, pairwise");
  EXPECT_EQ(refusal("chain", Collective::reduce, {true}),
            "algorithm \"chain\" is none of reduce that keeps the order of ranks: there are direct, binomial, knomial_4, "
            "hierarchical, by_core");
  EXPECT_EQ(refusal("", Collective::reduce, {}).substr(0, 26), "algorithm \"\" is none of re");
  EXPECT_EQ(refusal("two_shot", Collective::all_reduce, {true, true, true}), "");
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

// A catalog's algorithm as a user could have written it.
UserSchedule written(Collective collective, std::string_view algorithm, std::string name, int n, int root = 0) {
  const Algorithm& row = *find_algorithm(collective, algorithm);
  Group group{0, n, root, 1, {}};
  UserSchedule schedule{name + ".json", name, "", collective, root, row.shape(group), {}, {}};
  for (group.rank = 0; group.rank < n; ++group.rank) schedule.ranks.push_back(record(row, group));
  prove(schedule);
  return schedule;
}

TEST(Planner, ChoosesAUsersScheduleByItsPrice) {
  PlannerOptions options = options_of(8);
  const std::string_view cheapest = Planner(options).plan(Collective::all_reduce, size_t{64} << 20, 0, false).algorithm;
  const std::vector<UserSchedule> schedules = {written(Collective::all_reduce, cheapest, "mine", 8),
                                               written(Collective::all_reduce, "ring", "other", 4)};
  options.schedules = schedules;
  Planner planner(options);
  // At equal prices, what the user wrote is taken.
  EXPECT_EQ(planner.plan(Collective::all_reduce, size_t{64} << 20, 0, false).algorithm, "mine");
  EXPECT_NE(planner.plan(Collective::all_reduce, 8, 0, false).algorithm, "mine");
  const std::vector<Candidate> candidates = planner.explain(Collective::all_reduce, size_t{64} << 20, 0);
  EXPECT_EQ(candidates.front().algorithm, "mine");
  EXPECT_DOUBLE_EQ(candidates[0].time_ns, candidates[1].time_ns);
  for (const Candidate& candidate : candidates) EXPECT_NE(candidate.algorithm, "other");
}

TEST(Planner, TakesAUsersScheduleForItsRootOnly) {
  PlannerOptions options = options_of(5, 3);
  options.forced = "mine";
  const std::vector<UserSchedule> schedules = {written(Collective::broadcast, "chain", "mine", 5, 2)};
  options.schedules = schedules;
  for (const bool forced : {true, false}) {
    if (!forced) options.forced.clear();
    Planner planner(options), plain(options_of(5, 3));
    for (int root = 0; root < 5; ++root) {
      const std::string_view chosen = planner.plan(Collective::broadcast, 1 << 20, root, false).algorithm;
      if (root == 2) {
        EXPECT_TRUE(!forced || chosen == "mine");
      } else {
        EXPECT_EQ(chosen, plain.plan(Collective::broadcast, 1 << 20, root, false).algorithm);
      }
    }
  }
}

TEST(Planner, TakesAForcedUsersScheduleWhereverItFits) {
  PlannerOptions options = options_of(6);
  options.forced = "mine";
  const std::vector<UserSchedule> schedules = {written(Collective::all_reduce, "tree", "mine", 6),
                                               written(Collective::all_gather, "ring", "mine", 6),
                                               written(Collective::all_reduce, "tree", "mine", 3)};
  options.schedules = schedules;
  Planner planner(options);
  EXPECT_EQ(planner.plan(Collective::all_reduce, size_t{64} << 20, 0, true).algorithm, "mine");
  EXPECT_EQ(planner.plan(Collective::barrier, 0, 0, false).algorithm, "mine");
  EXPECT_EQ(planner.plan(Collective::all_gather, 8, 0, false).algorithm, "mine");
  EXPECT_NE(planner.plan(Collective::broadcast, 8, 0, false).algorithm, "mine");
  // A known name of other numbers of ranks leaves the choice free.
  options.n = options.costs.n = 2;
  options.costs.link_class.assign(4, 0);
  options.host_of.assign(2, 0);
  EXPECT_NE(find_algorithm(Collective::all_reduce, Planner(options).plan(Collective::all_reduce, 8, 0, true).algorithm),
            nullptr);
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

// Both sides cut alike, whatever else they do, for both look at the size alone.
TEST(PointToPointPlans, CutMessagesOfAMiddlingSize) {
  constexpr uint64_t kib = 1 << 10, not_cut = ~uint64_t{0};
  const PointToPointPlans send(1, true, 1 << 20, true), receive(0, false, 1 << 20, true), whole(1, true, 1 << 20, false);
  for (const auto& [bytes, message_bytes_max] :
       {std::pair{0 * kib, not_cut}, {uint64_t{1}, not_cut}, {64 * kib, not_cut}, {64 * kib + 1, 64 * kib}, {128 * kib, 64 * kib},
        {128 * kib + 1, 128 * kib}, {512 * kib, 128 * kib}, {512 * kib + 1, not_cut}, {uint64_t{1} << 40, not_cut}}) {
    for (const PointToPointPlans* plans : {&send, &receive}) {
      EXPECT_EQ(plans->of(bytes).message_bytes_max, message_bytes_max) << bytes;
      EXPECT_EQ(plans->of(bytes).small_bytes_max, message_bytes_max) << bytes;
    }
    EXPECT_EQ(whole.of(bytes).message_bytes_max, not_cut) << bytes;
  }
}

}  // namespace
}  // namespace tutti
