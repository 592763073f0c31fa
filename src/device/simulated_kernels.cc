// Blocks of a launch, one after the other, and the ranks of one launch on a thread each.
#include "device/simulated_kernels.h"

#include <thread>
#include <vector>

#include "device/host_block.h"
#include "device/linked_launch.h"
#include "reduce/reduce.h"

namespace tutti {
namespace {

constexpr uint32_t block_threads = 32;

struct HostFold {
  ReduceFunction reduce;
  size_t width;

  // The first thread does the work of all.
  void operator()(const ReduceArguments& pass, GridPosition at, HostMemory&) const {
    if (at.thread != 0) return;
    const uint64_t count = pass.parts.edges() + pass.parts.packets * pass.parts.lanes;
    if (count == 0) return;
    const bool copies = pass.n_inputs == 1 && pass.divisor <= 1;
    const uint64_t bytes = copies ? count : count * width;
    if (copies) {
      std::memmove(pass.outputs[0], pass.inputs[0], bytes);
    } else {
      std::array<const void*, linked_places_max> inputs{};
      std::copy(pass.inputs, pass.inputs + pass.n_inputs, inputs.begin());
      reduce(pass.outputs[0], inputs.data(), pass.n_inputs, count, pass.divisor, Store::cached);
    }
    for (int k = 1; k < pass.n_outputs; ++k) std::memmove(pass.outputs[k], pass.outputs[0], bytes);
  }

  uint64_t operator()(const uint64_t (&words)[linked_places_max], uint32_t n, uint32_t bytes, uint32_t divisor) const {
    if (n == 1 && divisor <= 1) return words[0];
    std::array<const void*, linked_places_max> inputs{};
    for (uint32_t k = 0; k < n; ++k) inputs[k] = &words[k];
    uint64_t result = 0;
    reduce(&result, inputs.data(), int(n), bytes / width, divisor, Store::cached);
    return result;
  }
};

// All blocks of one rank after the other: a block waits for those of its channel only.
template <class Pass, class Body>
void run_blocks(const LinkedLaunchPart& part, const HostEnd& end, Body body) {
  const auto run_rank = [&](uint32_t place) {
    HostMemory memory{end};
    for (uint32_t channel = 0; channel < part.channels && !end.has_come(); ++channel) {
      HostBlock<Pass> block{place * part.channels + channel, block_threads, end};
      body(block, memory);
    }
  };
  std::vector<std::jthread> others;
  for (uint32_t place = 1; place < part.n_ranks; ++place) others.emplace_back(run_rank, place);
  run_rank(0);
}

}  // namespace

bool run_launch_on_host(const LinkedCall& call, const std::atomic<bool>& lost) {
  const HostEnd end{call.meeting.ended, &lost};
  if (end.has_come()) return false;
  if (!call.meets()) {
    run_linked_on_host(call);
    return true;
  }
  const HostFold fold{reduce_function(call.type, call.op), element_bytes(call.type)};
  const LinkedElements as{call.type, call.count};
  if (call.plan->packets) {
    PacketArguments a;
    if (!packet_arguments(call, as, 0, &a)) return false;
    run_blocks<PacketPass>(a.part, end, [&](auto& block, HostMemory& memory) { packet_body(a, block, memory, fold); });
  } else {
    const LinkedArguments a = linked_arguments(call, as, 0);
    run_blocks<ReduceArguments>(a.part, end, [&](auto& block, HostMemory& memory) { linked_body(a, block, memory, fold); });
  }
  return !end.has_come();
}

}  // namespace tutti
