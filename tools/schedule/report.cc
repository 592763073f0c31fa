// Proofs, and what is counted in them.
#include "tools/schedule/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "schedule/bounds.h"
#include "schedule/link_check.h"
#include "schedule/check.h"
#include "tools/schedule/document.h"

namespace tutti {
namespace {

constexpr int every_root_ranks_max = 64;
constexpr double bytes_slack = 1.02;  // over the least, for chunks that do not divide evenly

double scratch_of(std::span<const Schedule> schedules, const Shape& shape) {
  uint32_t most = 0;
  for (const Schedule& steps : schedules) most = std::max(most, lower(steps, shape, "", false).shape.scratch);
  return double(most) / shape.output;
}

Report counted(Collective collective, int n, std::span<const Schedule> schedules, const Shape& shape,
               const Proof& proof) {
  Report report;
  report.n_first = report.n_last = n;
  report.rounds = proof.rounds;
  if (n > 1) report.bytes_ratio = double(proof.chunks_sent_max) / shape.output / bytes_bound(collective, n);
  report.scratch = scratch_of(schedules, shape);
  report.reduces = meaning(collective).reduces;
  report.rank_order = report.reduces && proof.in_rank_order;
  report.left_fold = report.reduces && proof.left_fold;
  return report;
}

// "" where the bounds that a row claims are reached.
std::string bound_missed(const Algorithm& algorithm, int n, std::span<const Schedule> schedules,
                         const Report& counted) {
  if (algorithm.optimal_bytes && counted.bytes_ratio > bytes_slack)
    return fmt::format("claims the least bytes, but sends {:.3f} times as many", counted.bytes_ratio);
  if (algorithm.optimal_rounds == Rounds::none) return "";
  const int bound = rounds_bound(algorithm.optimal_rounds, n);
  const int rounds = algorithm.optimal_rounds == Rounds::one ? counted.rounds : one_partner_rounds(schedules);
  return rounds == bound ? "" : fmt::format("claims the fewest rounds, {}, but needs {}", bound, rounds);
}

// One group: as schedules with the smallest number of slots that ends, and as plans; in place and not.
Report prove_group(const Algorithm& algorithm, const Group& group) {
  const Shape shape = algorithm.shape(group);
  std::vector<Schedule> schedules;
  Group one = group;
  for (one.rank = 0; one.rank < group.n; ++one.rank) schedules.push_back(record(algorithm, one));
  Report result;
  const int slots_claimed = algorithm.claim(group).slots;
  for (const bool in_place : {false, true}) {
    const CheckOptions options{.slots = slots_claimed, .in_place = in_place, .lowered = true, .repeat = 2};
    const Proof proof = check(algorithm, group, options);
    if (proof.violation)
      throw Error(Code::internal_error,
                  fmt::format("{} with {} ranks, root {}, {}: {}", full_name(algorithm), group.n, group.root,
                              in_place ? "in place" : "out of place", proof.violation->sentence));
    if (!in_place) result = counted(algorithm.collective, group.n, schedules, shape, proof);
    result.left_fold = result.left_fold && proof.left_fold;
  }
  const bool one_host = std::all_of(group.host_of.begin(), group.host_of.end(),
                                    [&](int host) { return host == group.host_of[0]; });
  const std::string missed = one_host ? bound_missed(algorithm, group.n, schedules, result) : "";
  if (!missed.empty())
    throw Error(Code::internal_error, fmt::format("{} with {} ranks, root {}: {}", full_name(algorithm), group.n,
                                                  group.root, missed));
  // A claim may be more careful than it must.
  result.slots = slots_claimed;
  while (result.slots > 1 &&
         !check(algorithm.collective, schedules, shape, group.root, {.slots = result.slots - 1, .repeat = 2}).violation)
    --result.slots;
  result.title = full_name(algorithm);
  result.proofs = 4;  // schedules and plans, in place and not
  return result;
}

std::vector<int> roots_of(Collective collective, int n) {
  if (!meaning(collective).rooted) return {0};
  std::vector<int> roots;
  for (int root = 0; root < n; ++root)
    if (n <= every_root_ranks_max || root < 2 || root == n / 2 || root == n - 1) roots.push_back(root);
  return roots;
}

}  // namespace

void Report::add(const Report& other) {
  if (proofs == 0) {
    *this = other;
    return;
  }
  rounds = other.n_last > n_last ? other.rounds : std::max(rounds, other.rounds);
  n_first = std::min(n_first, other.n_first);
  n_last = std::max(n_last, other.n_last);
  proofs += other.proofs;
  linked += other.linked;
  bytes_ratio = std::max(bytes_ratio, other.bytes_ratio);
  scratch = std::max(scratch, other.scratch);
  slots = std::max(slots, other.slots);
  rank_order = rank_order && other.rank_order;
  left_fold = left_fold && other.left_fold;
}

Report prove_all(const Algorithm& algorithm, int n, const std::vector<int>& hosts, const std::vector<int>& cores, int pipeline) {
  Report sum;
  Group group;
  group.n = n;
  group.host_of = hosts;
  group.core_of = cores;
  for (const int root : roots_of(algorithm.collective, n)) {
    group.root = root;
    group.pipeline = 1;
    const int linked = hosts.empty() && cores.empty() ? prove_linked(algorithm, group) : 0;
    for (const int chunks : {1, 2, 5}) {
      group.pipeline = pipeline > 0 ? pipeline : chunks;
      sum.add(prove_group(algorithm, group));
      if (!algorithm.pipelined || pipeline > 0) break;
    }
    sum.linked += linked;
  }
  return sum;
}

UserSchedule proven(UserSchedule schedule) {
  try {
    prove(schedule);
  } catch (const Error& error) {
    throw Error(Code::internal_error, error.what());
  }
  return schedule;
}

Report report(const UserSchedule& schedule) {
  const Proof proof = check(schedule.collective, schedule.ranks, schedule.shape, schedule.root, {.slots = 2});
  Report result = counted(schedule.collective, schedule.n(), schedule.ranks, schedule.shape, proof);
  result.title = schedule.full_name();
  result.slots = schedule.claim.slots;
  result.left_fold = result.reduces && schedule.claim.left_fold;
  result.proofs = 5;
  return result;
}

std::string to_text(const Report& report) {
  const std::string n = report.n_first == report.n_last ? fmt::format("{}", report.n_last)
                                                        : fmt::format("{}..{}", report.n_first, report.n_last);
  const std::string_view bits = !report.reduces    ? "copies"
                                : report.left_fold  ? "same bits, rank order, left fold"
                                : report.rank_order ? "same bits, rank order"
                                                    : "same bits";
  const std::string linked = report.linked > 0 ? fmt::format(", {} in the memory of all", report.linked) : "";
  return fmt::format(
      "{:<30} n = {}: proven ({} proofs{}), {} rounds, {:.3f} x least bytes, {:.2f} x scratch, {} slots, {}",
      report.title, n, report.proofs, linked, report.rounds, report.bytes_ratio, report.scratch, report.slots, bits);
}

}  // namespace tutti
