// Kernels of float16 and bfloat16: joined in float, rounded once.
#include "cuda_kernels/kernel.cuh"
#include "cuda_kernels/small_float_families.h"

namespace tutti {

Kernel float16_kernel(DataType type, ReduceOp op, int n_inputs) noexcept {
  return float16_body<MakeKernel>(type, op, n_inputs);
}

}  // namespace tutti
