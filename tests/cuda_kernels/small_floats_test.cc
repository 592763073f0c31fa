// float16, float8 and casts by the toolkit's conversions, in the kernels' own code on the host.
#include "cuda_kernels/small_floats.h"

#include "body_cases.h"
#include "cuda_kernels/small_float_families.h"

namespace tutti::test {
namespace {

using Body = HostBody<ReduceArguments>;

const Body choose(const KernelCall& call, int n_inputs) {
  return element_bytes(call.type) == 1 ? float8_body<MakeHostReduction>(call.type, call.op, n_inputs)
                                       : float16_body<MakeHostReduction>(call.type, call.op, n_inputs);
}

constexpr DataType small_types[] = {DataType::float16, DataType::float8e4m3, DataType::float8e5m2};
class EverySmallFloat : public ::testing::TestWithParam<DataType> {};
std::string type_of(const ::testing::TestParamInfo<DataType>& info) { return std::string(name(info.param)); }
INSTANTIATE_TEST_SUITE_P(SmallFloats, EverySmallFloat, ::testing::ValuesIn(small_types), type_of);

TEST_P(EverySmallFloat, GivesTheBitsOfTheHostWhateverThePlacesAndTheLaunch) { expect_bits_of_host(choose, GetParam()); }
TEST_P(EverySmallFloat, IsScaledAsTheHostDoes) {
  expect_scaled(scale_body_of<MakeHostScaling>(scale_type(GetParam())), GetParam());
}

// Every bit pattern beside every other (of float16: beside a few hundred).
TEST_P(EverySmallFloat, GivesTheBitsOfTheHostForEveryPattern) {
  const size_t bytes = element_bytes(GetParam()), codes = bytes == 1 ? 256 : 65536, others = bytes == 1 ? 256 : 257;
  std::mt19937_64 random(seed);
  for (size_t other = 0; other < others; ++other) {
    std::vector<std::vector<uint8_t>> data(2, std::vector<uint8_t>(codes * bytes));
    for (size_t code = 0; code < codes; ++code) {
      const size_t beside = bytes == 1 ? other : code * 257 + other * 251;
      std::memcpy(&data[0][code * bytes], &code, bytes);
      std::memcpy(&data[1][code * bytes], &beside, bytes);
    }
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min}) {
      if (other % (bytes == 1 ? 1 : 16) != 0) continue;
      ASSERT_EQ(reduce_as_device(choose, GetParam(), op, data, codes, 0, {{0, 0}, 0, -1}, random), "") << other;
    }
  }
}

// --- Casts


// What element_from_double makes of a sum in float.
void expect_cast(DataType from, DataType to, int n, size_t count, std::mt19937_64& random) {
  const ElementSizes sizes{uint32_t(element_bytes(from)), uint32_t(element_bytes(to))};
  std::vector<Bytes> inputs;
  std::vector<std::vector<uint8_t>> data;
  std::vector<Range> ranges;
  ReduceArguments a{};
  const size_t in_unit = sizes.input, kind = random() % 3;
  inputs.reserve(size_t(n));
  for (int k = 0; k < n; ++k) {
    data.push_back(mixed_elements(from, count + 1, random));
    const size_t shift = kind == 0 ? 0 : kind == 1 ? random() % 16 / in_unit * in_unit : random() % 16;
    inputs.emplace_back(data.back(), count * sizes.input, shift);
    a.inputs[k] = inputs.back().begin();
    ranges.push_back({a.inputs[k], count * sizes.input});
  }
  Bytes output(std::vector<uint8_t>(count * sizes.output), count * sizes.output, kind == 0 ? 0 : random() % 16);
  a.outputs[0] = output.begin();
  a.n_inputs = n;
  a.n_outputs = 1;
  a.parts = partition(a.addresses(), count, sizes);
  if (kind == 0 && count >= 16) {
    ASSERT_GT(a.parts.packets, 0u);
  }
  const Body body = cast_body<MakeHostReduction>(from, to);
  ASSERT_NE(body.run, nullptr);
  CheckedMemory memory({a.outputs[0], count * sizes.output}, ranges);
  run(body, a, random_launch(a.parts, body.unrolled, random), memory);
  ASSERT_EQ(memory.wrong(), "") << name(from) << " to " << name(to) << ", seed " << seed;
  for (size_t i = 0; i < count; ++i) {
    float sum = float(element_to_double(from, &data[0][i * sizes.input]));
    for (size_t k = 1; k < size_t(n); ++k) sum += float(element_to_double(from, &data[k][i * sizes.input]));
    uint8_t expected[8] = {};
    element_from_double(to, std::isnan(sum) ? double(NAN) : double(sum), expected);
    ASSERT_EQ(std::memcmp(a.outputs[0] + i * sizes.output, expected, sizes.output), 0)
        << name(from) << " to " << name(to) << ", element " << i << " of " << n << " inputs: " << sum << ", seed " << seed;
  }
}

TEST(Casts, AddInFloatAndRoundOnceToTheOtherType) {
  std::mt19937_64 random(seed + 4);
  constexpr DataType floats[] = {DataType::float32, DataType::float16, DataType::bfloat16, DataType::float8e4m3,
                                 DataType::float8e5m2};
  for (const DataType from : floats)
    for (const DataType to : floats) {
      if (from == to) continue;
      for (const size_t count : {0, 1, 5, 16, 33, 257, 1031})
        for (int n = 1; n <= kernel_inputs_max; ++n) {
          expect_cast(from, to, n, count, random);
          if (HasFatalFailure()) return;
        }
    }
}

}  // namespace
}  // namespace tutti::test
