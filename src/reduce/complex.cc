// complex64 and complex128: sums are those of their parts; products are plain loops.
#include "reduce/elements.h"
#include "reduce/families.h"
#include "reduce/plain.h"

namespace tutti {
namespace {

// A ReduceFunction.
template <DataType part>
void sum_parts(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t divisor,
               Store store) noexcept {
  float_function(part, ReduceOp::sum)(output, inputs, n_inputs, 2 * count, divisor, store);
}

template <class F, DataType part>
ReduceFunction complex_for(ReduceOp op) {
  return op == ReduceOp::prod ? reduce_plain<Complex<F>, scalar::Prod> : sum_parts<part>;
}

}  // namespace

ReduceFunction complex_function(DataType type, ReduceOp op) noexcept {
  return type == DataType::complex128 ? complex_for<double, DataType::float64>(op)
                                      : complex_for<float, DataType::float32>(op);
}

}  // namespace tutti
