// The proof: what is asked of programs, and of an algorithm's claim.
#include "schedule/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "schedule/machine.h"

namespace tutti {
namespace {

using symbolic::Machine;
using symbolic::Programs;
using symbolic::Wrong;

template <size_t words>
Proof prove(Collective collective, const Programs& programs, const Shape& shape, int root,
            const CheckOptions& options) {
  try {
    return Machine<words>(collective, programs, shape, root, options).prove();
  } catch (const Wrong& wrong) {
    Proof proof;
    proof.violation = wrong.violation;
    return proof;
  }
}

Proof general(const std::string& sentence) {
  Proof proof;
  proof.violation = Violation{-1, -1, -1, sentence};
  return proof;
}

// Chooses how wide sets of ranks are.
Proof prove_any(Collective collective, const Programs& programs, const Shape& shape, int root,
                const CheckOptions& options) {
  const size_t n = programs.ranks();
  collective = served_as(collective);
  if (std::find(planned_collectives.begin(), planned_collectives.end(), collective) == planned_collectives.end())
    return general(fmt::format("{} has no schedule", name(collective)));
  if (n == 0 || root < 0 || size_t(root) >= n) return general(fmt::format("root {} of {} ranks", root, n));
  if (!meaning(collective).rooted) root = 0;
  if (options.slots < (programs.plans.empty() ? 1 : 2) || options.repeat < 1)
    return general(fmt::format("{} slots, {} runs: a plan needs 2 slots, a schedule 1", options.slots, options.repeat));
  if (shape.input != shape.output || shape.output == 0 || shape.message == 0)
    return general(fmt::format("{} input and {} output chunks, at most {} in a message", shape.input, shape.output,
                               shape.message));
  const bool blocks = meaning(collective).blocks;
  if (shape.blocks != blocks || (blocks && shape.output != n))
    return general(fmt::format("{} chunks{}, but {} has {}", shape.output, shape.blocks ? " that are blocks" : "",
                               name(collective), blocks ? "a block per rank" : "one buffer"));
  if (n <= 64) return prove<1>(collective, programs, shape, root, options);
  if (n <= 256) return prove<4>(collective, programs, shape, root, options);
  if (n <= 1024) return prove<16>(collective, programs, shape, root, options);
  if (n <= 4096) return prove<64>(collective, programs, shape, root, options);
  return general(fmt::format("{} ranks are more than the 4096 that a proof can hold", n));
}

std::string claim_broken(const Claim& claim, const Proof& proof, const Shape& shape) {
  if (proof.rounds != claim.rounds) return fmt::format("claims {} rounds but needs {}", claim.rounds, proof.rounds);
  const double bytes = double(proof.chunks_sent_max) / shape.output;
  if (std::abs(bytes - claim.bytes_sent) > 1e-9 * (1 + bytes))
    return fmt::format("claims that a rank sends {} times the buffer, but it is {}", claim.bytes_sent, bytes);
  if (claim.rank_order && !proof.in_rank_order)
    return "claims to add in the order of ranks, but adds in another";
  if (claim.left_fold && !proof.left_fold)
    return "claims to add all inputs in one step, in the order of ranks, but adds otherwise";
  return "";
}

// From the step of a plan to the step of the schedule with which it begins.
void name_step(Violation& violation, std::span<const Schedule> schedules, const Shape& shape, bool in_place) {
  if (violation.rank < 0 || violation.step < 0) return;
  const Schedule& schedule = schedules[size_t(violation.rank)];
  std::vector<uint32_t> first_steps;
  lower(schedule, shape, "", in_place, &first_steps);
  const size_t step = size_t(violation.step);
  violation.step = int(step < first_steps.size() ? first_steps[step] : schedule.size());
}

}  // namespace

Schedule record(const Algorithm& algorithm, const Group& group) {
  Schedule schedule;
  Recorder recorder(schedule);
  algorithm.record(recorder, group);
  return schedule;
}

Proof check(Collective collective, std::span<const Plan> plans, int root, const CheckOptions& options) {
  if (plans.empty()) return general("no ranks");
  Shape shape = plans[0].shape;
  for (const Plan& plan : plans) {  // each rank has the scratch that it needs
    shape.scratch = std::max(shape.scratch, plan.shape.scratch);
    if (plan.message_chunks_max != plans[0].message_chunks_max) return general("ranks cut different tiles");
  }
  return prove_any(collective, {{}, plans}, shape, root, options);
}

Proof check(Collective collective, std::span<const Schedule> schedules, const Shape& shape, int root,
            const CheckOptions& options) {
  CheckOptions plain = options;
  plain.lowered = false;
  if (!options.lowered) return prove_any(collective, {schedules, {}}, shape, root, plain);

  const Proof proof = check(collective, schedules, shape, root, plain);
  if (proof.violation) return proof;
  std::vector<Plan> plans;
  plans.reserve(schedules.size());
  for (const Schedule& schedule : schedules) plans.push_back(lower(schedule, shape, "", options.in_place));
  CheckOptions fused = options;
  fused.slots = std::max(options.slots, 2);
  Proof lowered = check(collective, plans, root, fused);
  if (lowered.violation) {
    name_step(*lowered.violation, schedules, shape, options.in_place);
    return lowered;
  }
  if (lowered.expression != proof.expression) return general("the plans add in another order than the schedules");
  if (lowered.rounds != proof.rounds || lowered.chunks_sent_max != proof.chunks_sent_max)
    return general("the plans send other messages than the schedules");
  lowered.left_fold = lowered.left_fold && proof.left_fold;
  return lowered;
}

Proof check(const Algorithm& algorithm, const Group& group, const CheckOptions& options) {
  const Shape shape = algorithm.shape(group);
  std::vector<Schedule> schedules;
  schedules.reserve(size_t(group.n));
  Group one = group;
  for (one.rank = 0; one.rank < group.n; ++one.rank) {
    if (!(algorithm.shape(one) == shape)) return general(fmt::format("rank {} has another shape", one.rank));
    schedules.push_back(record(algorithm, one));
  }
  Proof proof = check(algorithm.collective, schedules, shape, group.root, options);
  if (proof.violation) return proof;
  const std::string broken = claim_broken(algorithm.claim(group), proof, shape);
  if (!broken.empty()) proof.violation = Violation{-1, -1, -1, broken};
  return proof;
}

}  // namespace tutti
