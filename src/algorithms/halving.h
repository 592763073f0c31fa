// Recursive halving: partners exchange halves of what they still have to add, so that each byte is sent once. With
// recursive doubling after it, an all_reduce (Rabenseifner).
#pragma once

#include <algorithm>
#include <bit>

#include "schedule/algorithm.h"

namespace tutti {

// Halving is for powers of two. Where n is none, ranks 2i and 2i + 1 for i < extra are one member: the even one leads,
// the odd one hands it its input first and gets its result from it last. Members are in the order of ranks.
struct HalvingMembers {
  int members, extra;

  explicit constexpr HalvingMembers(int n) : members(int(std::bit_floor(unsigned(n)))), extra(n - members) {}
  constexpr bool pairs(int member) const { return member < extra; }
  constexpr bool follows(int rank) const { return rank < 2 * extra && rank % 2 == 1; }
  constexpr int member(int rank) const { return rank < 2 * extra ? rank / 2 : rank - extra; }
  // Its leader, and its first rank: those of member m are [rank_of(m), rank_of(m + 1)).
  constexpr int rank_of(int member) const { return member < extra ? 2 * member : member + extra; }
};

// Calls use(slice) for chunks [first, first + count), at most `most` at once.
template <class Use>
constexpr void in_messages(int first, int count, int most, Buffer buffer, Use use) {
  for (int at = first; at < first + count; at += most)
    use(Slice{uint32_t(at), uint32_t(std::min(most, first + count - at)), buffer});
}

// As many chunks as members, halved at the distances 1, 2, 4, … of members: sums are of neighbouring ranks, in their
// order. Then the results double at the same distances backwards.
template <class V>
constexpr void all_reduce_halving(V& v, const Group& group) {
  const HalvingMembers all(group.n);
  const int rank = group.rank, chunks = all.members, half = std::max(1, chunks / 2);
  if (all.follows(rank)) {
    in_messages(0, chunks, half, Buffer::input, [&](Slice s) { v.send(rank - 1, s); });
    return in_messages(0, chunks, half, Buffer::output, [&](Slice s) { v.recv(rank - 1, s); });
  }
  const int mine = all.member(rank);
  Buffer held = Buffer::input;
  if (all.pairs(mine)) {
    in_messages(0, chunks, half, Buffer::input, [&](Slice s) {
      v.recv_reduce(rank + 1, s, Slice{s.first, s.count, Buffer::output});
    });
    held = Buffer::output;
  }
  int first = 0, count = chunks;
  for (int distance = 1; distance < chunks; distance *= 2) {
    const int partner = all.rank_of(mine ^ distance);
    count /= 2;
    const bool upper = (mine & distance) != 0;
    const int kept = upper ? first + count : first, given = upper ? first : first + count;
    v.send(partner, Slice{uint32_t(given), uint32_t(count), held});
    v.recv_reduce(partner, Slice{uint32_t(kept), uint32_t(count), held}, out(kept, count), partner < rank);
    held = Buffer::output;
    first = kept;
  }
  if (group.n == 1) v.copy(in(0), out(0));
  v.finish(out(first));
  for (int distance = chunks / 2; distance >= 1; distance /= 2, count *= 2) {
    const int partner = all.rank_of(mine ^ distance);
    const int other = (mine & distance) != 0 ? first - count : first + count;
    v.send(partner, out(first, count));
    v.recv(partner, out(other, count));
    first = std::min(first, other);
  }
  if (all.pairs(mine)) in_messages(0, chunks, half, Buffer::output, [&](Slice s) { v.send(rank + 1, s); });
}

// Members are halved, their distance first being half of all: a member's blocks are its ranks', which are neighbours,
// so that a half is a run of blocks.
template <class V>
constexpr void reduce_scatter_halving(V& v, const Group& group) {
  const HalvingMembers all(group.n);
  const int rank = group.rank, n = group.n, half = std::max(1, n / 2);
  if (all.follows(rank)) {
    in_messages(0, n, half, Buffer::input, [&](Slice s) { v.send(rank - 1, s); });
    return v.recv(rank - 1, out(rank));
  }
  const int mine = all.member(rank);
  Buffer held = Buffer::input;
  const auto sum_of = [](Slice s) { return Slice{s.first, s.count, Buffer::scratch}; };
  if (all.pairs(mine)) {
    in_messages(0, n, half, Buffer::input, [&](Slice s) { v.recv_reduce(rank + 1, s, sum_of(s)); });
    held = Buffer::scratch;
  }
  int first = 0;
  for (int distance = all.members / 2; distance >= 1; distance /= 2) {
    const int partner = all.rank_of(mine ^ distance);
    const bool upper = (mine & distance) != 0;
    const int low = all.rank_of(first), middle = all.rank_of(first + distance), end = all.rank_of(first + 2 * distance);
    const int kept = upper ? middle : low, kept_end = upper ? end : middle;
    const int given = upper ? low : middle, given_end = upper ? middle : end;
    in_messages(given, given_end - given, half, held, [&](Slice s) { v.send(partner, s); });
    in_messages(kept, kept_end - kept, half, held,
                [&](Slice s) { v.recv_reduce(partner, s, sum_of(s), partner < rank); });
    held = Buffer::scratch;
    if (upper) first += distance;
  }
  v.copy(Slice{uint32_t(rank), 1, held}, out(rank));
  v.finish(out(rank));
  if (!all.pairs(mine)) return;
  v.finish(scratch(rank + 1));
  v.send(rank + 1, scratch(rank + 1));
}

}  // namespace tutti
