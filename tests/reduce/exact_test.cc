// Exact sums: the bits of a reference with whole numbers, on every instruction set, in every placement.
#include "reduce/exact.h"

#include <numeric>

#include "adversary.h"
#include "cases.h"
#include "exact_reference.h"
#include "reduce/accumulator.h"

namespace tutti {
namespace {

constexpr DataType floats[] = {DataType::float64,  DataType::float32,    DataType::float16,
                               DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2};

using Inputs = std::vector<std::vector<uint8_t>>;

std::vector<const void*> pointers_to(const Inputs& inputs) {
  std::vector<const void*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  return pointers;
}

std::vector<uint8_t> exact_sum(DataType type, const Inputs& inputs, uint32_t divisor, Store store = Store::cached) {
  std::vector<uint8_t> output(inputs[0].size());
  const auto pointers = pointers_to(inputs);
  exact_sum_function(type)(output.data(), pointers.data(), int(inputs.size()), output.size() / element_bytes(type),
                           divisor, store);
  return output;
}

// The first element that differs, with its inputs.
std::string difference(DataType type, const Inputs& inputs, const std::vector<uint8_t>& got,
                       const std::vector<uint8_t>& expected) {
  const size_t bytes = element_bytes(type);
  for (size_t at = 0; at < got.size(); at += bytes) {
    uint64_t a = 0, b = 0;
    std::memcpy(&a, &got[at], bytes);
    std::memcpy(&b, &expected[at], bytes);
    if (a == b) continue;
    std::string text = fmt::format("element {}: {:#x}, not {:#x}, of", at / bytes, a, b);
    for (const auto& input : inputs) {
      uint64_t bits = 0;
      std::memcpy(&bits, &input[at], bytes);
      text += fmt::format(" {:#x}", bits);
    }
    return text;
  }
  return "";
}

class ExactSum : public ::testing::TestWithParam<DataType> {};

TEST_P(ExactSum, GivesTheReferencesBitsForInputsThatAreHardToAdd) {
  const size_t count = few_cases ? 67 : 515;
  Adversary adversary(GetParam(), seed);
  for (const size_t n : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 16u, 33u, 100u})
    for (const uint32_t divisor : {0u, 1u, 2u, 3u, 7u, 8u, 100u, 65535u, 65536u}) {
      const Inputs inputs = adversary.inputs(n, n > 16 ? count / 4 : count, divisor);
      const std::vector<uint8_t> expected = reference_exact_sum(GetParam(), inputs, divisor);
      on_every_target([&] {
        const std::vector<uint8_t> got = exact_sum(GetParam(), inputs, divisor);
        ASSERT_EQ(difference(GetParam(), inputs, got, expected), "")
            << name(GetParam()) << ", " << n << " inputs, divisor " << divisor << ", seed " << seed;
      });
      if (HasFatalFailure()) return;
    }
}

TEST_P(ExactSum, DoesNotDependOnTheOrderNorOnZerosBesideIt) {
  Adversary adversary(GetParam(), seed + 1);
  std::mt19937_64 random(seed);
  Inputs inputs = adversary.inputs(12, 331);
  const std::vector<uint8_t> expected = exact_sum(GetParam(), inputs, 1);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(inputs.begin(), inputs.end(), random);
    if (i % 4 == 3) inputs.emplace_back(inputs[0].size(), uint8_t{0});
    ASSERT_EQ(difference(GetParam(), inputs, exact_sum(GetParam(), inputs, 1), expected), "");
  }
}

