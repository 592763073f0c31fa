// Round the circle of ranks at growing or shrinking distances: ceil(log2 n) rounds for any n, and (but for all_to_all)
// the least bytes. A message carries the blocks of a run of ranks (two messages where the run passes rank n - 1).
#pragma once

#include "algorithms/runs.h"
#include "schedule/algorithm.h"

namespace tutti {

// Place i of a rank is the block of the rank i further round the circle.

// One round of an all-gather: a rank that has places [0, skip) gets places [skip, skip + count).
template <class V>
constexpr void all_gather_round(V& v, const Group& group, int skip, int count) {
  const int n = group.n, to = (group.rank + n - skip) % n, from = (group.rank + skip) % n;
  for_each_run(group.rank, count, n, Buffer::output, [&](Slice s) { v.send(to, s); });
  for_each_run(group.rank + skip, count, n, Buffer::output, [&](Slice s) { v.recv(from, s); });
}

// Distances 1, 2, 4, …: all that is there is sent, but in the last round only what lacks.
template <class V>
constexpr void all_gather_bruck(V& v, const Group& group) {
  v.copy(in(group.rank), out(group.rank));
  for (int skip = 1; skip < group.n; skip *= 2) all_gather_round(v, group, skip, std::min(skip, group.n - skip));
}

// The distances of a circulant graph: n halved, rounded up, again and again, down to 1.
constexpr int circulant_reach(int n, int halvings) {
  for (; halvings > 0; --halvings) n = (n + 1) / 2;
  return n;
}
constexpr int circulant_rounds(int n) {
  int rounds = 0;
  for (; n > 1; n = (n + 1) / 2) ++rounds;
  return rounds;
}

// The distances grow from 1: every round nearly doubles what a rank has, and none sends a block twice. Its own block is
// in its place.
template <class V>
constexpr void all_gather_circulant_rounds(V& v, const Group& group) {
  for (int k = circulant_rounds(group.n); k > 0; --k) {
    const int skip = circulant_reach(group.n, k);
    all_gather_round(v, group, skip, circulant_reach(group.n, k - 1) - skip);
  }
}

template <class V>
constexpr void all_gather_circulant(V& v, const Group& group) {
  v.copy(in(group.rank), out(group.rank));
  all_gather_circulant_rounds(v, group);
}

// The same backwards: a rank hands on its sums for places [skip, reach) and adds to those for [0, reach - skip).
template <class V>
constexpr void reduce_scatter_circulant(V& v, const Group& group) {
  const int rank = group.rank, n = group.n;
  Buffer held = Buffer::input;
  if (n == 1) v.copy(in(0), out(0));
  for (int reach = n, skip = 0; reach > 1; reach = skip) {
    skip = (reach + 1) / 2;
    for_each_run(rank + skip, reach - skip, n, held, [&](Slice s) { v.send((rank + skip) % n, s); });
    for_each_run(rank, reach - skip, n, held, [&](Slice s) {
      v.recv_reduce((rank + n - skip) % n, s, reach == 2 ? out(rank) : scratch(int(s.first), int(s.count)));
    });
    // Where n is odd, nothing was added to the middle place, but it goes on with the sums.
    const int middle = (rank + n / 2) % n;
    if (held == Buffer::input && n % 2 == 1 && n > 1) v.copy(in(middle), scratch(middle));
    held = Buffer::scratch;
  }
  v.finish(out(rank));
}

// Blocks are the chunks of one buffer.
template <class V>
constexpr void all_reduce_circulant(V& v, const Group& group) {
  reduce_scatter_circulant(v, group);
  all_gather_circulant_rounds(v, group);
}

// Of a block and the rank that it is for, the distance is the sum of some powers of two; it travels by one of them
// after the other, together with all blocks whose distances have that power. Blocks wait in scratch memory by their
// distance; what travels together is put side by side.
template <class V>
constexpr void all_to_all_bruck(V& v, const Group& group) {
  const int rank = group.rank, n = group.n;
  v.copy(in(rank), out(rank));
  for (int power = 1; power < n; power *= 2) {
    const bool last = 2 * power >= n;
    int count = 0;
    for (int d = power; d < n; ++d) {
      if ((d & power) == 0) continue;
      const bool moved = (d & (power - 1)) != 0;
      v.copy(moved ? scratch(d) : in((rank + d) % n), scratch(n + count++));
    }
    v.send((rank + power) % n, scratch(n, count));
    v.recv((rank + n - power) % n, scratch(n, count));
    // In place, no input is left by the last round that could be overwritten.
    int at = 0;
    for (int d = power; d < n; ++d)
      if ((d & power) != 0) v.copy(scratch(n + at++), last ? out((rank + n - d) % n) : scratch(d));
    if (!last) continue;
    for (int d = 1; d < power; ++d) v.copy(scratch(d), out((rank + n - d) % n));
  }
}

}  // namespace tutti
