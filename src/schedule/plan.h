// A plan: one rank's schedule made fast. Depends on the algorithm, ranks, rank and root only, so it is kept for good.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "schedule/step.h"

namespace tutti {

// One step of a plan, of which all verbs are special cases:
//   result = fold of n_from incoming messages, in order, with the local slice `a` standing at place `a_place` among
//   them (absent where a.count == 0), or of two local slices, a and b (b.count == 0: no b), and no messages; finished
//   where `finish`; stored to dst where dst.count > 0; sent to n_to peers.
// It has at least one slice of its own, which says how large its messages are. It holds its input slots while it asks
// for its output slots. All slices and messages of one step are the same chunks (see Shape), so they have equal size.
// A reduction pass has all its operands at once: a_place < n_from + 1, and no peer stands twice among the senders or
// twice among the receivers. Whoever cuts a pass of many operands into smaller ones cuts by place (the local operand
// included), so that all ranks round alike.
struct Fold {
  Slice a;
  Slice dst;
  uint32_t peers = 0;  // index into Plan::peers: n_from senders, then n_to receivers
  uint16_t n_from = 0;
  uint16_t n_to = 0;
  uint16_t a_place = 0;
  bool finish = false;
  Slice b;
  bool keeps = false;  // what it sends lies in the caller's memory, and no later step of the run writes there
  bool given = false;  // the same, but no earlier step writes there: it is what the caller gave
  // Of one message that is only stored, to output which no earlier step of the run reads or writes: how many messages its
  // sender sends in a run. The message may then be written there before the step begins. 0: it may not.
  uint16_t early = 0;

  // No more than a copy of the caller's input, which stays as it is: it is sent from there, before it is copied.
  constexpr bool copies_input() const {
    return a.count > 0 && a.buffer == Buffer::input && n_from == 0 && b.count == 0 && !finish;
  }
  // What its messages are sent from: a stored result, once the step is done.
  constexpr const Slice& source() const { return dst.count > 0 && !copies_input() ? dst : a; }
  // Messages and slices that it joins.
  constexpr uint32_t operands() const { return n_from + (a.count > 0 ? 1u : 0u) + (b.count > 0 ? 1u : 0u); }

  friend constexpr bool operator==(const Fold&, const Fold&) = default;
};

// How many chunks each buffer is divided into; the same on all ranks. Chunk i of input and output, and chunks i,
// i + output, i + 2 × output, … of scratch have the size that chunks.h gives chunk i of `output`. Sizes of different
// chunks may differ, so a chunk never changes its number: the checker holds every step and message to that. With
// `blocks`, every chunk is one rank's block, all of one size, and lies apart from its neighbours where a tile takes a
// part of each; there, and in an all_to_all only, a chunk may change its number.
struct Shape {
  uint32_t input = 1;
  uint32_t output = 1;
  uint32_t scratch = 0;
  uint32_t message = 1;  // chunks of the largest message of any rank
  bool blocks = false;   // as meaning() of its collective says

  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

struct Plan {
  std::string_view algorithm;       // a name of the catalog
  Shape shape;                      // scratch is 0 where lowering made it needless
  uint32_t message_chunks_max = 1;  // chunks of the largest message of any rank: all ranks cut equal tiles
  std::vector<Fold> steps;
  std::vector<uint32_t> peers;
  uint64_t message_bytes_max = ~uint64_t{0};  // beside the transports' own bound; the same on all ranks
  uint64_t small_bytes_max = ~uint64_t{0};    // larger calls are cut, though one message could hold them; likewise
  // The buffers of all ranks of the host exceed the last cache in calls of so many bytes (of the whole buffer) or more.
  uint64_t uncached_bytes_min = ~uint64_t{0};
  // Outputs of calls of so many bytes or more are stored past the caches, since by the time they are
  // complete their first part would have been evicted anyway: all but their last part, as far as it fits beside the inputs, which
  // fill the cache from all_streamed_bytes_min on; or all of them, where that is as little. Each rank's own affair.
  uint64_t streamed_bytes_min = ~uint64_t{0};
  uint64_t all_streamed_bytes_min = 0;
  // What a rank copies of its own input goes there as a whole, before any message does, in calls of so many bytes or more.
  uint64_t copies_streamed_bytes_min = ~uint64_t{0};
  // Outputs that the kernel copies nothing to, since they lie in memory that ranks reach themselves or nothing is lent, are stored so as
  // those of a call of so many times as many bytes.
  double reached_factor = 1;

  // Of the tiles of a call of so many bytes, the first ones whose outputs go past the caches.
  size_t streamed_tiles(uint64_t bytes, size_t tiles) const {
    if (bytes < streamed_bytes_min) return 0;
    if (bytes >= all_streamed_bytes_min || streamed_bytes_min == 0) return tiles;
    // The cache is as large as the buffers of a call of streamed_bytes_min bytes; inputs take bytes / all_streamed_bytes_min of it.
    const double least = double(streamed_bytes_min), all = double(all_streamed_bytes_min), size = double(bytes);
    const double held = least * (all - size) / (size * (all - least));
    return tiles - size_t(held * double(tiles));
  }

  bool sends_first = false;  // no step that sends comes after one that receives
  bool one_message_each = false;  // at most, to each other rank, and from each

  // The number of steps where none does.
  uint32_t first_receiving_step() const {
    uint32_t step = 0;
    while (step < steps.size() && steps[step].n_from == 0) ++step;
    return step;
  }
  uint32_t messages_sent() const {
    uint32_t n = 0;
    for (const Fold& fold : steps) n += fold.n_to;
    return n;
  }
  bool only_sends() const { return first_receiving_step() == steps.size(); }

  // Whether each receiver of a step is sent next, and nothing else in between, what the following tiles take of the same piece of
  // memory, which is there already: so it may be written in a row. Not where this rank receives, too, and sends to several: so much
  // under way at once gains nothing (docs/tuning.md, over TCP).
  bool sends_in_a_row(uint32_t step) const {
    const Fold& fold = steps[step];
    const bool sends_given = fold.given && fold.n_from == 0 && (fold.dst.count == 0 || fold.copies_input());
    const bool one_piece = fold.a.count == 1 && (shape.blocks || shape.output == 1);
    if (!sends_given || !one_piece || step >= first_receiving_step()) return false;
    return only_sends() ? steps.size() == 1 || one_message_each : messages_sent() == 1;
  }
  std::span<const uint32_t> from(const Fold& f) const { return {peers.data() + f.peers, f.n_from}; }
  std::span<const uint32_t> to(const Fold& f) const { return {peers.data() + f.peers + f.n_from, f.n_to}; }
};

// Lowers a schedule: sends of one slice to several peers become one step, receives of one chunk from several peers
// one n-way fold, receive-then-send one pass, and stores that nobody reads vanish. `in_place`: input and output are
// the same memory (copies between equal places vanish, and no step may be moved across a write of its source).
// Same messages in the same order on every FIFO, same expression for every output chunk: the checker proves it.
// The schedule must stay within `shape` (the plain check says so). Fills `first_steps`, where given, with the number of
// the schedule's step, from 0, that each step of the plan begins with.
Plan lower(const Schedule& schedule, const Shape& shape, std::string_view algorithm, bool in_place,
           std::vector<uint32_t>* first_steps = nullptr);

}  // namespace tutti
