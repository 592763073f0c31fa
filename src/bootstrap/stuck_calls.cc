// Finding circles among stuck calls.
#include "bootstrap/stuck_calls.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tutti {

void StuckCalls::stick(StuckCall call, std::vector<uint32_t> sent) {
  const auto before = known_.find(rank_);
  call.rank = rank_;
  call.serial = before == known_.end() ? 1 : before->second.serial + 1;
  call.unserved.clear();
  known_[rank_] = std::move(call);
  sent_ = std::move(sent);
  has_news_ = true;
  for (const auto& [rank, other] : known_) serve(other);
}

// Notes that it waits in vain. Nothing is taken back, so that of two words of one call the longer is the later one.
void StuckCalls::serve(const StuckCall& receiver) {
  const auto own = known_.find(rank_);
  if (!receiver.receives || receiver.first != rank_ || own == known_.end() || size_t(receiver.rank) >= sent_.size()) return;
  if (sent_[size_t(receiver.rank)] != uint32_t(receiver.number)) return;
  std::vector<StuckCall::Unserved>& unserved = own->second.unserved;
  const StuckCall::Unserved one{receiver.rank, receiver.serial};
  if (std::ranges::find(unserved, one) != unserved.end()) return;
  unserved.push_back(one);
  has_news_ = true;
}

bool StuckCalls::hear(const StuckCall& call) {
  if (call.rank == rank_) return false;
  const auto found = known_.find(call.rank);
  if (found != known_.end()) {
    const StuckCall& known = found->second;
    const auto age = int32_t(call.serial - known.serial);
    if (age < 0 || (age == 0 && call.unserved.size() <= known.unserved.size())) return false;
  }
  known_[call.rank] = call;
  serve(call);
  return true;
}

std::optional<StuckCall> StuckCalls::own_news() {
  if (!has_news_) return std::nullopt;
  const StuckCall& own = known_.at(rank_);
  if (!own.receives && std::ranges::none_of(known_, [&](const auto& one) {
        return one.second.receives && one.second.collectives <= own.number;
      }))
    return std::nullopt;
  has_news_ = false;
  return own;
}

bool StuckCalls::waits_for(const StuckCall& call, const StuckCall& other) const {
  if (other.rank == call.rank || other.rank < call.first || other.rank >= call.end) return false;
  if (!call.receives) return other.collectives <= call.number;
  return std::ranges::find(other.unserved, StuckCall::Unserved{call.rank, call.serial}) != other.unserved.end();
}

// Depth first from each receive, of which a circle has one at least: of collectives each waits for an earlier one. Who leads to no
// circle is looked at once.
std::vector<StuckCall> StuckCalls::circle() const {
  std::set<int> done;
  for (const auto& [start, first] : known_) {
    struct Step {
      const StuckCall* call;
      std::map<int, StuckCall>::const_iterator next, end;  // whom it may wait for
    };
    std::vector<Step> path;
    const auto go_to = [&](const StuckCall& call) {
      path.push_back({&call, known_.lower_bound(call.first), known_.lower_bound(call.end)});
    };
    if (first.receives && !done.contains(start)) go_to(first);
    while (!path.empty()) {
      Step& last = path.back();
      while (last.next != last.end && (done.contains(last.next->first) || !waits_for(*last.call, last.next->second))) ++last.next;
      if (last.next == last.end) {
        done.insert(last.call->rank);
        path.pop_back();
        continue;
      }
      const StuckCall* const next = &(last.next++)->second;
      const auto met = std::ranges::find(path, next, &Step::call);
      if (met == path.end()) {
        go_to(*next);
        continue;
      }
      std::vector<StuckCall> calls;
      for (auto step = met; step != path.end(); ++step) calls.push_back(*step->call);
      std::rotate(calls.begin(), std::ranges::min_element(calls, {}, &StuckCall::rank), calls.end());
      return calls;
    }
  }
  return {};
}

std::vector<StuckCall> StuckCalls::known() const {
  std::vector<StuckCall> calls;
  for (const auto& [rank, call] : known_) calls.push_back(call);
  return calls;
}

}  // namespace tutti
