// The state machine of life, leave and death.
#include "bootstrap/liveness.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bootstrap/wire.h"

namespace tutti {
namespace {

constexpr uint32_t end_number = 0;  // of the decision that is the verdict
// How long those who should decide on the verdict are waited for, in silences.
constexpr int decision_silences = 6;
// How often a repaired link may end before its first message until its peer has vanished.
constexpr int early_ends_max = 3;

}  // namespace

Liveness::Liveness(int rank, int size, TimeNs silence_ns, TimeNs now)
    : rank_(rank), size_(size), silence_ns_(silence_ns), last_tick_ns_(now), last_alive_ns_(now),
      manner_(size_t(size), Manner::lives), lives_(size_t(size), true), end_(rank, size, true), waiting_(rank), stuck_(rank) {
  TUTTI_ASSERT(size > 0 && rank >= 0 && rank < size && silence_ns > 0);
}

std::vector<int> Liveness::children_of(int rank, int size) {
  std::vector<int> children;
  for (int child = 2 * rank + 1; child <= 2 * rank + 2 && child < size; ++child) children.push_back(child);
  return children;
}

// --- What happens.

void Liveness::link_opened(int peer, TimeNs now) {
  const bool of_start = is_of_start(peer);
  links_[peer] = Link{now, false, of_start};
  expected_.erase(peer);
  if (dialing_ == peer) dialing_ = -1;
  // What flooded while the link was not there; decisions first, as they came before those who made them left.
  if (end_.taken()) send(peer, decision_message(end_number, end_));
  for (const auto& [number, decision] : decisions_)
    if (decision.taken()) send(peer, decision_message(number, decision));
  std::vector<Gone> gone;
  for (int i = 0; gone_count_ > 0 && i < size_; ++i)
    if (!lives(i)) gone.push_back({i, manner_[size_t(i)]});
  if (!gone.empty()) send(peer, gone_message(gone));
  else if (!of_start) send(peer, {std::byte(MessageType::alive)});
  if (!proposed_.empty() && verdict() == nullptr) send(peer, proposal_message(proposed_));
  if (!waiting_.empty() && !end_.asked()) send(peer, waiting_message(waiting_.known()));
  if (!stuck_.empty() && !end_.asked()) send(peer, stuck_message(stuck_.known()));
  for (const auto& [rank, near] : idle_) send(peer, idle_message(rank, near));
  for (auto& [number, sent] : sent_votes_)
    if (sent.parent == peer) sent.parent = -1;
  if (has_left(rank_) && !of_start) close(peer);  // it has heard why
  repair(now);
  advance();
}

void Liveness::link_closed(int peer, TimeNs now) {
  const auto link = links_.find(peer);
  if (link == links_.end()) return;
  const bool expected = link->second.closing || !lives(peer);
  const bool confirmed = link->second.confirmed;
  links_.erase(link);
  // A parent-to-be may have ended in between; a child comes again.
  if (!expected && confirmed) lose(peer, Manner::died, now);
  else if (!expected && peer < rank_ && ++early_ends_[peer] >= early_ends_max) lose(peer, Manner::vanished, now);
  repair(now);
  advance();
}

void Liveness::link_refused(int peer, TimeNs now) {
  if (dialing_ == peer) dialing_ = -1;
  lose(peer, Manner::vanished, now);
  repair(now);
  advance();
}

// Who was stopped itself has waited for no answer.
void Liveness::link_unreachable(int peer, TimeNs now) {
  if (dialing_ != peer) return;
  dialing_ = -1;
  const bool was_stopped = stopped_while_dialing_ || now - last_tick_ns_ > silence_ns_ / 2;
  if (!was_stopped) lose(peer, Manner::unreachable, now);
  repair(now);
  advance();
}

void Liveness::link_unknown(int peer) {
  if (dialing_ != peer) return;
  dialing_unknown_ = true;
  advance();
}

void Liveness::answered(int peer, TimeNs now) {
  const auto found = expected_.find(peer);
  if (found != expected_.end()) found->second = now;
}

void Liveness::heard(int peer, TimeNs now) {
  const auto link = links_.find(peer);
  if (link != links_.end()) link->second.heard_ns = now;
}

void Liveness::message(int peer, std::span<const std::byte> message, TimeNs now) {
  heard(peer, now);
  if (dead(peer)) return;
  const auto link = links_.find(peer);
  const bool first = link != links_.end() && !std::exchange(link->second.confirmed, true);
  if (first) early_ends_.erase(peer);
  take(peer, message, now);
  if (first) repair(now);  // old links may have waited for this one
  advance();
}

void Liveness::take(int peer, std::span<const std::byte> message, TimeNs now) {
  ByteReader reader(message);
  switch (MessageType(reader.u8())) {
    case MessageType::alive: return;
    case MessageType::gone: {
      std::vector<Gone> ranks;
      while (!reader.empty()) {
        const int rank = int(reader.u32());
        const auto manner = Manner(reader.u8());
        if (rank < 0 || rank >= size_ || manner == Manner::lives || manner > Manner::left)
          throw Error(Code::remote_error, "a liveness message tells of a rank that does not exist");
        ranks.push_back({rank, manner});
      }
      return take_gone(ranks, peer, now);
    }
    case MessageType::proposal: {
      const std::span<const std::byte> wish = reader.blob();
      verdict_from(wish);  // throws where it is none
      return ask_for_end(Bytes(wish.begin(), wish.end()), peer, now);
    }
    case MessageType::decision: {
      const uint32_t number = reader.u32();
      const int decider = int(reader.u32());
      const std::span<const std::byte> value = reader.blob();
      if (decider < 0 || decider >= size_) throw Error(Code::remote_error, "a decision is nobody's");
      if (number == end_number) verdict_from(value);
      return take_decision(number, decider, Bytes(value.begin(), value.end()), peer);
    }
    case MessageType::vote: {
      const uint32_t number = reader.u32();
      const Vote vote = decode_vote(reader.blob(), size_);
      if (number == end_number) ask_for_end({}, -1, now);
      Decision& one = decision(number);
      one.turn_to(lowest());
      return one.hear(vote);
    }
    case MessageType::closing: {
      const auto link = links_.find(peer);
      if (link != links_.end()) link->second.closing = true;
      return tell_idle();
    }
    case MessageType::idle: {
      const int rank = int(reader.u32());
      std::vector<int> near;
      while (!reader.empty()) near.push_back(int(reader.u32()));
      const auto exists = [this](int one) { return one >= 0 && one < size_; };
      if (!exists(rank) || !std::ranges::all_of(near, exists))
        throw Error(Code::remote_error, "a liveness message tells of a rank that does not exist");
      take_idle(rank, std::move(near), peer);
      return close_finished_links();
    }
    case MessageType::waiting: return take_waiting(read_waiting(reader), peer, now);
    case MessageType::stuck: return take_stuck(read_stuck(reader), peer, now);
  }
  throw Error(Code::remote_error, "a liveness message has an unknown type");
}

void Liveness::tick(TimeNs now) {
  const bool paused = now - last_tick_ns_ > silence_ns_ / 2;
  last_tick_ns_ = now;
  if (paused) {
    for (auto& [peer, link] : links_) link.heard_ns = now;
    for (auto& [peer, since] : expected_) since = now;
    stopped_while_dialing_ = true;
  }
  if (now - last_alive_ns_ >= tick_interval_ns() || paused) {
    last_alive_ns_ = now;
    ByteWriter writer;
    writer.u8(uint8_t(MessageType::alive));
    send_all(writer.take(), -1);
  }
  std::vector<int> silent;
  for (const auto& [peer, link] : links_)
    if (lives(peer) && now - link.heard_ns > silence_ns_) silent.push_back(peer);
  for (const auto& [peer, since] : expected_)
    if (lives(peer) && now - since > silence_ns_) silent.push_back(peer);
  for (const int peer : silent) lose(peer, Manner::silent, now);
  if (!silent.empty()) repair(now);
  look_at_calls(now);
  advance();
  if (waits_for_decision() && now - asked_ns_ > decision_silences * silence_ns_) decide_alone();
}

TimeNs Liveness::wake_ns(TimeNs now) const {
  const TimeNs tick = now + tick_interval_ns();
  const std::optional<TimeNs> look = end_.asked() ? std::nullopt : waiting_.look_again_ns();
  return look ? std::min(*look, tick) : tick;
}

void Liveness::fail(Verdict verdict, TimeNs now) {
  TUTTI_ASSERT(verdict.code != Code::success);
  ask_for_end(to_bytes(verdict), -1, now);
  advance();
}

void Liveness::leave(TimeNs now) {
  const Gone self[] = {{rank_, Manner::left}};
  dialing_ = -1;
  take_gone(self, -1, now);
}

std::vector<Liveness::Action> Liveness::take_actions() { return std::exchange(actions_, {}); }

// --- Who has gone.

void Liveness::lose(int rank, Manner manner, TimeNs now) {
  const Gone one[] = {{rank, manner}};
  take_gone(one, -1, now);
}

void Liveness::take_gone(std::span<const Gone> ranks, int except, TimeNs now) {
  std::vector<Gone> news;
  for (const Gone& gone : ranks) {
    Manner& known = manner_[size_t(gone.rank)];
    if (gone.manner <= known || (gone.rank == rank_ && gone.manner == Manner::vanished)) continue;
    gone_count_ += known == Manner::lives;
    dead_count_ += int(gone.manner != Manner::left) - int(known != Manner::lives);
    known = gone.manner;
    const bool is_news = std::ranges::find(found_dead_, gone.rank) == found_dead_.end();
    if (dead(gone.rank) && is_news) found_dead_.push_back(gone.rank);
    lives_[size_t(gone.rank)] = false;
    expected_.erase(gone.rank);
    news.push_back(gone);
  }
  if (news.empty()) return;
  send_all(gone_message(news), except);
  // The others have given this rank up, and hear it no more.
  if (dead(rank_) && verdict() == nullptr) {
    verdict_ = verdict_of(rank_);
    publish();
  }
  if (guilty()) ask_for_end({}, -1, now);
  repair(now);
}

int Liveness::lowest() const {
  int rank = 0;
  while (rank < size_ && !lives(rank)) ++rank;
  return rank;
}

// The nearest ancestor that lives, else the lowest rank that does; -1 for that one itself.
int Liveness::parent_now(int rank) const {
  for (int ancestor = parent_of(rank); ancestor >= 0; ancestor = parent_of(ancestor))
    if (lives(ancestor)) return ancestor;
  const int first = lowest();
  return first < rank ? first : -1;
}

std::vector<int> Liveness::children_now() const {
  std::vector<int> children, gone = {rank_};
  // The lowest has those too whose ancestors have all gone.
  if (rank_ > 0 && lowest() == rank_) gone.push_back(0);
  while (!gone.empty()) {
    const int above = gone.back();
    gone.pop_back();
    for (const int child : children_of(above, size_)) {
      if (child == rank_) continue;
      (lives(child) ? children : gone).push_back(child);
    }
  }
  return children;
}

void Liveness::repair(TimeNs now) {
  if (gone_count_ == 0) return;
  if (lives(rank_)) {
    for (const int child : children_now()) {
      if (linked(child) || !expected_.try_emplace(child, now).second) continue;
      // It may have died with its parent, and nobody else would see it.
      if (dead_count_ > 0) actions_.push_back({Action::Kind::probe, child, {}});
    }
    const int parent = parent_now(rank_);
    if (parent >= 0 && !linked(parent)) {
      if (dialing_ != parent) dial(parent);
    } else {
      dialing_ = -1;
    }
  }
  close_finished_links();
}

void Liveness::dial(int peer) {
  dialing_ = peer;
  dialing_unknown_ = stopped_while_dialing_ = false;
  actions_.push_back({Action::Kind::dial, peer, {}});
}

// A rank that stays keeps its old links until its new ones are sure. One that leaves is kept by others until theirs are,
// and may be the only one they have told of their own leave: it closes its last link, or all once everyone has left, or once
// nobody who hangs together with it links to who stays.
void Liveness::close_finished_links() {
  tell_idle();
  const auto settled = [this](const auto& link) { return link.second.confirmed || !lives(link.first); };
  const bool finished = has_left(rank_) ? links_.size() == 1 || lowest() == size_ || all_idle()
                                        : repaired() && std::ranges::all_of(links_, settled);
  if (!finished) return;
  std::vector<int> left;
  for (const auto& [peer, link] : links_)
    if (has_left(peer)) left.push_back(peer);
  for (const int peer : left) close(peer);
}

void Liveness::close(int peer) {
  send(peer, {std::byte(MessageType::closing)});
  actions_.push_back({Action::Kind::close, peer, {}});
  links_.erase(peer);
}

// Where all links are of the start, they are a tree, and nobody needs to be told.
void Liveness::tell_idle() {
  if (!has_left(rank_)) return;
  bool is_tree = true;
  std::vector<int> near;
  for (const auto& [peer, link] : links_) {
    if (link.closing) continue;
    if (lives(peer)) return;
    is_tree = is_tree && is_of_start(peer);
    near.push_back(peer);
  }
  if (!is_tree || !idle_.empty()) take_idle(rank_, std::move(near), -1);
}

// Links of leavers only end: of two lists of one rank, the shorter one is the later one.
void Liveness::take_idle(int rank, std::vector<int> near, int except) {
  const auto [entry, is_new] = idle_.try_emplace(rank, near);
  if (!is_new && near.size() >= entry->second.size()) return;
  entry->second = std::move(near);
  send_all(idle_message(rank, entry->second), except);
}

// All leavers that hang together with this one.
bool Liveness::all_idle() const {
  std::vector<int> reached = {rank_};
  std::vector<bool> is_reached(size_t(size_), false);
  is_reached[size_t(rank_)] = true;
  for (size_t i = 0; i < reached.size(); ++i) {
    const auto found = idle_.find(reached[i]);
    if (found == idle_.end()) return false;
    for (const int near : found->second)
      if (!is_reached[size_t(near)]) {
        is_reached[size_t(near)] = true;
        reached.push_back(near);
      }
  }
  return true;
}

// --- What all decide.

void Liveness::compare_calls(OwnCalls own, TimeNs now) {
  waiting_.compare_with(std::move(own));
  look_at_calls(now);
  advance();
}

void Liveness::wait_in(uint64_t number, uint64_t signature, TimeNs now) {
  const WaitingCall own[] = {waiting_.own(number, signature)};
  take_waiting(own, -1, now);
  advance();
}

void Liveness::take_waiting(std::span<const WaitingCall> calls, int except, TimeNs now) {
  if (end_.asked()) return;
  std::vector<WaitingCall> news;
  for (const WaitingCall& call : calls)
    if (waiting_.hear(call, now)) news.push_back(call);
  if (!news.empty()) send_all(waiting_message(news), except);
  look_at_calls(now);
}

void Liveness::look_at_calls(TimeNs now) {
  if (end_.asked() || waiting_.empty()) return;
  const auto differing = waiting_.look(now);
  if (!differing) return;
  const auto& [one, other] = *differing;
  const std::string calls = differing_calls(name(one.rank), waiting_.describe(one.signature), name(other.rank),
                                            waiting_.describe(other.signature));
  const std::string sentence = fmt::format("{}, both as collective call {} of this communicator", calls, one.number + 1);
  ask_for_end(to_bytes({Code::mismatch, -1, sentence}), -1, now);
}

void Liveness::stick_in(StuckCall call, std::vector<uint32_t> sent, TimeNs now) {
  stuck_.stick(std::move(call), std::move(sent));
  take_stuck({}, -1, now);
  advance();
}

void Liveness::take_stuck(std::span<const StuckCall> calls, int except, TimeNs now) {
  if (end_.asked()) return;
  std::vector<StuckCall> news;
  for (const StuckCall& call : calls)
    if (stuck_.hear(call)) news.push_back(call);
  if (!news.empty()) send_all(stuck_message(news), except);
  if (const std::optional<StuckCall> own = stuck_.own_news()) send_all(stuck_message(std::span(&*own, 1)), -1);
  const std::vector<StuckCall> circle = stuck_.circle();
  if (!circle.empty()) ask_for_end(to_bytes({Code::mismatch, -1, describe_circle(circle)}), -1, now);
}

std::string Liveness::describe_circle(std::span<const StuckCall> calls) const {
  constexpr size_t calls_max = 8;
  std::string text;
  for (size_t i = 0; i < std::min(calls.size(), calls_max); ++i) {
    const StuckCall &one = calls[i], &next = calls[(i + 1) % calls.size()];
    text += fmt::format("{}{} waits in {} for {}", i == 0 ? "" : ", ", name(one.rank), waiting_.describe(one.signature),
                        one.receives ? "a message of " + name(next.rank) : name(next.rank) + " to call it, too");
  }
  if (calls.size() > calls_max) text += fmt::format(", and so on through {} ranks", calls.size());
  return text + ": none of them can go on";
}

// There is a reason to end; who hears of it first passes it on.
void Liveness::ask_for_end(Bytes wish, int except, TimeNs now) {
  if (verdict() != nullptr) return;
  if (!end_.asked()) asked_ns_ = now;
  if (proposed_.empty() && !wish.empty()) {
    proposed_ = std::move(wish);
    send_all(proposal_message(proposed_), except);
  }
  end_.ask(proposed_);
}

Decision& Liveness::decision(uint32_t number) {
  if (number == end_number) return end_;
  return decisions_.try_emplace(number, rank_, size_, false).first->second;
}
const Decision* Liveness::find_decision(uint32_t number) const {
  if (number == end_number) return &end_;
  const auto found = decisions_.find(number);
  return found == decisions_.end() ? nullptr : &found->second;
}

// Whether those above cannot be asked: while joining, the links of the start may not be there yet, and who is not a
// neighbour is not known. (Two ranks know each other before they are linked; a link of the start is not dialled from here.)
bool Liveness::cut_off() const {
  if (!lives(rank_) || rank_ == 0) return false;
  const int parent = parent_of(rank_);
  if (!all_known_ || (lives(parent) && dialing_ < 0)) return !linked(parent);
  return dialing_ >= 0 && dialing_unknown_;
}

// Votes go on as far as they can.
void Liveness::advance() {
  if (!end_.asked() && decisions_.empty()) return;
  if (waits_for_decision() && cut_off()) decide_alone();
  if (!lives(rank_)) return;
  const std::vector<int> children = children_now();
  const int parent = parent_now(rank_);
  advance(end_number, end_, children, parent);
  for (auto& [number, decision] : decisions_) advance(number, decision, children, parent);
}

void Liveness::advance(uint32_t number, Decision& decision, std::span<const int> children, int parent) {
  const int decider = lowest();
  decision.turn_to(decider);
  if (decider != rank_) {
    const bool prompt = number == end_number && decider == 0;
    const bool ready = !prompt && linked(parent) && decision.asked() && decision.have_voted(children);
    if (ready) send_vote(number, decision, parent);
    return;
  }
  if (!decision.may_decide(lives_)) return;
  if (decision.votes().taken_of >= 0) return take_decision(number, rank_, decision.votes().taken, -1);
  if (number != end_number) return;
  if (Bytes value = end_value(); !value.empty()) take_decision(number, rank_, std::move(value), -1);
}

void Liveness::send_vote(uint32_t number, const Decision& decision, int parent) {
  Bytes vote = encode(decision.votes());
  SentVote& sent = sent_votes_[number];
  if (sent.parent == parent && sent.vote == vote) return;
  ByteWriter writer;
  writer.u8(uint8_t(MessageType::vote));
  writer.u32(number);
  writer.blob(vote);
  sent = {parent, std::move(vote)};
  send(parent, writer.take());
}

void Liveness::take_decision(uint32_t number, int decider, Bytes value, int except) {
  Decision& one = decision(number);
  if (!one.take(decider, std::move(value))) return;
  send_all(decision_message(number, one), except);
  if (number != end_number) return;
  end_.ask({});  // for those who have not taken it yet
  if (verdict() != nullptr) return;
  verdict_ = verdict_from(end_.value());
  publish();
}

void Liveness::publish() { actions_.push_back({Action::Kind::publish, -1, {}}); }

// The first that was found: others may have ended because of it.
std::optional<int> Liveness::guilty() const {
  const auto found = std::ranges::find_if(found_dead_, [this](int rank) { return dead(rank); });
  return found == found_dead_.end() ? std::nullopt : std::optional(*found);
}

Verdict Liveness::verdict_of(int rank) const {
  const double silence_s = double(silence_ns_) / double(ns_per_s);
  std::string how;
  switch (manner_[size_t(rank)]) {
    case Manner::died: how = "died: its control connection closed"; break;
    case Manner::unreachable: how = "is unreachable: it answered no connection"; break;
    default: how = fmt::format("is silent: no sign of life for {:.1f} s; it is stopped or unreachable", silence_s);
  }
  return {Code::remote_error, rank, fmt::format("{} {}", name(rank), how)};
}

// Who died is the reason of what else was found.
Bytes Liveness::end_value() const {
  if (const std::optional<int> rank = guilty()) return to_bytes(verdict_of(*rank));
  for (const Wish& wish : end_.votes().wishes) return wish.bytes;
  return proposed_;
}

void Liveness::decide_alone() {
  if (!waits_for_decision()) return;
  Bytes value = end_value();
  if (!value.empty()) take_decision(end_number, std::max(end_.votes().decider, 0), std::move(value), -1);
}

void Liveness::take_part(uint32_t number, Bytes wish, TimeNs) {
  TUTTI_ASSERT(number != end_number);
  decision(number).ask(std::move(wish));
  advance();
}

const Bytes* Liveness::decided(uint32_t number) const {
  const Decision* const found = find_decision(number);
  return found != nullptr && found->taken() ? &found->value() : nullptr;
}

std::optional<Ballot> Liveness::ballot(uint32_t number) const {
  const Decision* const found = find_decision(number);
  if (found == nullptr || !lives(rank_) || !found->may_decide(lives_)) return std::nullopt;
  Ballot ballot;
  for (int rank = 0; rank < size_; ++rank)
    if (lives(rank)) ballot.members.push_back(rank);
  ballot.wishes = found->votes().wishes;
  return ballot;
}

void Liveness::decide(uint32_t number, Bytes value, TimeNs) {
  if (ballot(number)) take_decision(number, rank_, std::move(value), -1);
}

std::vector<int> Liveness::missing(uint32_t number) const {
  const Decision* const found = find_decision(number);
  return found == nullptr ? std::vector<int>() : found->missing(lives_);
}

// --- Messages.

void Liveness::send(int peer, Bytes message) {
  actions_.push_back({Action::Kind::send, peer, std::move(message)});
}

void Liveness::send_all(const Bytes& message, int except) {
  for (const auto& [peer, link] : links_)
    if (peer != except) send(peer, message);
}

}  // namespace tutti
