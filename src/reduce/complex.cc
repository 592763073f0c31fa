// complex64 and complex128: sums are those of their parts; products are plain loops.
#include <cmath>
#include <limits>

#include "reduce/families.h"
#include "reduce/plain.h"

namespace tutti {
namespace {

template <class F>
struct Complex {
  F real, imaginary;
};

template <class F>
F canonical(F part) {
  return std::isnan(part) ? std::numeric_limits<F>::quiet_NaN() : part;
}

struct Product {
  template <class F>
  static Complex<F> apply(Complex<F> a, Complex<F> b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  }
  template <class F>
  static Complex<F> finished(Complex<F> a) {
    return {canonical(a.real), canonical(a.imaginary)};
  }
};

// A ReduceFunction.
template <DataType part>
void sum_parts(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t divisor,
               Store store) noexcept {
  float_function(part, ReduceOp::sum)(output, inputs, n_inputs, 2 * count, divisor, store);
}

template <class F, DataType part>
ReduceFunction complex_for(ReduceOp op) {
  return op == ReduceOp::prod ? reduce_plain<Complex<F>, Product> : sum_parts<part>;
}

}  // namespace

ReduceFunction complex_function(DataType type, ReduceOp op) noexcept {
  return type == DataType::complex128 ? complex_for<double, DataType::float64>(op)
                                      : complex_for<float, DataType::float32>(op);
}

}  // namespace tutti
