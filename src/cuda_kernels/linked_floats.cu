// Kernels of linked plans: of floats, of 8 bits sums only.
#include "cuda_kernels/linked_kernel.cuh"
#include "cuda_kernels/small_floats.h"

namespace tutti {
namespace {

template <class Element>
Kernel of_type(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return linked_kernel_of<Element, scalar::Sum>();
    case ReduceOp::prod: return linked_kernel_of<Element, scalar::Prod>();
    case ReduceOp::max: return linked_kernel_of<Element, scalar::Max>();
    case ReduceOp::min: return linked_kernel_of<Element, scalar::Min>();
    default: return {};
  }
}

}  // namespace

Kernel linked_float_kernel(DataType type, ReduceOp op) noexcept {
  switch (type) {
    case DataType::float64: return of_type<PlainElement<double>>(op);
    case DataType::float32: return of_type<PlainElement<float>>(op);
    case DataType::float16: return of_type<ScalarFloat16>(op);
    case DataType::bfloat16: return of_type<ScalarBfloat16>(op);
    default: break;
  }
  if (op != ReduceOp::sum) return {};
  return type == DataType::float8e5m2 ? linked_kernel_of<ScalarFloat8e5m2, scalar::Sum>()
                                      : linked_kernel_of<ScalarFloat8e4m3, scalar::Sum>();
}

}  // namespace tutti
