// Which elements of a call each thread of a launch touches, and how: whole packets of up to 16 bytes, or one by one.
//
// Everything here is plain arithmetic without CUDA: kernels run it on the device, tests on the host for every thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace tutti {

inline constexpr uint32_t packet_bytes_max = 16;
inline constexpr int kernel_inputs_max = 8;
inline constexpr int kernel_outputs_max = 8;

// Of one thread in a launch.
struct GridPosition {
  uint32_t block, blocks, thread, threads;
};

// The first `head` elements are taken one by one, then come `packets` packets of `lanes` elements, whose outputs lie at
// multiples of an output packet, then `tail` elements one by one. Where an input's packets do not lie at multiples of
// theirs (`shifted`), each is put together from the two aligned packets around it: head and tail are then long enough
// for both to lie within the input.
struct Partition {
  uint64_t head = 0, packets = 0, tail = 0;
  uint32_t lanes = 1;
  bool shifted = false;

  TUTTI_HOST_DEVICE constexpr uint64_t edges() const { return head + tail; }
  // The element of edge i < edges().
  TUTTI_HOST_DEVICE constexpr uint64_t edge(uint64_t i) const { return i < head ? i : i + packets * lanes; }
  // The first element of packet i < packets.
  TUTTI_HOST_DEVICE constexpr uint64_t packet(uint64_t i) const { return head + i * lanes; }
};

// Sizes of the elements that are read and written; they may differ.
struct ElementSizes {
  uint32_t input = 1, output = 1;

  TUTTI_HOST_DEVICE constexpr uint32_t lanes() const {
    return packet_bytes_max / (input > output ? input : output);  // NOLINT(clang-analyzer-core.DivideZero): sizes are not 0
  }
  TUTTI_HOST_DEVICE constexpr uint32_t input_packet() const { return lanes() * input; }
  TUTTI_HOST_DEVICE constexpr uint32_t output_packet() const { return lanes() * output; }
};

// Where the buffers of a reduction lie. There is at least one output.
struct Addresses {
  const std::byte* const* outputs;
  int n_outputs;
  const std::byte* const* inputs;
  int n_inputs;
};

// Sizes are powers of two up to 16. Where an output does not lie at a multiple of its element, where outputs differ in
// where they lie in a packet, or where sizes differ and some input is shifted, all elements are taken one by one.
TUTTI_HOST_DEVICE inline Partition partition(const Addresses& at, uint64_t count, ElementSizes sizes) {
  const auto past = [](const std::byte* address, uint32_t unit) { return reinterpret_cast<uintptr_t>(address) % unit; };
  const uint32_t lanes = sizes.lanes(), in_packet = sizes.input_packet(), out_packet = sizes.output_packet();
  const Partition one_by_one{count, 0, 0, lanes, false};
  const uintptr_t beyond = past(at.outputs[0], out_packet);
  if (beyond % sizes.output != 0) return one_by_one;
  for (int k = 1; k < at.n_outputs; ++k)
    if (past(at.outputs[k], out_packet) != beyond) return one_by_one;
  uint64_t head = beyond == 0 ? 0 : (out_packet - beyond) / sizes.output;
  bool shifted = false;
  for (int k = 0; k < at.n_inputs; ++k) shifted |= past(at.inputs[k] + head * sizes.input, in_packet) != 0;
  if (shifted && sizes.input != sizes.output) return one_by_one;
  const uint64_t after = shifted ? lanes : 0;
  head += after;
  if (count < head + lanes + after) return one_by_one;
  const uint64_t packets = (count - head - after) / lanes;
  return {head, packets, count - head - packets * lanes, lanes, shifted};
}

// How the packets are dealt: a block takes `unrolled` rows of as many packets as it has threads, side by side, so that
// neighbours in a warp touch neighbours in memory; then the next such tile that no other block takes.
struct Deal {
  uint64_t first, stride;  // of this thread's first row of its first tile; between tiles
  uint32_t row;            // between rows of a tile

  TUTTI_HOST_DEVICE constexpr Deal(GridPosition at, uint32_t unrolled)
      : first(uint64_t{at.block} * at.threads * unrolled + at.thread),
        stride(uint64_t{at.blocks} * at.threads * unrolled),
        row(at.threads) {}
};

// Edges are dealt to threads one by one.
TUTTI_HOST_DEVICE constexpr uint64_t first_edge(GridPosition at) {
  return uint64_t{at.block} * at.threads + at.thread;
}
TUTTI_HOST_DEVICE constexpr uint64_t edge_stride(GridPosition at) { return uint64_t{at.blocks} * at.threads; }

// Blocks that have something to do, at most `blocks_max`, at least one.
constexpr uint32_t blocks_for(const Partition& parts, uint32_t threads, uint32_t unrolled, uint32_t blocks_max) {
  const uint64_t tile = uint64_t{threads} * unrolled;
  const uint64_t by_packets = (parts.packets + tile - 1) / tile, by_edges = (parts.edges() + threads - 1) / threads;
  const uint64_t wanted = by_packets > by_edges ? by_packets : by_edges;
  if (wanted == 0) return 1;
  return wanted < blocks_max ? static_cast<uint32_t>(wanted) : blocks_max;
}

}  // namespace tutti
