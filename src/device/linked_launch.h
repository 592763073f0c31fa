// From a call that is linked to the parameters of its kernel: plain C++, so that simulated devices and tests take the way
// of the device.
#pragma once

#include <algorithm>
#include <bit>

#include "device/linked_call.h"
#include "device/packet_body.h"

namespace tutti {

// Bytes that are worth a block of their own; of packets, words.
inline constexpr size_t linked_block_bytes_min = 16384;
inline constexpr size_t packet_block_words_min = 256;

// As what elements a call is taken, which has the same bytes.
struct LinkedElements {
  DataType type;
  uint64_t count;
};

inline LinkedLaunchPart launch_part(const LinkedCall& c, uint64_t wanted, uint32_t blocks_max) noexcept {
  LinkedLaunchPart part{};
  const uint32_t all = (1u << c.plan->ranks) - 1, here = c.meets() ? c.meeting.ranks : all;
  for (uint32_t r = 0; r < c.plan->ranks; ++r) {
    part.workspaces[r] = static_cast<std::byte*>(c.workspaces[r]);
    if ((here >> r & 1) != 0) part.ranks[part.n_ranks++] = uint8_t(r);
  }
  part.ended = c.meeting.ended;
  part.epoch = c.call_number * 256;
  part.divisor = c.divisor;
  part.meets = c.meets() && here != all;
  const uint32_t most = c.meets() ? c.meeting.channels_max : std::min(blocks_max / c.plan->ranks, linked_channels_max);
  part.channels = uint32_t(std::clamp<uint64_t>(wanted, 1, std::max(most, 1u)));
  return part;
}

// `blocks_max` of them are under way on the device at once. Counters are those of 255 steps a call at most.
inline LinkedArguments linked_arguments(const LinkedCall& c, const LinkedElements& as, uint32_t blocks_max) noexcept {
  LinkedArguments a{};
  const size_t width = element_bytes(as.type);
  // The longest pass of a rank is over its largest chunk.
  const uint64_t chunk = c.plan->blocks ? as.count : Chunks(as.count, c.plan->chunks, width).per_chunk();
  a.plan = *c.plan;
  a.buffers = linked_buffers(c, as.type, as.count);
  a.part = launch_part(c, (chunk * width + linked_block_bytes_min - 1) / linked_block_bytes_min, blocks_max);
  return a;
}

inline bool has_one_local_operand(const LinkedStep& step) noexcept {
  return std::count_if(step.operands.begin(), step.operands.begin() + step.n_operands,
                       [](const LinkedPlace& place) { return place.kind != LinkedPlace::slot; }) <= 1;
}

// False where the launch's ranks have too many steps, or one of them joins what is local with what is local.
inline bool packet_arguments(const LinkedCall& c, const LinkedElements& as, uint32_t blocks_max, PacketArguments* a) noexcept {
  *a = {};
  a->shape = *c.plan;
  a->buffers = linked_buffers(c, as.type, as.count);
  a->part = launch_part(c, (a->buffers.slot_elements + packet_block_words_min - 1) / packet_block_words_min, blocks_max);
  a->flag = uint32_t(c.call_number);
  size_t n = 0;
  for (uint32_t i = 0; i < a->part.n_ranks; ++i) {
    const uint32_t first = c.plan->first_step[a->part.ranks[i]], beyond = c.plan->first_step[a->part.ranks[i] + 1u];
    if (n + beyond - first > packet_steps_max) return false;
    for (uint32_t s = first; s < beyond; ++s)
      if (!has_one_local_operand(c.plan->steps[s])) return false;
    std::copy(&c.plan->steps[first], &c.plan->steps[0] + beyond, a->steps + n);
    a->first_step[i] = uint16_t(n);
    n += beyond - first;
  }
  std::fill(a->first_step + a->part.n_ranks, std::end(a->first_step), uint16_t(n));
  return true;
}

}  // namespace tutti
