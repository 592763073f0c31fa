// Hosts first: the data crosses between hosts once, cut into as many shares as the largest host has ranks.
#pragma once

#include <algorithm>
#include <vector>

#include "algorithms/direct.h"

namespace tutti {

// The ranks of each host, in order; hosts in the order of their first ranks. Any number of ranks on each.
class Hosts {
 public:
  explicit Hosts(const Group& group) : host_(size_t(group.n)), place_(size_t(group.n)) {
    std::vector<int> numbers;
    for (int r = 0; r < group.n; ++r) {
      const auto known = std::find(numbers.begin(), numbers.end(), group.host(r));
      const size_t host = size_t(known - numbers.begin());
      if (known == numbers.end()) {
        numbers.push_back(group.host(r));
        members_.emplace_back();
      }
      host_[size_t(r)] = int(host);
      place_[size_t(r)] = int(members_[host].size());
      members_[host].push_back(r);
      shares_ = std::max(shares_, int(members_[host].size()));
    }
  }

  int count() const { return int(members_.size()); }
  int shares() const { return shares_; }  // ranks of the largest host
  int host(int rank) const { return host_[size_t(rank)]; }
  int place(int rank) const { return place_[size_t(rank)]; }  // among its host's ranks
  int size(int host) const { return int(members_[size_t(host)].size()); }
  int member(int host, int place) const { return members_[size_t(host)][size_t(place)]; }

  // The member at `place` of a host owns shares [first_share(place), first_share(place + 1)): at least one.
  int first_share(int host, int place) const { return place * shares_ / size(host); }
  int owner(int host, int share) const { return member(host, ((share + 1) * size(host) - 1) / shares_); }

 private:
  std::vector<int> host_, place_;
  std::vector<std::vector<int>> members_;
  int shares_ = 1;
};

// Each share has one chunk per host. In the host: each rank adds its shares. Across: the owners of a share on all hosts
// run the two-shot algorithm on it. In the host again: everybody gets all shares. On one host, and with one rank on
// every host, this is the two-shot algorithm.
template <class V>
void all_reduce_hierarchical(V& v, const Group& group) {
  const Hosts hosts(group);
  const int n_hosts = hosts.count(), mine = hosts.host(group.rank), place = hosts.place(group.rank);
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

}  // namespace tutti
