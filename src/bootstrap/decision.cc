// Votes, and what may be decided from them.
#include "bootstrap/decision.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "bootstrap/wire.h"

namespace tutti {
namespace {

constexpr size_t wishes_max = 2;

// Kept are the same ones in whatever order they come.
void add_wish(std::vector<Wish>& wishes, const Wish& wish) {
  const auto before = [](const Wish& a, const Wish& b) { return std::tie(a.bytes, a.rank) < std::tie(b.bytes, b.rank); };
  const bool known = std::ranges::any_of(wishes, [&](const Wish& one) { return one.rank == wish.rank; });
  if (!known) wishes.insert(std::ranges::upper_bound(wishes, wish, before), wish);
  if (wishes.size() > wishes_max) wishes.pop_back();
}

}  // namespace

Bytes encode(const Vote& vote) {
  ByteWriter writer;
  writer.u32(uint32_t(vote.decider));
  writer.u32(uint32_t(vote.taken_of + 1));
  writer.blob(vote.taken);
  writer.u32(uint32_t(vote.wishes.size()));
  for (const Wish& wish : vote.wishes) {
    writer.u32(uint32_t(wish.rank));
    writer.blob(wish.bytes);
  }
  // Voters as runs of neighbours: a subtree has one a level.
  for (size_t first = 0; first < vote.voters.size(); ++first) {
    if (!vote.voters[first]) continue;
    size_t end = first;
    while (end < vote.voters.size() && vote.voters[end]) ++end;
    writer.u32(uint32_t(first));
    writer.u32(uint32_t(end));
    first = end;
  }
  return writer.take();
}

Vote decode_vote(std::span<const std::byte> bytes, int size) {
  ByteReader reader(bytes);
  Vote vote;
  vote.decider = int(reader.u32());
  vote.taken_of = int(reader.u32()) - 1;
  const std::span<const std::byte> taken = reader.blob();
  vote.taken.assign(taken.begin(), taken.end());
  const uint32_t wishes = reader.u32();
  if (wishes > wishes_max) throw Error(Code::remote_error, "a vote brings too many wishes");
  for (uint32_t i = 0; i < wishes; ++i) {
    Wish wish;
    wish.rank = int(reader.u32());
    const std::span<const std::byte> wished = reader.blob();
    wish.bytes.assign(wished.begin(), wished.end());
    vote.wishes.push_back(std::move(wish));
  }
  vote.voters.resize(size_t(size));
  while (!reader.empty()) {
    const uint32_t first = reader.u32(), end = reader.u32();
    if (first >= end || end > uint32_t(size)) throw Error(Code::remote_error, "a vote names voters that do not exist");
    for (uint32_t rank = first; rank < end; ++rank) vote.voters[rank] = true;
  }
  return vote;
}

Vote Decision::empty_vote() const { return {-1, std::vector<bool>(size_t(size_)), -1, {}, {}}; }

void Decision::ask(Bytes wish) {
  if (std::exchange(asked_, true)) return;
  wish_ = std::move(wish);
  if (votes_.decider >= 0) vote();
}

void Decision::turn_to(int decider) {
  if (votes_.decider == decider) return;
  votes_ = empty_vote();
  votes_.decider = decider;
  if (asked_) vote();
}

void Decision::vote() {
  votes_.voters[size_t(rank_)] = true;
  if (taken_of_ > votes_.taken_of) {
    votes_.taken_of = taken_of_;
    votes_.taken = value_;
  }
  if (!wish_.empty()) add_wish(votes_.wishes, {rank_, wish_});
}

void Decision::hear(const Vote& vote) {
  if (vote.decider != votes_.decider) return;
  for (size_t rank = 0; rank < vote.voters.size(); ++rank)
    if (vote.voters[rank]) votes_.voters[rank] = true;
  if (vote.taken_of > votes_.taken_of) {
    votes_.taken_of = vote.taken_of;
    votes_.taken = vote.taken;
  }
  for (const Wish& wish : vote.wishes) add_wish(votes_.wishes, wish);
}

bool Decision::take(int decider, Bytes value) {
  const bool promised = votes_.decider > decider && votes_.voters[size_t(rank_)];
  if (promised || decider <= taken_of_) return false;
  if (taken_of_ < 0) value_ = std::move(value);
  taken_of_ = decider;
  return true;
}

bool Decision::have_voted(std::span<const int> ranks) const {
  return std::ranges::all_of(ranks, [this](int rank) { return votes_.voters[size_t(rank)]; });
}

bool Decision::may_decide(const std::vector<bool>& lives) const {
  if (!asked_ || votes_.decider != rank_ || taken_of_ >= rank_) return false;
  return (prompt_ && rank_ == 0) || missing(lives).empty();
}

std::vector<int> Decision::missing(const std::vector<bool>& lives) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank)
    if (lives[size_t(rank)] && !votes_.voters[size_t(rank)]) ranks.push_back(rank);
  return ranks;
}

}  // namespace tutti
