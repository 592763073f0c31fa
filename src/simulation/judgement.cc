// Judging how simulated communicators end.
#include "simulation/judgement.h"

#include <algorithm>

#include <fmt/format.h>

namespace tutti {
namespace {

// Whether a fault may end a call at all.
bool ends_calls(SceneFaultKind kind) {
  return ends_rank(kind) || kind == SceneFaultKind::mismatch || kind == SceneFaultKind::link_cut ||
         kind == SceneFaultKind::link_lost || kind == SceneFaultKind::one_way_loss || kind == SceneFaultKind::bit_flip ||
         kind == SceneFaultKind::allocation;
}

// "rank 1", not as the beginning of "rank 12".
bool names(const std::string& sentence, int rank) {
  const std::string name = fmt::format("rank {}", rank);
  for (size_t at = sentence.find(name); at != std::string::npos; at = sentence.find(name, at + 1)) {
    const size_t next = at + name.size();
    if (next == sentence.size() || sentence[next] < '0' || sentence[next] > '9') return true;
  }
  return false;
}

bool explains(const SceneFault& fault, const Verdict& verdict, int blamed) {
  if (ends_rank(fault.kind)) return verdict.code == Code::remote_error && blamed == fault.rank;
  if (verdict.rank != -1) return false;
  const bool says_rank = names(verdict.sentence, fault.rank), says_peer = names(verdict.sentence, fault.peer);
  switch (fault.kind) {
    case SceneFaultKind::mismatch: return verdict.code == Code::mismatch;
    case SceneFaultKind::allocation: return says_rank;
    case SceneFaultKind::link_cut:
    case SceneFaultKind::bit_flip: return says_rank && says_peer;
    // Where messages get lost without a word, only the deadline tells, and it blames nobody.
    default: return verdict.code == Code::timeout;
  }
}

// Whether the verdict is true of some fault that has struck.
bool is_true(const Scene& scene, const std::vector<char>& struck, const SessionEnding& ending, const Verdict& verdict) {
  const int blamed = verdict.rank < 0 ? -1 : ending.ranks[size_t(verdict.rank)].process;
  for (size_t i = 0; i < scene.faults.size(); ++i)
    if (struck[i] && ends_calls(scene.faults[i].kind) && explains(scene.faults[i], verdict, blamed)) return true;
  return false;
}

}  // namespace

bool has_fault(const Scene& scene, SceneFaultKind kind) {
  return std::ranges::any_of(scene.faults, [&](const SceneFault& fault) { return fault.kind == kind; });
}
bool has_fault(const Scene& scene, SceneFaultKind kind, int process) {
  return std::ranges::any_of(scene.faults,
                             [&](const SceneFault& fault) { return fault.kind == kind && fault.rank == process; });
}
bool ends_rank(SceneFaultKind kind) {
  return kind == SceneFaultKind::death || kind == SceneFaultKind::silent_death || kind == SceneFaultKind::stop;
}

std::string judge(const Scene& scene, const std::vector<char>& struck, const SessionEnding& ending) {
  const bool somebody_ended = std::ranges::any_of(ending.ranks, [](const SessionRank& rank) { return !rank.survives; });
  const Verdict* first = nullptr;
  for (const SessionRank& rank : ending.ranks) {
    if (!rank.survives) continue;
    if (rank.verdict == nullptr) {
      if (somebody_ended && !ending.over) return fmt::format("rank {} has no verdict", rank.process);
      if (rank.went_on || !rank.all_ok) return fmt::format("rank {} was neither ok nor told why", rank.process);
      continue;
    }
    if (!is_true(scene, struck, ending, *rank.verdict))
      return fmt::format("rank {} blames wrongly: {}", rank.process, rank.verdict->sentence);
    if (first == nullptr) first = rank.verdict;
    if (rank.verdict->sentence != first->sentence)
      return fmt::format("rank {} says \"{}\", another \"{}\"", rank.process, rank.verdict->sentence, first->sentence);
  }
  if (has_fault(scene, SceneFaultKind::mismatch) && first == nullptr && !ending.ranks.empty())
    return "calls differ, and all were ok";
  return "";
}

}  // namespace tutti