TEST_P(ExactSum, WorksInPlaceAtAnyAlignmentForAnyCountPastTheCachesOrNot) {
  constexpr size_t most = 1300, guard = 64;
  const size_t bytes = element_bytes(GetParam());
  Adversary adversary(GetParam(), seed + 2);
  const Inputs inputs = adversary.inputs(3, most);
  const std::vector<uint8_t> expected = reference_exact_sum(GetParam(), inputs, 3);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{31}, size_t{64}, size_t{257}, most})
    for (const Placement& placement : placements(GetParam(), 3)) {
      std::vector<std::vector<uint8_t>> memory;
      std::vector<const void*> pointers;
      for (int k = 0; k < 4; ++k) {
        const bool is_output = k == (placement.in_place < 0 ? 3 : placement.in_place);
        const size_t shift = guard + (is_output ? placement.output_shift : placement.input_shift);
        memory.emplace_back(most * bytes + 2 * guard + 32, 0xa5);
        if (k < 3) std::copy_n(inputs[size_t(k)].begin(), count * bytes, memory.back().begin() + long(shift));
        pointers.push_back(memory.back().data() + shift);
      }
      const size_t out = placement.in_place < 0 ? 3 : size_t(placement.in_place);
      auto* const output = const_cast<uint8_t*>(static_cast<const uint8_t*>(pointers[out]));
      exact_sum_function(GetParam())(output, pointers.data(), 3, count, 3, placement.store);
      ASSERT_TRUE(std::equal(output, output + count * bytes, expected.begin())) << count << " in " << out;
      const size_t begin = guard + placement.output_shift;
      for (size_t i = 0; i < memory[out].size(); ++i)
        ASSERT_TRUE((i >= begin && i < begin + count * bytes) || memory[out][i] == 0xa5) << count << " at " << i;
    }
}

// More than are sure to fit into a double.
TEST_P(ExactSum, TakesManyInputs) {
  const size_t n = 5000;
  Adversary adversary(GetParam(), seed + 3);
  const Inputs inputs = adversary.inputs(n, 9);
  EXPECT_EQ(
      difference(GetParam(), inputs, exact_sum(GetParam(), inputs, 1), reference_exact_sum(GetParam(), inputs, 1)), "");
}

// The smallest float16 between sums of the largest that cancel: 54 bits apart at the farthest.
TEST(ExactSumOfMany, LosesNothingBesideLargeSums) {
  const size_t n = 2 * 16384 + 1;
  Inputs inputs(n, std::vector<uint8_t>(2));
  for (size_t k = 0; k < n; ++k)
    element_from_double(DataType::float16, k < n / 2 ? 65504 : k == n / 2 ? 0x1p-24 : -65504, inputs[k].data());
  on_every_target([&] { EXPECT_EQ(exact_sum(DataType::float16, inputs, 1), (std::vector<uint8_t>{1, 0})); });
}

