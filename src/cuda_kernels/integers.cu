// Kernels of integers of 8 to 64 bits.
#include "cuda_kernels/kernel.cuh"

namespace tutti {

Kernel integer_kernel(DataType type, ReduceOp op, int n_inputs) noexcept {
  return integer_body<MakeKernel>(type, op, n_inputs);
}

}  // namespace tutti
