// float16 and bfloat16: exact in every placement, and for every bit pattern against a sample with all specials.
#include "cases.h"

namespace tutti {
namespace {

class EveryFloat16 : public ::testing::TestWithParam<DataType> {};
TEST_P(EveryFloat16, GivesTheReferencesBitsInEveryPlacement) { expect_exact_everywhere(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Floats16, EveryFloat16, ::testing::Values(DataType::float16, DataType::bfloat16), type_name);

class EveryPattern : public ::testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(Floats16, EveryPattern, ::testing::Values(DataType::float16, DataType::bfloat16), type_name);

// Zero, the least and largest subnormal, the least normal, one and its neighbours, the largest, infinity, NaNs; and
// some between.
std::vector<uint16_t> sample(DataType type) {
  const SmallFloat f = small_float(type);
  const auto one = uint16_t(f.bias << f.mantissa_bits), least_normal = uint16_t(1 << f.mantissa_bits);
  std::vector<uint16_t> codes = {0, 1, 2, uint16_t(least_normal - 1), least_normal, uint16_t(least_normal + 1),
                                 uint16_t(one - 1), one, uint16_t(one + 1), uint16_t(f.code_max - 1),
                                 uint16_t(f.code_max), uint16_t(f.code_max + 1), uint16_t(f.code_max + 2),
                                 uint16_t(f.canonical_nan), 0x7fff, 0x1235, 0x2a57, 0x4d3b};
  for (size_t i = 0, half = codes.size(); i < half; ++i) codes.push_back(uint16_t(codes[i] | 0x8000));
  return codes;
}

TEST_P(EveryPattern, AgainstASampleWithAllSpecialsGivesTheReferencesBits) {
  std::vector<uint16_t> first, second;
  uint32_t turn = 0;
  for (const uint16_t code : sample(GetParam()))
    for (uint32_t other = turn++ % 5; other < 65536; other += 5) {
      first.push_back(turn % 2 ? code : uint16_t(other));
      second.push_back(turn % 2 ? uint16_t(other) : code);
    }
  expect_exact_pairs(GetParam(), first, second);
}

TEST_P(EveryPattern, PlusZeroIsItself) {
  const SmallFloat f = small_float(GetParam());
  std::vector<uint16_t> all(65536), zeros(65536, uint16_t(f.sign)), result(65536);
  for (uint32_t code = 0; code < 65536; ++code) all[code] = uint16_t(code);
  const void* inputs[] = {all.data(), zeros.data()};
  on_every_target([&] {
    reduce_function(GetParam(), ReduceOp::sum)(result.data(), inputs, 2, all.size(), 0, Store::cached);
    for (uint32_t code = 0; code < 65536; ++code) {
      const bool is_nan = (code & 0x7fff) > f.code_max + 1;
      ASSERT_EQ(result[code], is_nan ? f.canonical_nan : code) << code;
    }
  });
}

// The sum lies between two elements, and a third input so small that only float32 sees it breaks the tie.
TEST(Floats16, AreRoundedOnceAtTheEnd) {
  const uint16_t one = 0x3c00, half_step = 0x1000, tiny = 0x0400;  // 1, 2^-11, 2^-14: 1 + 2^-11 is a tie
  const void* inputs[] = {&one, &half_step, &tiny};
  uint16_t result;
  const ReduceFunction sum = reduce_function(DataType::float16, ReduceOp::sum);
  sum(&result, inputs, 2, 1, 0, Store::cached);
  EXPECT_EQ(result, 0x3c00);
  sum(&result, inputs, 3, 1, 0, Store::cached);
  EXPECT_EQ(result, 0x3c01);
}

}  // namespace
}  // namespace tutti
