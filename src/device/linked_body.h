// The body of the kernel that runs a linked plan: what a block does, for one rank and one channel of it.
//
// `Block` is what a block of threads can do: on the device its barrier and counters in memory; on the host one thread that
// plays all threads of the block in turn.
//
//   struct Block {
//     uint32_t index, threads;
//     bool goes_on();                                     // false, for all threads: the call had ended before
//     ReduceArguments& pass();                            // one for the block
//     template <class F> void once(F f);                  // one thread does it, all see it
//     template <class F> void all(F f);                   // f(thread) by every thread
//     bool wait(const LinkedCounter* of, uint64_t value); // until *of >= value; what was written before is then seen by
//                                                         // all threads. False: the call has ended
//     void tell(LinkedCounter* to, uint64_t value);       // what all threads wrote can be seen by who sees it
//     // Tells all that are to(k), then waits for all that are of(k), k < n. Null ones are nobody. False: the call has ended.
//     template <class To, class Of> bool meet(uint32_t n, To to, Of of, uint64_t value);
//   };
//
// `Fold` does one thread's share of a pass, fold(pass, position, memory).
#pragma once

#include "device/linked_call.h"
#include "device/reduce_body.h"
#include "schedule/link.h"

namespace tutti {

// The ranks whose parts one launch does, and what all its blocks know of the others.
struct LinkedLaunchPart {
  std::byte* workspaces[linked_ranks_max];
  const uint32_t* ended;  // null: nobody ends it
  uint64_t epoch;         // counters stand at least here
  uint32_t channels;      // blocks of each rank
  uint32_t divisor;
  uint8_t ranks[linked_ranks_max];
  uint8_t n_ranks;
  bool meets;             // other launches do the other ranks' parts

  TUTTI_HOST_DEVICE uint32_t rank_of(uint32_t block) const { return ranks[block / channels]; }
  TUTTI_HOST_DEVICE LinkedCounter* progress(uint32_t rank, uint32_t channel) const {
    return reinterpret_cast<LinkedCounter*>(workspaces[rank]) + channel;
  }
  // Where `rank` is told by `by`.
  TUTTI_HOST_DEVICE LinkedCounter* told(uint32_t rank, uint32_t by, uint32_t channel) const {
    return reinterpret_cast<LinkedCounter*>(workspaces[rank] + linked_progress_bytes) + by * meeting_channels_max + channel;
  }
};

// A kernel's parameters: the plan travels in them, so it is never fetched from memory.
struct LinkedArguments {
  LinkedBuffers buffers;
  LinkedLaunchPart part;
  LinkedPlan plan;
};

struct ElementRange {
  uint64_t first, count;
};

// A channel's share of a chunk: as even as whole cache lines allow. The same for every rank, so a channel waits for that
// channel of others only.
TUTTI_HOST_DEVICE constexpr ElementRange share(uint64_t count, uint32_t channel, uint32_t channels, uint32_t element_bytes) {
  const uint64_t unit = element_bytes < 64 ? 64 / element_bytes : 1;
  const uint64_t each = ((count + channels - 1) / channels + unit - 1) / unit * unit;
  const uint64_t first = channel * each < count ? channel * each : count;
  return {first, count - first < each ? count - first : each};
}

// The pass over a channel's share of one chunk.
TUTTI_HOST_DEVICE inline void prepare_pass(const LinkedArguments& a, const LinkedStep& step, uint32_t i, uint32_t channel,
                                           ReduceArguments& pass) {
  const LinkedBuffers& buffers = a.buffers;
  const uint32_t element_bytes = buffers.element_bytes;
  const ElementRange range = share(buffers.elements(a.plan, step, i), channel, a.part.channels, element_bytes);
  for (uint32_t k = 0; k < step.n_operands; ++k)
    pass.inputs[k] = buffers.at(a.plan, step, step.operands[k], i) + range.first * element_bytes;
  for (uint32_t k = 0; k < step.n_outputs; ++k)
    pass.outputs[k] = buffers.at(a.plan, step, step.outputs[k], i) + range.first * element_bytes;
  pass.n_inputs = step.n_operands;
  pass.n_outputs = step.n_outputs;
  pass.divisor = step.finish ? a.part.divisor : 0;
  // One operand of which nothing is made is copied as bytes, so that no bit of it changes.
  const bool copies = pass.n_inputs == 1 && pass.divisor <= 1;
  const uint32_t unit = copies ? 1 : element_bytes;
  pass.parts = partition(pass.addresses(), range.count * element_bytes / unit, {unit, unit});
}

// Where several launches do a call, a rank's buffers may be touched once its launch has begun, since it comes after what
// is on its stream; and they are its caller's again once all that touch them have ended.
enum class Meeting : uint8_t { begins = 1, ends = 2 };

template <class Block>
TUTTI_HOST_DEVICE inline bool meet(const LinkedLaunchPart& part, Block& block, uint32_t ranks, Meeting when) {
  const uint32_t rank = part.rank_of(block.index), channel = block.index % part.channels;
  return block.meet(
      ranks, [&](uint32_t peer) { return peer == rank ? nullptr : part.told(peer, rank, channel); },
      [&](uint32_t peer) -> const LinkedCounter* { return peer == rank ? nullptr : part.told(rank, peer, channel); },
      part.epoch + uint64_t(when));
}

template <class Block, class Memory, class Fold>
TUTTI_HOST_DEVICE inline void linked_body(const LinkedArguments& a, Block& block, Memory& memory, const Fold& fold) {
  const uint32_t rank = a.part.rank_of(block.index), channel = block.index % a.part.channels;
  const uint32_t first = a.plan.first_step[rank], beyond = a.plan.first_step[rank + 1];
  if (!block.goes_on()) return;  // who comes late touches nothing
  if (a.part.meets && !meet(a.part, block, a.plan.ranks, Meeting::begins)) return;
  for (uint32_t s = first; s < beyond; ++s) {
    const LinkedStep& step = a.plan.steps[s];
    for (uint32_t k = 0; k < step.n_waits; ++k)
      if (!block.wait(a.part.progress(step.waits[k].rank, channel), a.part.epoch + step.waits[k].steps)) return;
    for (uint32_t i = 0; i < step.chunks; ++i) {
      block.once([&] { prepare_pass(a, step, i, channel, block.pass()); });
      block.all([&](uint32_t thread) { fold(block.pass(), GridPosition{0, 1, thread, block.threads}, memory); });
    }
    if (step.awaited) block.tell(a.part.progress(rank, channel), a.part.epoch + s - first + 1);
  }
  if (a.part.meets) (void)meet(a.part, block, a.plan.ranks, Meeting::ends);
}

// As kernels fold.
template <class Element, class Op>
struct FoldElements {
  template <class Memory>
  TUTTI_HOST_DEVICE void operator()(const ReduceArguments& pass, GridPosition at, Memory& memory) const {
    if (pass.n_inputs == 1 && pass.divisor <= 1)
      reduce_body<PlainElement<uint8_t>, PlainElement<uint8_t>, scalar::BitOr, 1, 4>(pass, at, memory);
    else reduce_body<Element, Element, Op, kernel_inputs_max, 1>(pass, at, memory);
  }
};

}  // namespace tutti
