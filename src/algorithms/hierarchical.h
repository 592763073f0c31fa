// Hosts first: the data crosses between hosts once, cut into as many shares as the largest host has ranks.
#pragma once

#include <algorithm>
#include <vector>

#include "algorithms/direct.h"
#include "algorithms/knomial.h"
#include "algorithms/sites.h"

namespace tutti {

// Each share has one chunk per host. In the host: each rank adds its shares. Across: the owners of a share on all hosts
// run the two-shot algorithm on it. In the host again: everybody gets all shares. On one host, and with one rank on
// every host, this is the two-shot algorithm.
template <class V>
void all_reduce_hierarchical(V& v, const Group& group) {
  const Sites hosts = Sites::hosts_of(group);
  const int n_hosts = hosts.count(), mine = hosts.site(group.rank), place = hosts.place(group.rank);
  const int first = hosts.first_share(mine, place), last = hosts.first_share(mine, place + 1);
  const auto same = [](Slice s) { return s; };

  Renamed in_host(
      v, [&](int p) { return hosts.member(mine, p); }, same);
  const auto shares = [&](Buffer buffer) {
    return [&hosts, mine, n_hosts, buffer](int p) {
      const int from = hosts.first_share(mine, p), to = hosts.first_share(mine, p + 1);
      return Slice{uint32_t(from * n_hosts), uint32_t((to - from) * n_hosts), buffer};
    };
  };
  const auto target = shares(Buffer::output);
  const bool alone = hosts.size(mine) == 1;  // then its input is its host's sum
  if (!alone)
    reduce_scatter_direct(in_host, place, hosts.size(mine), shares(Buffer::input), target, shares(Buffer::scratch));

  for (int share = first; share < last; ++share) {
    Renamed across(
        v, [&, share](int host) { return hosts.owner(host, share); }, same);
    const auto part = [&, share](Buffer buffer) {
      return [n_hosts, share, buffer](int host) { return Slice{uint32_t(share * n_hosts + host), 1, buffer}; };
    };
    const auto sum = part(Buffer::output);
    reduce_scatter_direct(across, mine, n_hosts, part(alone ? Buffer::input : Buffer::output), sum,
                          part(Buffer::scratch));
    v.finish(sum(mine));
    all_gather_direct(across, mine, n_hosts, sum);
  }
  all_gather_direct(in_host, place, hosts.size(mine), target);
}

// Who speaks for a site where a root is: the root, or the site's first rank.
inline int leader_of(const Sites& sites, int site, int root) {
  return site == sites.site(root) ? root : sites.member(site, 0);
}

// Chunk by chunk: down a binomial tree of the hosts' leaders, and from each to the ranks of its host.
template <class V>
void broadcast_hierarchical(V& v, const Group& group) {
  const Sites hosts = Sites::hosts_of(group);
  const int n_hosts = hosts.count(), root_host = hosts.site(group.root), mine = hosts.site(group.rank);
  const int leader = leader_of(hosts, mine, group.root);
  const auto leader_at = [&](int place) { return leader_of(hosts, (place + root_host) % n_hosts, group.root); };
  for (int c = 0; c < group.pipeline; ++c) {
    if (group.rank != leader) {
      v.recv(leader, out(c));
      continue;
    }
    spread_knomial<2>(v, (mine + n_hosts - root_host) % n_hosts, n_hosts, leader_at, in(c), out(c));
    const Slice held = group.rank == group.root ? in(c) : out(c);
    for (int p = 0; p < hosts.size(mine); ++p)
      if (hosts.member(mine, p) != leader) v.send(hosts.member(mine, p), held);
    if (group.rank == group.root) v.copy(in(c), out(c));
  }
}

// Everybody sends to its site's leader, which adds; the leaders' sums go up a binomial tree of sites.
template <class V>
void reduce_by_site(V& v, const Group& group, const Sites& sites) {
  const int rank = group.rank, root = group.root, mine = sites.site(rank), size = sites.size(mine);
  const int leader = leader_of(sites, mine, root);
  if (rank != leader) return v.send(leader, in(0));
  const auto same = [](Slice s) { return s; };
  Slice sum = in(0);
  if (size > 1) {
    sum = rank == root ? out(0) : scratch(0);
    Renamed at_site(
        v, [&](int p) { return sites.member(mine, p); }, same);
    add_in_rank_order(at_site, sites.place(rank), size, in(0), sum, scratch(1));
  }
  Renamed across(
      v, [&](int site) { return leader_of(sites, site, root); }, same);
  if (!join_knomial<2>(across, mine, sites.count(), sites.site(root), sum, out(0), scratch(0), scratch(1))) return;
  if (group.n == 1) v.copy(in(0), out(0));
  v.finish(out(0));
}

template <class V>
void reduce_hierarchical(V& v, const Group& group) {
  reduce_by_site(v, group, Sites::hosts_of(group));
}

// The rank of a host that takes the block of `rank`, which is of another host, and hands it on there.
inline int block_taker(const Sites& hosts, int host, int rank) {
  return hosts.member(host, hosts.place(rank) % hosts.size(host));
}

// What a rank hands to the others of its host: its own block, and those that it took.
inline std::vector<int> blocks_handed_on(const Sites& hosts, int rank) {
  std::vector<int> blocks = {rank};
  for (int host = 0; host < hosts.count(); ++host)
    for (int p = 0; host != hosts.site(rank) && p < hosts.size(host); ++p)
      if (block_taker(hosts, hosts.site(rank), hosts.member(host, p)) == rank) blocks.push_back(hosts.member(host, p));
  return blocks;
}

// Each block crosses once to each other host, its ranks taking turns; whoever takes one hands it to all of its host.
// One after the other, so that nobody sends a second block to a rank that has not taken the first.
template <class V>
void all_gather_hierarchical(V& v, const Group& group) {
  const Sites hosts = Sites::hosts_of(group);
  const int rank = group.rank, mine = hosts.site(rank), size = hosts.size(mine);
  for (int d = 1; d < hosts.count(); ++d) v.send(block_taker(hosts, (mine + d) % hosts.count(), rank), in(rank));
  v.copy(in(rank), out(rank));
  std::vector<std::vector<int>> handed;
  size_t turns = 0;
  for (int p = 0; p < size; ++p) {
    handed.push_back(blocks_handed_on(hosts, hosts.member(mine, p)));
    turns = std::max(turns, handed.back().size());
  }
  const int place = hosts.place(rank);
  for (size_t turn = 0; turn < turns; ++turn) {
    const std::vector<int>& own = handed[size_t(place)];
    if (turn < own.size()) {
      if (turn > 0) v.recv(own[turn], out(own[turn]));
      for (int d = 1; d < size; ++d) v.send(hosts.member(mine, (place + d) % size), out(own[turn]));
    }
    for (int d = 1; d < size; ++d) {
      const int from = (place + size - d) % size;
      if (turn < handed[size_t(from)].size()) v.recv(hosts.member(mine, from), out(handed[size_t(from)][turn]));
    }
  }
}

}  // namespace tutti
