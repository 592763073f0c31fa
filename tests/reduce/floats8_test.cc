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

// A sum of two is rounded to fewer bits than it has, but so few that nothing is near the middle; of three it may be.
TEST_P(AllPairs, BesideAThirdThatDecidesTheRoundingGiveTheReferencesBits) {
  const DataType type = GetParam();
  std::vector<std::vector<uint8_t>> inputs(3, std::vector<uint8_t>(256 * 256));
  for (size_t i = 0; i < inputs[0].size(); ++i) inputs[0][i] = uint8_t(i / 256), inputs[1][i] = uint8_t(i);
  const void* pointers[] = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
  std::vector<uint8_t> output(inputs[0].size());
  for (const uint8_t third : {0x01, 0x81, 0x02, 0x84, 0x0d, 0x20, 0xb8, 0x7a}) {
    std::fill(inputs[2].begin(), inputs[2].end(), third);
    for (const uint32_t divisor : {0u, 3u, 1000u}) {
      const std::vector<uint8_t> expected = reference_reduce(type, ReduceOp::sum, inputs, divisor);
      on_every_target([&] {
        reduce_function(type, ReduceOp::sum)(output.data(), pointers, 3, output.size(), divisor, Store::cached);
        for (size_t i = 0; i < output.size(); ++i)
          ASSERT_EQ(output[i], expected[i]) << fmt::format("{:#x} + {:#x} + {:#x}, divisor {}", i / 256, i % 256, third, divisor);
      });
      if (HasFatalFailure()) return;
    }
  }
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
