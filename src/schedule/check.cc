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
  if (collective == Collective::barrier) collective = Collective::all_reduce;
  if (collective != Collective::all_reduce && collective != Collective::broadcast)
    return general("only all_reduce, broadcast and barrier have schedules");
  if (n == 0 || root < 0 || size_t(root) >= n) return general(fmt::format("root {} of {} ranks", root, n));
  if (options.slots < (programs.plans.empty() ? 1 : 2) || options.repeat < 1)
    return general(fmt::format("{} slots, {} runs: a plan needs 2 slots, a schedule 1", options.slots, options.repeat));
  if (shape.input != shape.output || shape.output == 0 || shape.message == 0)
    return general(fmt::format("{} input and {} output chunks, at most {} in a message", shape.input, shape.output,
                               shape.message));
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
  return "";
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
  Proof lowered = check(collective, plans, root, options);
  if (lowered.violation) return lowered;
  if (lowered.expression != proof.expression) return general("the plans add in another order than the schedules");
  if (lowered.rounds != proof.rounds || lowered.chunks_sent_max != proof.chunks_sent_max)
    return general("the plans send other messages than the schedules");
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
