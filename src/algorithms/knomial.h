// K-nomial trees: a place's parent is the place without its lowest digit, in base `radix`, that is not 0. Radix 2 is
// the binomial tree. More children a place make fewer levels: better where a message's flight takes longer than its
// sending.
#pragma once

#include <algorithm>

#include "algorithms/direct.h"
#include "algorithms/runs.h"
#include "schedule/algorithm.h"

namespace tutti {

// The weight of a place's lowest digit that is not 0: its subtree is the places from it up to the next multiple. Of
// place 0, the root, the least power that is not below n.
template <int radix>
constexpr int knomial_reach(int place, int n) {
  int reach = 1;
  while (place == 0 ? reach < n : place % (reach * radix) == 0) reach *= radix;
  return reach;
}

template <int radix>
constexpr int knomial_parent(int place, int n) {
  const int reach = knomial_reach<radix>(place, n);
  return place - place / reach % radix * reach;
}

// Places of the subtree of `place`, which are consecutive, among n.
template <int radix>
constexpr int knomial_subtree(int place, int n) {
  return std::min(knomial_reach<radix>(place, n), n - place);
}

// Calls use(child) for the children of a place: those with the largest subtrees first, or last.
template <int radix, class Use>
constexpr void for_each_child(int place, int n, bool largest_first, Use use) {
  const int reach = knomial_reach<radix>(place, n);
  const auto of_level = [&](int step) {
    for (int digit = 1; digit < radix; ++digit)
      if (place + digit * step < n) use(place + digit * step);
  };
  if (largest_first)
    for (int step = reach / radix; step >= 1; step /= radix) of_level(step);
  else
    for (int step = 1; step < reach; step *= radix) of_level(step);
}

// Place 0 has what is to be spread in `source`; everybody else ends with it in `target`.
template <int radix, class V, class RankOf>
constexpr void spread_knomial(V& v, int place, int n, RankOf rank_of, Slice source, Slice target) {
  if (place > 0) v.recv(rank_of(knomial_parent<radix>(place, n)), target);
  for_each_child<radix>(place, n, true, [&](int child) { v.send(rank_of(child), place == 0 ? source : target); });
}

template <int radix, class V>
constexpr void broadcast_knomial(V& v, const Group& group) {
  const int n = group.n, root = group.root;
  const auto rank_of = [&](int place) { return (place + root) % n; };
  spread_knomial<radix>(v, (group.rank + n - root) % n, n, rank_of, in(0), out(0));
  if (group.rank == root) v.copy(in(0), out(0));
}

// Who ends with the sum of ranks [first, first + size): the root where it is among them, else the first.
constexpr int reduce_leader(int first, int size, int root) {
  return root >= first && root < first + size ? root : first;
}

// `radix` neighbouring groups of 1, radix, radix², … ranks join, in the order of ranks, wherever the root is: it leads
// every group that it is in. `sum` is the rank's own; the root's last sum is in `result`, others keep theirs in
// `partial` and send it on. True on the root.
template <int radix, class V>
constexpr bool join_knomial(V& v, int rank, int n, int root, Slice sum, Slice result, Slice partial, Slice prefix) {
  for (int size = 1; size < n; size *= radix) {
    const int first = rank / (radix * size) * (radix * size), mine = (rank - first) / size;
    const int groups = std::min(radix, (n - first + size - 1) / size);
    const int leading = root >= first && root < first + groups * size ? (root - first) / size : 0;
    const auto leader = [&](int group) { return reduce_leader(first + group * size, size, root); };
    if (groups == 1) continue;
    if (mine != leading) {
      v.send(leader(leading), sum);
      return false;
    }
    Renamed among(
        v, leader, [](Slice s) { return s; });
    const Slice joined = rank == root ? result : partial;
    add_in_rank_order(among, mine, groups, sum, joined, prefix);
    sum = joined;
  }
  return rank == root;
}

template <int radix, class V>
constexpr void reduce_knomial(V& v, const Group& group) {
  if (!join_knomial<radix>(v, group.rank, group.n, group.root, in(0), out(0), scratch(0), scratch(1))) return;
  if (group.n == 1) v.copy(in(0), out(0));
  v.finish(out(0));
}

// Messages on the longest chain until the leader of groups [first, first + size) has their sum, where `before(i)` are
// those on the longest one until group i has its own; size is a power of the radix, n cuts it short.
template <int radix, class Before>
constexpr int join_knomial_rounds(int first, int size, int n, int root, Before before) {
  const int part = size / radix;
  if (size == 1) return before(first);
  int rounds = 0;
  const int leader = reduce_leader(first, std::min(size, n - first), root);
  for (int at = first; at < std::min(n, first + size); at += part)
    rounds = std::max(rounds, join_knomial_rounds<radix>(at, part, n, root, before) +
                                  (leader < at || leader >= at + part ? 1 : 0));
  return rounds;
}

// Up the tree of spread_knomial(); every place sends its whole subtree's blocks as one message (two where the ranks
// pass n).
template <int radix, class V>
constexpr void gather_knomial(V& v, const Group& group) {
  const int rank = group.rank, n = group.n, root = group.root, place = (rank + n - root) % n;
  const auto rank_of = [&](int p) { return (p + root) % n; };
  const int subtree = knomial_subtree<radix>(place, n);
  const bool leaf = place > 0 && subtree == 1;
  const Buffer held = place == 0 ? Buffer::output : leaf ? Buffer::input : Buffer::scratch;
  if (!leaf) v.copy(in(rank), Slice{uint32_t(rank), 1, held});
  for_each_child<radix>(place, n, false, [&](int child) {
    for_each_run(rank_of(child), knomial_subtree<radix>(child, n), n, held,
                 [&](Slice s) { v.recv(rank_of(child), s); });
  });
  if (place == 0) return;
  const int parent = rank_of(knomial_parent<radix>(place, n));
  for_each_run(rank, subtree, n, held, [&](Slice s) { v.send(parent, s); });
}

// The same tree downwards.
template <int radix, class V>
constexpr void scatter_knomial(V& v, const Group& group) {
  const int rank = group.rank, n = group.n, root = group.root, place = (rank + n - root) % n;
  const auto rank_of = [&](int p) { return (p + root) % n; };
  const int subtree = knomial_subtree<radix>(place, n);
  const bool leaf = place > 0 && subtree == 1;
  const Buffer held = place == 0 ? Buffer::input : leaf ? Buffer::output : Buffer::scratch;
  if (place > 0) {
    const int parent = rank_of(knomial_parent<radix>(place, n));
    for_each_run(rank, subtree, n, held, [&](Slice s) { v.recv(parent, s); });
  }
  for_each_child<radix>(place, n, true, [&](int child) {
    for_each_run(rank_of(child), knomial_subtree<radix>(child, n), n, held,
                 [&](Slice s) { v.send(rank_of(child), s); });
  });
  if (!leaf) v.copy(Slice{uint32_t(rank), 1, held}, out(rank));
}

}  // namespace tutti
