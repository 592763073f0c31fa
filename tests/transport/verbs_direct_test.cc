// Messages that the sender's device writes straight to where the receiver wants them. Over devices of this process alone
// (fake_verbs.h), or for a guest with RDMA devices (tests/rdma boots one).
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "transport/traffic.h"
#include "transport/verbs/verbs_wire.h"
#include "transport/verbs_support.h"

namespace tutti {
namespace {

constexpr size_t message_bytes = 64 * 1024;
constexpr TimeNs patience_ns = 60 * ns_per_s;

// A receiver's memory for a number of messages, which peers may be let write.
struct Places {
  explicit Places(size_t count)
      : memory(count * message_bytes, std::byte{0x77}),
        region{++regions_made, memory.data(), memory.size(), -1, 0, 0, std::make_shared<std::atomic<uint64_t>>(0)} {}
  std::byte* at(size_t i) { return memory.data() + i * message_bytes; }
  ExpectedMessages from(size_t i) {
    return {at(i), message_bytes, message_bytes, 1, uint32_t(memory.size() / message_bytes - i)};
  }
  static inline uint64_t regions_made = 1000;
  std::vector<std::byte> memory;
  LentRegion region;
};

struct Pair {
  explicit Pair(bool both_devices = false)
      : transports(connected_verbs(2, {}, [&](VerbsOptions& o, int) {
          if (both_devices) o.devices = "";
        })),
        from(*transports[0]->endpoint(1, 0)),
        to(*transports[1]->endpoint(0, 0)) {}
  void progress() {
    for (const auto& transport : transports) transport->progress();
  }
  // Until what was sent last has surely come.
  void settle() {
    for (const TimeNs until = now_ns() + 300 * ns_per_ms; now_ns() < until;) progress();
  }
  const VerbsCounters& counters(size_t rank) { return *verbs_counters(*transports[rank]); }

