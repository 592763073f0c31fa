// Pairs of a value and an index: exact in every placement; ties, NaN, zeros.
#include "cases.h"

namespace tutti {
namespace {

class EveryPair : public ::testing::TestWithParam<DataType> {};
TEST_P(EveryPair, GivesTheReferencesBitsInEveryPlacement) { expect_exact_everywhere(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Pairs, EveryPair,
                         ::testing::Values(DataType::float32_int32, DataType::float64_int64, DataType::int32_int32,
                                           DataType::int64_int64),
                         type_name);

struct Located {
  float value;
  int32_t index;
};

Located reduced(ReduceOp op, std::vector<Located> elements) {
  std::vector<const void*> inputs;
  for (const Located& element : elements) inputs.push_back(&element);
  Located result{};
  reduce_function(DataType::float32_int32, op)(&result, inputs.data(), int(inputs.size()), 1, 0, Store::cached);
  return result;
}

TEST(Pairs, TheSmallestIndexWinsTies) {
  EXPECT_EQ(reduced(ReduceOp::minloc, {{2, 0}, {1, 9}, {1, 4}, {1, 7}}).index, 4);
  EXPECT_EQ(reduced(ReduceOp::maxloc, {{2, 3}, {1, 9}, {2, -4}}).index, -4);
}

TEST(Pairs, ANanWinsAndTheFirstOfThem) {
  for (const ReduceOp op : {ReduceOp::minloc, ReduceOp::maxloc}) {
    const Located result = reduced(op, {{INFINITY, 0}, {NAN, 9}, {-INFINITY, 2}, {-NAN, 5}});
    EXPECT_EQ(read_element<uint32_t>(&result.value), 0x7fc00000u);
    EXPECT_EQ(result.index, 5);
  }
}

TEST(Pairs, MinusZeroIsLessThanZero) {
  EXPECT_EQ(reduced(ReduceOp::minloc, {{0.0f, 1}, {-0.0f, 2}}).index, 2);
  EXPECT_EQ(reduced(ReduceOp::maxloc, {{-0.0f, 1}, {0.0f, 2}}).index, 2);
}

}  // namespace
}  // namespace tutti
