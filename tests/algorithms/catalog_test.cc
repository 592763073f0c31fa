// Every algorithm of the catalog is proven for 1 to 64 ranks, every root, in place and not, as schedules and as plans.
#include "algorithms/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/check.h"
#include "schedule/print.h"

namespace tutti {
namespace {

std::string name_of(const Algorithm& algorithm) {
  return std::string(name(algorithm.collective)) + "_" + std::string(algorithm.name);
}

class EveryAlgorithm : public testing::TestWithParam<size_t> {
 protected:
  const Algorithm& algorithm() const { return catalog()[GetParam()]; }

  // The four readings; their expressions must agree, so that ranks may differ in whether they work in place.
  void proves(const Group& group) const {
    std::array<Proof, 4> proofs;
    for (int mode = 0; mode < 4; ++mode) {
      CheckOptions options;
      options.lowered = mode & 1;
      options.in_place = mode & 2;
      options.slots = options.lowered ? 2 : algorithm().claim(group).slots;
      options.repeat = options.lowered ? 2 : 1;
      proofs[size_t(mode)] = check(algorithm(), group, options);
      const Proof& proof = proofs[size_t(mode)];
      ASSERT_FALSE(proof.violation) << "n " << group.n << " root " << group.root << " pipeline " << group.pipeline
                                    << " mode " << mode << ": " << proof.violation->sentence;
      EXPECT_EQ(proof.expression, proofs[0].expression);
    }
    EXPECT_EQ(proofs[0].passes, proofs[2].passes);
    EXPECT_EQ(proofs[1].passes, proofs[3].passes) << "n " << group.n;
  }
};

TEST_P(EveryAlgorithm, IsProvenForUpTo64RanksAndEveryRoot) {
  for (int n = 1; n <= 64; ++n) {
    const int roots = meaning(algorithm().collective).rooted ? n : 1;
    for (int root = 0; root < roots; ++root) {
      Group group;
      group.n = n;
      group.root = root;
      group.pipeline = algorithm().pipelined ? 1 + (n + root) % 4 : 1;
      proves(group);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(EveryAlgorithm, IsProvenForLongPipelines) {
  if (!algorithm().pipelined) return;
  for (int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 64})
    for (int pipeline : {5, 8, 9, 16, 31, 64}) {
      Group group;
      group.n = n;
      group.root = n / 3;
      group.pipeline = pipeline;
      proves(group);
      if (HasFatalFailure()) return;
    }
}

TEST_P(EveryAlgorithm, IsProvenForMoreThan64Ranks) {
  for (int n : {65, 100, 129}) {
    Group group;
    group.n = n;
    group.root = meaning(algorithm().collective).rooted ? n - 2 : 0;
    group.pipeline = algorithm().pipelined ? 6 : 1;
    proves(group);
    if (HasFatalFailure()) return;
  }
}

// Algorithms that know which ranks are near each other: on one host, or on one core.
class BySite : public EveryAlgorithm {
 protected:
  // With the first, the last, the middle and one more rank as root.
  void proves_on(const std::vector<int>& sites) const {
    Group group;
    group.n = int(sites.size());
    (algorithm().of_shared_cores ? group.core_of : group.host_of) = sites;
    group.pipeline = algorithm().pipelined ? 1 + group.n % 3 : 1;
    std::set<int> roots = {0};
    if (meaning(algorithm().collective).rooted) roots = {0, group.n - 1, group.n / 2, group.n / 3};
    for (const int root : roots) {
      group.root = root;
      proves(group);
    }
  }
};

TEST_P(BySite, IsProvenForEqualSitesInAnyOrder) {
  for (int sites = 1; sites <= 8; ++sites)
    for (int each = 1; each <= 8; ++each) {
      std::vector<int> blocks, dealt;
      for (int r = 0; r < sites * each; ++r) {
        blocks.push_back(r / each);
        dealt.push_back(r % sites * 7 - 3);  // sites' numbers are any numbers
      }
      proves_on(blocks);
      proves_on(dealt);
      if (HasFatalFailure()) return;
    }
}

TEST_P(BySite, IsProvenForUnevenSites) {
  const uint64_t seed = 11;
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    std::vector<int> sites(1 + random() % 24);
    const size_t n_sites = 1 + random() % 6;
    for (int& site : sites) site = int(random() % n_sites);
    proves_on(sites);
    if (HasFatalFailure()) FAIL() << "seed " << seed << " case " << i;
  }
}

class Hierarchical : public EveryAlgorithm {};

TEST_P(Hierarchical, CrossesBetweenHostsWithTheLeastBytes) {
  // Two hosts of four: of an all_reduce each byte leaves a host once (for the sum, or for the result), of a broadcast
  // the root's host, of a reduce the other one; of an all_gather what is each host's.
  const std::vector<int> hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  Group group;
  group.n = 8;
  group.host_of = hosts;
  group.root = 2;
  const uint64_t all = algorithm().shape(group).output;
  const Collective kind = algorithm().collective;
  for (const int host : {0, 1}) {
    uint64_t chunks = 0;
    for (group.rank = host * 4; group.rank < host * 4 + 4; ++group.rank)
      for (const Step& step : record(algorithm(), group))
        if (step.verb == Verb::send && hosts[step.peer] != host) chunks += step.a.count;
    const bool silent = (kind == Collective::broadcast && host == 1) || (kind == Collective::reduce && host == 0);
    EXPECT_EQ(chunks, silent ? 0 : kind == Collective::all_gather ? all / 2 : all);
  }
}

class ByCore : public EveryAlgorithm {};

TEST_P(ByCore, OnlyTheFirstRankOfACoreSendsToAnother) {
  const std::vector<int> cores = {0, 0, 0, 3, 3, 5, 5, 5};
  Group group;
  group.n = 8;
  group.core_of = cores;
  for (group.rank = 0; group.rank < 8; ++group.rank) {
    const int own = cores[size_t(group.rank)];
    for (const Step& step : record(algorithm(), group)) {
      if (step.verb == Verb::send && group.rank != own) { EXPECT_EQ(int(step.peer), own); }
    }
  }
}

// An operator that does not commute has an algorithm everywhere: the claims below are proven by all tests above.
TEST(Catalog, KeepsTheOrderOfRanksInSomeAlgorithmOfEveryReduction) {
  const auto claims = [](Collective c, std::string_view name, int n, std::vector<int> hosts = {}) {
    Group group;
    group.n = n;
    group.host_of = hosts;
    return find_algorithm(c, name)->claim(group).rank_order;
  };
  for (int n = 1; n <= 64; ++n) {
    for (const char* name : {"one_shot", "two_shot", "tree"}) EXPECT_TRUE(claims(Collective::all_reduce, name, n));
    for (const char* name : {"direct", "binomial"}) EXPECT_TRUE(claims(Collective::reduce, name, n));
    EXPECT_TRUE(claims(Collective::reduce, "knomial_4", n));
    EXPECT_TRUE(claims(Collective::all_reduce, "halving_doubling", n));
    EXPECT_TRUE(claims(Collective::reduce_scatter, "direct", n));
    for (const Algorithm& row : catalog())
      if (row.collective == Collective::scan || row.collective == Collective::exscan) {
        EXPECT_TRUE(claims(row.collective, row.name, n));
      }
    EXPECT_EQ(claims(Collective::all_reduce, "recursive_doubling", n), std::has_single_bit(unsigned(n)));
    EXPECT_FALSE(claims(Collective::all_reduce, "ring", n));
  }
  const std::vector<int> in_order = {0, 0, 2, 2}, dealt = {0, 1, 0, 1};
  for (const bool are_in_order : {true, false}) {
    Group group;
    group.n = 4;
    group.core_of = are_in_order ? in_order : dealt;
    for (const Collective kind : {Collective::all_reduce, Collective::reduce})
      EXPECT_EQ(find_algorithm(kind, "by_core")->claim(group).rank_order, are_in_order);
  }
  for (const Collective kind : {Collective::all_reduce, Collective::reduce}) {
    EXPECT_TRUE(claims(kind, "hierarchical", 5, {7, 7, 3, 3, 3}));
    EXPECT_FALSE(claims(kind, "hierarchical", 4, {0, 1, 0, 1}));
  }
}

// Strict determinism has an algorithm everywhere; the claims are proven by all tests above.
TEST(Catalog, AddsAllInputsInOneStepInSomeAlgorithmOfEveryReduction) {
  const auto claims = [](Collective c, std::string_view name, int n, std::vector<int> hosts = {}) {
    Group group;
    group.n = n;
    group.host_of = hosts;
    return find_algorithm(c, name)->claim(group).left_fold;
  };
  for (int n = 1; n <= 257; ++n) {
    for (const char* name : {"one_shot", "two_shot"}) EXPECT_TRUE(claims(Collective::all_reduce, name, n));
    EXPECT_TRUE(claims(Collective::reduce, "direct", n));
    EXPECT_TRUE(claims(Collective::reduce_scatter, "direct", n));
  }
  EXPECT_TRUE(claims(Collective::all_reduce, "hierarchical", 4));
  EXPECT_TRUE(claims(Collective::all_reduce, "hierarchical", 3, {4, 0, 2}));
  EXPECT_FALSE(claims(Collective::all_reduce, "hierarchical", 4, {0, 0, 1, 1}));
  EXPECT_FALSE(claims(Collective::all_reduce, "tree", 8));
  for (const Algorithm& row : catalog())
    for (int n = 1; n <= 64; ++n) {
      Group group;
      group.n = n;
      const Claim claim = row.claim(group);
      EXPECT_TRUE(claim.rank_order || !claim.left_fold) << name_of(row);
    }
}

TEST(Catalog, TheProofSeesWhoKeepsTheOrderOfRanks) {
  const auto in_order = [](Collective c, std::string_view name, int n) {
    Group group;
    group.n = n;
    return check(*find_algorithm(c, name), group).in_rank_order;
  };
  EXPECT_TRUE(in_order(Collective::all_reduce, "one_shot", 7));
  EXPECT_FALSE(in_order(Collective::all_reduce, "ring", 3));
  EXPECT_FALSE(in_order(Collective::all_reduce, "recursive_doubling", 6));
  EXPECT_FALSE(in_order(Collective::all_reduce, "double_tree", 8));
  EXPECT_FALSE(in_order(Collective::reduce, "chain", 4));
  EXPECT_FALSE(in_order(Collective::reduce_scatter, "circulant", 5));
}

TEST(Catalog, FindsByNameAndListsItsNames) {
  for (const Algorithm& row : catalog()) {
    EXPECT_EQ(find_algorithm(row.collective, row.name), &row);
    EXPECT_NE(algorithm_names(row.collective).find(row.name), std::string_view::npos);
    EXPECT_FALSE(row.sentence.empty() || row.source.empty());
  }
  EXPECT_EQ(find_algorithm(Collective::barrier, "tree"), find_algorithm(Collective::all_reduce, "tree"));
  EXPECT_EQ(find_algorithm(Collective::broadcast, "ring"), nullptr);
  EXPECT_EQ(algorithm_names(Collective::send_recv), "");
}

// The smallest messages need the fewest rounds that the field knows of, the largest the fewest bytes.
TEST(Catalog, PairwiseMeetsEveryPartnerOnceInTheFewestRounds) {
  for (int n = 2; n <= 64; ++n) {
    const int rounds = n % 2 == 0 ? n - 1 : n;
    std::vector<std::vector<int>> partners(static_cast<size_t>(n));
    Group group;
    group.n = n;
    for (group.rank = 0; group.rank < n; ++group.rank)
      for (const Step& step : record(*find_algorithm(Collective::all_to_all, "pairwise"), group))
        if (step.verb == Verb::send) partners[size_t(group.rank)].push_back(int(step.peer));
    // Played as a tournament: in each round whoever has a partner that also waits for it meets it.
    std::vector<size_t> met(size_t(n), 0);
    int played = 0;
    for (bool any = true; any; played += any) {
      any = false;
      std::vector<size_t> after = met;
      for (int rank = 0; rank < n; ++rank) {
        if (met[size_t(rank)] == partners[size_t(rank)].size()) continue;
        const int partner = partners[size_t(rank)][met[size_t(rank)]];
        if (met[size_t(partner)] == partners[size_t(partner)].size()) continue;
        if (partners[size_t(partner)][met[size_t(partner)]] != rank) continue;
        ++after[size_t(rank)];
        any = true;
      }
      met = after;
    }
    EXPECT_EQ(played, rounds) << n;
    for (int rank = 0; rank < n; ++rank) EXPECT_EQ(met[size_t(rank)], size_t(n) - 1) << rank << " of " << n;
  }
}

TEST(Catalog, ReachesTheLowerBounds) {
  for (int n = 2; n <= 64; ++n) {
    Group group;
    group.n = n;
    group.pipeline = 64;
    const auto claim = [&](Collective c, std::string_view name) { return find_algorithm(c, name)->claim(group); };
    EXPECT_EQ(claim(Collective::all_reduce, "one_shot").rounds, 1);
    EXPECT_DOUBLE_EQ(claim(Collective::all_reduce, "two_shot").bytes_sent, 2.0 * (n - 1) / n);
    EXPECT_DOUBLE_EQ(claim(Collective::all_reduce, "ring").bytes_sent, 2.0 * (n - 1) / n);
    EXPECT_LE(claim(Collective::all_reduce, "double_tree").bytes_sent, 2.0);
    EXPECT_LE(claim(Collective::broadcast, "double_tree").bytes_sent, 1.0);
    EXPECT_LE(claim(Collective::broadcast, "chain").bytes_sent, 1.0);
    const int rounds = int(std::bit_width(unsigned(n - 1)));
    for (const char* name : {"circulant", "bruck", "direct", "ring"}) {
      EXPECT_DOUBLE_EQ(claim(Collective::all_gather, name).bytes_sent, double(n - 1) / n);
      if (name == std::string_view("bruck")) continue;
      EXPECT_DOUBLE_EQ(claim(Collective::reduce_scatter, name).bytes_sent, double(n - 1) / n);
    }
    EXPECT_LE(claim(Collective::all_gather, "circulant").rounds, rounds);
    EXPECT_LE(claim(Collective::all_gather, "bruck").rounds, rounds);
    EXPECT_LE(claim(Collective::reduce_scatter, "circulant").rounds, rounds);
    EXPECT_LE(claim(Collective::all_reduce, "circulant").rounds, 2 * rounds);
    EXPECT_DOUBLE_EQ(claim(Collective::all_reduce, "circulant").bytes_sent, 2.0 * (n - 1) / n);
    EXPECT_LE(claim(Collective::all_to_all, "bruck").rounds, rounds);
    EXPECT_LE(claim(Collective::scan, "recursive_doubling").rounds, rounds);
    // Half the levels of a binomial tree.
    const int levels = (rounds + 1) / 2;
    for (const Collective c : {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter})
      EXPECT_LE(claim(c, "knomial_4").rounds, levels);
    if (std::has_single_bit(unsigned(n))) {
      EXPECT_EQ(claim(Collective::all_reduce, "halving_doubling").rounds, 2 * rounds);
      EXPECT_DOUBLE_EQ(claim(Collective::all_reduce, "halving_doubling").bytes_sent, 2.0 * (n - 1) / n);
      EXPECT_DOUBLE_EQ(claim(Collective::reduce_scatter, "halving").bytes_sent, double(n - 1) / n);
    }
    for (const Collective c : {Collective::reduce, Collective::gather, Collective::scatter}) {
      EXPECT_EQ(claim(c, "direct").rounds, 1);
      EXPECT_LE(claim(c, "binomial").rounds, rounds);
    }
  }
}

std::vector<size_t> rows_named(std::initializer_list<std::string_view> names) {
  std::vector<size_t> rows;
  for (size_t i = 0; i < catalog().size(); ++i)
    if (std::find(names.begin(), names.end(), catalog()[i].name) != names.end()) rows.push_back(i);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Catalog, BySite, testing::ValuesIn(rows_named({"hierarchical", "by_core"})),
                         [](const auto& row) { return name_of(catalog()[row.param]); });
INSTANTIATE_TEST_SUITE_P(Catalog, Hierarchical, testing::ValuesIn(rows_named({"hierarchical"})),
                         [](const auto& row) { return name_of(catalog()[row.param]); });
INSTANTIATE_TEST_SUITE_P(Catalog, ByCore, testing::ValuesIn(rows_named({"by_core"})),
                         [](const auto& row) { return name_of(catalog()[row.param]); });
INSTANTIATE_TEST_SUITE_P(Catalog, EveryAlgorithm, testing::Range(size_t{0}, catalog().size()),
                         [](const auto& row) { return name_of(catalog()[row.param]); });

}  // namespace
}  // namespace tutti
