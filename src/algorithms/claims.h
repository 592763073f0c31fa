// What the rows of the catalog say of their algorithms: shapes, and claims. For catalog.cc only.
#pragma once

#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "algorithms/circulant.h"
#include "algorithms/double_tree.h"
#include "algorithms/halving.h"
#include "algorithms/hierarchical.h"
#include "algorithms/knomial.h"
#include "algorithms/scan.h"
#include "algorithms/sites.h"
#include "schedule/algorithm.h"

namespace tutti {

inline Shape whole(const Group&) { return {1, 1, 0, 1}; }
inline Shape whole_with_scratch(const Group&) { return {1, 1, 1, 1}; }
inline Shape chunk_per_rank(const Group& g) { return {uint32_t(g.n), uint32_t(g.n), 0, 1}; }
inline Shape chunk_per_rank_with_scratch(const Group& g) { return {uint32_t(g.n), uint32_t(g.n), uint32_t(g.n), 1}; }
inline Shape chunk_per_pipeline_place(const Group& g) { return {uint32_t(g.pipeline), uint32_t(g.pipeline), 0, 1}; }
inline Shape pipeline_with_scratch(const Group& g) {
  return {uint32_t(g.pipeline), uint32_t(g.pipeline), uint32_t(g.pipeline), 1};
}
inline Shape whole_with_two_scratch(const Group&) { return {1, 1, 2, 1}; }
inline Shape pipeline_with_two_scratch(const Group& g) {
  return {uint32_t(g.pipeline), uint32_t(g.pipeline), 2 * uint32_t(g.pipeline), 1};
}
// n blocks; messages of single ones.
inline Shape blocks(const Group& g) { return {uint32_t(g.n), uint32_t(g.n), 0, 1, true}; }
inline Shape blocks_with_scratch(const Group& g) { return {uint32_t(g.n), uint32_t(g.n), uint32_t(g.n), 1, true}; }
// Messages of up to half of the blocks.
inline Shape runs_of_blocks(const Group& g) {
  return {uint32_t(g.n), uint32_t(g.n), 0, uint32_t(std::max(1, g.n / 2)), true};
}
inline Shape runs_of_blocks_with_scratch(const Group& g) {
  return {uint32_t(g.n), uint32_t(g.n), uint32_t(g.n), uint32_t(std::max(1, g.n / 2)), true};
}

// Two sets of blocks in scratch memory.
inline Shape runs_of_blocks_with_two_scratch(const Group& g) {
  return {uint32_t(g.n), uint32_t(g.n), 2 * uint32_t(g.n), uint32_t(std::max(1, g.n / 2)), true};
}
// Chunks of one buffer, as many as ranks, or as the largest power of two that is not above n.
inline Shape runs_of_chunks_with_scratch(const Group& g) {
  return {uint32_t(g.n), uint32_t(g.n), uint32_t(g.n), uint32_t(std::max(1, g.n / 2))};
}
inline Shape chunk_per_member(const Group& g) {
  const uint32_t chunks = uint32_t(HalvingMembers(g.n).members);
  return {chunks, chunks, 0, std::max(1u, chunks / 2)};
}

inline Shape hierarchical_shape(const Group& g) {
  const Sites hosts = Sites::hosts_of(g);
  const int chunks = hosts.shares() * hosts.count();
  int shares_max = 1;  // that one rank of several on a host owns
  for (int h = 0; h < hosts.count(); ++h)
    for (int p = 0; hosts.size(h) > 1 && p < hosts.size(h); ++p)
      shares_max = std::max(shares_max, hosts.first_share(h, p + 1) - hosts.first_share(h, p));
  const int message = hosts.shares() > 1 ? shares_max * hosts.count() : 1;
  return {uint32_t(chunks), uint32_t(chunks), uint32_t(chunks), uint32_t(message)};
}
inline Shape chunk_per_core_with_scratch(const Group& g) {
  const uint32_t cores = uint32_t(Sites::cores_of(g).count());
  return {cores, cores, cores, 1};
}

inline int log2_down(int n) { return int(std::bit_width(unsigned(n))) - 1; }
inline int log2_up(int n) { return int(std::bit_width(unsigned(n - 1))); }

inline Claim ring_claim(const Group& g) { return {2 * (g.n - 1), 2.0 * (g.n - 1) / g.n, 1}; }
inline Claim one_shot_claim(const Group& g) { return {g.n > 1, double(g.n - 1), 1, true, true}; }
inline Claim two_shot_claim(const Group& g) { return {g.n > 1 ? 2 : 0, 2.0 * (g.n - 1) / g.n, 1, true, true}; }
// Handing over costs a message on the way in; the way out is on the longest chain too where a rank that took over from
// a partner is the last to hear of another such rank, its complement.
inline Claim doubling_claim(const Group& g) {
  const int power = int(std::bit_floor(unsigned(g.n))), extra = g.n - power;
  return {log2_down(g.n) + (extra > 0) + (extra > power / 2), double(log2_down(g.n) + (extra > 0)), 1, extra == 0};
}
inline Claim all_reduce_tree_claim(const Group& g) { return {2 * log2_down(g.n), double(log2_up(g.n)), 1, true}; }
// The longest way down has as many edges as a place below n has digits that are not 0: 1, 11, 111, … in base `radix`.
template <int radix>
inline int knomial_rounds(int n) {
  int rounds = 0;
  for (int ones = 1; ones < n; ones = ones * radix + 1) ++rounds;
  return rounds;
}
template <int radix>
inline Claim broadcast_knomial_claim(const Group& g) {
  int children = 0;
  for_each_child<radix>(0, g.n, true, [&](int) { ++children; });
  return {knomial_rounds<radix>(g.n), double(children), 1};
}
template <int radix>
inline Claim reduce_knomial_claim(const Group& g) {
  const auto before = [](int) { return 0; };
  const int rounds = join_knomial_rounds<radix>(0, knomial_reach<radix>(0, g.n), g.n, g.root, before);
  return {rounds, g.n > 1 ? 1.0 : 0.0, 1, true};
}
template <int radix>
inline Claim gather_knomial_claim(const Group& g) {
  int most = 0;
  for_each_child<radix>(0, g.n, true, [&](int child) { most = std::max(most, knomial_subtree<radix>(child, g.n)); });
  return {knomial_rounds<radix>(g.n), double(most) / g.n, 1};
}
template <int radix>
inline Claim scatter_knomial_claim(const Group& g) { return {knomial_rounds<radix>(g.n), double(g.n - 1) / g.n, 1}; }
inline Claim chain_claim(const Group& g) { return {g.n - 1, g.n > 1 ? 1.0 : 0.0, 1}; }
inline Claim direct_claim(const Group& g) { return {g.n > 1, double(g.n - 1), 1}; }

// Chunks that the busiest place sends, over all chunks.
inline double double_tree_bytes(const Group& g, bool up) {
  int most = 0;
  for (int place = 0; place < g.n; ++place) {
    int sent = 0;
    for (int tree = 0; tree < 2; ++tree) {
      const TreeNode node = double_tree_node(place, g.n, tree);
      const int messages = (up && node.parent >= 0) + (node.children[0] >= 0) + (node.children[1] >= 0);
      sent += messages * (tree == 0 ? (g.pipeline + 1) / 2 : g.pipeline / 2);
    }
    most = std::max(most, sent);
  }
  return double(most) / g.pipeline;
}
inline Claim all_reduce_double_tree_claim(const Group& g) {
  return {2 * double_tree_height(g.n), double_tree_bytes(g, true), g.n > 2 && g.pipeline > 1 ? 2 : 1};
}
inline Claim broadcast_double_tree_claim(const Group& g) {
  return {double_tree_height(g.n), double_tree_bytes(g, false), 1};
}

inline Claim hierarchical_claim(const Group& g) {
  const Sites hosts = Sites::hosts_of(g);
  const int n_hosts = hosts.count(), shares = hosts.shares();
  double most = 0;
  for (int r = 0; r < g.n; ++r) {
    const int h = hosts.site(r), p = hosts.place(r), others = hosts.size(h) - 1;
    const int owned = hosts.first_share(h, p + 1) - hosts.first_share(h, p);
    const double in_host = others > 0 ? shares - owned + owned * others : 0;
    most = std::max(most, (in_host + owned * 2.0 * (n_hosts - 1) / n_hosts) / shares);
  }
  const bool two_shot = n_hosts == 1 || shares == 1;
  return {(shares > 1 ? 2 : 0) + (n_hosts > 1 ? 2 : 0), most, 1, hosts.in_rank_order(), two_shot};
}
// Its core's first rank sends most: sums to the other cores, one to everybody.
inline Claim by_core_claim(const Group& g) {
  const Sites cores = Sites::cores_of(g);
  const int n_cores = cores.count(), rounds = (cores.shares() > 1) + (n_cores > 1) + (g.n > 1);
  return {rounds, double(n_cores - 1 + g.n - 1) / n_cores, 1, cores.in_rank_order(), n_cores == 1 || n_cores == g.n};
}

inline Claim reduce_direct_claim(const Group& g) { return {g.n > 1, g.n > 1 ? 1.0 : 0.0, 1, true, true}; }
// Of blocks: the unit is all of them.
inline Claim own_block_claim(const Group& g) { return {g.n > 1, g.n > 1 ? 1.0 / g.n : 0.0, 1}; }
inline Claim other_blocks_claim(const Group& g) { return {g.n > 1, double(g.n - 1) / g.n, 1}; }
inline Claim reduce_scatter_direct_claim(const Group& g) {
  return {g.n > 1, double(g.n - 1) / g.n, 1, true, true};
}
inline Claim ring_turn_claim(const Group& g) { return {g.n - 1, double(g.n - 1) / g.n, 1}; }
// ceil(log2 n) rounds of messages, of which one in the chain may be of blocks that were there from the start.
inline Claim circulant_claim(const Group& g, std::span<const int> skips) {
  std::vector<int> hops(size_t(g.n), 0);  // of each place's block
  int rounds = 0;
  for (size_t i = 0; i < skips.size(); ++i) {
    const int reach = i + 1 < skips.size() ? skips[i + 1] : g.n;
    const auto sent = hops.begin();
    const int arrived = 1 + *std::max_element(sent, sent + (reach - skips[i]));
    std::fill(sent + skips[i], sent + reach, arrived);
    rounds = std::max(rounds, arrived);
  }
  return {rounds, double(g.n - 1) / g.n, 1};
}
inline Claim bruck_claim(const Group& g) {
  std::vector<int> skips;
  for (int skip = 1; skip < g.n; skip *= 2) skips.push_back(skip);
  return circulant_claim(g, skips);
}
inline Claim all_gather_circulant_claim(const Group& g) {
  std::vector<int> skips;
  for (int k = circulant_rounds(g.n); k > 0; --k) skips.push_back(circulant_reach(g.n, k));
  return circulant_claim(g, skips);
}
inline Claim reduce_scatter_circulant_claim(const Group& g) {
  std::vector<int> hops(size_t(g.n), 0);  // of each place's sum
  int rounds = 0;
  for (int reach = g.n, skip = 0; reach > 1; reach = skip) {
    skip = (reach + 1) / 2;
    const int arrived = 1 + *std::max_element(hops.begin() + skip, hops.begin() + reach);
    for (int i = 0; i < reach - skip; ++i) hops[size_t(i)] = std::max(hops[size_t(i)], arrived);
    rounds = std::max(rounds, arrived);
  }
  return {rounds, double(g.n - 1) / g.n, 1};
}

inline Claim all_reduce_circulant_claim(const Group& g) {
  return {reduce_scatter_circulant_claim(g).rounds + all_gather_circulant_claim(g).rounds, 2.0 * (g.n - 1) / g.n, 1};
}
inline Claim all_to_all_bruck_claim(const Group& g) {
  std::vector<int> hops(size_t(g.n), 0);  // of the block that has each distance to go
  int rounds = 0, sent = 0;
  for (int power = 1; power < g.n; power *= 2) {
    int arrived = 0;
    for (int d = power; d < g.n; ++d)
      if ((d & power) != 0) arrived = std::max(arrived, hops[size_t(d)] + 1), ++sent;
    for (int d = power; d < g.n; ++d)
      if ((d & power) != 0) hops[size_t(d)] = arrived;
    rounds = std::max(rounds, arrived);
  }
  return {rounds, double(sent) / g.n, 1};
}

// A pair's leader has the most to do: what it gives its partner last, beside its share of the rounds. The longest chain
// goes from a pair to the member that differs from it in every bit, and back.
inline Claim all_reduce_halving_claim(const Group& g) {
  const HalvingMembers all(g.n);
  const double share = 2.0 * (all.members - 1) / all.members;
  return {2 * log2_down(g.n) + (all.extra > 0 ? 2 : 0), share + (all.extra > 0 ? 1 : 0), 1, true};
}
inline Claim reduce_scatter_halving_claim(const Group& g) {
  const HalvingMembers all(g.n);
  int most = all.extra > 0 ? g.n : 0;  // of the odd one of a pair
  for (int m = 0; m < all.members; ++m) {
    const int own = all.rank_of(m + 1) - all.rank_of(m);
    most = std::max(most, g.n - own + (all.pairs(m) ? 1 : 0));
  }
  const bool both_ends = all.extra > all.members / 2;  // some pair's opposite is a pair
  return {log2_down(g.n) + (all.extra > 0) + (all.extra > 0 && both_ends), double(most) / g.n, 1};
}

inline Claim broadcast_hierarchical_claim(const Group& g) {
  const Sites hosts = Sites::hosts_of(g);
  const int n_hosts = hosts.count();
  int rounds = 0, most = 0;
  for (int place = 0; place < n_hosts; ++place) {
    const int size = hosts.size((place + hosts.site(g.root)) % n_hosts);
    int sends = size - 1;
    for_each_child<2>(place, n_hosts, true, [&](int) { ++sends; });
    rounds = std::max(rounds, std::popcount(unsigned(place)) + (size > 1));
    most = std::max(most, sends);
  }
  return {rounds, double(most), 1};
}
inline Claim reduce_by_site_claim(const Group& g, const Sites& sites) {
  const auto at_site = [&](int site) { return sites.size(site) > 1 ? 1 : 0; };
  const int n = sites.count(), reach = knomial_reach<2>(0, n);
  return {join_knomial_rounds<2>(0, reach, n, sites.site(g.root), at_site), g.n > 1 ? 1.0 : 0.0, 1,
          sites.in_rank_order(), n == 1};
}
inline Claim reduce_hierarchical_claim(const Group& g) { return reduce_by_site_claim(g, Sites::hosts_of(g)); }
inline Claim reduce_by_core_claim(const Group& g) { return reduce_by_site_claim(g, Sites::cores_of(g)); }
inline Claim all_gather_hierarchical_claim(const Group& g) {
  const Sites hosts = Sites::hosts_of(g);
  const int across = hosts.count() - 1;
  int most = 0, largest = 1;
  for (int r = 0; r < g.n; ++r) {
    const int size = hosts.size(hosts.site(r));
    largest = std::max(largest, size);
    most = std::max(most, across + (size > 1 ? (size - 1) * int(blocks_handed_on(hosts, r).size()) : 0));
  }
  return {(across > 0) + (largest > 1), double(most) / g.n, 1};
}

// The order of ranks is what a prefix sum means, so all algorithms keep it.
inline Claim scan_direct_claim(const Group& g) { return {g.n > 1, double(g.n - 1), 1, true, true}; }
inline Claim scan_chain_claim(const Group& g) { return {g.n - 1, g.n > 1 ? 1.0 : 0.0, 1, true}; }
// Rank 0 sends in every round; the longest chain ends at the last rank, and a link of it is a round that the rank
// before took part in.
inline Claim scan_doubling_claim(const Group& g) { return {log2_down(g.n), double(log2_up(g.n)), 1, true}; }
inline Claim exscan_doubling_claim(const Group& g) {
  return {g.n > 1 ? 1 + log2_down(g.n - 1) : 0, g.n > 1 ? 1.0 + log2_up(g.n - 1) : 0.0, 1, true};
}
// The first ranks whose result has come by 1, 2, 3, … messages are 1, 3, 6, 12, … . Rank 0 sends in two rounds, rank 1
// in all that it has a receiver in.
inline Claim exscan_123_claim(const Group& g) {
  int rounds = g.n > 1, sent = std::min(2, g.n - 1);
  for (int rank = 3; rank < g.n; rank *= 2) ++rounds;
  for (int round = 2; exscan_123_distance(round) < g.n - 1; ++round) ++sent;
  return {rounds, double(sent), 1, true};
}

}  // namespace tutti
