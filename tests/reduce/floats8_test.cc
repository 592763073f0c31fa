// float8e4m3 and float8e5m2: exact in every placement and for all pairs of bytes; saturation.
#include "cases.h"

namespace tutti {
namespace {

class EveryFloat8 : public ::testing::TestWithParam<DataType> {};
TEST_P(EveryFloat8, GivesTheReferencesBitsInEveryPlacement) { expect_exact_everywhere(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Floats8, EveryFloat8, ::testing::Values(DataType::float8e4m3, DataType::float8e5m2),
                         type_name);

class AllPairs : public ::testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(Floats8, AllPairs, ::testing::Values(DataType::float8e4m3, DataType::float8e5m2), type_name);

TEST_P(AllPairs, GiveTheReferencesBits) {
  std::vector<uint8_t> first, second;
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      first.push_back(uint8_t(a));
      second.push_back(uint8_t(b));
    }
  expect_exact_pairs(GetParam(), first, second);
}

uint8_t reduced(DataType type, ReduceOp op, uint8_t a, uint8_t b) {
  const void* inputs[] = {&a, &b};
  uint8_t result;
  reduce_function(type, op)(&result, inputs, 2, 1, 0, Store::cached);
  return result;
}

TEST(Floats8, SaturateAtTheLargestUnlessAnInputWasInfinite) {
  EXPECT_EQ(reduced(DataType::float8e4m3, ReduceOp::sum, 0x7e, 0x7e), 0x7e);   // 448 + 448
  EXPECT_EQ(reduced(DataType::float8e4m3, ReduceOp::sum, 0xfe, 0xfe), 0xfe);
  EXPECT_EQ(reduced(DataType::float8e5m2, ReduceOp::sum, 0x7b, 0x7b), 0x7b);   // 57344 + 57344
  EXPECT_EQ(reduced(DataType::float8e5m2, ReduceOp::sum, 0x7c, 0x7b), 0x7c);   // inf + 57344
  EXPECT_EQ(reduced(DataType::float8e5m2, ReduceOp::sum, 0x7c, 0xfc), 0x7e);   // inf - inf
  EXPECT_EQ(reduced(DataType::float8e5m2, ReduceOp::prod, 0x7c, 0x00), 0x7e);  // inf * 0
}

TEST(Floats8, AnyNanGivesTheCanonicalOne) {
  for (const ReduceOp op : ops_of(DataType::float8e4m3)) {
    EXPECT_EQ(reduced(DataType::float8e4m3, op, 0xff, 0x38), 0x7f);
    EXPECT_EQ(reduced(DataType::float8e5m2, op, 0x38, 0xfd), 0x7e);
  }
}

}  // namespace
}  // namespace tutti
