// Comparing calls that ranks wait in.
#include "bootstrap/waiting_calls.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/signature.h"

namespace tutti {
namespace {

// The first time; then when twice as long has passed since the call was heard of.
constexpr TimeNs look_interval_ns_min = 100 * ns_per_ms;

// Of two with one number: the first of the calls that are told of both in which they differ.
std::optional<WaitingCalls::Pair> difference(const WaitingCall& a, const WaitingCall& b) {
  const auto signature = [](const WaitingCall& call, size_t back) { return back == 0 ? call.signature : call.before[back - 1]; };
  for (size_t back = std::min(a.before.size(), b.before.size()) + 1; back-- > 0;) {
    if (match(signature(a, back), signature(b, back))) continue;
    const WaitingCall one{a.rank, a.number - back, signature(a, back), {}}, other{b.rank, b.number - back, signature(b, back), {}};
    return a.rank < b.rank ? WaitingCalls::Pair{one, other} : WaitingCalls::Pair{other, one};
  }
  return std::nullopt;
}

}  // namespace

std::string differing_calls(std::string_view rank, std::string_view call, std::string_view other, std::string_view others_call) {
  return fmt::format("{} called {} while {} called {}", rank, call, other, others_call);
}

WaitingCall WaitingCalls::own(uint64_t number, uint64_t signature) const {
  WaitingCall call{rank_, number, signature, {}};
  while (own_.collective && call.before.size() < std::min<uint64_t>(number, before_max)) {
    const std::optional<uint64_t> before = own_.collective(number - call.before.size() - 1);
    if (!before) break;
    call.before.push_back(*before);
  }
  return call;
}

bool WaitingCalls::hear(const WaitingCall& call, TimeNs now) {
  const auto found = known_.find(call.number);
  if (found != known_.end()) {
    const WaitingCall& known = found->second.call;
    if (!differing_ && known.rank != call.rank) differing_ = difference(known, call);
    return false;
  }
  if (known_.size() == calls_max) {
    if (call.number < known_.begin()->first) return false;
    known_.erase(known_.begin());
  }
  known_[call.number] = {call, now, call.rank == rank_};
  return true;
}

std::optional<WaitingCalls::Pair> WaitingCalls::look(TimeNs now) {
  looked_ns_ = now;
  for (auto& [number, known] : known_) {
    if (differing_) break;
    if (known.matches || !own_.collective) continue;
    const std::optional<uint64_t> signature = own_.collective(number);
    if (!signature) continue;
    differing_ = difference(own(number, *signature), known.call);
    known.matches = !differing_;
  }
  return differing_;
}

std::optional<TimeNs> WaitingCalls::look_again_ns() const {
  std::optional<TimeNs> soonest;
  for (const auto& [number, known] : known_) {
    const TimeNs next = looked_ns_ + std::max(look_interval_ns_min, looked_ns_ - known.heard_ns);
    if (!known.matches && (!soonest || next < *soonest)) soonest = next;
  }
  return soonest;
}

std::vector<WaitingCall> WaitingCalls::known() const {
  std::vector<WaitingCall> calls;
  for (const auto& [number, known] : known_) calls.push_back(known.call);
  return calls;
}

std::string WaitingCalls::describe(uint64_t signature) const {
  return own_.describe ? own_.describe(signature) : describe_signature(signature);
}

}  // namespace tutti
