// Two binary trees at once, each for half of the chunks, such that an inner node of one is a leaf of the other: all
// ranks send and receive alike, and the height is logarithmic (Sanders, Speck, Träff 2009).
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "schedule/algorithm.h"

namespace tutti {

// A node's neighbours in one tree; -1 where there is none.
struct TreeNode {
  int parent = -1;
  std::array<int, 2> children = {-1, -1};
};

// The tree over labels 0..last: 0 is the root and has one child, the top of the in-order binary tree over 1..last, in
// which the odd labels are leaves.
constexpr TreeNode in_order_node(int label, int last) {
  TreeNode node;
  if (label == 0) {
    if (last > 0) node.children[0] = int(std::bit_floor(unsigned(last)));
    return node;
  }
  const int low = label & -label;
  const int up = (label & ~low) | low << 1;
  node.parent = up <= last ? up : label - low;
  if (low > 1) node.children[0] = label - low / 2;
  for (int step = low / 2; step >= 1 && node.children[1] < 0; step /= 2)
    if (label + step <= last) node.children[1] = label + step;
  return node;
}

// The node of `place` (0 is the root) in tree 0 or 1 over n places. Tree 1 is tree 0 mirrored (even number of places
// beside the root) or shifted by one (odd).
constexpr TreeNode double_tree_node(int place, int n, int tree) {
  const int last = n - 1;
  if (tree == 0) return in_order_node(place, last);
  const auto renamed = [&](int x, int by) {
    if (x <= 0) return x;
    return last % 2 == 0 ? last + 1 - x : (x - 1 + last + by) % last + 1;
  };
  TreeNode node = in_order_node(renamed(place, -1), last);
  node.parent = renamed(node.parent, 1);
  for (int& child : node.children) child = renamed(child, 1);
  return node;
}

// Edges from the root to the deepest leaf.
constexpr int double_tree_height(int n) { return int(std::bit_width(unsigned(n - 1))); }

// Edges between `place` and the root of a tree.
constexpr int double_tree_depth(int place, int n, int tree) {
  int depth = 0;
  for (; place > 0; ++depth) place = double_tree_node(place, n, tree).parent;
  return depth;
}

// Adds chunk c up its tree into the output of place 0.
template <class V, class RankOf>
constexpr void double_tree_up(V& v, const TreeNode& node, RankOf rank_of, int c) {
  Slice sum = in(c);
  for (int child : node.children) {
    if (child < 0) continue;
    v.recv_reduce(rank_of(child), sum, out(c));
    sum = out(c);
  }
  if (node.parent >= 0) return v.send(rank_of(node.parent), sum);
  if (sum == in(c)) v.copy(in(c), out(c));
  v.finish(out(c));
}

// Spreads chunk c, which the root has in `source`, down its tree.
template <class V, class RankOf>
constexpr void double_tree_down(V& v, const TreeNode& node, RankOf rank_of, int c, Slice source) {
  if (node.parent >= 0) v.recv(rank_of(node.parent), out(c));
  for (int child : node.children)
    if (child >= 0) v.send(rank_of(child), node.parent >= 0 ? out(c) : source);
}

// The order in which a rank takes part in the ways of all chunks: as if there were a clock, on which chunk c starts at
// tick c and takes `hop_ticks` ticks an edge. Each message then has one tick at its sender and one, hop_ticks later, at
// its receiver, so both ends of every FIFO meet its messages in one order, and no rank waits for a chunk while others
// could already need its help with the next one. (Two ticks an edge leave a message on its way for the time of one
// more: less stalls long links, more needs longer FIFOs.) up(tree, c) is called for the way up, where `both`, then
// down(tree, c).
template <class Up, class Down>
constexpr void double_tree_in_order(int place, int n, int chunks, bool both, Up up, Down down) {
  const int hop_ticks = n == 2 ? 1 : 2;                           // with two ranks both trees share each FIFO
  const int turn = both ? hop_ticks * double_tree_height(n) : 0;  // ticks from a chunk's start to its turn at the root
  const std::array<int, 2> depth = {hop_ticks * double_tree_depth(place, n, 0),
                                    hop_ticks * double_tree_depth(place, n, 1)};
  const auto mine = [&](int tree, int c) { return c >= 0 && c < chunks && c % 2 == tree; };
  for (int tick = 0; tick < chunks + turn + std::max(depth[0], depth[1]); ++tick) {
    for (int tree = 0; both && tree < 2; ++tree)
      if (const int c = tick - (turn - depth[size_t(tree)]); mine(tree, c)) up(tree, c);
    for (int tree = 0; tree < 2; ++tree)
      if (const int c = tick - (turn + depth[size_t(tree)]); mine(tree, c)) down(tree, c);
  }
}

template <class V>
constexpr void broadcast_double_tree(V& v, const Group& group) {
  const int place = (group.rank + group.n - group.root) % group.n;
  const std::array<TreeNode, 2> node = {double_tree_node(place, group.n, 0), double_tree_node(place, group.n, 1)};
  const auto rank_of = [&](int p) { return (p + group.root) % group.n; };
  const auto down = [&](int tree, int c) {
    double_tree_down(v, node[size_t(tree)], rank_of, c, in(c));
    if (place == 0) v.copy(in(c), out(c));
  };
  double_tree_in_order(
      place, group.n, group.pipeline, false, [](int, int) {}, down);
}

template <class V>
constexpr void all_reduce_double_tree(V& v, const Group& group) {
  const std::array<TreeNode, 2> node = {double_tree_node(group.rank, group.n, 0),
                                        double_tree_node(group.rank, group.n, 1)};
  const auto same = [](int p) { return p; };
  const auto up = [&](int tree, int c) { double_tree_up(v, node[size_t(tree)], same, c); };
  const auto down = [&](int tree, int c) { double_tree_down(v, node[size_t(tree)], same, c, out(c)); };
  double_tree_in_order(group.rank, group.n, group.pipeline, true, up, down);
}

}  // namespace tutti