  std::vector<std::unique_ptr<Transport>> transports;
  Endpoint &from, &to;
};

TEST(VerbsDirect, OneTargetServesAllMessagesThatFollowEachOther) {
  constexpr size_t count = 40;
  Pair pair;
  Places places(count);
  ASSERT_TRUE(pair.to.expect(places.region, places.from(0), 5));
  EXPECT_TRUE(pair.to.expect(places.region, places.from(0), 5)) << "asked again, it changes nothing";
  pair.settle();
  const VerbsCounters before = pair.counters(0);
  std::vector<std::byte> data(message_bytes);
  size_t sent = 0, received = 0;
  const TimeNs deadline = now_ns() + patience_ns;
  while (received < count && now_ns() < deadline) {
    size_t done = 0;
    fill(data.data(), message_bytes, sent);
    if (sent < count && pair.from.send(data.data(), message_bytes, 5, done) == Status::done) ++sent;
    done = 0;
    if (pair.to.recv(places.at(received), message_bytes, 5, done) == Status::done) ++received;
    pair.progress();
  }
  ASSERT_EQ(received, count);
  for (size_t i = 0; i < count; ++i) EXPECT_TRUE(holds(places.at(i), message_bytes, i)) << i;
  EXPECT_EQ(pair.counters(0).direct - before.direct, count);
  EXPECT_EQ(pair.counters(1).targets, 1u);
  const uint64_t requests = pair.counters(0).work_requests - before.work_requests;
  EXPECT_LE(requests, count + 2) << "one work request a message";
}

// The sender need not have heard of it in time, and what it sends may be another call's.
TEST(VerbsDirect, ASenderThatCannotWriteThereSendsAsUsual) {
  Pair pair;
  Places places(2);
  std::vector<std::byte> data(message_bytes);
  fill(data.data(), message_bytes, 1);
  size_t done = 0;
  ASSERT_EQ(pair.from.send(data.data(), message_bytes, 5, done), Status::done);  // before the receiver says where
  ASSERT_TRUE(pair.to.expect(places.region, places.from(0), 5));
  pair.settle();
  done = 0;
  ASSERT_EQ(pair.to.recv(places.at(0), message_bytes, 5, done), Status::done);
  EXPECT_TRUE(holds(places.at(0), message_bytes, 1));
  done = 0;
  ASSERT_EQ(pair.from.send(data.data(), message_bytes, 6, done), Status::done);  // the second place is for signature 5
  pair.settle();
  done = 0;
  EXPECT_EQ(pair.to.recv(places.at(1), message_bytes, 5, done), Status::failed);
  EXPECT_EQ(pair.to.fault().kind, FaultKind::mismatch);
  EXPECT_EQ(pair.to.fault().signature, 6u);
  EXPECT_EQ(places.memory[message_bytes], std::byte{0x77});
  EXPECT_EQ(pair.counters(0).direct, 0u);
}

// Whatever fails when: each message is whole once it was received, and nobody writes over it later.
TEST(VerbsDirect, WhatWasReceivedStaysAsItIsWhileOtherPathsTakeOver) {
  constexpr size_t count = 60;
  uint64_t direct = 0, failed = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Pair pair(seed % 2 == 0);
    Places places(count), source(count);
    for (size_t i = 0; i < count; ++i) fill(source.at(i), message_bytes, i);
    size_t sent = 0, received = 0;
    const size_t breaks_at = random() % count;
    const TimeNs deadline = now_ns() + patience_ns;
    while (received < count && now_ns() < deadline) {
      if (random() % 2 == 0) pair.to.expect(places.region, places.from(received), 5);
      size_t done = 0;
      if (sent < count && sent < received + 1 + random() % 8 &&
          pair.from.lend(source.region, source.at(sent), message_bytes, 5, done) == Status::done)
        ++sent;
      done = 0;
      if (pair.to.recv(places.at(received), message_bytes, 5, done) == Status::done) {
        ASSERT_TRUE(holds(places.at(received), message_bytes, received)) << received;
        std::fill_n(places.at(received), message_bytes, std::byte{0x11});
        ++received;
      }
      const int breaker = int(seed / 2 % 2);
      if (received == breaks_at) break_verbs_path(*pair.transports[size_t(breaker)], 1 - breaker, 0, int(random() % 2));
      pair.progress();
    }
    ASSERT_EQ(received, count);
    pair.settle();
    EXPECT_TRUE(std::all_of(places.memory.begin(), places.memory.end(), [](std::byte b) { return b == std::byte{0x11}; }));
    direct += pair.counters(0).direct;
    failed += pair.counters(0).paths_failed;
  }
  EXPECT_GT(direct, count);
  EXPECT_GT(failed, 0u);
}

// A call that fails gives its memory back: from then on nobody writes there, though the sender knows of it.
TEST(VerbsDirect, AfterRevokingNobodyWritesThere) {
  for (int i = 0; i < 4; ++i) {
    Pair pair;
    Places places(8);
    ASSERT_TRUE(pair.to.expect(places.region, places.from(0), 5));
    pair.settle();
    std::vector<std::byte> data(message_bytes, std::byte{0x22});
    size_t done = 0;
    if (i % 2 == 1) pair.from.send(data.data(), message_bytes, 5, done);  // perhaps under way
    const VerbsCounters before = pair.counters(1);
    pair.to.revoke();
    EXPECT_EQ(pair.counters(1).bytes_deregistered - before.bytes_deregistered, places.memory.size());
    std::fill(places.memory.begin(), places.memory.end(), std::byte{0x33});
    for (int k = 0; k < 4; ++k) {
      done = 0;
      pair.from.send(data.data(), message_bytes, 5, done);
      pair.progress();
    }
    pair.settle();
    EXPECT_TRUE(std::all_of(places.memory.begin(), places.memory.end(), [](std::byte b) { return b == std::byte{0x33}; }));
  }
}

}  // namespace
}  // namespace tutti
