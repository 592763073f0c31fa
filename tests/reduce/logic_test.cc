// Truth values: exact in every placement; any element that is not 0 counts as true, one alone too.
#include "cases.h"

namespace tutti {
namespace {

TEST(Logic, OfBoolGivesTheReferencesBitsInEveryPlacement) { expect_exact_everywhere(DataType::boolean); }

uint8_t reduced(ReduceOp op, std::vector<uint8_t> elements, uint32_t divisor) {
  std::vector<const void*> inputs;
  for (const uint8_t& element : elements) inputs.push_back(&element);
  uint8_t result = 77;
  reduce_function(DataType::boolean, op)(&result, inputs.data(), int(inputs.size()), 1, divisor, Store::cached);
  return result;
}

TEST(Logic, AnyByteThatIsNotZeroCountsAsTrue) {
  for (const ReduceOp any : {ReduceOp::sum, ReduceOp::max, ReduceOp::lor, ReduceOp::bor}) {
    EXPECT_EQ(reduced(any, {0, 0, 128}, 0), 1);
    EXPECT_EQ(reduced(any, {255, 1, 2}, 0), 1);
    EXPECT_EQ(reduced(any, {0, 0, 0}, 0), 0);
  }
  for (const ReduceOp all : {ReduceOp::prod, ReduceOp::min, ReduceOp::land, ReduceOp::band}) {
    EXPECT_EQ(reduced(all, {1, 2, 4}, 0), 1);
    EXPECT_EQ(reduced(all, {1, 2, 0}, 0), 0);
  }
  EXPECT_EQ(reduced(ReduceOp::bxor, {1, 2}, 0), 0);
  EXPECT_EQ(reduced(ReduceOp::bxor, {1, 2, 4}, 0), 1);
}

TEST(Logic, AnElementAloneIsCopiedUntilItIsTheResult) {
  EXPECT_EQ(reduced(ReduceOp::lor, {6}, 0), 6);
  EXPECT_EQ(reduced(ReduceOp::lor, {6}, 1), 1);
  EXPECT_EQ(reduced(ReduceOp::land, {0}, 1), 0);
}

}  // namespace
}  // namespace tutti
