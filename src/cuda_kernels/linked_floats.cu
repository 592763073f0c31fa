// Kernels of linked plans: of floats, of 8 bits sums only.
#include "cuda_kernels/linked_kernel.cuh"
#include "cuda_kernels/small_floats.h"

namespace tutti {
namespace {

template <class Element>
Kernel of_type(ReduceOp op, bool packets) {
  switch (op) {
    case ReduceOp::sum: return linked_kernel_of<Element, scalar::Sum>(packets);
    case ReduceOp::prod: return linked_kernel_of<Element, scalar::Prod>(packets);
    case ReduceOp::max: return linked_kernel_of<Element, scalar::Max>(packets);
    case ReduceOp::min: return linked_kernel_of<Element, scalar::Min>(packets);
    default: return {};
  }
}

}  // namespace

Kernel linked_float_kernel(DataType type, ReduceOp op, bool packets) noexcept {
  switch (type) {
    case DataType::float64: return of_type<PlainElement<double>>(op, packets);
    case DataType::float32: return of_type<PlainElement<float>>(op, packets);
    case DataType::float16: return of_type<ScalarFloat16>(op, packets);
    case DataType::bfloat16: return of_type<ScalarBfloat16>(op, packets);
    default: break;
  }
  if (op != ReduceOp::sum) return {};
  return type == DataType::float8e5m2 ? linked_kernel_of<ScalarFloat8e5m2, scalar::Sum>(packets)
                                      : linked_kernel_of<ScalarFloat8e4m3, scalar::Sum>(packets);
}

}  // namespace tutti
