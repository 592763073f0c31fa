// Schedules that a user writes: the proof, and whether all ranks have the same.
#include "schedule/user_schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "schedule/check.h"
#include "schedule/print.h"

namespace tutti {
namespace {

// What every transport holds per FIFO, and a plan needs.
constexpr int slots_sure = 2;

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Code::invalid_argument, sentence); }

// "FILE: rank 1, step 3 (send in[0] to 2), chunk 0: [in place: ]why".
std::string sentence_of(const UserSchedule& schedule, const Violation& violation, const CheckOptions& options) {
  const std::string mode = fmt::format("{}{}", options.in_place ? "in place: " : "",
                                       options.lowered ? "in one pass with its neighbours: " : "");
  if (violation.rank < 0) return fmt::format("{}: {}{}", schedule.source, mode, violation.sentence);
  const Schedule& steps = schedule.ranks[size_t(violation.rank)];
  const size_t step = size_t(violation.step);
  const std::string at = step < steps.size() ? fmt::format("step {} ({})", step + 1, to_text(steps[step]))
                                             : fmt::format("after its last step, {}", steps.size());
  const std::string chunk = violation.chunk < 0 ? "" : fmt::format(", chunk {}", violation.chunk);
  return fmt::format("{}: rank {}, {}{}: {}{}", schedule.source, violation.rank, at, chunk, mode, violation.why);
}

Proof proven(const UserSchedule& schedule, const CheckOptions& options) {
  const Proof proof = check(schedule.collective, schedule.ranks, schedule.shape, schedule.root, options);
  if (proof.violation) refuse(sentence_of(schedule, *proof.violation, options));
  return proof;
}

// FNV-1a: the same in every build.
uint64_t hash(std::string_view text) {
  uint64_t value = 0xcbf29ce484222325ull;
  for (const char c : text) value = (value ^ uint8_t(c)) * 0x100000001b3ull;
  return value;
}

// "a\nb\n" as "a; b".
std::string on_one_line(std::string_view identity) {
  std::string text(identity.substr(0, identity.size() - std::min<size_t>(identity.size(), 1)));
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.replace(at, 1, "; ");
  return text.empty() ? "none" : text;
}

}  // namespace

void prove(UserSchedule& schedule) {
  const Proof plain = proven(schedule, {.slots = slots_sure});
  Proof plans[2];
  for (const bool in_place : {false, true}) {
    proven(schedule, {.slots = slots_sure, .in_place = in_place, .repeat = 2});
    plans[in_place] = proven(schedule, {.slots = slots_sure, .in_place = in_place, .lowered = true, .repeat = 2});
  }
  if (plans[0].expression != plans[1].expression || plans[0].passes != plans[1].passes)
    refuse(schedule.source +
           ": adds or rounds in another order in place than out of place: ranks that differ in that "
           "would get different bits");
  const bool one = !check(schedule.collective, schedule.ranks, schedule.shape, schedule.root, {.slots = 1}).violation;
  schedule.claim = {plain.rounds, double(plain.chunks_sent_max) / schedule.shape.output, one ? 1 : 2,
                    plain.in_rank_order, plain.left_fold && plans[0].left_fold && plans[1].left_fold};
}

std::string identity(std::span<const UserSchedule> schedules) {
  std::string text;
  for (const UserSchedule& schedule : schedules) {
    UserSchedule bare = schedule;
    bare.sentence.clear();
    text += fmt::format("{} for {} ranks, root {}, contents {:016x}\n", bare.full_name(), bare.n(), bare.root,
                        hash(to_json(bare)));
  }
  return text;
}

std::string difference(std::span<const std::string> identities) {
  std::string ranks;
  size_t first = 0;
  for (size_t r = 1; r < identities.size(); ++r) {
    if (identities[r] == identities[0]) continue;
    if (first == 0) first = r;
    ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", r);
  }
  if (first == 0) return "";
  return fmt::format(
      "ranks load different schedules (TUTTI_SCHEDULES): {} {} from rank 0; rank 0 has {}, rank {} has {}", ranks,
      ranks.find(',') == std::string::npos ? "differs" : "differ", on_one_line(identities[0]), first,
      on_one_line(identities[first]));
}

}  // namespace tutti
