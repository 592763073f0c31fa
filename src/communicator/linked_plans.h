// Collectives among ranks of one process and one device as one launch each: their plans, linked when first asked for.
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
  // in_place: of each rank. Null: such calls are not one launch, or its ranks would wait for each other in it. Sums are
  // those of the ranks in their order. Lives as long as this. Throws where memory is short.
  const LinkedPlan* find(Collective kind, int root, const InPlace& in_place);

 private:
  std::unique_ptr<LinkedPlan> make(Collective kind, int root, const InPlace& in_place) const;

  int size_;
  std::map<std::tuple<Collective, int, InPlace>, std::unique_ptr<LinkedPlan>> plans_;
};

}  // namespace tutti
