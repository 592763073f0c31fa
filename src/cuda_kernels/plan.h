// From a reduction to its kernel's parameters: plain C++, so that tests take the way of the device.
#pragma once

#include <cstring>

#include "cuda_kernels/kernels.h"
#include "device/device.h"
#include "device/linked_launch.h"
#include "device/reduce_body.h"

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

// A call's elements as its kernel takes them: as many of four bytes as one of its type where it is of bits, and all buffers
// allow it.
inline KernelCall linked_kernel_call(const LinkedCall& c) noexcept {
  uintptr_t any = c.count * element_bytes(c.type);  // a multiple of four bytes where all of them are
  for (uint32_t r = 0; r < c.plan->ranks; ++r)
    any |= reinterpret_cast<uintptr_t>(c.inputs[r]) | reinterpret_cast<uintptr_t>(c.outputs[r]);
  return kernel_call(c.type, c.op, c.count, any);
}

}  // namespace tutti
