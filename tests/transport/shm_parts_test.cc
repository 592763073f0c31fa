// Messages that are copied from their places while they are still being written there: who goes in parts, and that whoever
// receives or views one has all of it, and nothing else.
#include <array>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "transport/fake_bootstrap.h"
#include "transport/held_back.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/traffic.h"

namespace tutti {
namespace {

constexpr uint64_t signature = 7;

class ShmParts : public testing::Test {
 protected:
  ShmParts() : bootstraps_(fake_bootstraps(2)) {
    transports_ = on_each_rank(bootstraps_, [&](int rank) { return make_shm(*bootstraps_[size_t(rank)], {}); });
  }

  Endpoint& of(int rank) { return *transports_[size_t(rank)]->endpoint(1 - rank, 0); }

  void send(int rank, size_t bytes, uint64_t content) {
    std::vector<std::byte> message(bytes);
    fill(message.data(), bytes, content);
    size_t done = 0;
    ASSERT_EQ(of(rank).send(message.data(), bytes, signature, done), Status::done);
    ASSERT_EQ(done, bytes);
  }
  enum class Way { receive, past_caches, view };
  // A message that is viewed is yet to be released.
  Status begin_to_receive(int rank, std::byte* memory, size_t bytes, Way way, const std::byte*& data, size_t& done) {
    Endpoint& from = of(rank);
    if (way == Way::view) return from.view(bytes, signature, data);
    return way == Way::receive ? from.recv(memory, bytes, signature, done) : from.recv_past_caches(memory, bytes, signature, done);
  }
  // How many lines the message took.
  uint32_t receive(int rank, size_t bytes, uint64_t content, Way way = Way::receive) {
    const uint32_t before = of(rank).watch().until;
    std::vector<std::byte> message(bytes + 1, std::byte{0x5a});
    const std::byte* data = message.data();
    size_t done = 0;
    EXPECT_EQ(begin_to_receive(rank, message.data(), bytes, way, data, done), Status::done);
    EXPECT_TRUE(holds(data, bytes, content));
    EXPECT_EQ(message[bytes], std::byte{0x5a});
    if (way == Way::view) {
      EXPECT_EQ(of(rank).release(), Status::done);
    }
    return of(rank).watch().until - before;
  }

