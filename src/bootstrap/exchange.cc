// What travels over the control tree during set-up: all_gather (parts go up, the whole comes down), and the waits for
// links and data connections.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "bootstrap/control.h"

namespace tutti {
namespace {

// The root times an all_gather and names who is missing; the others wait a little longer to hear it.
constexpr TimeNs grace_ns = 2 * ns_per_s;
// A rank sends parts up that wait for others after so long, then after twice as long, and so on; sooner where they are many.
constexpr TimeNs gather_interval_ns = 100 * ns_per_ms;
constexpr size_t gather_frame_bytes = size_t{16} << 20;

}  // namespace

void Control::throw_verdict() const {
  if (const Verdict* why = verdict()) throw Error(why->code, why->sentence);
}

void Control::throw_accept_error() const {
  if (doorkeeper_.accept_error() != 0)
    throw descriptor_error(fmt::format("{} cannot accept a connection", liveness_.name(rank_)),
                           doorkeeper_.accept_error());
}

void Control::wait_linked(TimeNs deadline) {
  Lock lock(mutex_);
  std::vector<int> missing;
  const auto look = [&] {
    missing.clear();
    if (parent_ >= 0 && !links_.contains(parent_)) missing.push_back(parent_);
    for (const int child : children_)
      if (!links_.contains(child)) missing.push_back(child);
    return missing.empty() || verdict() != nullptr || doorkeeper_.accept_error() != 0;
  };
  const bool in_time = changed_.wait_until(lock, deadline, look);
  throw_verdict();
  if (missing.empty()) return;
  throw_accept_error();
  if (!in_time)
    throw Error(Code::timeout, fmt::format("{} of {} did not link to {} while joining", rank_list(missing), size_,
                                           liveness_.name(rank_)));
}

bool Control::parent_gone() const { return parent_ >= 0 && (liveness_.has_left(parent_) || !links_.contains(parent_)); }

std::vector<Bytes> Control::all_gather(std::span<const std::byte> mine, TimeNs deadline) {
  if (mine.size() > gather_bytes_max)
    throw Error(Code::invalid_argument, fmt::format("rank {} gives {} bytes to an all_gather, whose limit is {}", rank_,
                                                    mine.size(), gather_bytes_max));
  Lock lock(mutex_);
  throw_verdict();
  const uint64_t sequence = sequence_++;
  contribute(sequence, rank_, mine, now_ns(system_));
  perform();
  kick();
  const auto here = [&] { return results_.contains(sequence) || verdict() != nullptr || parent_gone(); };
  changed_.wait_until(lock, deadline + grace_ns, here);
  if (const auto found = results_.find(sequence); found != results_.end()) {
    std::vector<Bytes> parts = std::move(found->second);
    results_.erase(found);
    return parts;
  }
  throw_verdict();
  if (parent_gone())
    throw Error(Code::remote_error, fmt::format("{} has left, so set-up exchange {} cannot end",
                                                liveness_.name(parent_), sequence));
  throw Error(Code::timeout, fmt::format("set-up exchange {} did not end in time, and {} does not say who is missing",
                                         sequence, liveness_.name(0)));
}

void Control::contribute(uint64_t sequence, int rank, std::span<const std::byte> part, TimeNs now) {
  if (rank < 0 || rank >= size_) throw Error(Code::remote_error, "a part of a rank that does not exist");
  const auto [entry, is_new] = rounds_.try_emplace(sequence);
  Round& round = entry->second;
  if (is_new) {
    round.first_ns = now;
    round.interval_ns = gather_interval_ns;
    round.next_ns = now + round.interval_ns;
    if (parent_ < 0) round.parts.resize(size_t(size_));
  }
  if (parent_ >= 0) {
    ByteWriter writer;
    writer.u32(uint32_t(rank));
    writer.blob(part);
    const Bytes one = writer.take();
    round.waiting.insert(round.waiting.end(), one.begin(), one.end());
    const bool whole = ++round.count == below_;
    if (whole || round.waiting.size() >= gather_frame_bytes) send_waiting(sequence, round, now);
    if (whole) rounds_.erase(entry);
    return;
  }
  std::optional<Bytes>& place = round.parts[size_t(rank)];
  if (place) throw Error(Code::remote_error, fmt::format("rank {} contributes twice", rank));
  place.emplace(part.begin(), part.end());
  if (++round.count < size_t(size_)) return;
  finish_round(sequence, round);
  rounds_.erase(sequence);
}

void Control::send_waiting(uint64_t sequence, Round& round, TimeNs now) {
  round.interval_ns *= 2;
  round.next_ns = now + round.interval_ns;
  if (round.waiting.empty()) return;
  ByteWriter writer;
  writer.u64(sequence);
  writer.raw(round.waiting);
  send_up(make_frame(FrameType::gather, writer.take()));
  round.waiting.clear();
}

void Control::finish_round(uint64_t sequence, Round& round) {
  size_t total = 16;
  for (const std::optional<Bytes>& part : round.parts) total += part->size() + 8;
  if (total > frame_bytes_max) {
    liveness_.fail({Code::invalid_argument, rank_,
                    fmt::format("an all_gather of {} ranks has {} bytes, whose limit is {}", size_, total,
                                frame_bytes_max)},
                   now_ns(system_));
    return;
  }
  ByteWriter writer;
  writer.u64(sequence);
  std::vector<Bytes>& result = results_[sequence];
  for (std::optional<Bytes>& part : round.parts) {
    writer.blob(*part);
    result.push_back(std::move(*part));
  }
  const SharedBytes frame = make_frame(FrameType::result, writer.take());
  for (const int child : children_) send(child, frame);
  changed_.notify_all();
}

void Control::take_result(const Bytes& payload) {
  ByteReader reader(payload);
  std::vector<Bytes>& result = results_[reader.u64()];
  for (int rank = 0; rank < size_; ++rank) {
    const std::span<const std::byte> part = reader.blob();
    result.emplace_back(part.begin(), part.end());
  }
  changed_.notify_all();
}

// At the root: who is late, or has left without its part? Elsewhere: should those parts go that are there?
void Control::check_rounds(TimeNs now) {
  if (parent_ >= 0) {
    for (auto& [sequence, round] : rounds_)
      if (now >= round.next_ns) send_waiting(sequence, round, now);
    return;
  }
  for (const auto& [sequence, round] : rounds_) {
    std::vector<int> missing, left;
    for (int rank = 0; rank < size_; ++rank) {
      if (round.parts[size_t(rank)]) continue;
      missing.push_back(rank);
      if (liveness_.has_left(rank)) left.push_back(rank);
    }
    if (!left.empty()) {
      liveness_.fail({Code::remote_error, left.front(), liveness_.name(left.front()) + " has left, others wait for it"},
                     now);
      return rounds_.clear();
    }
    if (now < round.first_ns + options_.timeout_ns) continue;
    std::string who = missing.size() == 1 ? liveness_.name(missing.front()) : rank_list(missing);
    liveness_.fail({Code::timeout, missing.size() == 1 ? missing.front() : -1,
                    fmt::format("{} of {} did not take part in set-up exchange {} {}", who, size_, sequence,
                                within(options_.timeout_ns))},
                   now);
    return rounds_.clear();
  }
}

Bytes Control::agree(uint32_t number, Bytes wish, TimeNs deadline, const std::function<Bytes(const Ballot&)>& make) {
  Lock lock(mutex_);
  liveness_.take_part(number, std::move(wish), now_ns(system_));
  perform();
  kick();
  for (std::optional<Ballot> ballot;;) {
    const bool in_time = changed_.wait_until(lock, deadline, [&] {
      ballot = liveness_.ballot(number);
      return liveness_.decided(number) != nullptr || ballot;
    });
    if (const Bytes* value = liveness_.decided(number)) return *value;
    if (!in_time) break;
    lock.unlock();
    Bytes value = make(*ballot);
    lock.lock();
    // Where somebody has died meanwhile, it is made anew.
    const std::optional<Ballot> again = liveness_.ballot(number);
    if (again && again->members == ballot->members) liveness_.decide(number, std::move(value), now_ns(system_));
    perform();
    kick();
  }
  const std::vector<int> missing = liveness_.missing(number);
  const std::string who = missing.empty() ? "" : fmt::format(": {} did not call, as far as {} knows",
                                                             rank_list(missing), liveness_.name(rank_));
  throw Error(Code::timeout, fmt::format("the ranks that live did not agree in time{}", who));
}

Fd Control::take_data(int peer, uint32_t tag, TimeNs deadline, bool although_failed) {
  Lock lock(mutex_);
  const auto found = [&] { return parked_.find({peer, tag}); };
  changed_.wait_until(lock, deadline, [&] {
    const bool in_vain = although_failed ? !liveness_.lives(peer) : verdict() != nullptr;
    return found() != parked_.end() || in_vain || doorkeeper_.accept_error() != 0;
  });
  const auto entry = found();
  if (entry != parked_.end()) {
    Fd fd = std::move(entry->second.front());
    entry->second.pop_front();
    if (entry->second.empty()) parked_.erase(entry);
    --parked_count_;
    return fd;
  }
  if (!although_failed) throw_verdict();
  if (although_failed && !liveness_.lives(peer)) throw Error(Code::remote_error, gone_sentence(liveness_.name(peer)));
  throw_accept_error();
  throw Error(Code::timeout, fmt::format("{} opened no data connection with tag {} to rank {} {}", liveness_.name(peer),
                                         tag, rank_, within(options_.timeout_ns)));
}

}  // namespace tutti
