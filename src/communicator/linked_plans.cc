// Which algorithm a collective is linked from.
#include "communicator/linked_plans.h"

#include <algorithm>
#include <span>
#include <vector>

#include "algorithms/catalog.h"
#include "device/linked_launch.h"
#include "schedule/link_check.h"
#include "schedule/verbs.h"

namespace tutti {

const LinkedPlan* LinkedPlans::find(const Key& key) {
  const auto [place, is_new] = plans_.try_emplace(key);
  if (is_new) place->second = make(key);
  return place->second.get();
}

// An all_reduce is two-shot, of any size: linked, each rank adds its part of all inputs and writes it to all outputs in the
// same pass, so it reads and writes everything once and waits for nobody, in place too. By packets it is one-shot: every rank
// sends its input to all, and adds what comes.
std::unique_ptr<LinkedPlan> LinkedPlans::make(const Key& key) const {
  const auto& [kind, root, in_place, packets] = key;
  if (size_ < 2 || size_ > int(linked_ranks_max)) return nullptr;
  const char* const shots = packets ? "one_shot" : "two_shot";
  const Algorithm* const algorithm = find_algorithm(kind, kind == Collective::all_reduce ? shots : "direct");
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
  const std::span<const bool> places = std::span(in_place).first(size_t(size_));
  if (!(packets ? link_packets(kind, plans, root, places, linked.get()) : link(kind, plans, root, places, linked.get())))
    return nullptr;
  const std::span steps(linked->steps.data(), linked->first_step[linked->ranks]);
  if (packets && !std::all_of(steps.begin(), steps.end(), has_one_local_operand)) return nullptr;
  const LinkedProof proof =
      packets ? check_packets(kind, *linked, root, places) : check_linked(kind, *linked, root, places);
  return proof.violation.empty() && proof.in_rank_order ? std::move(linked) : nullptr;
}

}  // namespace tutti
