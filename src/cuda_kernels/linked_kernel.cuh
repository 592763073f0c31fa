// The kernels of linked plans around their bodies: what a block is on the device.
#pragma once

#include "cuda_kernels/kernel.cuh"
#include "device/linked_body.h"
#include "device/packet_body.h"

namespace tutti {

// Between two looks at the host's word, which is far away.
inline constexpr uint32_t looks_between = 1024;

__device__ inline bool has_ended(const uint32_t* ended) {
  return ended != nullptr && *reinterpret_cast<const volatile uint32_t*>(ended) != 0;
}

template <class Pass>
struct DeviceBlock {
  uint32_t index, threads;
  const uint32_t* ended;
  Pass* shared;

  __device__ Pass& pass() { return *shared; }
  __device__ bool goes_on() { return __syncthreads_or(threadIdx.x == 0 && has_ended(ended)) == 0; }
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
  __device__ bool wait(const LinkedCounter* of, uint64_t value) {
    return __syncthreads_or(threadIdx.x == 0 && !comes(of, value)) == 0;
  }
  __device__ void tell(LinkedCounter* to, uint64_t value) {
    __syncthreads();
    if (threadIdx.x == 0) publish(to, value);
  }
  // A thread for each of the others, at once.
  template <class To, class Of>
  __device__ bool meet(uint32_t n, To to, Of of, uint64_t value) {
    __syncthreads();
    bool well = true;
    if (threadIdx.x < n) {
      if (LinkedCounter* const there = to(threadIdx.x)) publish(there, value);
      if (const LinkedCounter* const here = of(threadIdx.x)) well = comes(here, value);
    }
    return __syncthreads_or(!well) == 0;
  }

 private:
  // Pairs with publish() by a thread of any GPU: what its block wrote before is then seen by this one's.
  __device__ bool comes(const LinkedCounter* of, uint64_t value) const {
    for (uint32_t looks = 1;; ++looks) {
      uint64_t seen;
      asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(of) : "memory");
      if (seen >= value) return true;
      if (looks % looks_between == 0 && has_ended(ended)) return false;
    }
  }
  __device__ static void publish(LinkedCounter* to, uint64_t value) {
    __threadfence_system();
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }
};

// Packets pass the first cache, each as one access of 16 bytes.
struct PacketMemory : DeviceMemory {
  const uint32_t* ended;
  uint32_t looks = 0;

  __device__ explicit PacketMemory(const uint32_t* word) : ended(word) {}
  __device__ Packet<16> load_packet(const std::byte* from) const {
    Packet<16> p;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(p.words[0]), "=r"(p.words[1]), "=r"(p.words[2]), "=r"(p.words[3])
                 : "l"(from)
                 : "memory");
    return p;
  }
  __device__ void store_packet(std::byte* to, const Packet<16>& p) const {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(p.words[0]), "r"(p.words[1]),
                 "r"(p.words[2]), "r"(p.words[3])
                 : "memory");
  }
  __device__ bool gives_up() { return ++looks % looks_between == 0 && has_ended(ended); }
};

template <class Element, class Op>
__global__ void __launch_bounds__(kernel_threads, linked_blocks_each) linked_of(const __grid_constant__ LinkedArguments arguments) {
  __shared__ ReduceArguments pass;
  DeviceBlock<ReduceArguments> block{blockIdx.x, blockDim.x, arguments.part.ended, &pass};
  DeviceMemory memory;
  linked_body(arguments, block, memory, FoldElements<Element, Op>());
}

template <class Element, class Op>
__global__ void __launch_bounds__(kernel_threads, linked_blocks_each) packets_of(const __grid_constant__ PacketArguments arguments) {
  __shared__ PacketPass pass;
  DeviceBlock<PacketPass> block{blockIdx.x, blockDim.x, arguments.part.ended, &pass};
  PacketMemory memory(arguments.part.ended);
  packet_body(arguments, block, memory, FoldWords<Element, Op>());
}

struct MakeLinkedKernel {
  using Body = Kernel;
  template <class Element, class Op>
  static Kernel linked(bool packets) {
    if (packets) return {reinterpret_cast<const void*>(&packets_of<Element, Op>), 1};
    return {reinterpret_cast<const void*>(&linked_of<Element, Op>), 1};
  }
};

}  // namespace tutti
