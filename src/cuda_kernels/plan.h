// From a reduction to its kernel's parameters: plain C++, so that tests take the way of the device.
#pragma once

#include <cstring>

#include "cuda_kernels/kernels.h"
#include "cuda_kernels/linked_body.h"
#include "cuda_kernels/reduce_body.h"
#include "device/device.h"
#include "device/linked_call.h"

namespace tutti {

struct ReducePlan {
  bool copies = false;  // one input and nothing to be made of it: its bytes are the result
  KernelCall call{};
  ReduceArguments arguments{};
};

// The types, operator and numbers are those of a reduction that supports() and its own limits allow.
inline ReducePlan plan_reduce(const DeviceReduction& r) noexcept {
  ReducePlan plan;
  plan.copies = r.n_inputs == 1 && r.divisor <= (gives_truth(r.op, r.type) ? 0 : 1);
  const uintptr_t output = reinterpret_cast<uintptr_t>(r.output);
  plan.call = kernel_call(r.type, r.op, r.count, output);
  ReduceArguments& a = plan.arguments;
  a.outputs[0] = static_cast<std::byte*>(r.output);
  a.n_outputs = 1;
  for (int k = 0; k < r.n_inputs; ++k) a.inputs[k] = static_cast<const std::byte*>(r.inputs[size_t(k)]);
  a.n_inputs = r.n_inputs;
  a.divisor = r.divisor;
  const uint32_t bytes = uint32_t(element_bytes(plan.call.type));
  a.parts = partition(a.addresses(), plan.call.count, {bytes, bytes});
  return plan;
}

// Where a scalar's kernel is another type's: integers wrap alike with a sign and without.
constexpr DataType scale_type(DataType type) { return kernel_call(type, ReduceOp::prod, 0, 0).type; }

inline ScaleArguments plan_scale(DataType type, const void* scalar, const void* input, void* output,
                                 size_t count) noexcept {
  ScaleArguments a{};
  a.output = static_cast<std::byte*>(output);
  a.input = static_cast<const std::byte*>(input);
  std::memcpy(&a.scalar, scalar, element_bytes(type));
  const uint32_t bytes = uint32_t(element_bytes(type));
  const std::byte* const to = a.output;
  a.parts = partition({&to, 1, &a.input, 1}, count, {bytes, bytes});
  return a;
}

// Bytes that are worth a block of their own.
inline constexpr size_t linked_block_bytes_min = 16384;

struct LinkedLaunch {
  KernelCall call{};
  LinkedArguments arguments{};
};

// `blocks_max` of them are under way on the device at once. Counters are those of 255 steps a call at most.
inline LinkedLaunch plan_linked(const LinkedCall& c, uint32_t blocks_max) noexcept {
  LinkedLaunch launch;
  LinkedArguments& a = launch.arguments;
  a.plan = *c.plan;
  uintptr_t any = c.count * element_bytes(c.type);  // a multiple of four bytes where all of them are
  for (uint32_t r = 0; r < a.plan.ranks; ++r)
    any |= reinterpret_cast<uintptr_t>(c.inputs[r]) | reinterpret_cast<uintptr_t>(c.outputs[r]);
  launch.call = kernel_call(c.type, c.op, c.count, any);
  const size_t width = element_bytes(launch.call.type);
  a.buffers = linked_buffers(c, launch.call.type, launch.call.count);
  a.progress = static_cast<uint32_t*>(c.workspace);
  a.epoch = c.call_number * 256;
  a.divisor = c.divisor;
  // The longest pass of a rank is over its largest chunk.
  const uint64_t chunk = a.plan.blocks ? launch.call.count : Chunks(launch.call.count, a.plan.chunks, width).per_chunk();
  const uint64_t wanted = (chunk * width + linked_block_bytes_min - 1) / linked_block_bytes_min;
  const uint32_t most = blocks_max / a.plan.ranks < linked_channels_max ? blocks_max / a.plan.ranks : linked_channels_max;
  a.channels = uint32_t(wanted < 1 ? 1 : wanted < most ? wanted : most < 1 ? 1 : most);
  return launch;
}

}  // namespace tutti
