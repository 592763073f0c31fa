// Kernels that multiply every element by one scalar.
#include "cuda_kernels/kernel.cuh"
#include "cuda_kernels/small_float_families.h"

namespace tutti {

Kernel scale_kernel(DataType type) noexcept { return scale_body_of<MakeKernel>(type); }

}  // namespace tutti
