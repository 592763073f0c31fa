// The kernel of linked plans around its body: what a block is on the device.
#pragma once

#include "cuda_kernels/kernel.cuh"
#include "cuda_kernels/linked_body.h"

namespace tutti {

struct DeviceBlock {
  uint32_t index, threads;
  ReduceArguments* shared;

  __device__ ReduceArguments& pass() { return *shared; }
  template <class F>
  __device__ void once(F f) {
    __syncthreads();  // nobody reads the last one any more
    if (threadIdx.x == 0) f();
    __syncthreads();
  }
  template <class F>
  __device__ void all(F f) {
    f(threadIdx.x);
  }
  // Pairs with tell() in another block: what it wrote before is then seen by all threads of this one.
  __device__ void wait(const uint32_t* flag, uint32_t value) {
    if (threadIdx.x == 0) {
      uint32_t seen;
      do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
      while (static_cast<int32_t>(seen - value) < 0);
    }
    __syncthreads();
  }
  __device__ void tell(uint32_t* flag, uint32_t value) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
  }
};

template <class Element, class Op>
__global__ void __launch_bounds__(kernel_threads, 2) linked_of(const __grid_constant__ LinkedArguments arguments) {
  __shared__ ReduceArguments pass;
  DeviceBlock block{blockIdx.x, blockDim.x, &pass};
  DeviceMemory memory;
  linked_body<Element, Op>(arguments, block, memory);
}

template <class Element, class Op>
Kernel linked_kernel_of() {
  return {reinterpret_cast<const void*>(&linked_of<Element, Op>), 1};
}

}  // namespace tutti
