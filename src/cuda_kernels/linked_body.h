// The body of the kernel that runs a linked plan: what a block does, for one rank and one channel of it.
//
// `Block` is what a block of threads can do: on the device its barrier and flags in memory; in tests a thread of the host
// that plays all threads of the block in turn.
//
//   struct Block {
//     uint32_t index, threads;
//     ReduceArguments& pass();                            // one for the block
//     template <class F> void once(F f);                  // one thread does it, all see it
//     template <class F> void all(F f);                   // f(thread) by every thread
//     void wait(const uint32_t* flag, uint32_t value);    // until int32_t(*flag - value) >= 0; what was written before
//                                                         // is then seen by all threads
//     void tell(uint32_t* flag, uint32_t value);          // what all threads wrote can be seen by who sees it
//   };
#pragma once

#include "cuda_kernels/reduce_body.h"
#include "device/linked_call.h"
#include "schedule/link.h"

namespace tutti {

// A kernel's parameters: the plan travels in them, so it is never fetched from memory.
struct LinkedArguments {
  LinkedBuffers buffers;
  uint32_t* progress;       // steps done, of each rank and channel, counted from `epoch`
  uint32_t epoch;
  uint32_t channels;        // blocks of each rank
  uint32_t divisor;
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
  const ElementRange range = share(buffers.elements(a.plan, step, i), channel, a.channels, element_bytes);
  for (uint32_t k = 0; k < step.n_operands; ++k)
    pass.inputs[k] = buffers.at(a.plan, step, step.operands[k], i) + range.first * element_bytes;
  for (uint32_t k = 0; k < step.n_outputs; ++k)
    pass.outputs[k] = buffers.at(a.plan, step, step.outputs[k], i) + range.first * element_bytes;
  pass.n_inputs = step.n_operands;
  pass.n_outputs = step.n_outputs;
  pass.divisor = step.finish ? a.divisor : 0;
  // One operand of which nothing is made is copied as bytes, so that no bit of it changes.
  const bool copies = pass.n_inputs == 1 && pass.divisor <= 1;
  const uint32_t unit = copies ? 1 : element_bytes;
  pass.parts = partition(pass.addresses(), range.count * element_bytes / unit, {unit, unit});
}

template <class Element, class Op, class Block, class Memory>
TUTTI_HOST_DEVICE inline void linked_body(const LinkedArguments& a, Block& block, Memory& memory) {
  const uint32_t rank = block.index / a.channels, channel = block.index % a.channels;
  const uint32_t first = a.plan.first_step[rank], beyond = a.plan.first_step[rank + 1];
  for (uint32_t s = first; s < beyond; ++s) {
    const LinkedStep& step = a.plan.steps[s];
    for (uint32_t k = 0; k < step.n_waits; ++k)
      block.wait(a.progress + step.waits[k].rank * a.channels + channel, a.epoch + step.waits[k].steps);
    for (uint32_t i = 0; i < step.chunks; ++i) {
      block.once([&] { prepare_pass(a, step, i, channel, block.pass()); });
      block.all([&](uint32_t thread) {
        const ReduceArguments& pass = block.pass();
        const GridPosition at{0, 1, thread, block.threads};
        if (pass.n_inputs == 1 && pass.divisor <= 1)
          reduce_body<PlainElement<uint8_t>, PlainElement<uint8_t>, scalar::BitOr, 1, 4>(pass, at, memory);
        else reduce_body<Element, Element, Op, kernel_inputs_max, 1>(pass, at, memory);
      });
    }
    if (step.awaited) block.tell(a.progress + block.index, a.epoch + s - first + 1);
  }
}

}  // namespace tutti
