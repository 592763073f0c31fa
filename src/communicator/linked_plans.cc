// Which algorithm a collective is linked from.
#include "communicator/linked_plans.h"

#include <span>
#include <vector>

#include "algorithms/catalog.h"
#include "schedule/verbs.h"

namespace tutti {

const LinkedPlan* LinkedPlans::find(Collective kind, int root, const InPlace& in_place) {
  const auto [place, is_new] = plans_.try_emplace({kind, root, in_place});
  if (is_new) place->second = make(kind, root, in_place);
  return place->second.get();
}

// Two-shot for an all_reduce of any size: linked, each rank adds its part of all inputs and writes it to all outputs in the
// same pass, so it reads and writes everything once and waits for nobody, in place too.
std::unique_ptr<LinkedPlan> LinkedPlans::make(Collective kind, int root, const InPlace& in_place) const {
  if (size_ < 2 || size_ > int(linked_ranks_max)) return nullptr;
  const Algorithm* const algorithm = find_algorithm(kind, kind == Collective::all_reduce ? "two_shot" : "direct");
  if (algorithm == nullptr) return nullptr;
  std::vector<Plan> plans;
  for (int rank = 0; rank < size_; ++rank) {
    const Group group{.rank = rank, .n = size_, .root = root, .pipeline = 1, .host_of = {}};
    Schedule schedule;
    Recorder recorder(schedule);
    algorithm->record(recorder, group);
    plans.push_back(lower(schedule, algorithm->shape(group), algorithm->name, in_place[size_t(rank)]));
  }
  auto linked = std::make_unique<LinkedPlan>();
  const bool possible = link(kind, plans, root, std::span(in_place).first(size_t(size_)), linked.get());
  return possible && !linked->waits && linked->slots == 0 ? std::move(linked) : nullptr;
}

}  // namespace tutti
