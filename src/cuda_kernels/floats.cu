// Kernels of float32 and float64.
#include "cuda_kernels/kernel.cuh"

namespace tutti {

Kernel float_kernel(DataType type, ReduceOp op, int n_inputs) noexcept {
  return type == DataType::float64 ? float_body<MakeKernel, PlainElement<double>>(op, n_inputs)
                                   : float_body<MakeKernel, PlainElement<float>>(op, n_inputs);
}

}  // namespace tutti
