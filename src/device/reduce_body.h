// The body of every reduction kernel: one pass over up to eight inputs, for one thread of a launch.
//
// What it does with memory goes through `Memory`: on the device loads and stores, in tests what counts and checks them.
// So a test runs the very code of the kernels on the host, thread by thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/host_device.h"
#include "device/packet.h"
#include "device/partition.h"
#include "reduce/elements.h"

namespace tutti {

// A kernel's parameters. All outputs get the same.
struct ReduceArguments {
  std::byte* outputs[kernel_outputs_max];
  const std::byte* inputs[kernel_inputs_max];
  int32_t n_outputs;
  int32_t n_inputs;
  uint32_t divisor;  // 0 or 1: none
  Partition parts;

  TUTTI_HOST_DEVICE Addresses addresses() const { return {outputs, n_outputs, inputs, n_inputs}; }
};

// A scalar in place of a second input, for the operation of premulsum.
struct ScaleArguments {
  std::byte* output;
  const std::byte* input;
  Packet<16> scalar;  // one element, in the first bytes
  Partition parts;
};

// From elements of `In` to elements of `Out`, both of which are computed in the same lanes, joined by `Op`.
template <class In, class Out, class Op>
struct Folding {
  using Lane = typename In::Lane;
  static_assert(std::is_same_v<Lane, typename Out::Lane>);
  static constexpr ElementSizes sizes{sizeof(typename In::Stored), sizeof(typename Out::Stored)};
  static constexpr uint32_t lanes = sizes.lanes();
  using InPacket = Packet<sizes.input_packet()>;
  using OutPacket = Packet<sizes.output_packet()>;

