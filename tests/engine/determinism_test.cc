// Determinism on a simulated network: whatever algorithm, tiles, channels, network, alignment and instruction set, strict
// bits are those of one fold from the left, and invariant ones those of the exact sum.
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

// All but type and operator.
CollectiveCase random_case(Random& random, size_t count_max) {
  CollectiveCase c;
  c.n = int(random.chance(0.2) ? random.between(10, ranks_max) : random.between(1, 9));
  const std::vector<const Algorithm*> rows = folds_from_the_left(c.n);
  const Algorithm& algorithm = *rows[random.below(rows.size())];
  c.collective = algorithm.collective;
  c.algorithm = algorithm.name;
  c.root = meaning(c.collective).rooted ? int(random.below(uint64_t(c.n))) : 0;
  c.count = random.below(random.chance(0.5) ? 20 : count_max);
  c.exact = false;
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

CollectiveCase random_strict_case(Random& random) {
  CollectiveCase c = random_case(random, 700);
  c.left_fold = true;
  do {
    c.type = data_types[random.below(data_types.size())].type;
    c.op = ReduceOp(random.below(5));
  } while (!defined(c.op, c.type) || (!order_matters(c.op, c.type) && random.chance(0.8)));
  return c;
}

CollectiveCase random_invariant_case(Random& random) {
  CollectiveCase c = random_case(random, 120);
  do c.type = data_types[random.below(data_types.size())].type;
  while (!order_matters(ReduceOp::sum, c.type));
  c.op = random.chance(0.5) ? ReduceOp::sum : ReduceOp::avg;
  c.vectors = random.chance(0.5) ? 1 : int(random.between(2, 12));
  return c;
}

TEST(Strict, GivesTheBitsOfOneFoldFromTheLeftWhateverElse) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  PlanStore plans;
  Random random(20260601);
  int wide = 0;
  for (int i = 0; i < cases; ++i) {
    use_target(targets[random.below(targets.size())]);
    const CollectiveCase c = random_strict_case(random);
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

TEST(Invariant, GivesTheBitsOfTheExactSumWhateverElse) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  PlanStore plans;
  Random random(20261122);
  int wide = 0;
  for (int i = 0; i < cases; ++i) {
    use_target(targets[random.below(targets.size())]);
    const CollectiveCase c = random_invariant_case(random);
    wide += c.n * c.vectors > reduce_inputs_max;
    ASSERT_EQ(run_collective(c, plans), "") << "on " << reduce_target();
  }
  use_target(0);
  EXPECT_GT(wide, cases / 4);
}

// All cases of one collective and type have the same vectors in all, spread over more and more ranks.
TEST(Invariant, GivesOneSumFromOneRankTo32) {
  constexpr int all_vectors = 96;
  constexpr std::pair<Collective, const char*> rows[] = {
      {Collective::all_reduce, "one_shot"}, {Collective::all_reduce, "two_shot"}, {Collective::reduce, "direct"}};
  PlanStore plans;
  for (const auto& [collective, algorithm] : rows)
    for (const DataType type : {DataType::float64, DataType::float32, DataType::bfloat16, DataType::float8e4m3})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg})
        for (const int n : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}) {
          CollectiveCase c;
          c.collective = collective;
          c.algorithm = algorithm;
          c.type = type;
          c.op = op;
          c.n = n;
          c.vectors = all_vectors / n;
          c.count = test::sanitized ? 3 : 20;
          c.exact = false;
          c.seed = 32;
          ASSERT_EQ(run_collective(c, plans), "");
        }
}

// A prefix sum's first rank has nothing to add, but several vectors to join.
TEST(Invariant, AddsTheVectorsOfARankThatReceivesNothing) {
  CollectiveCase c;
  c.collective = Collective::scan;
  c.algorithm = "direct";
  c.n = 34;
  c.type = DataType::float8e5m2;
  c.count = 161;
  c.exact = false;
  c.vectors = 5;
  c.message_bytes_max = 8192;
  c.seed = 7310047120841798740;
  PlanStore plans;
  EXPECT_EQ(run_collective(c, plans), "");
}

// The comparison above can fail: what strict determinism gives is something else.
TEST(Invariant, IsMoreThanAFoldFromTheLeft) {
  for (const DataType type : {DataType::float64, DataType::float32, DataType::bfloat16}) {
    const auto inputs = Adversary(type, 1).inputs(5, 200);
    EXPECT_NE(reference_left_fold(type, ReduceOp::sum, inputs, 0), reference_exact_sum(type, inputs, 1)) << name(type);
  }
}

// Several vectors of a rank go straight to who adds them: nothing but whole inputs is sent or added, and each sum is
// finished where it is made.
TEST(Invariant, FindsInputsInNoOtherMemoryInAnyAlgorithmThatFoldsFromTheLeft) {
  PlanStore plans;
  for (int n = 1; n <= ranks_max; ++n)
    for (const Algorithm* algorithm : folds_from_the_left(n)) {
      CollectiveCase c;
      c.collective = algorithm->collective;
      c.algorithm = algorithm->name;
      c.n = n;
      c.root = meaning(c.collective).rooted ? n / 2 : 0;
      for (int rank = 0; rank < n; ++rank)
        for (const Fold& fold : plans.plan(c, rank).steps) {
          const bool is_input = fold.a.count > 0 && fold.a.buffer == Buffer::input;
          EXPECT_EQ(fold.b.count, 0u) << algorithm->name;
          EXPECT_TRUE(fold.finish || fold.operands() == 1) << algorithm->name << " " << n;
          EXPECT_TRUE(!fold.finish || fold.a.count == 0 || is_input) << algorithm->name << " " << n;
          EXPECT_TRUE(!is_input || fold.finish || fold.dst.count == 0) << algorithm->name << " " << n;
          EXPECT_TRUE(!fold.finish || fold.dst.buffer == Buffer::output) << algorithm->name << " " << n;
        }
    }
}

}  // namespace
}  // namespace tutti
