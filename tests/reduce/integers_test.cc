// Integers: exact in every placement; wrapping; division; bits.
#include "cases.h"

namespace tutti {
namespace {

class EveryInteger : public ::testing::TestWithParam<DataType> {};
TEST_P(EveryInteger, GivesTheReferencesBitsInEveryPlacement) { expect_exact_everywhere(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Integers, EveryInteger,
                         ::testing::Values(DataType::int8, DataType::uint8, DataType::int32, DataType::uint32,
                                           DataType::int64, DataType::uint64, DataType::int16, DataType::uint16),
                         type_name);

template <typename T>
T reduced(DataType type, ReduceOp op, T a, T b, uint32_t divisor) {
  const void* inputs[] = {&a, &b};
  T result;
  reduce_function(type, op)(&result, inputs, 2, 1, divisor, Store::cached);
  return result;
}

TEST(Integers, WrapAround) {
  EXPECT_EQ(reduced<int8_t>(DataType::int8, ReduceOp::sum, 127, 1, 0), -128);
  EXPECT_EQ(reduced<uint8_t>(DataType::uint8, ReduceOp::prod, 16, 17, 0), 16);
  EXPECT_EQ(reduced<int16_t>(DataType::int16, ReduceOp::sum, 32767, 1, 0), -32768);
  EXPECT_EQ(reduced<int16_t>(DataType::int16, ReduceOp::prod, -32768, -1, 0), -32768);
  EXPECT_EQ(reduced<uint16_t>(DataType::uint16, ReduceOp::prod, 0x101, 0x101, 0), 0x201);
  EXPECT_EQ(reduced<int32_t>(DataType::int32, ReduceOp::sum, INT32_MAX, 1, 0), INT32_MIN);
  EXPECT_EQ(reduced<int64_t>(DataType::int64, ReduceOp::prod, INT64_MIN, -1, 0), INT64_MIN);
}

TEST(Integers, JoinBitsOrTruthValues) {
  EXPECT_EQ(reduced<uint32_t>(DataType::uint32, ReduceOp::band, 0xff00ff00, 0x0ff00ff0, 0), 0x0f000f00u);
  EXPECT_EQ(reduced<int64_t>(DataType::int64, ReduceOp::bor, INT64_MIN, 5, 0), INT64_MIN + 5);
  EXPECT_EQ(reduced<int16_t>(DataType::int16, ReduceOp::bxor, -1, 1, 0), -2);
  EXPECT_EQ(reduced<int32_t>(DataType::int32, ReduceOp::land, 256, -1, 0), 1);
  EXPECT_EQ(reduced<int32_t>(DataType::int32, ReduceOp::land, 256, 0, 0), 0);
  EXPECT_EQ(reduced<uint64_t>(DataType::uint64, ReduceOp::lor, uint64_t{1} << 63, 0, 0), 1u);
  EXPECT_EQ(reduced<int8_t>(DataType::int8, ReduceOp::lor, 0, 0, 0), 0);
}

TEST(Integers, DivisionTruncatesTowardsZero) {
  EXPECT_EQ(reduced<int8_t>(DataType::int8, ReduceOp::avg, -4, -3, 2), -3);
  EXPECT_EQ(reduced<int32_t>(DataType::int32, ReduceOp::avg, -8, 1, 2), -3);
  EXPECT_EQ(reduced<int64_t>(DataType::int64, ReduceOp::avg, INT64_MIN, 0, 3), INT64_MIN / 3);
  EXPECT_EQ(reduced<uint64_t>(DataType::uint64, ReduceOp::avg, UINT64_MAX, 0, 2), UINT64_MAX / 2);
}

TEST(Integers, DivisionIsExactAroundMultiplesOfAnyDivisor) {
  for (const uint32_t divisor : {2u, 3u, 7u, 255u, 65537u, 2147483647u, 2147483648u, 4294967295u})
    for (const uint64_t multiple : {uint64_t{0}, uint64_t{divisor}, 4294967295u / divisor * uint64_t{divisor}})
      for (int near = -1; near <= 1; ++near) {
        const auto value = uint32_t(multiple + uint64_t(int64_t(near)));
        EXPECT_EQ(reduced<uint32_t>(DataType::uint32, ReduceOp::sum, value, 0, divisor), value / divisor);
        EXPECT_EQ(reduced<int32_t>(DataType::int32, ReduceOp::sum, int32_t(value), 0, divisor),
                  int32_t(int64_t(int32_t(value)) / int64_t(divisor)));
      }
}

// All of 8 and 16 bits, and of more many around multiples of the divisor; on every instruction set.
template <typename T>
void expect_quotients(DataType type) {
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  std::mt19937_64 random(seed);
  std::vector<T> values, zeros, quotients;
  // 41 and 49 are the first whose reciprocals, as floats of 32 and 64 bits, times themselves are below 1.
  for (const uint32_t divisor : {2u, 3u, 4u, 5u, 6u, 7u, 8u, 10u, 41u, 49u, 127u, 128u, 255u, 256u, 257u, 1000u, 32767u, 65535u, 65536u,
                                 16777217u, 2147483647u, 2147483648u, 4294967295u}) {
    values.clear();
    if constexpr (sizeof(T) <= 2) {
      for (uint32_t bits = 0; bits < 1u << (8 * sizeof(T)); ++bits) values.push_back(T(bits));
    } else {
      for (const T end : {std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), T(0)})
        for (int near = -3; near <= 3; ++near) values.push_back(T(uint64_t(end) + uint64_t(int64_t(near))));
      for (int i = 0; i < 5000; ++i) {
        const uint64_t multiple = (random() >> random() % 64) / divisor * divisor;
        values.push_back(T(multiple + random() % 3 - 1));
      }
    }
    zeros.assign(values.size(), T(0));
    quotients.resize(values.size());
    const void* inputs[] = {values.data(), zeros.data()};
    on_every_target([&] {
      reduce_function(type, ReduceOp::avg)(quotients.data(), inputs, 2, values.size(), divisor, Store::cached);
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(quotients[i], T(Wide(values[i]) / Wide(divisor))) << name(type) << ": " << +values[i] << " / " << divisor;
    });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Integers, EveryQuotientIsExact) {
  expect_quotients<int8_t>(DataType::int8);
  expect_quotients<uint8_t>(DataType::uint8);
  expect_quotients<int16_t>(DataType::int16);
  expect_quotients<uint16_t>(DataType::uint16);
  expect_quotients<int32_t>(DataType::int32);
  expect_quotients<uint32_t>(DataType::uint32);
  expect_quotients<int64_t>(DataType::int64);
  expect_quotients<uint64_t>(DataType::uint64);
}

}  // namespace
}  // namespace tutti
