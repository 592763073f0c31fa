// Linked plans on the memory of the host.
#include "device/linked_call.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "reduce/reduce.h"

namespace tutti {
namespace {

bool is_ready(const LinkedStep& step, const std::array<uint32_t, linked_ranks_max>& done) {
  for (uint32_t k = 0; k < step.n_waits; ++k)
    if (done[step.waits[k].rank] < step.waits[k].steps) return false;
  return true;
}

void run_step(const LinkedCall& call, const LinkedBuffers& buffers, const LinkedStep& step) {
  const ReduceFunction reduce = reduce_function(call.type, call.op);
  std::vector<std::byte> result;
  for (uint32_t i = 0; i < step.chunks; ++i) {
    const size_t count = buffers.elements(*call.plan, step, i), bytes = count * buffers.element_bytes;
    if (count == 0) continue;
    result.resize(bytes);
    std::array<const void*, linked_places_max> operands{};
    for (uint32_t k = 0; k < step.n_operands; ++k) operands[k] = buffers.at(*call.plan, step, step.operands[k], i);
    reduce(result.data(), operands.data(), step.n_operands, count, step.finish ? call.divisor : 0, Store::cached);
    for (uint32_t k = 0; k < step.n_outputs; ++k)
      std::memcpy(buffers.at(*call.plan, step, step.outputs[k], i), result.data(), bytes);
  }
}

}  // namespace

LinkedExtents linked_extents(const LinkedCall& call) noexcept {
  const LinkedPlan& plan = *call.plan;
  const LinkedBuffers buffers = linked_buffers(call, call.type, call.count);
  LinkedExtents extents;
  const auto extend = [&](const LinkedStep& step, const LinkedPlace& place) {
    if (place.kind == LinkedPlace::slot) return;
    const bool own = place.kind == LinkedPlace::own_input || place.kind == LinkedPlace::own_output;
    const bool input = place.kind == LinkedPlace::input || place.kind == LinkedPlace::own_input;
    const uint64_t elements = own ? call.count : buffers.first_element(plan, place.chunk + step.chunks);
    size_t& extent = (input ? extents.inputs : extents.outputs)[place.rank];
    extent = std::max<size_t>(extent, elements * buffers.element_bytes);
  };
  for (uint32_t s = 0; s < plan.first_step[plan.ranks]; ++s) {
    const LinkedStep& step = plan.steps[s];
    for (uint32_t k = 0; k < step.n_operands; ++k) extend(step, step.operands[k]);
    for (uint32_t k = 0; k < step.n_outputs; ++k) extend(step, step.outputs[k]);
  }
  return extents;
}

void run_linked_on_host(const LinkedCall& call) {
  const LinkedPlan& plan = *call.plan;
  const LinkedBuffers buffers = linked_buffers(call, call.type, call.count);
  std::array<uint32_t, linked_ranks_max> done{};
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t rank = 0; rank < plan.ranks; ++rank) {
      const uint32_t next = plan.first_step[rank] + done[rank];
      if (next == plan.first_step[rank + 1] || !is_ready(plan.steps[next], done)) continue;
      run_step(call, buffers, plan.steps[next]);
      ++done[rank];
      moved = true;
    }
  }
}

}  // namespace tutti
