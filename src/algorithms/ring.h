// Along a line of ranks: the ring, and the chain it is made of. Least bytes, most rounds; each rank has two neighbours.
#pragma once

#include "schedule/algorithm.h"

namespace tutti {

// n chunks go round the ring twice: once adding (n - 1 steps), once spreading (n - 1 steps).
template <class V>
constexpr void all_reduce_ring(V& v, const Group& group) {
  const int n = group.n, next = (group.rank + 1) % n, previous = (group.rank + n - 1) % n;
  const auto chunk = [&](int steps_back) { return (group.rank + 2 * n - steps_back) % n; };
  if (n == 1) {
    v.copy(in(0), out(0));
    return v.finish(out(0));
  }
  v.send(next, in(chunk(0)));
  for (int s = 1; s < n; ++s) {
    v.recv_reduce(previous, in(chunk(s)), out(chunk(s)), true);
    if (s == n - 1) v.finish(out(chunk(s)));
    v.send(next, out(chunk(s)));
  }
  for (int s = 0; s < n - 1; ++s) {
    v.recv(previous, out(chunk(s)));
    if (s < n - 2) v.send(next, out(chunk(s)));
  }
}

// From the root to its right neighbour and on, chunk by chunk, so that all links are busy at once.
template <class V>
constexpr void broadcast_chain(V& v, const Group& group) {
  const int n = group.n, place = (group.rank + n - group.root) % n;
  for (int c = 0; c < group.pipeline; ++c) {
    const Slice held = place == 0 ? in(c) : out(c);
    if (place > 0) v.recv((group.rank + n - 1) % n, out(c));
    if (place < n - 1) v.send((group.rank + 1) % n, held);
    if (place == 0) v.copy(in(c), out(c));
  }
}

// From the root's right neighbour round to the root, chunk by chunk, each rank adding its own.
template <class V>
constexpr void reduce_chain(V& v, const Group& group) {
  const int n = group.n, place = (group.rank + 2 * n - group.root - 1) % n;  // the root's is the last
  const int next = (group.rank + 1) % n, previous = (group.rank + n - 1) % n;
  for (int c = 0; c < group.pipeline; ++c) {
    const Slice sum = place == n - 1 ? out(c) : scratch(c);
    if (place > 0) v.recv_reduce(previous, in(c), sum, true);
    if (n == 1) v.copy(in(c), out(c));
    if (place == n - 1) v.finish(out(c));
    else v.send(next, place == 0 ? in(c) : sum);
  }
}

// The ring's first turn: the sum of block c starts at rank c + 1 and ends at rank c.
template <class V>
constexpr void reduce_scatter_ring(V& v, const Group& group) {
  const int n = group.n, next = (group.rank + 1) % n, previous = (group.rank + n - 1) % n;
  const auto block = [&](int steps_back) { return (group.rank + 2 * n - 1 - steps_back) % n; };
  if (n == 1) v.copy(in(0), out(0));
  if (n > 1) v.send(next, in(block(0)));
  for (int s = 1; s < n; ++s) {
    const int c = block(s);
    const Slice sum = s == n - 1 ? out(c) : scratch(c);
    v.recv_reduce(previous, in(c), sum, true);
    if (s < n - 1) v.send(next, sum);
  }
  v.finish(out(group.rank));
}

// The ring's second turn: every block passes every rank.
template <class V>
constexpr void all_gather_ring(V& v, const Group& group) {
  const int n = group.n, next = (group.rank + 1) % n, previous = (group.rank + n - 1) % n;
  if (n > 1) v.send(next, in(group.rank));
  v.copy(in(group.rank), out(group.rank));
  for (int s = 1; s < n; ++s) {
    const int c = (group.rank + n - s) % n;
    v.recv(previous, out(c));
    if (s < n - 1) v.send(next, out(c));
  }
}

}  // namespace tutti
