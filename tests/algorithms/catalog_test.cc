// Every algorithm of the catalog is proven for 1 to 64 ranks, every root, in place and not, as schedules and as plans.
#include "algorithms/catalog.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "schedule/check.h"
#include "schedule/print.h"

namespace tutti {
namespace {

std::string name_of(const Algorithm& algorithm) {
  return (algorithm.collective == Collective::broadcast ? "broadcast_" : "all_reduce_") + std::string(algorithm.name);
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
    const int roots = algorithm().collective == Collective::broadcast ? n : 1;
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
    group.root = algorithm().collective == Collective::broadcast ? n - 2 : 0;
    group.pipeline = algorithm().pipelined ? 6 : 1;
    proves(group);
    if (HasFatalFailure()) return;
  }
}

class Hierarchical : public EveryAlgorithm {
 protected:
  void proves_on(const std::vector<int>& hosts) const {
    Group group;
    group.n = int(hosts.size());
    group.host_of = hosts;
    proves(group);
  }
};

TEST_P(Hierarchical, IsProvenForEqualHostsInAnyOrder) {
  for (int hosts = 1; hosts <= 8; ++hosts)
    for (int each = 1; each <= 8; ++each) {
      std::vector<int> blocks, dealt;
      for (int r = 0; r < hosts * each; ++r) {
        blocks.push_back(r / each);
        dealt.push_back(r % hosts * 7 - 3);  // host numbers are any numbers
      }
      proves_on(blocks);
      proves_on(dealt);
      if (HasFatalFailure()) return;
    }
}

TEST_P(Hierarchical, IsProvenForUnevenHosts) {
  const uint64_t seed = 11;
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    std::vector<int> hosts(1 + random() % 24);
    const size_t n_hosts = 1 + random() % 6;
    for (int& host : hosts) host = int(random() % n_hosts);
    proves_on(hosts);
    if (HasFatalFailure()) FAIL() << "seed " << seed << " case " << i;
  }
}

TEST_P(Hierarchical, CrossesBetweenHostsWithTheLeastBytes) {
  // Two hosts of four: each byte leaves a host once for the sum and once for the result.
  const std::vector<int> hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  Group group;
  group.n = 8;
  group.host_of = hosts;
  uint64_t chunks = 0;
  for (group.rank = 0; group.rank < 4; ++group.rank)
    for (const Step& step : record(algorithm(), group))
      if (step.verb == Verb::send && step.peer >= 4) chunks += step.a.count;
  EXPECT_EQ(chunks, algorithm().shape(group).output);
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
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, Hierarchical,
                         testing::Values(size_t(find_algorithm(Collective::all_reduce, "hierarchical") -
                                                catalog().data())));
INSTANTIATE_TEST_SUITE_P(Catalog, EveryAlgorithm, testing::Range(size_t{0}, catalog().size()),
                         [](const auto& row) { return name_of(catalog()[row.param]); });

}  // namespace
}  // namespace tutti
