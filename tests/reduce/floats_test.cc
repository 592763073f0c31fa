// float32 and float64: exact in every placement; zeros, NaN and infinities.
#include "cases.h"

namespace tutti {
namespace {

class EveryFloat : public ::testing::TestWithParam<DataType> {};
TEST_P(EveryFloat, GivesTheReferencesBitsInEveryPlacement) { expect_exact_everywhere(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Floats, EveryFloat, ::testing::Values(DataType::float32, DataType::float64), type_name);

template <typename F, typename Bits>
void expect_exact_specials(DataType type) {
  using Limits = std::numeric_limits<F>;
  std::vector<F> values = {0, 1, 3, Limits::min(), Limits::denorm_min(), Limits::max(), Limits::epsilon(),
                           Limits::infinity(), Limits::quiet_NaN(), Limits::signaling_NaN()};
  for (size_t i = 0, half = values.size(); i < half; ++i) values.push_back(-values[i]);
  std::vector<Bits> first, second;
  for (const F a : values)
    for (const F b : values) {
      first.push_back(read_element<Bits>(&a));
      second.push_back(read_element<Bits>(&b));
    }
  expect_exact_pairs(type, first, second);
}

TEST(Floats, EveryPairOfSpecialValuesGivesTheReferencesBits) {
  expect_exact_specials<float, uint32_t>(DataType::float32);
  expect_exact_specials<double, uint64_t>(DataType::float64);
}

TEST(Floats, ManyInputsAreFoldedLeftToRight) {
  const float big = 1e8f, small = 1.0f, minus_big = -1e8f;
  const void* cancelled_first[] = {&big, &minus_big, &small};
  const void* cancelled_last[] = {&big, &small, &minus_big};
  float result;
  const ReduceFunction sum = reduce_function(DataType::float32, ReduceOp::sum);
  sum(&result, cancelled_first, 3, 1, 0, Store::cached);
  EXPECT_EQ(result, 1.0f);
  sum(&result, cancelled_last, 3, 1, 0, Store::cached);
  EXPECT_EQ(result, 0.0f);
}

TEST(Floats, OneInputIsCopiedBitForBit) {
  const uint32_t signaling = 0xff800001;
  const void* inputs[] = {&signaling};
  uint32_t result = 0;
  reduce_function(DataType::float32, ReduceOp::sum)(&result, inputs, 1, 1, 0, Store::cached);
  EXPECT_EQ(result, signaling);
  reduce_function(DataType::float32, ReduceOp::sum)(&result, inputs, 1, 1, 2, Store::cached);
  EXPECT_EQ(result, 0x7fc00000u);
}

}  // namespace
}  // namespace tutti
