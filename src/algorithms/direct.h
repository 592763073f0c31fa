// Direct algorithms: every rank talks to every other at once. Fewest rounds; sums are added in the order of ranks.
#pragma once

#include "schedule/algorithm.h"

namespace tutti {

// dst = sum over all ranks, in the order of ranks, of this rank's `own` and one message of every other. `prefix` holds
// the sum of the lower ranks for a moment: plans need no such memory.
template <class V>
constexpr void add_in_rank_order(V& v, int rank, int n, Slice own, Slice dst, Slice prefix) {
  if (n == 1) {
    if (!(own == dst)) v.copy(own, dst);
    return;
  }
  int next = 2;
  if (rank == 0) {
    v.recv_reduce(1, own, dst);
  } else if (rank == 1) {
    v.recv_reduce(0, own, dst, true);
  } else {
    v.recv(0, prefix);
    for (int r = 1; r < rank; ++r) v.recv_reduce(r, prefix, prefix);
    v.reduce(prefix, own, dst);
    next = rank + 1;
  }
  for (int r = next; r < n; ++r) v.recv_reduce(r, dst, dst);
}

// Rank i ends with the sum of everybody's source(i) in target(i). spare(i) is scratch of the same chunks.
template <class V, class Source, class Target, class Spare>
constexpr void reduce_scatter_direct(V& v, int rank, int n, Source source, Target target, Spare spare) {
  for (int d = 1; d < n; ++d) v.send((rank + d) % n, source((rank + d) % n));
  add_in_rank_order(v, rank, n, source(rank), target(rank), spare(rank));
}

// Everybody ends with everybody's part(i), which rank i has.
template <class V, class Part>
constexpr void all_gather_direct(V& v, int rank, int n, Part part) {
  for (int d = 1; d < n; ++d) v.send((rank + d) % n, part(rank));
  for (int d = 1; d < n; ++d) v.recv((rank + n - d) % n, part((rank + n - d) % n));
}

// Everybody sends its whole input to everybody and adds: one round, n - 1 messages of the whole size.
template <class V>
constexpr void all_reduce_one_shot(V& v, const Group& group) {
  for (int d = 1; d < group.n; ++d) v.send((group.rank + d) % group.n, in(0));
  add_in_rank_order(v, group.rank, group.n, in(0), out(0), scratch(0));
  v.finish(out(0));
}

// Rank i adds chunk i of everybody, then sends the sum to everybody: two rounds, the least bytes.
template <class V>
constexpr void all_reduce_two_shot(V& v, const Group& group) {
  const auto source = [](int i) { return in(i); };
  const auto target = [](int i) { return out(i); };
  const auto spare = [](int i) { return scratch(i); };
  reduce_scatter_direct(v, group.rank, group.n, source, target, spare);
  v.finish(out(group.rank));
  all_gather_direct(v, group.rank, group.n, target);
}

// The root sends to everybody.
template <class V>
constexpr void broadcast_direct(V& v, const Group& group) {
  if (group.rank != group.root) return v.recv(group.root, out(0));
  for (int d = 1; d < group.n; ++d) v.send((group.root + d) % group.n, in(0));
  v.copy(in(0), out(0));
}

// Everybody sends to the root, which adds in the order of ranks.
template <class V>
constexpr void reduce_direct(V& v, const Group& group) {
  if (group.rank != group.root) return v.send(group.root, in(0));
  add_in_rank_order(v, group.rank, group.n, in(0), out(0), scratch(0));
  v.finish(out(0));
}

// Rank i adds block i of everybody, in the order of ranks.
template <class V>
constexpr void reduce_scatter_direct(V& v, const Group& group) {
  const auto source = [](int i) { return in(i); };
  const auto target = [](int i) { return out(i); };
  const auto spare = [](int i) { return scratch(i); };
  reduce_scatter_direct(v, group.rank, group.n, source, target, spare);
  v.finish(out(group.rank));
}

// Everybody sends its block to everybody.
template <class V>
constexpr void all_gather_direct(V& v, const Group& group) {
  const int rank = group.rank, n = group.n;
  for (int d = 1; d < n; ++d) v.send((rank + d) % n, in(rank));
  v.copy(in(rank), out(rank));
  for (int d = 1; d < n; ++d) v.recv((rank + n - d) % n, out((rank + n - d) % n));
}

// Everybody sends its block to the root.
template <class V>
constexpr void gather_direct(V& v, const Group& group) {
  const int n = group.n, root = group.root;
  if (group.rank != root) return v.send(root, in(group.rank));
  v.copy(in(root), out(root));
  for (int d = 1; d < n; ++d) v.recv((root + d) % n, out((root + d) % n));
}

// The root sends everybody its block.
template <class V>
constexpr void scatter_direct(V& v, const Group& group) {
  const int n = group.n, root = group.root;
  if (group.rank != root) return v.recv(root, out(group.rank));
  for (int d = 1; d < n; ++d) v.send((root + d) % n, in((root + d) % n));
  v.copy(in(root), out(root));
}

// Everybody sends everybody a block of its own. All is sent before anything comes in, so it may work in place.
template <class V>
constexpr void all_to_all_direct(V& v, const Group& group) {
  const int rank = group.rank, n = group.n;
  for (int d = 1; d < n; ++d) v.send((rank + d) % n, in((rank + d) % n));
  v.copy(in(rank), out(rank));
  for (int d = 1; d < n; ++d) v.recv((rank + n - d) % n, out((rank + n - d) % n));
}

// A round robin of all ranks: in round d, those whose numbers add up to d (modulo the odd one of n and n - 1) exchange
// their blocks, one partner at a time. Who would meet itself meets the last rank where n is even, and rests where it is
// odd. So it takes n - 1 rounds, or n. What comes in replaces what has just gone to the same partner, so it may work in
// place.
template <class V>
constexpr void all_to_all_pairwise(V& v, const Group& group) {
  const int rank = group.rank, n = group.n, last = n - 1;
  const bool even = n % 2 == 0;
  const int rounds = even ? n - 1 : n;
  for (int d = 0; d < rounds; ++d) {
    int partner = (d + rounds - rank % rounds) % rounds;
    if (even && rank == last)
      partner = d % 2 == 0 ? d / 2 : (d + rounds) / 2;  // whose number twice is d
    else if (partner == rank && even)
      partner = last;
    if (partner != rank) v.send(partner, in(partner));
    if (partner == rank || (even && d == 0)) v.copy(in(rank), out(rank));  // while the first block is under way
    if (partner != rank) v.recv(partner, out(partner));
  }
}

}  // namespace tutti
