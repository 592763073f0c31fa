// Binomial trees: ceil(log2 n) rounds each way, for messages too small to be worth cutting.
#pragma once

#include <bit>

#include "schedule/algorithm.h"

namespace tutti {

// Place v's parent is v without its lowest set bit; its children are v plus each smaller power of two. Place 0, the
// root, has what is to be spread in `source`; everybody ends with it in `target` (the root keeps its own copy).
template <class V>
constexpr void spread_binomial(V& v, int place, int n, int root, Slice source, Slice target) {
  const auto rank_of = [&](int p) { return (p + root) % n; };
  const int reach = place == 0 ? int(std::bit_ceil(unsigned(n))) : place & -place;
  if (place > 0) v.recv(rank_of(place - reach), target);
  for (int step = reach / 2; step >= 1; step /= 2)
    if (place + step < n) v.send(rank_of(place + step), place == 0 ? source : target);
}

template <class V>
constexpr void broadcast_binomial(V& v, const Group& group) {
  spread_binomial(v, (group.rank + group.n - group.root) % group.n, group.n, group.root, in(0), out(0));
  if (group.rank == group.root) v.copy(in(0), out(0));
}

// Adds up the tree to rank 0, in the order of ranks, then spreads down it.
template <class V>
constexpr void all_reduce_tree(V& v, const Group& group) {
  Slice sum = in(0);
  for (int step = 1; step < group.n; step *= 2) {
    if (group.rank & step) {
      v.send(group.rank - step, sum);
      break;
    }
    if (group.rank + step >= group.n) continue;
    v.recv_reduce(group.rank + step, sum, out(0));
    sum = out(0);
  }
  if (group.rank == 0) {
    if (group.n == 1) v.copy(in(0), out(0));
    v.finish(out(0));
  }
  spread_binomial(v, group.rank, group.n, 0, out(0), out(0));
}

}  // namespace tutti
