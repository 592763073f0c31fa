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

}  // namespace tutti
