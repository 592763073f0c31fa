// Prefix sums, in the order of ranks: rank r ends with the sum of the inputs of ranks 0 to r (scan), or 0 to r - 1
// (exscan, where rank 0 gets nothing).
#pragma once

#include "schedule/algorithm.h"

namespace tutti {

// Everybody sends its input to all higher ranks; each adds what comes from the lower ones in one pass.
template <class V>
constexpr void scan_direct(V& v, const Group& group) {
  const int rank = group.rank;
  for (int r = rank + 1; r < group.n; ++r) v.send(r, in(0));
  if (rank == 0) v.copy(in(0), out(0));
  if (rank == 1) v.recv_reduce(0, in(0), out(0), true);
  if (rank > 1) {
    v.recv(0, scratch(0));
    for (int r = 1; r < rank; ++r) v.recv_reduce(r, scratch(0), scratch(0));
    v.reduce(scratch(0), in(0), out(0));
  }
  v.finish(out(0));
}

template <class V>
constexpr void exscan_direct(V& v, const Group& group) {
  const int rank = group.rank;
  for (int r = rank + 1; r < group.n; ++r) v.send(r, in(0));
  if (rank == 0) return;
  v.recv(0, out(0));
  for (int r = 1; r < rank; ++r) v.recv_reduce(r, out(0), out(0));
  v.finish(out(0));
}

// From rank to rank, chunk by chunk, each adding its own.
template <class V>
constexpr void scan_chain(V& v, const Group& group) {
  const int rank = group.rank;
  for (int c = 0; c < group.pipeline; ++c) {
    if (rank > 0) v.recv_reduce(rank - 1, in(c), out(c), true);
    if (rank + 1 < group.n) v.send(rank + 1, rank == 0 ? in(c) : out(c));
    if (rank == 0) v.copy(in(c), out(c));
    v.finish(out(c));
  }
}

// What comes in is the result, and with the rank's own input what goes on. It waits in scratch memory meanwhile: in
// place, the input is where the result will be.
template <class V>
constexpr void exscan_chain(V& v, const Group& group) {
  const int rank = group.rank;
  const bool last = rank + 1 == group.n;
  for (int c = 0; c < group.pipeline; ++c) {
    if (rank == 0) {
      if (!last) v.send(rank + 1, in(c));
      continue;
    }
    const Slice prefix = last ? out(c) : scratch(c);
    v.recv(rank - 1, prefix);
    if (!last) {
      const Slice sum = scratch(group.pipeline + c);
      v.reduce(prefix, in(c), sum);
      v.send(rank + 1, sum);
      v.copy(prefix, out(c));
    }
    v.finish(out(c));
  }
}

// At distances 1, 2, 4, … : before a round at distance d every rank has the sum of the d ranks up to itself.
template <class V>
constexpr void scan_doubling(V& v, const Group& group) {
  const int rank = group.rank, n = group.n;
  Slice sum = in(0);
  for (int distance = 1; distance < n; distance *= 2) {
    if (rank + distance < n) v.send(rank + distance, sum);
    if (rank < distance) continue;
    v.recv_reduce(rank - distance, sum, out(0), true);
    sum = out(0);
  }
  if (rank == 0) v.copy(in(0), out(0));
  v.finish(out(0));
}

// The inputs move up by one rank; then the ranks above 0 scan what they got.
template <class V>
constexpr void exscan_doubling(V& v, const Group& group) {
  const int rank = group.rank, n = group.n;
  if (rank + 1 < n) v.send(rank + 1, in(0));
  if (rank == 0) return;
  v.recv(rank - 1, out(0));
  for (int distance = 1; distance < n - 1; distance *= 2) {
    if (rank + distance < n) v.send(rank + distance, out(0));
    if (rank > distance) v.recv_reduce(rank - distance, out(0), out(0), true);
  }
  v.finish(out(0));
}

// The distance of a round of exscan_123: 1, 2, 3, and then doubled. Before a round at distance d >= 3, a rank has the
// sum of the d ranks below itself.
constexpr int exscan_123_distance(int round) { return round < 2 ? round + 1 : 3 << (round - 2); }

// The second round sends what came in the first with the rank's own input added, so that three inputs are there after
// two rounds: one round less than a shift and a scan where that matters.
template <class V>
constexpr void exscan_123(V& v, const Group& group) {
  const int rank = group.rank, n = group.n;
  if (rank + 1 < n) v.send(rank + 1, in(0));
  if (rank == 0) {
    if (n > 2) v.send(2, in(0));
    return;
  }
  const bool adds = rank + 2 < n;  // then its input is needed once more, and in place lies where the result will
  Slice prefix = adds ? scratch(0) : out(0);
  v.recv(rank - 1, prefix);
  if (adds) {
    v.reduce(prefix, in(0), scratch(1));
    v.send(rank + 2, scratch(1));
  }
  if (rank >= 2) {
    v.recv_reduce(rank - 2, prefix, out(0), true);
    prefix = out(0);
  }
  for (int round = 2; exscan_123_distance(round) < n - 1; ++round) {
    const int distance = exscan_123_distance(round);
    if (rank + distance < n) v.send(rank + distance, prefix);
    if (rank <= distance) continue;
    v.recv_reduce(rank - distance, prefix, out(0), true);
    prefix = out(0);
  }
  if (!(prefix == out(0))) v.copy(prefix, out(0));
  v.finish(out(0));
}

}  // namespace tutti
