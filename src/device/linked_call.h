// A whole collective of ranks that share one device, as one piece of work: see schedule/link.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "base/types.h"
#include "schedule/chunks.h"
#include "schedule/link.h"

namespace tutti {

// Parts that the work of each rank may be divided into, at most.
inline constexpr uint32_t linked_channels_max = 256;

// All pointers are those of a DeviceReduction. A rank that has no input or no output in this collective has null there.
struct LinkedCall {
  const LinkedPlan* plan = nullptr;  // read before the call returns
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;       // of collectives that do not reduce: any that is defined, it is not used
  size_t count = 0;                  // elements of a buffer; of a block where the plan has blocks
  uint32_t divisor = 0;              // where a step finishes
  std::array<const void*, linked_ranks_max> inputs{};
  std::array<void*, linked_ranks_max> outputs{};
  // Memory of the device, of linked_workspace_bytes, zeroed before its first call and then only used with higher call
  // numbers, one call at a time. Null where the plan has no slots and no waits.
  void* workspace = nullptr;
  uint32_t call_number = 0;
};

// Progress counters lie first, then the slots.
inline constexpr size_t linked_progress_bytes = size_t{linked_ranks_max} * linked_channels_max * sizeof(uint32_t);

// Elements that a slot has room for: whole cache lines.
constexpr uint64_t linked_slot_elements(const LinkedPlan& plan, uint64_t count, size_t element_bytes) {
  const uint64_t chunk = plan.blocks ? count : Chunks(count, plan.chunks, element_bytes).per_chunk();
  const uint64_t unit = element_bytes < 64 ? 64 / element_bytes : 1;
  return (chunk * plan.slot_chunks + unit - 1) / unit * unit;
}

// An upper bound for every element size that the call's bits may be taken as.
constexpr size_t linked_workspace_bytes(const LinkedPlan& plan, DataType type, size_t count) {
  if (!plan.waits && plan.slots == 0) return 0;
  const size_t slot = linked_slot_elements(plan, count, element_bytes(type)) * element_bytes(type) + 256;
  return linked_progress_bytes + size_t{plan.ranks} * plan.slots * slot;
}

// Where the chunks of a call lie, in the memory of all ranks.
struct LinkedBuffers {
  std::byte* inputs[linked_ranks_max];  // never written where it is no output
  std::byte* outputs[linked_ranks_max];
  std::byte* slots;        // of all ranks
  uint64_t count;          // elements of a buffer, or of a block
  uint64_t slot_elements;
  uint32_t element_bytes;

  TUTTI_HOST_DEVICE constexpr uint64_t first_element(const LinkedPlan& plan, uint32_t chunk) const {
    return plan.blocks ? chunk * count : Chunks(count, plan.chunks, element_bytes).first(chunk);
  }
  // Of chunk `i` of those of a step.
  TUTTI_HOST_DEVICE constexpr uint64_t elements(const LinkedPlan& plan, const LinkedStep& step, uint32_t i) const {
    return first_element(plan, step.first_chunk + i + 1) - first_element(plan, step.first_chunk + i);
  }
  TUTTI_HOST_DEVICE std::byte* at(const LinkedPlan& plan, const LinkedStep& step, const LinkedPlace& place, uint32_t i) const {
    switch (place.kind) {
      case LinkedPlace::input: return inputs[place.rank] + first_element(plan, place.chunk + i) * element_bytes;
      case LinkedPlace::output: return outputs[place.rank] + first_element(plan, place.chunk + i) * element_bytes;
      case LinkedPlace::own_input: return inputs[place.rank];
      case LinkedPlace::own_output: return outputs[place.rank];
      default: {
        const uint64_t within = first_element(plan, step.first_chunk + i) - first_element(plan, step.first_chunk);
        const uint64_t slot = uint64_t{place.rank} * plan.slots + place.chunk;
        return slots + (slot * slot_elements + within) * element_bytes;
      }
    }
  }
};

// Of a call, its elements taken as `count` of `type`, which have the same bytes.
inline LinkedBuffers linked_buffers(const LinkedCall& call, DataType type, uint64_t count) noexcept {
  LinkedBuffers buffers{};
  for (uint32_t r = 0; r < call.plan->ranks; ++r) {
    buffers.inputs[r] = static_cast<std::byte*>(const_cast<void*>(call.inputs[r]));
    buffers.outputs[r] = static_cast<std::byte*>(call.outputs[r]);
  }
  if (call.workspace != nullptr) buffers.slots = static_cast<std::byte*>(call.workspace) + linked_progress_bytes;
  buffers.count = count;
  buffers.element_bytes = uint32_t(element_bytes(type));
  buffers.slot_elements = linked_slot_elements(*call.plan, count, buffers.element_bytes);
  return buffers;
}

// How far a call reaches into each rank's buffers, in bytes; 0: not at all.
struct LinkedExtents {
  std::array<size_t, linked_ranks_max> inputs{}, outputs{};
};
LinkedExtents linked_extents(const LinkedCall& call) noexcept;

// The whole call on host memory, step by step, by the host's reduce_function: what a device must give.
void run_linked_on_host(const LinkedCall& call);

}  // namespace tutti
