// One tree, up and down: the fewest messages in all.
#pragma once

#include "algorithms/knomial.h"
#include "schedule/algorithm.h"

namespace tutti {

// Adds up the binomial tree to rank 0, in the order of ranks, then spreads down it.
template <class V>
constexpr void all_reduce_tree(V& v, const Group& group) {
  const auto same = [](int place) { return place; };
  if (join_knomial<2>(v, group.rank, group.n, 0, in(0), out(0), out(0), out(0))) {
    if (group.n == 1) v.copy(in(0), out(0));
    v.finish(out(0));
  }
  spread_knomial<2>(v, group.rank, group.n, same, out(0), out(0));
}

}  // namespace tutti
