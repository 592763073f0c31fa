// A whole collective of ranks that share one device, as one piece of work: see schedule/link.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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

}  // namespace tutti