  TUTTI_HOST_DEVICE static constexpr bool divides(uint32_t divisor) { return Op::divides && divisor > 1; }
  TUTTI_HOST_DEVICE static inline typename Out::Stored finished(Lane a, uint32_t divisor) {
    return Out::store(Op::finished(divides(divisor) ? Out::divided(a, divisor) : a));
  }
};

template <class Fold>
struct Lanes {
  typename Fold::Lane at[Fold::lanes];
};

template <class Fold, class In>
TUTTI_HOST_DEVICE inline Lanes<Fold> unpacked(const typename Fold::InPacket& packet) {
  const auto stored = std::bit_cast<Elements<typename In::Stored, Fold::lanes>>(packet);
  Lanes<Fold> lanes;
  for (uint32_t i = 0; i < Fold::lanes; ++i) lanes.at[i] = In::load(stored.at[i]);
  return lanes;
}

template <class Fold, class In, class Op>
TUTTI_HOST_DEVICE inline void join(Lanes<Fold>& folded, const typename Fold::InPacket& packet) {
  const Lanes<Fold> more = unpacked<Fold, In>(packet);
  for (uint32_t i = 0; i < Fold::lanes; ++i) folded.at[i] = Op::apply(folded.at[i], more.at[i]);
}

template <class Fold, class Out>
TUTTI_HOST_DEVICE inline typename Fold::OutPacket packed(Lanes<Fold> folded, uint32_t divisor) {
  Elements<typename Out::Stored, Fold::lanes> stored;
  if (Fold::divides(divisor))
    for (uint32_t i = 0; i < Fold::lanes; ++i) folded.at[i] = Out::divided(folded.at[i], divisor);
  for (uint32_t i = 0; i < Fold::lanes; ++i) stored.at[i] = Fold::finished(folded.at[i], 0);
  return std::bit_cast<typename Fold::OutPacket>(stored);
}

template <class Memory, class OutPacket>
TUTTI_HOST_DEVICE inline void store_all(const ReduceArguments& a, uint64_t offset, const OutPacket& packet, Memory& memory) {
  memory.store(a.outputs[0] + offset, packet);
  TUTTI_NO_UNROLL
  for (int k = 1; k < a.n_outputs; ++k) memory.store(a.outputs[k] + offset, packet);
}

// Packets that lie at multiples of their size in all inputs. All loads of a tile are under way before the first is used;
// `inputs_max` is known to the compiler, so that they are in registers.
template <class In, class Out, class Op, int inputs_max, uint32_t unrolled, class Memory>
TUTTI_HOST_DEVICE inline void fold_aligned(const ReduceArguments& a, GridPosition at, Memory& memory) {
  using Fold = Folding<In, Out, Op>;
  const Deal deal(at, unrolled);
  for (uint64_t first = deal.first; first < a.parts.packets; first += deal.stride) {
    typename Fold::InPacket packets[unrolled][inputs_max];
    TUTTI_UNROLL
    for (uint32_t u = 0; u < unrolled; ++u) {
      const uint64_t i = first + u * deal.row, offset = a.parts.packet(i) * Fold::sizes.input;
      TUTTI_UNROLL
      for (int k = 0; k < inputs_max; ++k)
        if (k < a.n_inputs && i < a.parts.packets)
          packets[u][k] = memory.template load<typename Fold::InPacket>(a.inputs[k] + offset);
    }
    TUTTI_UNROLL
    for (uint32_t u = 0; u < unrolled; ++u) {
      const uint64_t i = first + u * deal.row;
      if (i >= a.parts.packets) break;
      Lanes<Fold> folded = unpacked<Fold, In>(packets[u][0]);
      TUTTI_UNROLL
      for (int k = 1; k < inputs_max; ++k)
        if (k < a.n_inputs) join<Fold, In, Op>(folded, packets[u][k]);
      store_all(a, a.parts.packet(i) * Fold::sizes.output, packed<Fold, Out>(folded, a.divisor), memory);
    }
  }
}

// The 16 bytes at any address, from the one or two aligned packets that they lie in.
template <class Memory>
TUTTI_HOST_DEVICE inline Packet<16> load_anywhere(Memory& memory, const std::byte* from) {
  const uint32_t shift = reinterpret_cast<uintptr_t>(from) % 16;
  const Packet<16> low = memory.template load<Packet<16>>(from - shift);
  if (shift == 0) return low;
  return joined(low, memory.template load<Packet<16>>(from - shift + 16), shift);
}

// Inputs that lie anywhere: one after the other, which keeps the code small.
template <class In, class Out, class Op, class Memory>
TUTTI_HOST_DEVICE inline void fold_shifted(const ReduceArguments& a, GridPosition at, Memory& memory) {
  using Fold = Folding<In, Out, Op>;
  const Deal deal(at, 1);
  for (uint64_t i = deal.first; i < a.parts.packets; i += deal.stride) {
    const uint64_t offset = a.parts.packet(i) * Fold::sizes.input;
    Lanes<Fold> folded = unpacked<Fold, In>(load_anywhere(memory, a.inputs[0] + offset));
    TUTTI_NO_UNROLL
    for (int k = 1; k < a.n_inputs; ++k) join<Fold, In, Op>(folded, load_anywhere(memory, a.inputs[k] + offset));
    store_all(a, offset, packed<Fold, Out>(folded, a.divisor), memory);
  }
}

template <class In, class Out, class Op, class Memory>
TUTTI_HOST_DEVICE inline void fold_edges(const ReduceArguments& a, GridPosition at, Memory& memory) {
  using Fold = Folding<In, Out, Op>;
  TUTTI_NO_UNROLL
  for (uint64_t edge = first_edge(at); edge < a.parts.edges(); edge += edge_stride(at)) {
    const uint64_t i = a.parts.edge(edge), offset = i * Fold::sizes.input;
    auto folded = In::load(read_element<typename In::Stored>(memory, a.inputs[0] + offset));
    TUTTI_NO_UNROLL
    for (int k = 1; k < a.n_inputs; ++k)
      folded = Op::apply(folded, In::load(read_element<typename In::Stored>(memory, a.inputs[k] + offset)));
    const auto finished = Fold::finished(folded, a.divisor);
    TUTTI_NO_UNROLL
    for (int k = 0; k < a.n_outputs; ++k) write_element(memory, a.outputs[k] + i * Fold::sizes.output, finished);
  }
}

// output[i] = the inputs' elements i, joined from the left, divided, for this thread's share.
template <class In, class Out, class Op, int inputs_max, uint32_t unrolled, class Memory>
TUTTI_HOST_DEVICE inline void reduce_body(const ReduceArguments& a, GridPosition at, Memory& memory) {
  if (!a.parts.shifted) {
    fold_aligned<In, Out, Op, inputs_max, unrolled>(a, at, memory);
  } else if constexpr (sizeof(typename In::Stored) == sizeof(typename Out::Stored)) {
    fold_shifted<In, Out, Op>(a, at, memory);
  }
  fold_edges<In, Out, Op>(a, at, memory);
}

// output[i] = input[i] joined with the scalar.
template <class Element, class Op, class Memory>
TUTTI_HOST_DEVICE inline void scale_body(const ScaleArguments& a, GridPosition at, Memory& memory) {
  using Fold = Folding<Element, Element, Op>;
  using Stored = typename Element::Stored;
  const auto scalar = Element::load(std::bit_cast<Elements<Stored, Fold::lanes>>(a.scalar).at[0]);
  const Deal deal(at, 1);
  for (uint64_t i = deal.first; i < a.parts.packets; i += deal.stride) {
    const uint64_t offset = a.parts.packet(i) * sizeof(Stored);
    Lanes<Fold> lanes = unpacked<Fold, Element>(load_anywhere(memory, a.input + offset));
    for (uint32_t lane = 0; lane < Fold::lanes; ++lane) lanes.at[lane] = Op::apply(lanes.at[lane], scalar);
    memory.store(a.output + offset, packed<Fold, Element>(lanes, 0));
  }
  TUTTI_NO_UNROLL
  for (uint64_t edge = first_edge(at); edge < a.parts.edges(); edge += edge_stride(at)) {
    const uint64_t offset = a.parts.edge(edge) * sizeof(Stored);
    const auto lane = Element::load(read_element<Stored>(memory, a.input + offset));
    write_element(memory, a.output + offset, Fold::finished(Op::apply(lane, scalar), 0));
  }
}

}  // namespace tutti
