// The state machine of life, leave and death.
#include "bootstrap/liveness.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bootstrap/wire.h"

namespace tutti {

std::string rank_list(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

Liveness::Liveness(int rank, int size, TimeNs silence_ns, TimeNs now)
    : rank_(rank), size_(size), silence_ns_(silence_ns), last_tick_ns_(now), last_alive_ns_(now),
      left_(size_t(size)), suspect_(size_t(size)) {
  TUTTI_ASSERT(size > 0 && rank >= 0 && rank < size && silence_ns > 0);
  for (int i = 0; i < size; ++i) names_.push_back(fmt::format("rank {}", i));
}

std::vector<int> Liveness::children_of(int rank, int size) {
  std::vector<int> children;
  for (int child = 2 * rank + 1; child <= 2 * rank + 2 && child < size; ++child) children.push_back(child);
  return children;
}

void Liveness::link_opened(int peer, TimeNs now) {
  const bool of_start = parent_of(peer) == rank_ || parent_of(rank_) == peer;
  links_[peer] = Link{now, false, of_start};
  expected_.erase(peer);
  suspect_[size_t(peer)] = false;
  if (dialing_ == peer) dialing_ = -1;
  // What flooded while the link was not there.
  std::vector<int> gone;
  for (int i = 0; i < size_; ++i)
    if (left_[size_t(i)]) gone.push_back(i);
  if (!gone.empty()) send(peer, left_message(gone));
  else if (!of_start) send(peer, {std::byte(MessageType::alive)});
  if (verdict() != nullptr) send(peer, message_of(MessageType::verdict, verdict_));
  else if (waits_for_decision() && peer == decider(-1)) send(peer, message_of(MessageType::proposal, proposed_));
  repair(now);
}

void Liveness::link_closed(int peer, TimeNs now) {
  const auto link = links_.find(peer);
  if (link == links_.end()) return;
  const bool expected = link->second.closing || left_[size_t(peer)];
  const bool confirmed = link->second.confirmed;
  links_.erase(link);
  if (!expected && confirmed) blame(peer, "died: its control connection closed", now);
  if (!expected && !confirmed && peer < rank_) suspect_[size_t(peer)] = true;  // a parent-to-be; a child comes again
  repair(now);
}

void Liveness::link_refused(int peer, TimeNs now) {
  if (dialing_ == peer) dialing_ = -1;
  suspect_[size_t(peer)] = true;
  repair(now);
}

void Liveness::link_unreachable(int peer, TimeNs now) {
  if (dialing_ != peer) return;
  dialing_ = -1;
  if (!left_[size_t(peer)]) blame(peer, "is unreachable: it answered no connection", now);
  repair(now);
}

void Liveness::heard(int peer, TimeNs now) {
  const auto link = links_.find(peer);
  if (link != links_.end()) link->second.heard_ns = now;
}

void Liveness::message(int peer, std::span<const std::byte> message, TimeNs now) {
  heard(peer, now);
  const auto link = links_.find(peer);
  const bool first = link != links_.end() && !std::exchange(link->second.confirmed, true);
  take(peer, message, now);
  if (first) repair(now);  // old links may have waited for this one
}

void Liveness::take(int peer, std::span<const std::byte> message, TimeNs now) {
  ByteReader reader(message);
  switch (MessageType(reader.u8())) {
    case MessageType::alive: return;
    case MessageType::left: {
      std::vector<int> ranks(reader.left() / 4);
      for (int& rank : ranks) rank = int(reader.u32());
      take_left(ranks, peer, now);
      return;
    }
    case MessageType::verdict:
    case MessageType::proposal: {
      Verdict verdict;
      verdict.code = Code(reader.u32());
      verdict.rank = int(reader.u32());
      verdict.sentence = reader.text();
      if (verdict.code == Code::success) return;
      if (MessageType(message[0]) == MessageType::verdict) take_verdict(std::move(verdict), peer);
      else propose(std::move(verdict), -1, now);
      return;
    }
    case MessageType::closing: {
      const auto link = links_.find(peer);
      if (link != links_.end()) link->second.closing = true;
      return;
    }
  }
  throw Error(Code::remote_error, "a liveness message has an unknown type");
}

void Liveness::tick(TimeNs now) {
  const bool paused = now - last_tick_ns_ > silence_ns_ / 2;
  last_tick_ns_ = now;
  if (paused) {
    for (auto& [peer, link] : links_) link.heard_ns = now;
    for (auto& [peer, since] : expected_) since = now;
  }
  if (now - last_alive_ns_ >= tick_interval_ns() || paused) {
    last_alive_ns_ = now;
    ByteWriter writer;
    writer.u8(uint8_t(MessageType::alive));
    send_all(writer.take(), -1);
  }
  if (verdict() != nullptr) return;
  if (waits_for_decision() && now - proposed_ns_ > silence_ns_) return decide();
  const std::string silence = fmt::format("is silent: no sign of life for {:.1f} s; it is stopped or unreachable",
                                          double(silence_ns_) / double(ns_per_s));
  for (const auto& [peer, link] : links_)
    if (!left_[size_t(peer)] && now - link.heard_ns > silence_ns_) return blame(peer, silence, now);
  for (const auto& [peer, since] : expected_)
    if (now - since > silence_ns_) return blame(peer, silence, now);
}

void Liveness::fail(Verdict verdict, TimeNs now) {
  TUTTI_ASSERT(verdict.code != Code::success);
  propose(std::move(verdict), -1, now);
}

void Liveness::decide() {
  if (waits_for_decision()) take_verdict(proposed_, -1);
}

// Several ranks may find something at once: deadlines pass together. The top of the tree takes what reaches it first,
// and what it decides floods. Who has no one above it that it can ask decides itself.
void Liveness::propose(Verdict verdict, int blamed, TimeNs now) {
  if (this->verdict() != nullptr) return;
  const int above = decider(blamed);
  if (above < 0) return take_verdict(std::move(verdict), -1);
  if (waits_for_decision()) return;
  proposed_ = std::move(verdict);
  proposed_ns_ = now;
  send(above, message_of(MessageType::proposal, proposed_));
}

// The next rank on the way to the top; -1: none but this one, or one that is blamed itself.
int Liveness::decider(int blamed) const {
  const int above = parent_now(rank_, true, lowest(true));
  return above >= 0 && above != blamed && linked(above) ? above : -1;
}

void Liveness::leave(TimeNs now) {
  const int self[] = {rank_};
  take_left(self, -1, now);
}

std::vector<Liveness::Action> Liveness::take_actions() { return std::exchange(actions_, {}); }

bool Liveness::gone(int rank, bool with_suspects) const {
  return left_[size_t(rank)] || (with_suspects && suspect_[size_t(rank)]);
}

int Liveness::lowest(bool with_suspects) const {
  int rank = 0;
  while (rank < size_ && gone(rank, with_suspects)) ++rank;
  return rank;
}

// The nearest ancestor that has not gone, else the lowest rank that has not; -1 for that one itself.
int Liveness::parent_now(int rank, bool with_suspects, int lowest) const {
  for (int ancestor = parent_of(rank); ancestor >= 0; ancestor = parent_of(ancestor))
    if (!gone(ancestor, with_suspects)) return ancestor;
  return lowest < rank ? lowest : -1;
}

void Liveness::repair(TimeNs now) {
  if (!any_left_ || verdict() != nullptr) return;
  std::erase_if(expected_, [&](const auto& entry) { return left_[size_t(entry.first)]; });
  if (!left_[size_t(rank_)]) {
    const int first = lowest(false);
    for (int child = rank_ + 1; child < size_; ++child)
      if (!left_[size_t(child)] && !linked(child) && parent_now(child, false, first) == rank_)
        expected_.try_emplace(child, now);
    const int parent = parent_now(rank_, true, lowest(true));
    if (parent >= 0 && !linked(parent) && dialing_ != parent) {
      dialing_ = parent;
      actions_.push_back({Action::Kind::dial, parent, {}});
    } else if (parent < 0 || linked(parent)) {
      dialing_ = -1;
    }
  }
  close_finished_links();
}

// A rank that stays keeps its old links until its new ones are sure. One that leaves is kept by others until theirs are,
// and may be the only one they have told of their own leave: it closes its last link, or all once everyone has left.
void Liveness::close_finished_links() {
  const auto settled = [this](const auto& link) { return link.second.confirmed || left_[size_t(link.first)]; };
  const bool finished = left_[size_t(rank_)] ? links_.size() == 1 || lowest(false) == size_
                                             : dialing_ < 0 && expected_.empty() && std::ranges::all_of(links_, settled);
  if (!finished) return;
  for (auto link = links_.begin(); link != links_.end();) {
    if (!left_[size_t(link->first)]) {
      ++link;
      continue;
    }
    send(link->first, {std::byte(MessageType::closing)});
    actions_.push_back({Action::Kind::close, link->first, {}});
    link = links_.erase(link);
  }
}

void Liveness::take_verdict(Verdict verdict, int except) {
  if (this->verdict() != nullptr) return;
  verdict_ = std::move(verdict);
  send_all(message_of(MessageType::verdict, verdict_), except);
  actions_.push_back({Action::Kind::publish, -1, {}});
}

void Liveness::blame(int peer, std::string_view reason, TimeNs now) {
  propose({Code::remote_error, peer, fmt::format("{} {}", name(peer), reason)}, peer, now);
}

void Liveness::take_left(std::span<const int> ranks, int except, TimeNs now) {
  std::vector<int> news;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size_ || left_[size_t(rank)]) continue;
    left_[size_t(rank)] = true;
    news.push_back(rank);
  }
  if (news.empty()) return;
  any_left_ = true;
  send_all(left_message(news), except);
  repair(now);
}

void Liveness::send(int peer, Bytes message) {
  actions_.push_back({Action::Kind::send, peer, std::move(message)});
}

void Liveness::send_all(const Bytes& message, int except) {
  for (const auto& [peer, link] : links_)
    if (peer != except) send(peer, message);
}

Bytes Liveness::left_message(std::span<const int> ranks) const {
  ByteWriter writer;
  writer.u8(uint8_t(MessageType::left));
  for (const int rank : ranks) writer.u32(uint32_t(rank));
  return writer.take();
}

Bytes Liveness::message_of(MessageType type, const Verdict& verdict) {
  ByteWriter writer;
  writer.u8(uint8_t(type));
  writer.u32(uint32_t(verdict.code));
  writer.u32(uint32_t(verdict.rank));
  writer.text(verdict.sentence);
  return writer.take();
}

}  // namespace tutti
