// What each collective means: which chunks of its buffers a rank has, and what it must find in them.
#pragma once

#include <array>
#include <cstdint>

#include "base/signature.h"

namespace tutti {

// The chunks of a buffer that the caller gives: none; the one that has the rank's number; or all.
enum class Part : uint8_t { none, own, all };

constexpr bool holds(Part part, uint32_t rank, uint32_t chunk) {
  return part == Part::all || (part == Part::own && chunk == rank);
}

// Whose inputs a sum joins: all ranks'; or those of the ranks up to the one that has it, or below it.
enum class Joins : uint8_t { all, up_to_own, below_own };

struct Meaning {
  bool reduces = false;   // a result is a sum of inputs, finished; else it is one rank's input
  Joins joins = Joins::all;
  bool rooted = false;    // one rank, the root, has other parts than the rest
  bool blocks = false;    // n chunks of equal size, chunk i being rank i's; else the chunks are one buffer's division
  bool transposes = false;  // chunk j of rank i's input becomes chunk i of rank j's output; else it keeps its number
  Part input = Part::all, output = Part::all;
  Part root_input = Part::all, root_output = Part::all;  // of the root; below_own: of rank 0, which joins nothing

  // is_root: of a collective without a root, whether it is rank 0.
  constexpr Part input_of(bool is_root) const { return rooted && is_root ? root_input : input; }
  constexpr Part output_of(bool is_root) const {
    return is_root && (rooted || joins == Joins::below_own) ? root_output : output;
  }
  // How many ranks' inputs a rank's result joins: they are the lowest.
  constexpr uint32_t joined(uint32_t rank, uint32_t n) const {
    return joins == Joins::all ? n : joins == Joins::up_to_own ? rank + 1 : rank;
  }
};

// The collective whose algorithms serve this one: a barrier is an all_reduce of nothing, and a v-form has the blocks of
// another, of sizes of their own.
constexpr Collective served_as(Collective collective) {
  switch (collective) {
    case Collective::barrier: return Collective::all_reduce;
    case Collective::all_gather_v: return Collective::all_gather;
    case Collective::reduce_scatter_v: return Collective::reduce_scatter;
    case Collective::gather_v: return Collective::gather;
    case Collective::scatter_v: return Collective::scatter;
    case Collective::all_to_all_v: return Collective::all_to_all;
    default: return collective;
  }
}
constexpr bool is_v_form(Collective collective) {
  return collective >= Collective::all_gather_v && collective <= Collective::all_to_all_v;
}

// By the value of Collective.
inline constexpr std::array<Meaning, collective_names.size()> meanings = [] {
  std::array<Meaning, collective_names.size()> rows = {{
    {},                                                                                  // none
    {.reduces = true},                                                                   // all_reduce
    {.rooted = true, .input = Part::none},                                               // broadcast
    {},                                                                                  // barrier: as it is served
    {},                                                                                  // send_recv
    {.reduces = true, .rooted = true, .output = Part::none},                             // reduce
    {.blocks = true, .input = Part::own},                                                // all_gather
    {.reduces = true, .blocks = true, .output = Part::own},                              // reduce_scatter
    {.rooted = true, .blocks = true, .input = Part::own, .output = Part::none, .root_input = Part::own},   // gather
    {.rooted = true, .blocks = true, .input = Part::none, .output = Part::own, .root_output = Part::own},  // scatter
    {.blocks = true, .transposes = true},                                                // all_to_all
    {}, {}, {}, {}, {},                                                                  // v-forms: likewise
    {.reduces = true, .joins = Joins::up_to_own},                                        // scan
    {.reduces = true, .joins = Joins::below_own, .root_output = Part::none},             // exscan
  }};
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = rows[size_t(served_as(Collective(i)))];
  return rows;
}();
constexpr const Meaning& meaning(Collective collective) { return meanings[size_t(collective)]; }

// The ranks [first, end) from which a rank must have something, maybe its own among them, before its part of a call (of more than
// nothing) can end.
struct NeededRanks {
  uint32_t first = 0, end = 0;
};
constexpr NeededRanks needed_ranks(Collective collective, uint32_t root, uint32_t rank, uint32_t n) {
  const Meaning& kind = meaning(collective);
  if (kind.output_of(rank == root) == Part::none) return {};
  if (kind.input == Part::none) return {root, root + 1};
  return {0, kind.joined(rank, n)};
}

// Those that have algorithms of their own, in the order of lists.
inline constexpr std::array planned_collectives = {
    Collective::all_reduce,     Collective::broadcast, Collective::reduce,  Collective::all_gather,
    Collective::reduce_scatter, Collective::gather,    Collective::scatter, Collective::all_to_all,
    Collective::scan,           Collective::exscan};

}  // namespace tutti
