// Multiplication by a scalar: as the reference's product, for all types that have premulsum.
#include "reduce/scale.h"

#include "cases.h"

namespace tutti {
namespace {

TEST(Scale, MultipliesAsTheReferencesProductDoes) {
  std::mt19937_64 random(seed);
  for (const DataTypeInfo& row : data_types) {
    if (!defined(ReduceOp::premulsum, row.type)) continue;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}, size_t{5001}}) {
      std::vector<uint8_t> scalar = mixed_elements(row.type, 1, random), scalars, data;
      for (size_t i = 0; i < count; ++i) scalars.insert(scalars.end(), scalar.begin(), scalar.end());
      data = mixed_elements(row.type, count, random);
      const std::vector<uint8_t> expected = reference_reduce(row.type, ReduceOp::prod, {data, scalars}, 0);
      std::vector<uint8_t> output(data.size() + 3);
      scale(row.type, scalar.data(), data.data(), output.data() + 3, count);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), output.begin() + 3)) << row.name << " " << count;
      scale(row.type, scalar.data(), data.data(), data.data(), count);
      EXPECT_EQ(data, expected) << row.name << " in place";
    }
  }
}

}  // namespace
}  // namespace tutti
