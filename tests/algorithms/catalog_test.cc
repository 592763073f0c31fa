// Every algorithm of the catalog is proven for 1 to 64 ranks, every root, in place and not, as schedules and as plans.
#include "algorithms/catalog.h"

#include <gtest/gtest.h>

#include <array>
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

INSTANTIATE_TEST_SUITE_P(Catalog, EveryAlgorithm, testing::Range(size_t{0}, catalog().size()),
                         [](const auto& row) { return name_of(catalog()[row.param]); });

}  // namespace
}  // namespace tutti
