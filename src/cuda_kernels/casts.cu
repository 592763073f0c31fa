// Kernels that read floats of one type, add them and write another; and the one that copies.
#include "cuda_kernels/kernel.cuh"
#include "cuda_kernels/small_float_families.h"

namespace tutti {

Kernel cast_kernel(DataType from, DataType to) noexcept { return cast_body<MakeKernel>(from, to); }

Kernel copy_kernel() noexcept { return copy_body<MakeKernel>(); }

}  // namespace tutti
