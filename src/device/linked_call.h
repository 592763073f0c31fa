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

// Parts that the work of each rank may be divided into, at most; and of launches that wait for each other, so that there is
// room for two of them on any device at least.
inline constexpr uint32_t linked_channels_max = 256;
inline constexpr uint32_t meeting_channels_max = 64;

// Where a rank's packets come from others: two halves, which calls of packets use in turn.
inline constexpr size_t packet_half_bytes = size_t{512} << 10;
// What a message of packets may hold: larger ones are faster without.
inline constexpr size_t packet_message_bytes_max = size_t{32} << 10;

// Of a call that is more than one launch, each for the ranks that share a device. The launches wait for each other inside,
// so all must have been put on their streams before any is let begin (see Device::wait_flag), and all their blocks must
// find room on their devices.
struct LinkedMeeting {
  uint32_t ranks = 0;            // bits of those whose part this launch does
  uint32_t channels_max = 1;     // the same for all launches of the call
  uint32_t half = 0;             // of packets: 0 and 1 in turn
  // Memory of Platform::allocate_host, or null: once it is not 0, kernels that wait end, and those that begin touch nothing.
  // Of a call of one launch too.
  const uint32_t* ended = nullptr;
};

// All pointers are those of a DeviceReduction. A rank that has no input or no output in this collective has null there.
struct LinkedCall {
  const LinkedPlan* plan = nullptr;  // read before the call returns
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;       // of collectives that do not reduce: any that is defined, it is not used
  size_t count = 0;                  // elements of a buffer; of a block where the plan has blocks
  uint32_t divisor = 0;              // where a step finishes
  std::array<const void*, linked_ranks_max> inputs{};
  std::array<void*, linked_ranks_max> outputs{};
  // Memory of each rank's device, of linked_workspace_bytes, zeroed before its first call and then only used with higher
  // call numbers, one call at a time. Null where the plan has no slots and no waits and the call is one launch.
  std::array<void*, linked_ranks_max> workspaces{};
  uint64_t call_number = 0;          // of packets: never a multiple of 2^32
  LinkedMeeting meeting;             // no ranks: one launch does the parts of all

  bool meets() const noexcept { return meeting.ranks != 0; }
};

// A workspace: counters of steps done; then, for each rank, of what it has told this one on each channel; then slots.
using LinkedCounter = uint64_t;
inline constexpr size_t linked_progress_bytes = linked_channels_max * sizeof(LinkedCounter);
inline constexpr size_t linked_told_bytes = size_t{linked_ranks_max} * meeting_channels_max * sizeof(LinkedCounter);
inline constexpr size_t linked_slots_at = linked_progress_bytes + linked_told_bytes;
// That serves every call that meets.
inline constexpr size_t meeting_workspace_bytes = linked_slots_at + 2 * packet_half_bytes;

// Elements that a slot has room for: whole cache lines.
constexpr uint64_t linked_slot_elements(const LinkedShape& plan, uint64_t count, size_t element_bytes) {
  const uint64_t chunk = plan.blocks ? count : Chunks(count, plan.chunks, element_bytes).per_chunk();
  const uint64_t unit = element_bytes < 64 ? 64 / element_bytes : 1;
  return (chunk * plan.slot_chunks + unit - 1) / unit * unit;
}

// Packets, of 8 bytes and a flag for each 4, that the largest chunk of a message is; each of its chunks begins after so many.
constexpr uint64_t chunk_packets(const LinkedShape& plan, uint64_t count, size_t element_bytes) {
  const uint64_t chunk = plan.blocks ? count : Chunks(count, plan.chunks, element_bytes).per_chunk();
  return (chunk * element_bytes + 7) / 8;
}
// Whether a call of packets finds room, and is worth it. No element may be cut.
constexpr bool fits_packets(const LinkedShape& plan, uint64_t count, size_t element_bytes) {
  const uint64_t message = chunk_packets(plan, count, element_bytes) * plan.slot_chunks;
  return element_bytes <= 8 && message * 8 <= packet_message_bytes_max && message * 16 * plan.slots <= packet_half_bytes;
}

// Of each rank; an upper bound for every element size that the call's bits may be taken as.
constexpr size_t linked_workspace_bytes(const LinkedShape& plan, DataType type, size_t count) {
  if (plan.packets) return meeting_workspace_bytes;
  if (!plan.waits && plan.slots == 0) return 0;
  const size_t slot = linked_slot_elements(plan, count, element_bytes(type)) * element_bytes(type) + 256;
  return (linked_slots_at + plan.slots * slot + 255) / 256 * 256;
}
// One memory for the workspaces of all ranks, of ranks × linked_workspace_bytes.
inline void share_workspace(LinkedCall& call, void* memory) noexcept {
  const size_t each = linked_workspace_bytes(*call.plan, call.type, call.count);
  for (uint32_t r = 0; r < call.plan->ranks; ++r) call.workspaces[r] = static_cast<std::byte*>(memory) + r * each;
}

// Where the chunks of a call lie, in the memory of all ranks.
struct LinkedBuffers {
  std::byte* inputs[linked_ranks_max];  // never written where it is no output
  std::byte* outputs[linked_ranks_max];
  std::byte* slots[linked_ranks_max];
  uint64_t count;          // elements of a buffer, or of a block
  uint64_t slot_elements;  // of packets: packets of a chunk
  uint32_t element_bytes;

  TUTTI_HOST_DEVICE constexpr uint64_t first_element(const LinkedShape& plan, uint32_t chunk) const {
    return plan.blocks ? chunk * count : Chunks(count, plan.chunks, element_bytes).first(chunk);
  }
  // Of chunk `i` of those of a step.
  TUTTI_HOST_DEVICE constexpr uint64_t elements(const LinkedShape& plan, const LinkedStep& step, uint32_t i) const {
    return first_element(plan, step.first_chunk + i + 1) - first_element(plan, step.first_chunk + i);
  }
  TUTTI_HOST_DEVICE std::byte* at(const LinkedShape& plan, const LinkedStep& step, const LinkedPlace& place, uint32_t i) const {
    switch (place.kind) {
      case LinkedPlace::input: return inputs[place.rank] + first_element(plan, place.chunk + i) * element_bytes;
      case LinkedPlace::output: return outputs[place.rank] + first_element(plan, place.chunk + i) * element_bytes;
      case LinkedPlace::own_input: return inputs[place.rank];
      case LinkedPlace::own_output: return outputs[place.rank];
      default: {
        if (plan.packets) return slots[place.rank] + (uint64_t{place.chunk} * plan.slot_chunks + i) * slot_elements * 16;
        const uint64_t within = first_element(plan, step.first_chunk + i) - first_element(plan, step.first_chunk);
        return slots[place.rank] + (place.chunk * slot_elements + within) * element_bytes;
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
  for (uint32_t r = 0; r < call.plan->ranks; ++r)
    if (call.workspaces[r] != nullptr)
      buffers.slots[r] = static_cast<std::byte*>(call.workspaces[r]) + linked_slots_at +
                         (call.plan->packets ? call.meeting.half * packet_half_bytes : 0);
  buffers.count = count;
  buffers.element_bytes = uint32_t(element_bytes(type));
  buffers.slot_elements = call.plan->packets ? chunk_packets(*call.plan, count, buffers.element_bytes)
                                             : linked_slot_elements(*call.plan, count, buffers.element_bytes);
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
