// The outbox: one message to several peers lies once, is not overwritten before all have read it, and lets nobody wait who
// would not wait on FIFOs of two slots.
#include "transport/shm/shm_outbox.h"

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "transport/count_allocations.h"
#include "transport/fake_bootstrap.h"
#include "transport/shm/shm.h"

namespace tutti {
namespace {

constexpr size_t message_max = 16 * 1024;

class ShmOutboxTest : public testing::Test {
 protected:
  explicit ShmOutboxTest(int ranks = 4) : n_(ranks), bootstraps_(fake_bootstraps(ranks)) {
    transports_ = on_each_rank(bootstraps_, [&](int rank) {
      ShmOptions options;
      options.slot_bytes = message_max;
      return make_shm(*bootstraps_[size_t(rank)], options);
    });
  }

  Endpoint& from(int rank, int peer) { return *transports_[size_t(rank)]->endpoint(peer, 0); }
  Outbox& outbox(int rank) { return *from(rank, (rank + 1) % n_).outbox(); }

  // Rank 0's.
  bool post(std::span<const uint32_t> peers, const std::vector<std::byte>& message, uint64_t signature = 1) {
    const Outbox::Place place = outbox(0).reserve(message.size(), peers);
    if (place.at == nullptr) return false;
    outbox(0).write(message.data(), message.size());
    outbox(0).commit(message.size(), signature);
    return true;
  }
  bool reads(int peer, const std::vector<std::byte>& message) {
    const std::byte* data = nullptr;
    if (from(peer, 0).view(message.size(), 1, data) != Status::done) return false;
    const bool same = std::memcmp(data, message.data(), message.size()) == 0;
    return from(peer, 0).release() == Status::done && same;
  }

  static std::vector<std::byte> message_of(size_t bytes, int number) {
    std::vector<std::byte> message(bytes);
    for (size_t i = 0; i < bytes; ++i) message[i] = std::byte(number * 31 + int(i / 3));
    return message;
  }

