// Ranks that share cores: of a core only one can work at a time, so one works for all of it.
#pragma once

#include "algorithms/hierarchical.h"
#include "algorithms/sites.h"
#include "schedule/algorithm.h"

namespace tutti {

// There are as many chunks as cores. Everybody gives its input to its core's first rank, a chunk in each message. These add what is
// theirs, each its core's chunk last: to the other cores' sums, which have come meanwhile. That sum goes straight to all ranks. On one
// core, all give to its first rank and get the sum from it; where each rank has a core, this is the two-shot algorithm.
template <class V>
void all_reduce_by_core(V& v, const Group& group) {
  const Sites cores = Sites::cores_of(group);
  const int count = cores.count(), mine = cores.site(group.rank), size = cores.size(mine), first = cores.member(mine, 0);
  const auto first_of = [&](int core) { return cores.member(core, 0); };
  const auto chunk = [](Buffer buffer, int core) { return Slice{uint32_t(core), 1, buffer}; };
  // What `sum` holds, and one message of each other rank here.
  const auto add_neighbours = [&](Slice sum, Slice dst) {
    for (int p = 1; p < size; ++p) {
      v.recv_reduce(cores.member(mine, p), sum, dst);
      sum = dst;
    }
    return sum;
  };

  for (int d = 1; d <= count; ++d) {
    const int core = (mine + d) % count;
    if (group.rank != first) v.send(first, in(core));
    else if (core != mine) v.send(first_of(core), add_neighbours(in(core), chunk(Buffer::scratch, core)));
  }
  if (group.rank == first) {
    const Slice own = chunk(Buffer::output, mine), prefix = chunk(Buffer::scratch, mine);
    Slice sum = in(mine);
    if (mine == 1) {
      v.recv_reduce(first_of(0), sum, own, true);
    } else if (mine > 1) {
      v.recv(first_of(0), prefix);
      for (int core = 1; core < mine; ++core) v.recv_reduce(first_of(core), prefix, prefix);
      v.reduce(prefix, sum, own);
    }
    if (mine > 0) sum = own;
    sum = add_neighbours(sum, own);
    for (int core = mine + 1; core < count; ++core) {
      v.recv_reduce(first_of(core), sum, own);
      sum = own;
    }
    if (!(sum == own)) v.copy(sum, own);
    v.finish(own);
    for (int d = 1; d < group.n; ++d) v.send((group.rank + d) % group.n, own);
  }
  for (int d = 0; d < count; ++d) {
    const int core = (mine + d) % count;
    if (first_of(core) != group.rank) v.recv(first_of(core), out(core));
  }
}

// Where each rank has a core, this is the binomial tree.
template <class V>
void reduce_by_core(V& v, const Group& group) {
  reduce_by_site(v, group, Sites::cores_of(group));
}

}  // namespace tutti
