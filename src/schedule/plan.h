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
//   them (absent where a.count == 0); finished where `finish`; stored to dst where dst.count > 0; sent to n_to peers.
// It holds its input slots while it asks for its output slots. All slices and messages of one step have equal size.
struct Fold {
  Slice a;
  Slice dst;
  uint32_t peers = 0;  // index into Plan::peers: n_from senders, then n_to receivers
  uint16_t n_from = 0;
  uint16_t n_to = 0;
  uint16_t a_place = 0;
  bool finish = false;

  friend constexpr bool operator==(const Fold&, const Fold&) = default;
};

// How many chunks each buffer is divided into. input and output share the size of a chunk.
struct Shape {
  uint32_t input = 1;
  uint32_t output = 1;
  uint32_t scratch = 0;
};

struct Plan {
  std::string_view algorithm;  // a name of the catalog
  Shape shape;
  uint32_t message_chunks_max = 1;  // chunks of the largest message
  std::vector<Fold> steps;
  std::vector<uint32_t> peers;

  std::span<const uint32_t> from(const Fold& f) const { return {peers.data() + f.peers, f.n_from}; }
  std::span<const uint32_t> to(const Fold& f) const { return {peers.data() + f.peers + f.n_from, f.n_to}; }
};

// Lowers a schedule: sends of one slice to several peers become one step, receives of one chunk from several peers
// one n-way fold, receive-then-send one pass, and stores that nobody reads vanish. `in_place`: input and output are
// the same memory (copies between equal places vanish, and no step may be moved across a write of its source).
// Same messages in the same order on every FIFO, same expression for every output chunk: the checker proves it.
Plan lower(const Schedule& schedule, const Shape& shape, std::string_view algorithm, bool in_place);

}  // namespace tutti