  int n_;
  decltype(fake_bootstraps(1)) bootstraps_;
  std::vector<std::unique_ptr<Transport>> transports_;
  const std::array<uint32_t, 3> all_{1, 2, 3};
};

TEST_F(ShmOutboxTest, OneMessageLiesOnceAndAllReadIt) {
  const std::vector<std::byte> message = message_of(5000, 1);
  const Outbox::Place place = outbox(0).reserve(message.size(), all_);
  ASSERT_NE(place.at, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(place.at) % 64, 0u);
  outbox(0).write(message.data(), message.size());
  outbox(0).commit(message.size(), 1);
  std::array<const std::byte*, 4> seen{};
  for (const uint32_t peer : all_) {
    ASSERT_EQ(from(int(peer), 0).view(message.size(), 1, seen[peer]), Status::done);
    ASSERT_EQ(std::memcmp(seen[peer], message.data(), message.size()), 0);
  }
  place.at[4999] = std::byte{0x77};
  for (const uint32_t peer : all_) EXPECT_EQ(seen[peer][4999], std::byte{0x77});
  std::vector<std::byte> received(message.size());
  size_t done = 0;
  EXPECT_EQ(from(1, 0).recv(received.data(), received.size(), 1, done), Status::done);
  EXPECT_EQ(received[17], message[17]);
}

// What its copies to each receiver take together, where ranks share cores.
TEST(ShmOutbox, LeavesMessagesOfExchangesToOthersByTheReceiversAndWhereCoresAreShared) {
  std::vector<std::byte> memory(size_t{256} << 10);
  for (const bool crowded : {false, true}) {
    const ShmOutbox outbox(memory, {memory.size(), memory.size()}, message_max, size_t{1} << 20, 64, 64, crowded);
    for (const size_t receivers : {2, 3, 7, 15, 31, 63}) {
      const size_t least = outbox.exchanged_bytes_min(receivers);
      if (!crowded || receivers > 31) {
        EXPECT_EQ(least, exchanged_outbox_bytes_min) << receivers;
        continue;
      }
      EXPECT_LE(least * receivers, ShmOutbox::sent_to_each_bytes_max) << receivers;
      EXPECT_GT((least + 1) * receivers, ShmOutbox::sent_to_each_bytes_max) << receivers;
    }
  }
}

TEST_F(ShmOutboxTest, KeepsTheOrderAmongMessagesOfOtherKinds) {
  for (int round = 0; round < 100; ++round) {
    const auto small = message_of(50, round), own = message_of(3000, round + 1), shared = message_of(2000, round + 2),
               least = message_of(outbox_bytes_min, round + 3);
    size_t done = 0;
    ASSERT_EQ(from(0, 2).send(small.data(), small.size(), 1, done), Status::done);
    ASSERT_TRUE(post(all_, shared));
    done = 0;
    ASSERT_EQ(from(0, 2).send(own.data(), own.size(), 1, done), Status::done);
    ASSERT_TRUE(post(std::array<uint32_t, 2>{2, 3}, least));
    for (const auto* message : {&small, &shared, &own, &least}) ASSERT_TRUE(reads(2, *message));
    ASSERT_TRUE(reads(1, shared));
    ASSERT_TRUE(reads(3, shared) && reads(3, least));
  }
}

// Peers read at random times. What each finds is what it was sent, and who is waited for has two messages to read.
TEST_F(ShmOutboxTest, IsNotUsedAgainBeforeAllHaveRead) {
  std::mt19937 random(5);
  const auto below = [&](size_t bound) { return size_t(random() % bound); };
  std::array<std::deque<std::vector<std::byte>>, 4> unread;
  int posted = 0, waited = 0, refused = 0;
  const auto read_one = [&](size_t peer) {
    ASSERT_TRUE(reads(int(peer), unread[peer].front()));
    unread[peer].pop_front();
  };
  for (int i = 0; i < 20'000; ++i) {
    std::vector<uint32_t> to;
    for (const uint32_t peer : all_)
      if (to.size() + 3 - peer < 2 || below(3) > 0) to.push_back(peer);
    const size_t bytes = below(4) == 0 ? message_max - below(64) : 41 + below(4000);
    const Outbox::Place place = outbox(0).reserve(bytes, to);
    if (place.at != nullptr) {
      const std::vector<std::byte> message = message_of(bytes, i);
      std::memcpy(place.at, message.data(), bytes);
      outbox(0).commit(bytes, 1);
      for (const uint32_t peer : to) unread[peer].push_back(message);
      ++posted;
    } else if (place.waits_for >= 0) {
      ASSERT_LT(size_t(place.waits_for), to.size());
      ASSERT_GE(unread[to[size_t(place.waits_for)]].size(), 2u);
      ++waited;
    } else {
      ++refused;
    }
    const size_t reader = 1 + below(3);
    for (size_t k = below(3) == 0 ? below(6) : 0; k > 0 && !unread[reader].empty(); --k) read_one(reader);
  }
  for (size_t peer = 1; peer < 4; ++peer)
    while (!unread[peer].empty()) read_one(peer);
  EXPECT_GT(posted, 1000);
  EXPECT_GT(waited, 100);
  EXPECT_GT(refused, 10);
  EXPECT_TRUE(post(all_, message_of(message_max, 1)));
}

TEST_F(ShmOutboxTest, WaitsForNobodyWhoHasOneMessageToRead) {
  // Ranks 2 and 3 fill the outbox, and rank 1 has nothing to do with it.
  const std::array<uint32_t, 2> late{2, 3}, others{1, 3};
  while (post(late, message_of(message_max, 0))) {
  }
  EXPECT_EQ(outbox(0).reserve(message_max, late).waits_for, 0);
  const Outbox::Place place = outbox(0).reserve(message_max, others);
  EXPECT_EQ(place.at, nullptr);
  EXPECT_EQ(place.waits_for, -1) << "the oldest message waits for rank 2, who gets nothing now";
}

TEST_F(ShmOutboxTest, AReceiverThatIsWaitedForEndsTheSleep) {
  const std::vector<std::byte> message = message_of(message_max, 0);
  while (post(all_, message)) {
  }
  ASSERT_EQ(outbox(0).reserve(message_max, all_).waits_for, 0);
  pollfd fd{};
  ASSERT_EQ(transports_[0]->poll_fds({&fd, 1}), 1u);
  transports_[0]->arm();
  EXPECT_EQ(::poll(&fd, 1, 0), 0);
  ASSERT_TRUE(reads(1, message));
  EXPECT_EQ(::poll(&fd, 1, 0), 1);
  transports_[0]->disarm();
  EXPECT_EQ(outbox(0).reserve(message_max, all_).waits_for, 1);
}

TEST_F(ShmOutboxTest, IsLeftAloneWhereItCannotBe) {
  EXPECT_EQ(outbox(0).reserve(message_max + 1, all_).at, nullptr);
  EXPECT_EQ(outbox(0).reserve(shm_inline_bytes_max, all_).at, nullptr) << "it fits into a line";
  ASSERT_NE(from(0, 2).reserve(200), nullptr);  // a message of its own is being made
  EXPECT_EQ(outbox(0).reserve(2000, all_).at, nullptr);
  EXPECT_EQ(outbox(0).reserve(2000, all_).waits_for, -1);
  from(0, 2).commit(200, 1);
  EXPECT_NE(outbox(0).reserve(2000, all_).at, nullptr);
}

TEST_F(ShmOutboxTest, AnotherCallsMessageIsAMismatchThatTellsBoth) {
  ASSERT_TRUE(post(all_, message_of(2000, 0), 7));
  const std::byte* data = nullptr;
  EXPECT_EQ(from(1, 0).view(2000, 8, data), Status::failed);
  EXPECT_EQ(from(1, 0).fault().kind, FaultKind::mismatch);
  EXPECT_EQ(from(1, 0).fault().signature, 7u);
  EXPECT_EQ(from(1, 0).fault().bytes, 2000u);
  EXPECT_EQ(from(2, 0).view(2001, 7, data), Status::failed);
  EXPECT_EQ(from(2, 0).fault().bytes, 2000u);
  EXPECT_EQ(from(3, 0).view(2000, 7, data), Status::done);
}

TEST_F(ShmOutboxTest, AllocatesNothing) {
  const std::vector<std::byte> message = message_of(4000, 0);
  const uint64_t before = allocations_so_far();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(post(all_, message));
    for (const uint32_t peer : all_) ASSERT_TRUE(reads(int(peer), message));
  }
  EXPECT_EQ(allocations_so_far(), before);
}

TEST(ShmOutboxes, APairHasNone) {
  const auto bootstraps = fake_bootstraps(2);
  const auto transports = on_each_rank(bootstraps, [&](int rank) { return make_shm(*bootstraps[size_t(rank)], {}); });
  EXPECT_EQ(transports[0]->endpoint(1, 0)->outbox(), nullptr);
}

}  // namespace
}  // namespace tutti
