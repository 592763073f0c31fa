// The kernels' bodies as functions of the host, chosen as libtutti_cuda.so's own sources choose them.
#include <thread>
#include <vector>

#include "cuda_kernels/small_float_families.h"
#include "device/linked_body.h"
#include "device/packet_body.h"
#include "device/reduce_body.h"
#include "stand_in.h"

namespace tutti {
namespace {

using stand_in::StandInKernel;
using Visitor = std::function<void(std::byte*&)>;

template <class Pointers>
void visit_all(Pointers& pointers, const Visitor& visit) {
  for (auto& pointer : pointers) visit(const_cast<std::byte*&>(pointer));
}
void visit_reduction(void* arguments, const Visitor& visit) {
  auto& a = *static_cast<ReduceArguments*>(arguments);
  for (int k = 0; k < a.n_inputs; ++k) visit(const_cast<std::byte*&>(a.inputs[k]));
  for (int k = 0; k < a.n_outputs; ++k) visit(a.outputs[k]);
}
void visit_scaling(void* arguments, const Visitor& visit) {
  auto& a = *static_cast<ScaleArguments*>(arguments);
  visit(const_cast<std::byte*&>(a.input));
  visit(a.output);
}
// Slots lie in the workspaces, perhaps at their end; so do counters.
template <class Arguments>
void visit_launch(void* arguments, const Visitor& visit) {
  auto& a = *static_cast<Arguments*>(arguments);
  visit_all(a.buffers.inputs, visit);
  visit_all(a.buffers.outputs, visit);
  for (uint32_t r = 0; r < linked_ranks_max; ++r) {
    std::byte*& workspace = a.part.workspaces[r];
    const auto slots_at = a.buffers.slots[r] - workspace;
    visit(workspace);
    a.buffers.slots[r] = workspace + slots_at;
  }
}

template <class Arguments, class Body>
void run_grid(const void* arguments, uint32_t blocks, uint32_t threads, Body body) {
  HostMemory memory;
  for (uint32_t block = blocks; block-- > 0;)  // any order will do
    for (uint32_t thread = 0; thread < threads; ++thread)
      body(*static_cast<const Arguments*>(arguments), GridPosition{block, blocks, thread, threads}, memory);
}

// Blocks of one channel may wait for each other: a thread for each.
template <class Pass, class Arguments, class Body>
void run_blocks(const void* arguments, uint32_t blocks, uint32_t threads, Body body) {
  const auto& a = *static_cast<const Arguments*>(arguments);
  std::vector<std::jthread> all;
  for (uint32_t i = 0; i < blocks; ++i)
    all.emplace_back([&a, i, threads, body] {
      const HostEnd end{a.part.ended, nullptr};
      HostMemory memory{end};
      HostBlock<Pass> block{i, threads, end};
      body(a, block, memory);
    });
}

struct MakeStandIn {
  using Body = Kernel;
  template <class In, class Out, class Op, int inputs_max, uint32_t unrolled>
  static Kernel reduce() {
    static StandInKernel kernel{sizeof(ReduceArguments), visit_reduction, [](const void* a, uint32_t blocks, uint32_t threads) {
                               run_grid<ReduceArguments>(a, blocks, threads, reduce_body<In, Out, Op, inputs_max, unrolled, HostMemory>);
                             }};
    return {&kernel, unrolled};
  }
  template <class Element, class Op>
  static Kernel scale() {
    static StandInKernel kernel{sizeof(ScaleArguments), visit_scaling, [](const void* a, uint32_t blocks, uint32_t threads) {
                               run_grid<ScaleArguments>(a, blocks, threads, scale_body<Element, Op, HostMemory>);
                             }};
    return {&kernel, 1};
  }
  template <class Element, class Op>
  static Kernel linked(bool packets) {
    static StandInKernel of_blocks{sizeof(LinkedArguments), visit_launch<LinkedArguments>,
                                   [](const void* a, uint32_t blocks, uint32_t threads) {
                                     run_blocks<ReduceArguments, LinkedArguments>(
                                         a, blocks, threads, [](const auto& arguments, auto& block, auto& memory) {
                                           linked_body(arguments, block, memory, FoldElements<Element, Op>());
                                         });
                                   }};
    static StandInKernel of_packets{sizeof(PacketArguments), visit_launch<PacketArguments>,
                                    [](const void* a, uint32_t blocks, uint32_t threads) {
                                      run_blocks<PacketPass, PacketArguments>(
                                          a, blocks, threads, [](const auto& arguments, auto& block, auto& memory) {
                                            packet_body(arguments, block, memory, FoldWords<Element, Op>());
                                          });
                                    }};
    return {packets ? &of_packets : &of_blocks, 1};
  }
};

}  // namespace

Kernel integer_kernel(DataType type, ReduceOp op, int n) noexcept { return integer_body<MakeStandIn>(type, op, n); }
Kernel float_kernel(DataType type, ReduceOp op, int n) noexcept {
  return type == DataType::float64 ? float_body<MakeStandIn, PlainElement<double>>(op, n)
                                   : float_body<MakeStandIn, PlainElement<float>>(op, n);
}
Kernel float16_kernel(DataType type, ReduceOp op, int n) noexcept { return float16_body<MakeStandIn>(type, op, n); }
Kernel float8_kernel(DataType type, ReduceOp op, int n) noexcept { return float8_body<MakeStandIn>(type, op, n); }
Kernel compound_kernel(DataType type, ReduceOp op) noexcept { return compound_body<MakeStandIn>(type, op); }
Kernel scale_kernel(DataType type) noexcept { return scale_body_of<MakeStandIn>(type); }

// Some of what libtutti_cuda.so has: enough for each way that a call may take, and for what has no such kernel.
Kernel linked_integer_kernel(DataType type, ReduceOp op, bool packets) noexcept {
  if (op != ReduceOp::sum) return {};
  switch (type) {
    case DataType::uint8: return MakeStandIn::linked<PlainElement<uint8_t>, scalar::Sum>(packets);
    case DataType::int32: return MakeStandIn::linked<PlainElement<int32_t>, scalar::Sum>(packets);
    case DataType::uint64: return MakeStandIn::linked<PlainElement<uint64_t>, scalar::Sum>(packets);
    default: return {};
  }
}
Kernel linked_float_kernel(DataType type, ReduceOp op, bool packets) noexcept {
  switch (type) {
    case DataType::float32: return linked_float_body<MakeStandIn, PlainElement<float>>(op, packets);
    case DataType::float16: return linked_float_body<MakeStandIn, ScalarFloat16>(op, packets);
    default: return {};
  }
}

}  // namespace tutti
