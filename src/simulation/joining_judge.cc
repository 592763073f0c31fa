// The judgement over a joining scene.
#include "simulation/joining_judge.h"

#include <string_view>

#include <fmt/format.h>

namespace tutti {
namespace {

using Kind = JoiningFaultKind;

// Joining takes its deadline at most, and what hears of others' deadlines a little longer.
constexpr TimeNs call_ns_max = JoiningTimes::timeout_ns * 5 / 2 + 4 * ns_per_s;
constexpr TimeNs soon_ns = 100 * ns_per_ms;

bool is_guilty(const JoiningScene& scene, int rank) {
  return std::ranges::any_of(scene.faults, [&](const JoiningFault& fault) {
    return is_harmful(fault.kind) && (fault.rank == rank || (fault.kind == Kind::cut && fault.peer == rank));
  });
}

// The rank that a sentence begins with, which it takes for dead or silent; nullopt: it blames nobody so.
std::optional<int> taken_for_dead(std::string_view sentence) {
  if (!sentence.starts_with("rank ")) return std::nullopt;
  const bool blames = sentence.find(" died") != sentence.npos || sentence.find(" is silent") != sentence.npos ||
                      sentence.find(" is unreachable") != sentence.npos;
  int rank = 0;
  for (size_t i = 5; i < sentence.size() && sentence[i] >= '0' && sentence[i] <= '9'; ++i) rank = rank * 10 + (sentence[i] - '0');
  return blames ? std::optional(rank) : std::nullopt;
}

// Whether a sentence's "rank 3" or "ranks 1, 3-5" names this one.
bool names(std::string_view sentence, int rank) {
  for (size_t at = sentence.find("rank"); at != sentence.npos; at = sentence.find("rank", at + 1)) {
    size_t i = at + 4 + (sentence.substr(at + 4).starts_with("s") ? 1 : 0);
    int first = -1;
    while (++i < sentence.size() && sentence[i] >= '0' && sentence[i] <= '9') {
      int number = 0;
      for (; i < sentence.size() && sentence[i] >= '0' && sentence[i] <= '9'; ++i) number = number * 10 + (sentence[i] - '0');
      if (number == rank || (first >= 0 && first <= rank && rank <= number)) return true;
      first = i < sentence.size() && sentence[i] == '-' ? number : -1;
      if (sentence.substr(i).starts_with(", ")) ++i;
    }
  }
  return false;
}

// Whether a failure has to do with what went wrong.
bool tells_of(const std::string& sentence, const JoiningFault& fault) {
  const auto says = [&](std::string_view text) { return sentence.find(text) != sentence.npos; };
  // Where to meet is rank 0's to say.
  if (fault.rank == 0 && says("meet")) return true;
  // Two that are rank 0 hold two meeting places, and at each those are missed who came to the other.
  if (fault.rank == 0 && fault.kind == Kind::twice && says("did not join")) return true;
  if (fault.kind == Kind::other_version && says("protocol version")) return true;
  if (fault.kind == Kind::other_key && says("another job")) return true;
  if (fault.kind == Kind::descriptors && says("descriptor")) return true;
  if (fault.kind == Kind::cut && (names(sentence, fault.peer) || (fault.peer == 0 && says("meet")))) return true;
  return names(sentence, fault.rank) || says("nobody grew");
}

std::string wrong_with(const JoiningEnding& ending, const JoiningCaller& caller) {
  const JoiningScene& scene = ending.scene;
  const std::string who = fmt::format("{}rank {}", caller.second ? "the second " : "", caller.rank);
  const TimeNs took = caller.ended_at - caller.begun_at;
  if (took > call_ns_max) return fmt::format("{} came to its end after {} ms", who, took / ns_per_ms);
  const auto harmful = [](const JoiningFault& fault) { return is_harmful(fault.kind); };
  if (std::ranges::none_of(scene.faults, harmful)) {
    if (!caller.ok) return fmt::format("{} failed, though nothing ends the job: {}", who, caller.sentence);
    if (scene.faults.empty() && caller.ended_at > scene.spread_ns * 2 + soon_ns)
      return fmt::format("{} came to its end after {} ms, though nothing was in its way", who, caller.ended_at / ns_per_ms);
    return "";
  }
  if (caller.ok) return "";
  for (const std::string& sentence : {caller.sentence, caller.verdict ? caller.verdict->sentence : std::string()})
    if (const std::optional<int> blamed = taken_for_dead(sentence); blamed && !is_guilty(scene, *blamed))
      return fmt::format("{} blames an innocent: {}", who, sentence);
  if (caller.verdict && caller.verdict->rank >= 0 && !is_guilty(scene, caller.verdict->rank))
    return fmt::format("{} has a verdict on an innocent: {}", who, caller.verdict->sentence);
  // Who comes when a failed job has gone finds nobody to ask.
  if (std::ranges::find(caller.faults, Kind::late) != caller.faults.end() &&
      caller.sentence.find("found no meeting place") != std::string::npos)
    return "";
  // Who was told something wrong itself cannot know it.
  if (std::ranges::any_of(caller.faults, is_harmful)) return "";
  const auto told = [&](const JoiningFault& fault) { return is_harmful(fault.kind) && tells_of(caller.sentence, fault); };
  if (std::ranges::none_of(scene.faults, told)) return fmt::format("{} does not say what went wrong: {}", who, caller.sentence);
  return "";
}

}  // namespace

bool is_harmful(JoiningFaultKind kind) {
  switch (kind) {
    case Kind::death:
    case Kind::silent_death:
    case Kind::stop:
    case Kind::absent:
    case Kind::twice:
    case Kind::other_size:
    case Kind::other_version:
    case Kind::other_key:
    case Kind::cut:
    case Kind::descriptors: return true;
    default: return false;
  }
}

std::string judge(const JoiningEnding& ending) {
  constexpr size_t stranger_bytes_max = 64;
  if (ending.read_of_strangers_max >= stranger_bytes_max)
    return fmt::format("{} bytes of a stranger were read", ending.read_of_strangers_max);
  // Those on the two sides of a cut cannot agree.
  const bool parted = std::ranges::any_of(ending.scene.faults, [](const auto& fault) { return fault.kind == Kind::cut; });
  const JoiningCaller *ok = nullptr, *failed = nullptr, *ended = nullptr;
  for (const JoiningCaller& caller : ending.callers) {
    if (!caller.survives) continue;
    if (std::string wrong = wrong_with(ending, caller); !wrong.empty()) return wrong;
    const bool innocent = std::ranges::none_of(caller.faults, is_harmful);
    if (caller.ok) ok = &caller;
    if (!caller.ok && !caller.joined_last && innocent) failed = &caller;
    if (!caller.joined_last || !caller.verdict) continue;
    if (!parted && ended != nullptr && ended->verdict->sentence != caller.verdict->sentence)
      return fmt::format("ranks {} and {} end differently: {}; {}", ended->rank, caller.rank, ended->verdict->sentence,
                         caller.verdict->sentence);
    ended = &caller;
  }
  if (ok != nullptr && failed != nullptr)
    return fmt::format("rank {} is through, rank {} could not join: {}", ok->rank, failed->rank, failed->sentence);
  for (const JoiningCaller& caller : ending.callers)
    if (!parted && ended != nullptr && caller.survives && caller.joined_last && !caller.verdict)
      return fmt::format("rank {} never learned that {}", caller.rank, ended->verdict->sentence);
  return "";
}

}  // namespace tutti
