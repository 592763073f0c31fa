// The kernels' own code on the host: each thread of each launch touches what is its, and the bits are the host's.
#include "device/reduce_body.h"

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
      arguments.parts = partition(arguments.addresses(), count, {1, 1});
      CheckedMemory memory({output.begin(), count}, {{input.begin(), count}});
      run(body, arguments, random_launch(arguments.parts, body.unrolled, random), memory);
      ASSERT_EQ(memory.wrong(), "") << "count " << count << ", seed " << seed;
      ASSERT_EQ(std::memcmp(output.begin(), data.data(), count), 0) << "count " << count << ", seed " << seed;
    }
}

// Up to eight outputs, of which some may be inputs: what a rank adds goes to all its peers in the same pass.
TEST(ReduceBody, WritesEveryOutput) {
  std::mt19937_64 random(seed + 5);
  std::vector<std::vector<uint8_t>> data;
  for (int k = 0; k < kernel_inputs_max; ++k) data.push_back(mixed_elements(DataType::float32, 1500, random));
  for (int turn = 0; turn < 2000; ++turn) {
    const size_t n = 1 + random() % 8, count = random() % 1500, bytes = 4 * count, unit = random() % 3 == 0 ? 1 : 4;
    const size_t n_outputs = 1 + random() % 8, common = random() % 16 / unit * unit;
    const bool in_place = random() % 2, alike = random() % 2;
    std::vector<Bytes> buffers;
    buffers.reserve(16);
    ReduceArguments a{};
    std::vector<Range> inputs, outputs;
    const void* from[kernel_inputs_max];
    const auto shift = [&] { return alike ? common : random() % 16 / unit * unit; };
    for (size_t k = 0; k < n; ++k) {
      buffers.emplace_back(data[k], bytes, shift());
      from[k] = a.inputs[k] = buffers.back().begin();
      inputs.push_back({a.inputs[k], bytes});
    }
    for (size_t k = 0; k < n_outputs; ++k) {
      if (!in_place || k >= n) buffers.emplace_back(data[0], bytes, in_place ? common : shift());
      a.outputs[k] = in_place && k < n ? buffers[k].begin() : buffers.back().begin();
      outputs.push_back({a.outputs[k], bytes});
    }
    a.n_inputs = int32_t(n), a.n_outputs = int32_t(n_outputs), a.divisor = n > 1 ? 3 : 2;
    // An input that is an output too must lie as all outputs do, or be taken one by one.
    a.parts = partition(a.addresses(), count, {4, 4});
    std::vector<uint8_t> expected(bytes);
    reduce_function(DataType::float32, ReduceOp::sum)(expected.data(), from, int(n), count, a.divisor, Store::cached);
    CheckedMemory memory(outputs, inputs);
    const auto body = float_body<MakeHostReduction, PlainElement<float>>(ReduceOp::sum, int(n));
    run(body, a, random_launch(a.parts, body.unrolled, random), memory);
    ASSERT_EQ(memory.wrong(), "") << "turn " << turn << ", seed " << seed;
    for (const Range& output : outputs)
      ASSERT_TRUE(bytes == 0 || std::memcmp(output.begin, expected.data(), bytes) == 0) << "turn " << turn << ", seed " << seed;
  }
}

const Partition of(uintptr_t output, uintptr_t input, uint64_t count) {
  const std::byte* const to = reinterpret_cast<const std::byte*>(output);
  const std::byte* const from = reinterpret_cast<const std::byte*>(input);
  return partition({&to, 1, &from, 1}, count, {4, 4});
}

TEST(Partition, TakesPacketsWhereverTheOutputLiesAtAMultipleOfItsElement) {
  for (uintptr_t output = 4096; output < 4112; output += 4)
    for (uintptr_t input = 8192; input < 8208; ++input) {
      const Partition parts = of(output, input, 1000);
      EXPECT_EQ(parts.edges() + parts.packets * parts.lanes, 1000u);
      EXPECT_LE(parts.edges(), 16u) << output << " " << input;
      EXPECT_EQ(parts.shifted, (output - input) % 16 != 0);
    }
}

TEST(Partition, OfFewElementsHasNoPackets) {
  for (uint64_t count = 0; count < 4; ++count) EXPECT_EQ(of(4096, 4096, count).packets, 0u);
  EXPECT_EQ(of(4096, 4096, 4).packets, 1u);
}

TEST(Partition, NeedsNoMoreBlocksThanHaveWork) {
  EXPECT_EQ(blocks_for(of(4096, 4096, 0), 256, 4, 100), 1u);
  EXPECT_EQ(blocks_for(of(4096, 4096, 4096), 256, 4, 100), 1u);
  EXPECT_EQ(blocks_for(of(4096, 4096, 4100), 256, 4, 100), 2u);
  EXPECT_EQ(blocks_for(of(4096, 4096, uint64_t{1} << 40), 256, 4, 100), 100u);
}

}  // namespace
}  // namespace tutti::test
