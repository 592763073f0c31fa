// Names, completeness, and results in several places at once.
#include "cases.h"

namespace tutti {
namespace {

TEST(Reduce, HasAFunctionForEveryTypeAndOperatorThatBelongTogetherThatStaysTheSame) {
  for (const DataTypeInfo& row : data_types)
    for (size_t i = 0; i < reduce_op_names.size(); ++i) {
      const ReduceOp op = ReduceOp(i);
      EXPECT_EQ(reduce_function(row.type, op) != nullptr, defined(op, row.type)) << row.name << " " << name(op);
      EXPECT_EQ(reduce_function(row.type, op), reduce_function(row.type, op));
    }
  std::printf("instruction set: %s\n", reduce_target());
}

TEST(Reduce, KnowsWhichTypesHaveWhichOperators) {
  const auto count = [](DataType type) { return ops_of(type).size(); };
  for (const DataType type : {DataType::int8, DataType::uint16, DataType::int64}) EXPECT_EQ(count(type), 10u);
  for (const DataType type : {DataType::float32, DataType::float8e4m3}) EXPECT_EQ(count(type), 5u);
  EXPECT_EQ(count(DataType::boolean), 9u);
  EXPECT_EQ(count(DataType::complex128), 3u);
  EXPECT_EQ(count(DataType::int32_int32), 2u);
  EXPECT_EQ(count(DataType::opaque), 0u);
  EXPECT_FALSE(defined(ReduceOp::avg, DataType::boolean));
  EXPECT_FALSE(defined(ReduceOp::premulsum, DataType::boolean));
  EXPECT_TRUE(defined(ReduceOp::premulsum, DataType::complex64));
  EXPECT_TRUE(defined(ReduceOp::custom_in_order, DataType::opaque));
}

TEST(Reduce, EveryFiniteCodeOfTheReferenceIsItsOwnRounding) {
  for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2}) {
    const SmallFloat f = small_float(type);
    for (uint32_t code = 0; code <= f.code_max; ++code) {
      EXPECT_EQ(encode_small_float(type, decode_small_float(type, code)), code);
      EXPECT_EQ(encode_small_float(type, decode_small_float(type, code | f.sign)), code | f.sign);
    }
  }
  EXPECT_EQ(decode_small_float(DataType::float8e4m3, 0x7e), 448.0);
  EXPECT_EQ(decode_small_float(DataType::float8e5m2, 0x7b), 57344.0);
  EXPECT_EQ(decode_small_float(DataType::float16, 0x7bff), 65504.0);
  EXPECT_EQ(decode_small_float(DataType::bfloat16, 0x3f80), 1.0);
}

// The same bits in every output, whatever lies where.
TEST(Reduce, PutsIntoSeveralOutputsWhatItReducesIntoOne) {
  std::mt19937_64 random(seed);
  constexpr size_t count_max = 2111;
  on_every_target([&] {
    for (const DataType type : {DataType::float32, DataType::float64, DataType::float16, DataType::bfloat16}) {
      const PutFunction put = put_function(type, ReduceOp::avg);
      ASSERT_NE(put, nullptr);
      const size_t width = element_bytes(type);
      std::vector<std::vector<uint8_t>> sources;
      for (int k = 0; k < 8; ++k) sources.push_back(mixed_elements(type, count_max, random));
      for (const int n_inputs : {2, 3, 8})
        for (const int n_outputs : {2, 5, 8})
          for (const Store store : {Store::cached, Store::streaming})
            for (const size_t count : {size_t{1}, size_t{63}, size_t{1024}, count_max})
              for (const int shape : {0, 1, 2}) {  // all aligned, each elsewhere, each its own input
                const void* inputs[8] = {};
                std::vector<GuardedBytes> outputs;
                outputs.reserve(size_t(n_outputs));
                void* to[8] = {};
                for (int k = 0; k < n_inputs; ++k) inputs[k] = sources[size_t(k)].data();
                std::vector<uint8_t> expected(count * width);
                reduce_function(type, ReduceOp::avg)(expected.data(), inputs, n_inputs, count, 3, Store::cached);
                for (int k = 0; k < n_outputs; ++k) {
                  outputs.emplace_back(count * width, shape == 1 ? size_t(k) * 5 : 0);
                  to[k] = outputs.back().data();
                  if (shape != 2 || k >= n_inputs) continue;
                  std::copy_n(sources[size_t(k)].data(), count * width, outputs.back().data());
                  inputs[k] = to[k];
                }
                put(to, n_outputs, inputs, n_inputs, count, 3, store);
                stream_end();
                for (GuardedBytes& output : outputs) {
                  ASSERT_EQ(std::memcmp(output.data(), expected.data(), expected.size()), 0)
                      << name(type) << " " << n_inputs << " to " << n_outputs << ", " << count << ", seed " << seed;
                  ASSERT_TRUE(output.guards_intact());
                }
              }
    }
  });
  EXPECT_EQ(put_function(DataType::float32, ReduceOp::prod), nullptr);
  EXPECT_EQ(put_function(DataType::int32, ReduceOp::sum), nullptr);
}

}  // namespace
}  // namespace tutti
