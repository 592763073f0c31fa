// The kernels' own code on the host: each thread of each launch touches what is its, and the bits are the host's.
#include "cuda_kernels/reduce_body.h"

#include "body_cases.h"

namespace tutti::test {
namespace {

using Body = HostBody<ReduceArguments>;

// What needs no toolkit.
const Body choose(const KernelCall& call, int n_inputs) {
  if (gives_truth(call.op, call.type) || family(call.type) == Family::complex || family(call.type) == Family::pair)
    return compound_body<MakeHostReduction>(call.type, call.op);
  if (family(call.type) == Family::integer) return integer_body<MakeHostReduction>(call.type, call.op, n_inputs);
  if (call.type == DataType::float64) return float_body<MakeHostReduction, PlainElement<double>>(call.op, n_inputs);
  if (call.type == DataType::bfloat16) return float_body<MakeHostReduction, ScalarBfloat16>(call.op, n_inputs);
  return float_body<MakeHostReduction, PlainElement<float>>(call.op, n_inputs);
}

class EveryPlainType : public ::testing::TestWithParam<DataType> {};
std::string type_of(const ::testing::TestParamInfo<DataType>& info) { return std::string(name(info.param)); }

TEST_P(EveryPlainType, GivesTheBitsOfTheHostWhateverThePlacesAndTheLaunch) { expect_bits_of_host(choose, GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    ReduceBody, EveryPlainType,
    ::testing::Values(DataType::int8, DataType::uint8, DataType::int16, DataType::uint16, DataType::int32,
                      DataType::uint32, DataType::int64, DataType::uint64, DataType::boolean, DataType::bfloat16,
                      DataType::float32, DataType::float64, DataType::complex64, DataType::complex128,
                      DataType::float32_int32, DataType::float64_int64, DataType::int32_int32, DataType::int64_int64),
    type_of);

// One type of each size.
class EverySize : public ::testing::TestWithParam<DataType> {};
TEST_P(EverySize, TouchesEachElementOnceForEveryCountTo5000) { expect_every_count(choose, GetParam()); }
INSTANTIATE_TEST_SUITE_P(ReduceBody, EverySize,
                         ::testing::Values(DataType::uint8, DataType::bfloat16, DataType::float32, DataType::float64,
                                           DataType::float64_int64),
                         type_of);

TEST(ReduceBody, ScalesAsTheHostDoes) {
  for (const DataType type :
       {DataType::int8, DataType::uint8, DataType::int16, DataType::uint16, DataType::int32, DataType::uint32,
        DataType::int64, DataType::uint64, DataType::bfloat16, DataType::float32, DataType::float64, DataType::complex64,
        DataType::complex128})
    expect_scaled(plain_scale_body<MakeHostScaling>(scale_type(type)), type);
}

TEST(ReduceBody, CopiesEveryByteOnceFromAnywhereToAnywhere) {
  std::mt19937_64 random(seed + 3);
  const std::vector<uint8_t> data = mixed_elements(DataType::uint8, 5000, random);
  const Body body = copy_body<MakeHostReduction>();
  for (size_t count = 0; count <= 5000; count += count < 200 ? 1 : 37)
    for (int turn = 0; turn < 4; ++turn) {
      Bytes input(data, count, random() % 16), output(data, count, random() % 16);
      std::fill_n(output.begin(), count, std::byte{0});
      const DeviceReduction r{DataType::uint8, ReduceOp::bor, 1, {input.begin()}, output.begin(), count, 0};
      ReduceArguments arguments = plan_reduce(r).arguments;
      const uintptr_t from = reinterpret_cast<uintptr_t>(input.begin());
      arguments.parts = partition(reinterpret_cast<uintptr_t>(output.begin()), &from, 1, count, {1, 1});
      CheckedMemory memory({output.begin(), count}, {{input.begin(), count}});
      run(body, arguments, random_launch(arguments.parts, body.unrolled, random), memory);
      ASSERT_EQ(memory.wrong(), "") << "count " << count << ", seed " << seed;
      ASSERT_EQ(std::memcmp(output.begin(), data.data(), count), 0) << "count " << count << ", seed " << seed;
    }
}

TEST(Partition, TakesPacketsWhereverTheOutputLiesAtAMultipleOfItsElement) {
  for (uintptr_t output = 4096; output < 4112; output += 4)
    for (uintptr_t input = 8192; input < 8208; ++input) {
      const Partition parts = partition(output, &input, 1, 1000, {4, 4});
      EXPECT_EQ(parts.edges() + parts.packets * parts.lanes, 1000u);
      EXPECT_LE(parts.edges(), 16u) << output << " " << input;
      EXPECT_EQ(parts.shifted, (output - input) % 16 != 0);
    }
}

TEST(Partition, OfFewElementsHasNoPackets) {
  const uintptr_t input = 4096;
  for (uint64_t count = 0; count < 4; ++count) EXPECT_EQ(partition(4096, &input, 1, count, {4, 4}).packets, 0u);
  EXPECT_EQ(partition(4096, &input, 1, 4, {4, 4}).packets, 1u);
}

TEST(Partition, NeedsNoMoreBlocksThanHaveWork) {
  const uintptr_t input = 4096;
  EXPECT_EQ(blocks_for(partition(4096, &input, 1, 0, {4, 4}), 256, 4, 100), 1u);
  EXPECT_EQ(blocks_for(partition(4096, &input, 1, 4096, {4, 4}), 256, 4, 100), 1u);
  EXPECT_EQ(blocks_for(partition(4096, &input, 1, 4100, {4, 4}), 256, 4, 100), 2u);
  EXPECT_EQ(blocks_for(partition(4096, &input, 1, uint64_t{1} << 40, {4, 4}), 256, 4, 100), 100u);
}

}  // namespace
}  // namespace tutti::test
