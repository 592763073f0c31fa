// The body of the kernel that runs a linked plan of packets (schedule/link.h: link_packets): messages are written straight
// to where they are read, 8 bytes at a time, a flag beside each 4. Who reads one looks at the flags until they are this
// call's, so that nothing need be told beside the data, and nobody waits for more than what it reads.
//
// It rests on this alone, that 8 bytes at a multiple of 8 come as they were written together, over links between GPUs too.
//
// Block is what linked_body.h says, of which it uses goes_on(), once() and all(), with a PacketPass as its pass(). Memory has also:
//
//     Packet<16> load_packet(const std::byte* from);      // again on every call
//     void store_packet(std::byte* to, Packet<16> packet);
//     bool gives_up();                                    // asked between looks: whether the call has ended
//
// `Fold` joins words: fold(words, n, bytes, divisor), of `bytes` bytes each.
#pragma once

#include "device/linked_body.h"

namespace tutti {

// Of the ranks of one launch: fewer, so that the parameters are small, and quickly handed over.
inline constexpr uint32_t packet_steps_max = 32;

struct PacketArguments {
  LinkedBuffers buffers;
  LinkedLaunchPart part;
  LinkedShape shape;
  uint32_t flag;  // of this call
  uint16_t first_step[linked_ranks_max + 1];  // of the launch's ranks, in their order in `part`
  LinkedStep steps[packet_steps_max];
};

// A channel's share of one chunk: words of 8 bytes, the last of which may be less.
struct PacketPass {
  const std::byte* inputs[linked_places_max];
  const std::byte* local;  // the one input that is not of packets; null: all are
  std::byte* outputs[linked_places_max];
  uint64_t first, beyond;  // words
  uint64_t bytes;          // of the chunk
  uint32_t come, go;       // bit k: input or output k is of packets
  uint32_t n_inputs, n_outputs;
  uint32_t divisor;
};

TUTTI_HOST_DEVICE inline void prepare_packets(const PacketArguments& a, const LinkedStep& step, uint32_t i, uint32_t channel,
                                              PacketPass& pass) {
  pass.bytes = a.buffers.elements(a.shape, step, i) * a.buffers.element_bytes;
  const ElementRange words = share((pass.bytes + 7) / 8, channel, a.part.channels, 8);
  pass.first = words.first, pass.beyond = words.first + words.count;
  pass.come = pass.go = 0;
  pass.local = nullptr;
  for (uint32_t k = 0; k < step.n_operands; ++k) {
    pass.inputs[k] = a.buffers.at(a.shape, step, step.operands[k], i);
    if (step.operands[k].kind == LinkedPlace::slot) pass.come |= 1u << k;
    else pass.local = pass.inputs[k];
  }
  for (uint32_t k = 0; k < step.n_outputs; ++k) {
    pass.outputs[k] = a.buffers.at(a.shape, step, step.outputs[k], i);
    pass.go |= uint32_t{step.outputs[k].kind == LinkedPlace::slot} << k;
  }
  pass.n_inputs = step.n_operands;
  pass.n_outputs = step.n_outputs;
  pass.divisor = step.finish ? a.part.divisor : 0;
}

TUTTI_HOST_DEVICE constexpr Packet<16> packet_of(uint64_t word, uint32_t flag) {
  return {{static_cast<uint32_t>(word), flag, static_cast<uint32_t>(word >> 32), flag}};
}
TUTTI_HOST_DEVICE constexpr bool has_come(const Packet<16>& packet, uint32_t flag) {
  return packet.words[1] == flag && packet.words[3] == flag;
}
TUTTI_HOST_DEVICE constexpr uint64_t word_of(const Packet<16>& packet) {
  return uint64_t{packet.words[2]} << 32 | packet.words[0];
}

// n bytes, at most 8, that begin anywhere, by the widest loads or stores that address and number allow.
template <class Word, class Memory>
TUTTI_HOST_DEVICE inline uint64_t read_by(Memory& memory, const std::byte* from, uint32_t n) {
  uint64_t word = 0;
  TUTTI_NO_UNROLL
  for (uint32_t i = 0; i < n; i += sizeof(Word)) word |= uint64_t{memory.template load<Word>(from + i)} << 8 * i;
  return word;
}
template <class Memory>
TUTTI_HOST_DEVICE inline uint64_t read_bytes(Memory& memory, const std::byte* from, uint32_t n) {
  const uint64_t unit = reinterpret_cast<uintptr_t>(from) | n;
  if (unit % 8 == 0) return memory.template load<uint64_t>(from);
  if (unit % 4 == 0) return read_by<uint32_t>(memory, from, n);
  return unit % 2 == 0 ? read_by<uint16_t>(memory, from, n) : read_by<uint8_t>(memory, from, n);
}
template <class Word, class Memory>
TUTTI_HOST_DEVICE inline void write_by(Memory& memory, std::byte* to, uint64_t word, uint32_t n) {
  TUTTI_NO_UNROLL
  for (uint32_t i = 0; i < n; i += sizeof(Word)) memory.store(to + i, static_cast<Word>(word >> 8 * i));
}
template <class Memory>
TUTTI_HOST_DEVICE inline void write_bytes(Memory& memory, std::byte* to, uint64_t word, uint32_t n) {
  const uint64_t unit = reinterpret_cast<uintptr_t>(to) | n;
  if (unit % 8 == 0) memory.store(to, word);
  else if (unit % 4 == 0) write_by<uint32_t>(memory, to, word, n);
  else if (unit % 2 == 0) write_by<uint16_t>(memory, to, word, n);
  else write_by<uint8_t>(memory, to, word, n);
}

// One thread's words. All packets of a word are asked for before the first is looked at. (Were several inputs local, the
// code that reads them would be there for each.)
template <class Memory, class Fold>
TUTTI_HOST_DEVICE inline void packet_pass(const PacketPass& pass, uint32_t thread, uint32_t threads, uint32_t flag,
                                          Memory& memory, const Fold& fold) {
  TUTTI_NO_UNROLL
  for (uint64_t at = pass.first + thread; at < pass.beyond; at += threads) {
    const uint32_t n = pass.bytes - at * 8 < 8 ? static_cast<uint32_t>(pass.bytes - at * 8) : 8;
    Packet<16> packets[linked_places_max];
    uint64_t words[linked_places_max];
    TUTTI_UNROLL
    for (uint32_t k = 0; k < linked_places_max; ++k)
      if (k < pass.n_inputs && (pass.come >> k & 1) != 0) packets[k] = memory.load_packet(pass.inputs[k] + at * 16);
    const uint64_t own = pass.local != nullptr ? read_bytes(memory, pass.local + at * 8, n) : 0;
    TUTTI_UNROLL
    for (uint32_t k = 0; k < linked_places_max; ++k) {
      if (k >= pass.n_inputs) continue;
      if ((pass.come >> k & 1) == 0) {
        words[k] = own;
        continue;
      }
      while (!has_come(packets[k], flag)) {
        if (memory.gives_up()) return;
        packets[k] = memory.load_packet(pass.inputs[k] + at * 16);
      }
      words[k] = word_of(packets[k]);
    }
    const uint64_t result = fold(words, pass.n_inputs, n, pass.divisor);
    TUTTI_NO_UNROLL
    for (uint32_t k = 0; k < pass.n_outputs; ++k) {
      if ((pass.go >> k & 1) != 0) memory.store_packet(pass.outputs[k] + at * 16, packet_of(result, flag));
      else write_bytes(memory, pass.outputs[k] + at * 8, result, n);
    }
  }
}

template <class Block, class Memory, class Fold>
TUTTI_HOST_DEVICE inline void packet_body(const PacketArguments& a, Block& block, Memory& memory, const Fold& fold) {
  if (!block.goes_on()) return;  // who comes late touches nothing
  const uint32_t place = block.index / a.part.channels, channel = block.index % a.part.channels;
  for (uint32_t s = a.first_step[place]; s < a.first_step[place + 1]; ++s)
    for (uint32_t i = 0; i < a.steps[s].chunks; ++i) {
      block.once([&] { prepare_packets(a, a.steps[s], i, channel, block.pass()); });
      block.all([&](uint32_t thread) { packet_pass(block.pass(), thread, block.threads, a.flag, memory, fold); });
    }
}

// As kernels fold: the elements of words, from the left. One word of which nothing is made stays as it is.
template <class Element, class Op>
struct FoldWords {
  using Stored = typename Element::Stored;
  static constexpr uint32_t lanes = 8 / sizeof(Stored);

  TUTTI_HOST_DEVICE uint64_t operator()(const uint64_t (&words)[linked_places_max], uint32_t n, uint32_t,
                                        uint32_t divisor) const {
    if (n == 1 && divisor <= 1) return words[0];
    typename Element::Lane folded[lanes];
    const auto first = std::bit_cast<Elements<Stored, lanes>>(words[0]);
    for (uint32_t i = 0; i < lanes; ++i) folded[i] = Element::load(first.at[i]);
    TUTTI_UNROLL
    for (uint32_t k = 1; k < linked_places_max; ++k) {
      if (k >= n) continue;
      const auto more = std::bit_cast<Elements<Stored, lanes>>(words[k]);
      for (uint32_t i = 0; i < lanes; ++i) folded[i] = Op::apply(folded[i], Element::load(more.at[i]));
    }
    Elements<Stored, lanes> stored;
    for (uint32_t i = 0; i < lanes; ++i) {
      if (Op::divides && divisor > 1) folded[i] = Element::divided(folded[i], divisor);
      stored.at[i] = Element::store(Op::finished(folded[i]));
    }
    return std::bit_cast<uint64_t>(stored);
  }
};

}  // namespace tutti
