// Kernels of float8e4m3 and float8e5m2: joined in float, rounded once, saturating.
#include "cuda_kernels/kernel.cuh"
#include "cuda_kernels/small_float_families.h"

namespace tutti {

Kernel float8_kernel(DataType type, ReduceOp op, int n_inputs) noexcept {
  return float8_body<MakeKernel>(type, op, n_inputs);
}

}  // namespace tutti
