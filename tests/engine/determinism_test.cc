// Strict determinism on a simulated network: whatever algorithm, tiles, channels, network, alignment and instruction set,
// the bits are those of one fold from the left.
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "reduce/targets.h"
#include <hwy/targets.h>

#include "engine/collective.h"
#include "sanitizer.h"

namespace tutti {
namespace {

const bool everything = std::getenv("TUTTI_TEST_EVERYTHING") != nullptr;
const int cases = everything ? 20'000 : test::sanitized ? 150 : 1'500;
constexpr int ranks_max = 40;

// Rows of the catalog that claim a fold from the left for n ranks on three a host, as PlanStore has them.
std::vector<const Algorithm*> folds_from_the_left(int n) {
  std::vector<int> hosts;
  for (int r = 0; r < n; ++r) hosts.push_back(r / 3);
  std::vector<const Algorithm*> rows;
  for (const Algorithm& algorithm : catalog()) {
    const Group group{0, n, 0, 1, hosts};
    if (meaning(algorithm.collective).reduces && algorithm.claim(group).left_fold) rows.push_back(&algorithm);
  }
  return rows;
}

void use_target(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().DeInit();
}

CollectiveCase random_case(Random& random) {
  CollectiveCase c;
  c.n = int(random.chance(0.2) ? random.between(10, ranks_max) : random.between(1, 9));
  const std::vector<const Algorithm*> rows = folds_from_the_left(c.n);
  const Algorithm& algorithm = *rows[random.below(rows.size())];
  c.collective = algorithm.collective;
  c.algorithm = algorithm.name;
  do {
    c.type = data_types[random.below(data_types.size())].type;
    c.op = ReduceOp(random.below(5));
  } while (!defined(c.op, c.type) || (!order_matters(c.op, c.type) && random.chance(0.8)));
  c.root = meaning(c.collective).rooted ? int(random.below(uint64_t(c.n))) : 0;
  c.count = random.below(random.chance(0.5) ? 20 : 700);
  c.exact = false;
  c.left_fold = true;
  c.in_place = random.chance(0.5);
  c.misaligned = random.below(9);
  c.channels = int(random.between(1, 3));
  c.slots = int(random.between(2, 4));
  c.message_bytes_max = size_t{512} << random.below(5);
  c.short_probability = random.chance(0.3) ? 0.2 : 0;
  c.delay_ns_max = random.chance(0.5) ? 20'000 : 0;
  c.seed = random.next();
  return c;
}

TEST(Strict, GivesTheBitsOfOneFoldFromTheLeftWhateverElse) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  PlanStore plans;
  Random random(20260601);
  int wide = 0;
  for (int i = 0; i < cases; ++i) {
    use_target(targets[random.below(targets.size())]);
    const CollectiveCase c = random_case(random);
    wide += c.n > reduce_inputs_max;
    ASSERT_EQ(run_collective(c, plans), "") << "on " << reduce_target();
  }
  use_target(0);
  EXPECT_GT(wide, cases / 8);
}

// Where the order is another, so are the bits: the comparison above can fail.
TEST(Strict, IsMoreThanWhatOtherAlgorithmsGive) {
  PlanStore plans;
  for (const char* algorithm : {"ring", "tree", "recursive_doubling"}) {
    CollectiveCase c;
    c.algorithm = algorithm;
    c.n = 8;
    c.type = DataType::float32;
    c.count = 1000;
    c.exact = false;
    EXPECT_EQ(run_collective(c, plans), "");
    c.left_fold = true;
    EXPECT_NE(run_collective(c, plans), "") << algorithm;
  }
}

}  // namespace
}  // namespace tutti
