// Ranks that are near each other: those of one host, or of one core.
#pragma once

#include <algorithm>
#include <vector>

#include "schedule/algorithm.h"

namespace tutti {

// The ranks of each site, in order; sites in the order of their first ranks. Any number of ranks on each.
class Sites {
 public:
  static Sites hosts_of(const Group& group) {
    return Sites(group.n, [&](int r) { return group.host(r); });
  }
  static Sites cores_of(const Group& group) {
    return Sites(group.n, [&](int r) { return group.core(r); });
  }

  int count() const { return int(members_.size()); }
  int shares() const { return shares_; }  // ranks of the largest site
  int site(int rank) const { return site_[size_t(rank)]; }
  int place(int rank) const { return place_[size_t(rank)]; }  // among its site's ranks
  int size(int site) const { return int(members_[size_t(site)].size()); }
  int member(int site, int place) const { return members_[size_t(site)][size_t(place)]; }

  // Whether the ranks of each site follow each other: then the order of sites, and in them of places, is that of ranks.
  bool in_rank_order() const { return std::is_sorted(site_.begin(), site_.end()); }

  // The member at `place` of a site owns shares [first_share(place), first_share(place + 1)): at least one.
  int first_share(int site, int place) const { return place * shares_ / size(site); }
  int owner(int site, int share) const { return member(site, ((share + 1) * size(site) - 1) / shares_); }

 private:
  template <class NumberOf>
  Sites(int n, NumberOf number_of) : site_(size_t(n)), place_(size_t(n)) {
    std::vector<int> numbers;
    for (int r = 0; r < n; ++r) {
      const auto known = std::find(numbers.begin(), numbers.end(), number_of(r));
      const size_t site = size_t(known - numbers.begin());
      if (known == numbers.end()) {
        numbers.push_back(number_of(r));
        members_.emplace_back();
      }
      site_[size_t(r)] = int(site);
      place_[size_t(r)] = int(members_[site].size());
      members_[site].push_back(r);
      shares_ = std::max(shares_, int(members_[site].size()));
    }
  }

  std::vector<int> site_, place_;
  std::vector<std::vector<int>> members_;
  int shares_ = 1;
};

}  // namespace tutti
