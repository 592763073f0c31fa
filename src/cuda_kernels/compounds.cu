// Kernels of truth values, complex products and pairs.
#include "cuda_kernels/kernel.cuh"

namespace tutti {

Kernel compound_kernel(DataType type, ReduceOp op) noexcept { return compound_body<MakeKernel>(type, op); }

}  // namespace tutti
