// Kernels of linked plans: of floats, of 8 bits sums only.
#include "cuda_kernels/families.h"
#include "cuda_kernels/linked_kernel.cuh"
#include "cuda_kernels/small_floats.h"

namespace tutti {

Kernel linked_float_kernel(DataType type, ReduceOp op, bool packets) noexcept {
  switch (type) {
    case DataType::float64: return linked_float_body<MakeLinkedKernel, PlainElement<double>>(op, packets);
    case DataType::float32: return linked_float_body<MakeLinkedKernel, PlainElement<float>>(op, packets);
    case DataType::float16: return linked_float_body<MakeLinkedKernel, ScalarFloat16>(op, packets);
    case DataType::bfloat16: return linked_float_body<MakeLinkedKernel, ScalarBfloat16>(op, packets);
    default: break;
  }
  if (op != ReduceOp::sum) return {};
  return type == DataType::float8e5m2 ? MakeLinkedKernel::linked<ScalarFloat8e5m2, scalar::Sum>(packets)
                                      : MakeLinkedKernel::linked<ScalarFloat8e4m3, scalar::Sum>(packets);
}

}  // namespace tutti
