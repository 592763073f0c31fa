// Collectives among ranks of one process as one launch each, or one of each device: their plans, linked and proven when
// first asked for.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "schedule/link.h"

namespace tutti {

// Of one communicator. The same on all ranks, so that each knows alone what all do.
class LinkedPlans {
 public:
  using InPlace = std::array<bool, linked_ranks_max>;

  explicit LinkedPlans(int size) : size_(size) {}
  // in_place: of each rank. Null: there is none that is free of order; or none of packets that may be sent call after
  // call. Sums are those of the ranks in their order. Lives as long as this. Throws where memory is short.
  const LinkedPlan* find(Collective kind, int root, const InPlace& in_place) { return find({kind, root, in_place, false}); }
  const LinkedPlan* find_packets(Collective kind, int root, const InPlace& in_place) {
    return find({kind, root, in_place, true});
  }

 private:
  using Key = std::tuple<Collective, int, InPlace, bool>;
  const LinkedPlan* find(const Key& key);
  std::unique_ptr<LinkedPlan> make(const Key& key) const;

  int size_;
  std::map<Key, std::unique_ptr<LinkedPlan>> plans_;
};

}  // namespace tutti
