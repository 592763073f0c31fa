// Complex numbers: exact in every placement; products by their formula.
#include <complex>

#include "cases.h"

namespace tutti {
namespace {

class EveryComplex : public ::testing::TestWithParam<DataType> {};
TEST_P(EveryComplex, GivesTheReferencesBitsInEveryPlacement) { expect_exact_everywhere(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Complex, EveryComplex, ::testing::Values(DataType::complex64, DataType::complex128),
                         type_name);

TEST(Complex, AreLaidOutAsThoseOfTheLanguage) {
  const std::complex<float> a(1, 2), b(3, -4);
  const void* inputs[] = {&a, &b};
  std::complex<float> result;
  reduce_function(DataType::complex64, ReduceOp::prod)(&result, inputs, 2, 1, 0, Store::cached);
  EXPECT_EQ(result, a * b);
  reduce_function(DataType::complex64, ReduceOp::avg)(&result, inputs, 2, 1, 2, Store::cached);
  EXPECT_EQ(result, std::complex<float>(2, -1));
}

}  // namespace
}  // namespace tutti