// m × d ± a little, where m lies half-way between two float64 and m × d is one more than a float64: what is left over
// when d divides it is half of a last bit but for 2^-52 / d of that.
TEST(ExactAverage, IsRightWhereTheQuotientIsHalfWayButForALittle) {
  std::mt19937_64 random(seed);
  Inputs inputs(3);
  const auto append = [&](size_t k, double value) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&value);
    inputs[k].insert(inputs[k].end(), bytes, bytes + sizeof value);
  };
  for (const uint32_t divisor : {3u, 5u, 7u, 11u, 101u, 4095u, 65535u}) {
    inputs.assign(3, {});
    for (int i = 0; i < 200; ++i) {
      const int bits = 2 + int(std::bit_width(divisor));
      uint64_t inverse = 1;  // of the divisor, modulo 2^64 (Newton)
      for (int k = 0; k < 6; ++k) inverse *= 2 - divisor * inverse;
      const uint64_t m = (inverse & ((uint64_t{1} << bits) - 1)) | (random() % (uint64_t{1} << (53 - bits))) << bits |
                         uint64_t{1} << 53;
      const auto product = static_cast<unsigned __int128>(m) * divisor;
      append(0, std::ldexp(double(uint64_t((product - 1) >> bits)), bits));
      append(1, 1);
      append(2, std::ldexp(i % 2 == 0 ? 1 : -1, -52 - i % 2));
    }
    const std::vector<uint8_t> expected = reference_exact_sum(DataType::float64, inputs, divisor);
    on_every_target([&] {
      const std::vector<uint8_t> got = exact_sum(DataType::float64, inputs, divisor);
      ASSERT_EQ(difference(DataType::float64, inputs, got, expected), "") << "divisor " << divisor;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Floats, ExactSum, ::testing::ValuesIn(floats), type_name);

TEST(ExactSumOfTwo, IsRightForEveryPairOfFloatsOf8Bits) {
  for (const DataType type : {DataType::float8e4m3, DataType::float8e5m2}) {
    Inputs inputs(2);
    for (int a = 0; a < 256; ++a)
      for (int b = 0; b < 256; ++b) inputs[0].push_back(uint8_t(a)), inputs[1].push_back(uint8_t(b));
    for (const uint32_t divisor : {1u, 2u, 3u})
      EXPECT_EQ(difference(type, inputs, exact_sum(type, inputs, divisor), reference_exact_sum(type, inputs, divisor)),
                "")
          << name(type);
  }
}

TEST(ExactSumOfComplexNumbers, IsThatOfTheirParts) {
  for (const auto& [type, part] :
       {std::pair{DataType::complex64, DataType::float32}, std::pair{DataType::complex128, DataType::float64}}) {
    const Inputs inputs = Adversary(part, seed).inputs(5, 200);
    EXPECT_EQ(exact_sum(type, inputs, 5), reference_exact_sum(part, inputs, 5));
  }
  for (const DataTypeInfo& row : data_types) {
    const bool has = row.family == Family::floating || row.family == Family::complex;
    EXPECT_EQ(exact_sum_function(row.type) != nullptr, has) << row.name;
  }
}

TEST(Accumulator, GivesTheReferencesBits) {
  for (const DataType type : floats) {
    Adversary adversary(type, seed + 4);
    for (const size_t n : {1u, 2u, 3u, 10u, 40u}) {
      const Inputs inputs = adversary.inputs(n, 200, 3);
      for (const uint32_t divisor : {1u, 3u, 64u, 4'000'000'007u}) {
        const auto pointers = pointers_to(inputs);
        std::vector<uint8_t> got(inputs[0].size());
        for (size_t i = 0; i < got.size() / element_bytes(type); ++i) {
          const uint64_t code = sum_slowly(float_format(type), pointers.data(), int(n), i, divisor);
          std::memcpy(&got[i * element_bytes(type)], &code, element_bytes(type));
        }
        ASSERT_EQ(difference(type, inputs, got, reference_exact_sum(type, inputs, divisor)), "")
            << name(type) << ", " << n << " inputs, divisor " << divisor;
      }
    }
  }
}

// The reference itself, where the answer is known.
TEST(ExactReference, KnowsWhatIsKnown) {
  const auto sum = [](std::vector<double> values, uint32_t divisor = 1) {
    std::vector<const void*> elements;
    for (const double& value : values) elements.push_back(&value);
    return std::bit_cast<double>(reference_exact_code(DataType::float64, elements, divisor));
  };
  EXPECT_EQ(sum({1e308, 1e308, -1e308}), 1e308);
  EXPECT_EQ(sum({1, 0x1p-53}), 1);
  EXPECT_EQ(sum({1, 0x1p-53, 0x1p-1074}), 1 + 0x1p-52);
  EXPECT_EQ(sum({1 + 0x1p-52, 0x1p-53}), 1 + 0x1p-51);
  EXPECT_EQ(sum({0x1p-1074}, 2), 0);
  EXPECT_EQ(sum({0x1p-1074, 0x1p-1074, 0x1p-1074}, 2), 0x1p-1073);
  EXPECT_EQ(sum({1e300, 3, -1e300}), 3);
  EXPECT_EQ(sum({10}, 3), 10.0 / 3);
  EXPECT_TRUE(std::isinf(sum({1.7e308, 1.7e308})));
  EXPECT_FALSE(std::signbit(sum({-0.0, -0.0})));
}

}  // namespace
}  // namespace tutti