  decltype(fake_bootstraps(2)) bootstraps_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

TEST_F(ShmParts, AMessageGoesInPartsWhereItsReceiverHasReadAllBeforeIt) {
  for (const Way way : {Way::receive, Way::past_caches, Way::view}) {
    uint64_t content = 1;
    for (const auto& [bytes, lines] : {std::pair<size_t, uint32_t>{16 * 1024 - 1, 1}, {16 * 1024, 2}, {32 * 1024, 4},
                                       {64 * 1024, 4}, {100'000, 6}, {256 * 1024, 10}}) {
      send(0, bytes, ++content);
      EXPECT_EQ(receive(1, bytes, content, way), lines) << bytes;
      send(1, bytes, ++content);  // and says so
      EXPECT_EQ(receive(0, bytes, content, way), lines) << bytes;
    }
  }
}

TEST_F(ShmParts, BehindAnotherMessageItGoesWhole) {
  send(0, 8, 1);
  send(0, 64 * 1024, 2);
  EXPECT_EQ(receive(1, 8, 1), 1u);
  EXPECT_EQ(receive(1, 64 * 1024, 2), 1u);
  send(0, 64 * 1024, 3);  // nobody has said that these were read
  EXPECT_EQ(receive(1, 64 * 1024, 3), 1u);
}

TEST_F(ShmParts, WhereItMayBeAwaitedItIsLookedWhetherAllBeforeItWasRead) {
  for (const bool was_read : {true, false}) {
    send(0, 8, 1);
    if (was_read) receive(1, 8, 1);
    of(0).may_be_awaited();
    send(0, 64 * 1024, 2);
    if (!was_read) receive(1, 8, 1);
    EXPECT_EQ(receive(1, 64 * 1024, 2), was_read ? 4u : 1u);
  }
  send(0, 8, 1);
  receive(1, 8, 1);
  send(0, 64 * 1024, 2);
  EXPECT_EQ(receive(1, 64 * 1024, 2), 1u) << "of this message it was not said";
}

TEST_F(ShmParts, ACallThatBeganInPartsGoesOnInLargerOnes) {
  for (int i = 0; i < 3; ++i) send(0, 256 * 1024, uint64_t(i));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(receive(1, 256 * 1024, uint64_t(i)), i == 0 ? 10u : 8u) << i;
}

TEST_F(ShmParts, ItsLaterMessagesAreOnTheirWayBeforeTheyAreAwaited) {
  constexpr int messages = 6;
  for (int i = 0; i < messages; ++i) send(0, 64 * 1024, uint64_t(i));
  for (int i = 0; i < messages; ++i) EXPECT_EQ(receive(1, 64 * 1024, uint64_t(i)), i < 5 ? 4u : 1u) << i;
}

// An outbox must not take the parts of one message for two messages.
TEST_F(ShmParts, AreOneMessageToWhoCountsThem) {
  auto& endpoint = dynamic_cast<ShmEndpoint&>(of(0));
  send(0, 64 * 1024, 1);
  EXPECT_FALSE(endpoint.waits_for_two());
  send(0, 8, 2);
  EXPECT_TRUE(endpoint.waits_for_two());
  receive(1, 64 * 1024, 1);
  EXPECT_FALSE(endpoint.waits_for_two());
}

TEST_F(ShmParts, WhoExpectsAnotherMessageIsToldWhatCame) {
  send(0, 64 * 1024, 1);
  std::vector<std::byte> buffer(64 * 1024);
  size_t done = 0;
  EXPECT_EQ(of(1).recv(buffer.data(), 16 * 1024, signature, done), Status::failed);
  EXPECT_EQ(of(1).fault().kind, FaultKind::mismatch);
  EXPECT_EQ(of(1).fault().bytes, 64u * 1024);
  EXPECT_EQ(of(1).fault().signature, signature);
  EXPECT_EQ(done, 0u);
}

TEST_F(ShmParts, WhoExpectsAnotherCallIsToldWhatCame) {
  send(0, 64 * 1024, 1);
  const std::byte* data = nullptr;
  EXPECT_EQ(of(1).view(64 * 1024, signature + 1, data), Status::failed);
  EXPECT_EQ(of(1).fault().kind, FaultKind::mismatch);
  EXPECT_EQ(of(1).fault().bytes, 64u * 1024);
}

TEST_F(ShmParts, WhatHasComeIsCopiedBeforeTheRestComes) {
  constexpr size_t bytes = 256 * 1024;
  for (const Way after : {Way::receive, Way::past_caches, Way::view}) {
    HeldBack source(bytes);
    std::thread sender([&] {
      size_t done = 0;
      EXPECT_EQ(of(0).send(source.data(), bytes, signature, done), Status::done);
    });
    std::vector<std::byte> message(bytes, std::byte{0x5a});
    size_t done = 0;
    while (done < bytes / 2) ASSERT_EQ(of(1).recv(message.data(), bytes, signature, done), Status::again);
    EXPECT_EQ(done, bytes / 2);
    EXPECT_TRUE(holds(message.data(), bytes / 2, 5));
    EXPECT_EQ(message[bytes / 2], std::byte{0x5a});
    const std::byte* data = nullptr;
    EXPECT_EQ(of(1).view(bytes, signature, data), Status::again);
    EXPECT_FALSE(of(1).watch().arrived());
    HeldBack::go_on();
    const auto rest = [&] {
      return begin_to_receive(1, message.data(), bytes, after, data, done);
    };
    Status status = Status::again;
    while (status == Status::again) status = rest();
    ASSERT_EQ(status, Status::done);
    EXPECT_TRUE(holds(after == Way::view ? data : message.data(), bytes, 5));
    if (after == Way::view) {
      EXPECT_EQ(of(1).release(), Status::done);
    }
    sender.join();
    send(1, 8, 9);  // says that all was read
    receive(0, 8, 9);
  }
}

// Two threads, each sending when it has received, messages of all lengths, received and viewed.
TEST_F(ShmParts, MessagesToAndFroAreWhole) {
  constexpr int messages = 600;
  std::mt19937_64 random(20261126);
  std::vector<size_t> lengths;
  for (int i = 0; i < messages; ++i) lengths.push_back(size_t(random() % (random() % 2 == 0 ? 262145 : 40000)));
  const auto side = [&](int rank) {
    std::vector<std::byte> out(262144), in(262144);
    for (int i = 0; i < messages; ++i) {
      const size_t bytes = lengths[size_t(i)];
      size_t done = 0;
      Status status = Status::again;
      if (i % 2 == rank) {
        fill(out.data(), bytes, uint64_t(i));
        while (status == Status::again) status = of(rank).send(out.data(), bytes, signature, done);
        ASSERT_EQ(status, Status::done);
        continue;
      }
      const std::byte* data = in.data();
      const Way way = i % 3 == 0 ? Way::view : i % 3 == 1 ? Way::receive : Way::past_caches;
      while (status == Status::again) status = begin_to_receive(rank, in.data(), bytes, way, data, done);
      ASSERT_EQ(status, Status::done);
      ASSERT_TRUE(holds(data, bytes, uint64_t(i))) << i << ", " << bytes << " bytes";
      if (way == Way::view) {
        ASSERT_EQ(of(rank).release(), Status::done);
      }
    }
  };
  std::thread other(side, 1);
  side(0);
  other.join();
}

// Two threads, each sending and receiving at once: between the parts of its own message it takes those of the other's that are there,
// and never its end.
TEST_F(ShmParts, WhatComesBetweenThePartsOfAnotherMessageIsWhole) {
  constexpr int rounds = 400;
  constexpr size_t longest = 262144;
  std::mt19937_64 random(20261129);
  std::vector<std::array<size_t, 2>> lengths;
  for (int i = 0; i < rounds; ++i) {
    const size_t first = size_t(random() % (longest + 1));
    lengths.push_back({first, i % 3 == 0 ? size_t(random() % (longest + 1)) : first});
  }
  const auto side = [&](int rank) {
    std::vector<std::byte> out(longest), in(longest + 1);
    for (int i = 0; i < rounds; ++i) {
      const size_t mine = lengths[size_t(i)][size_t(rank)], theirs = lengths[size_t(i)][size_t(1 - rank)];
      fill(out.data(), mine, uint64_t(2 * i + rank));
      std::fill(in.begin(), in.end(), std::byte{0x5a});
      size_t sent = 0, received = 0;
      const Meanwhile meanwhile{of(rank), in.data(), theirs, signature, received};
      of(rank).may_receive_meanwhile(&meanwhile);
      Status status = Status::again;
      while (status == Status::again) status = of(rank).send(out.data(), mine, signature, sent);
      ASSERT_EQ(status, Status::done);
      of(rank).may_receive_meanwhile(nullptr);
      ASSERT_LT(received, std::max<size_t>(theirs, 1));
      for (status = Status::again; status == Status::again;) status = of(rank).recv_past_caches(in.data(), theirs, signature, received);
      ASSERT_EQ(status, Status::done);
      ASSERT_TRUE(holds(in.data(), theirs, uint64_t(2 * i + 1 - rank))) << i << ", " << theirs << " bytes";
      ASSERT_EQ(in[theirs], std::byte{0x5a});
    }
  };
  std::thread other(side, 1);
  side(0);
  other.join();
}

// A part behind what is written, whatever has come; and nothing of a message that came as a whole.
TEST_F(ShmParts, AMessageIsBegunAsFarAsIsAskedFor) {
  constexpr size_t bytes = 64 * 1024, part = 16 * 1024;
  std::vector<std::byte> in(bytes + 1, std::byte{0x5a});
  for (const bool in_parts : {true, false}) {
    if (!in_parts) send(0, 8, 1);  // nobody has said that it was read
    send(0, bytes, 2);
    if (!in_parts) receive(1, 8, 1);
    size_t done = 0;
    const Meanwhile message{of(1), in.data(), bytes, signature, done};
    for (const size_t until : {size_t{0}, part - 1, part, part, 3 * part - 1, bytes}) {
      of(1).recv_begin(message, until);
      EXPECT_EQ(done, in_parts ? std::min(until / part * part, bytes - part) : 0u) << until;
    }
    EXPECT_EQ(of(1).recv_past_caches(in.data(), bytes, signature, done), Status::done);
    EXPECT_TRUE(holds(in.data(), bytes, 2));
    EXPECT_EQ(in[bytes], std::byte{0x5a});
    send(1, 8, 3);
    receive(0, 8, 3);
  }
}

}  // namespace
}  // namespace tutti
