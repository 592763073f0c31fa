// The kernels around the bodies: where a thread stands, and what memory is on the device.
#pragma once

#include "cuda_kernels/families.h"
#include "cuda_kernels/kernels.h"
#include "device/reduce_body.h"

namespace tutti {

__device__ inline GridPosition position_here() { return {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}; }

// Plain loads and stores of the global memory, one instruction each.
struct DeviceMemory {
  template <class Word>
  __device__ Word load(const std::byte* from) const {
    if constexpr (sizeof(Word) == 16) return std::bit_cast<Word>(*reinterpret_cast<const uint4*>(from));
    else return *reinterpret_cast<const Word*>(from);
  }
  template <class Word>
  __device__ void store(std::byte* to, Word word) const {
    if constexpr (sizeof(Word) == 16) *reinterpret_cast<uint4*>(to) = std::bit_cast<uint4>(word);
    else *reinterpret_cast<Word*>(to) = word;
  }
};

// At least two blocks a multiprocessor: left free, the compiler spills a register or two for the sake of more.
template <class In, class Out, class Op, int inputs_max, uint32_t unrolled>
__global__ void __launch_bounds__(kernel_threads, 2) reduce_of(const __grid_constant__ ReduceArguments arguments) {
  DeviceMemory memory;
  reduce_body<In, Out, Op, inputs_max, unrolled>(arguments, position_here(), memory);
}

template <class Element, class Op>
__global__ void __launch_bounds__(kernel_threads, 2) scale_of(const __grid_constant__ ScaleArguments arguments) {
  DeviceMemory memory;
  scale_body<Element, Op>(arguments, position_here(), memory);
}

// Makes kernels of the bodies that families.h names.
struct MakeKernel {
  using Body = Kernel;
  template <class In, class Out, class Op, int inputs_max, uint32_t unrolled>
  static Kernel reduce() {
    return {reinterpret_cast<const void*>(&reduce_of<In, Out, Op, inputs_max, unrolled>), unrolled};
  }
  template <class Element, class Op>
  static Kernel scale() {
    return {reinterpret_cast<const void*>(&scale_of<Element, Op>), 1};
  }
};

}  // namespace tutti
