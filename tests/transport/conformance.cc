// The conformance suite: what transport.h promises, tried on every transport that an executable lists.
#include "transport/conformance.h"

#include <poll.h>
#include <sys/stat.h>

#include <array>
#include <thread>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "memory/memory_file.h"
#include "sanitizer.h"
#include "transport/traffic.h"

namespace tutti {
namespace {

constexpr TimeNs patience_ns = 20 * ns_per_s;

// As who owns memory describes it to who lends it.
LentRegion region_of(const Fd& file, const Mapping& memory) {
  struct stat about {};
  EXPECT_EQ(::fstat(file.get(), &about), 0);
  return {1, memory.data(), memory.bytes(), file.get(), about.st_ino, memory.bytes(),
          std::make_shared<std::atomic<uint64_t>>(0)};
}

class TransportConformance : public ::testing::TestWithParam<TransportCase> {
 protected:
  void connect(int ranks, int channels) {
    ranks_ = ranks;
    set_ = GetParam().make(ranks, channels);
    ASSERT_NE(set_, nullptr);
    bytes_max_ = set_->transport(0).message_bytes_max();
    ASSERT_GE(bytes_max_, 4096u);
  }

  Transport& transport(int rank) { return set_->transport(rank); }
  Endpoint& endpoint(int rank, int peer, int channel = 0) { return *transport(rank).endpoint(peer, channel); }

  void let_move() {
    for (int r = 0; r < ranks_; ++r) transport(r).progress();
    set_->pass_time();
  }
  // Calls `attempt` until it says something else than again.
  template <class Attempt>
  Status settle(Attempt attempt) {
    const TimeNs deadline = now_ns() + patience_ns;
    Status status = attempt();
    while (status == Status::again && now_ns() < deadline) {
      let_move();
      status = attempt();
    }
    return status;
  }
  Status send(Endpoint& to, const std::vector<std::byte>& data, uint64_t signature) {
    size_t done = 0;
    return settle([&] { return to.send(data.data(), data.size(), signature, done); });
  }
  Status recv(Endpoint& from, std::vector<std::byte>& data, uint64_t signature) {
    size_t done = 0;
    return settle([&] { return from.recv(data.data(), data.size(), signature, done); });
  }

  // Whether all that was sent from one to the other has been received, by what both count.
  bool all_has_come(int from, int to) {
    const std::optional<Passed> here = endpoint(from, to).passed(), there = endpoint(to, from).passed();
    EXPECT_TRUE(here && there);
    return here && there && here->sent == there->received;
  }

  std::unique_ptr<TransportSet> set_;
  int ranks_ = 0;
  size_t bytes_max_ = 0;
};

// What only some transports can do, and so only they are asked.
class TransportThreads : public TransportConformance {};
class TransportSleep : public TransportConformance {};
class TransportSleepingThreads : public TransportConformance {};
class TransportWatch : public TransportConformance {};

std::vector<std::byte> data_of(size_t bytes, uint64_t content) {
  std::vector<std::byte> data(bytes);
  fill(data.data(), bytes, content);
  return data;
}

TEST_P(TransportConformance, ReachesEveryPeerOnEveryChannelButNotItself) {
  connect(3, 2);
  for (int r = 0; r < 3; ++r) {
    EXPECT_FALSE(transport(r).name().empty());
    EXPECT_EQ(transport(r).message_bytes_max(), bytes_max_);
    for (int c = 0; c < 2; ++c)
      for (int peer = 0; peer < 3; ++peer) EXPECT_EQ(transport(r).endpoint(peer, c) != nullptr, peer != r);
    EXPECT_NE(transport(r).endpoint((r + 1) % 3, 0), transport(r).endpoint((r + 1) % 3, 1));
  }
}

TEST_P(TransportConformance, DeliversMessagesOfEverySize) {
  connect(2, 1);
  std::vector<size_t> sizes = {0, 1, 7, 4095, 4096, bytes_max_ - 1, bytes_max_};
  for (size_t bytes = 8; bytes <= 72; ++bytes) sizes.push_back(bytes);
  for (const size_t bytes : sizes)
    for (const bool past_caches : {false, true}) {
      const std::vector<std::byte> sent = data_of(bytes, bytes + 1);
      std::vector<std::byte> received(bytes);
      size_t sent_bytes = 0, received_bytes = 0;
      Status sending = Status::again;
      const Status receiving = settle([&] {
        if (sending == Status::again) sending = endpoint(0, 1).send(sent.data(), bytes, bytes, sent_bytes);
        Endpoint& from = endpoint(1, 0);
        return past_caches ? from.recv_past_caches(received.data(), bytes, bytes, received_bytes)
                           : from.recv(received.data(), bytes, bytes, received_bytes);
      });
      ASSERT_EQ(sending, Status::done) << bytes << " bytes";
      ASSERT_EQ(receiving, Status::done) << bytes << " bytes";
      EXPECT_EQ(sent_bytes, bytes);
      EXPECT_EQ(received_bytes, bytes);
      ASSERT_EQ(sent, received) << bytes << " bytes";
      EXPECT_TRUE(all_has_come(0, 1)) << bytes << " bytes";
    }
}

// Both ways, viewed and received, and what is lent, too.
TEST_P(TransportConformance, BothSidesCountWhatHasCome) {
  connect(2, 1);
  const Fd file = make_memory_file("test", 4 << 20, "test");
  const Mapping memory(file.get(), 0, 4 << 20, "test");
  const LentRegion region = region_of(file, memory);
  for (uint64_t i = 0; i < 200; ++i) {
    const int from = int(i / 3 % 2), to = 1 - from;
    const size_t bytes = i % 4 == 0 ? bytes_max_ : i * 17 % 3000;
    Endpoint &sender = endpoint(from, to), &receiver = endpoint(to, from);
    std::vector<std::byte> received(bytes);
    const std::byte* viewed = nullptr;
    size_t sent_bytes = 0, received_bytes = 0;
    Status sending = Status::again;
    const auto send_on = [&] {
      if (sending == Status::again)
        sending = i % 5 == 0 ? sender.lend(region, memory.data(), bytes, i, sent_bytes) : sender.send(memory.data(), bytes, i, sent_bytes);
    };
    send_on();
    if (sending == Status::done) {
      EXPECT_FALSE(all_has_come(from, to)) << "message " << i;
    }
    ASSERT_EQ(settle([&] {
                send_on();
                return i % 2 == 0 ? receiver.recv(received.data(), bytes, i, received_bytes) : receiver.view(bytes, i, viewed);
              }), Status::done);
    if (viewed != nullptr) {
      ASSERT_EQ(receiver.release(), Status::done);
    }
    EXPECT_TRUE(all_has_come(from, to)) << "message " << i;
    EXPECT_TRUE(all_has_come(to, from)) << "message " << i;
    ASSERT_EQ(settle([&] { return sender.flush(); }), Status::done);
  }
}

// What may be lent: a memory file's, and where the transport can read that a program's own.
std::vector<LentRegion> regions_of(const Fd& file, const Mapping& memory, const Endpoint& lender) {
  std::vector<LentRegion> regions = {region_of(file, memory)};
  if (lender.lends_private()) regions.push_back({LentRegion::private_number, nullptr, ~size_t{0}});
  return regions;
}

// Whether it is copied or read where it lies: the message is what was lent, and from flush's done on the memory is the
// sender's again.
TEST_P(TransportConformance, LentMemoryMayChangeOnceItIsFlushed) {
  connect(2, 1);
  const Fd file = make_memory_file("test", 8 << 20, "test");
  const Mapping memory(file.get(), 0, 8 << 20, "test");
  std::vector<std::byte> own(8 << 20);
  for (const LentRegion& region : regions_of(file, memory, endpoint(0, 1)))
    for (uint64_t i = 0; i < 50; ++i) {
      const size_t bytes = i % 3 == 0 ? bytes_max_ : i % 3 == 1 ? bytes_max_ / 2 + i : i;
      const std::vector<std::byte> sent = data_of(bytes, i + 1);
      std::byte* const place = (region.is_private() ? own.data() : memory.data()) + i * 12'345;
      std::memcpy(place, sent.data(), bytes);
      std::vector<std::byte> received(bytes);
      size_t lent_bytes = 0, received_bytes = 0;
      const std::byte* viewed = nullptr;
      Status lending = Status::again;
      const Status receiving = settle([&] {
        if (lending == Status::again) lending = endpoint(0, 1).lend(region, place, bytes, i, lent_bytes);
        if (lending == Status::done && endpoint(0, 1).flush() == Status::done) std::memset(place, 0xee, bytes);
        return i % 2 == 0 ? endpoint(1, 0).recv(received.data(), bytes, i, received_bytes) : endpoint(1, 0).view(bytes, i, viewed);
      });
      ASSERT_EQ(lending, Status::done);
      ASSERT_EQ(receiving, Status::done);
      EXPECT_EQ(lent_bytes, bytes);
      if (viewed != nullptr) {
        const std::byte* again = nullptr;
        ASSERT_EQ(endpoint(1, 0).view(bytes, i, again), Status::done);
        EXPECT_EQ(again, viewed);
        received.assign(viewed, viewed + bytes);
        ASSERT_EQ(endpoint(1, 0).release(), Status::done);
      }
      ASSERT_EQ(received, sent) << bytes << " bytes";
      ASSERT_EQ(settle([&] { return endpoint(0, 1).flush(); }), Status::done);
    }
}

// Who has failed gives its memory back at once. What a peer reads from then on is worth nothing, and it is told so.
TEST_P(TransportConformance, WhatIsRevokedIsNotTaken) {
  for (const bool viewed : {false, true})
    for (const bool is_private : {false, true}) {
      connect(2, 1);
      if (is_private && !endpoint(0, 1).lends_private()) continue;
      const Fd file = make_memory_file("test", 1 << 20, "test");
      const Mapping memory(file.get(), 0, 1 << 20, "test");
      const LentRegion region = regions_of(file, memory, endpoint(0, 1))[is_private];
      const std::vector<std::byte> sent = data_of(bytes_max_, 5);
      std::vector<std::byte> own(sent);
      std::memcpy(memory.data(), sent.data(), bytes_max_);
      std::byte* const lent = is_private ? own.data() : memory.data();
      size_t lent_bytes = 0, received_bytes = 0;
      std::vector<std::byte> received(bytes_max_);
      const std::byte* place = nullptr;
      Status lending = Status::again;
      const Status seen = settle([&] {
        if (lending == Status::again) lending = endpoint(0, 1).lend(region, lent, bytes_max_, 9, lent_bytes);
        if (lending == Status::again) return endpoint(1, 0).recv(received.data(), bytes_max_, 9, received_bytes);
        return viewed && received_bytes == 0 ? endpoint(1, 0).view(bytes_max_, 9, place) : Status::done;
      });
      ASSERT_EQ(seen, Status::done);
      endpoint(0, 1).revoke();
      std::memset(lent, 0xee, bytes_max_);
      Status end = Status::done;
      if (place != nullptr) {
        std::memcpy(received.data(), place, bytes_max_);
        end = endpoint(1, 0).release();
      } else if (received_bytes < bytes_max_) {
        end = settle([&] { return endpoint(1, 0).recv(received.data(), bytes_max_, 9, received_bytes); });
      }
      if (end == Status::done) EXPECT_EQ(received, sent);
      else EXPECT_EQ(end, Status::failed);
    }
}

TEST_P(TransportConformance, SaysAgainWhereNothingHasCome) {
  connect(2, 1);
  std::vector<std::byte> data(100);
  size_t done = 0;
  const std::byte* place = nullptr;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(endpoint(1, 0).recv(data.data(), 100, 7, done), Status::again);
    EXPECT_EQ(endpoint(0, 1).view(100, 7, place), Status::again);
    let_move();
  }
  EXPECT_EQ(done, 0u);
  EXPECT_EQ(endpoint(1, 0).fault().kind, FaultKind::none);
}

TEST_P(TransportConformance, FlushEndsOnceMessagesAreOut) {
  connect(2, 1);
  ASSERT_EQ(send(endpoint(0, 1), data_of(1000, 1), 1), Status::done);
  EXPECT_EQ(settle([&] { return endpoint(0, 1).flush(); }), Status::done);
}

TEST_P(TransportWatch, WhatDoesNotStageArrivesWithoutAFlush) {
  connect(2, 1);
  EXPECT_FALSE(endpoint(0, 1).stages());
  for (uint64_t i = 0; i < 10; ++i) {
    std::vector<std::byte> data(64);
    ASSERT_EQ(send(endpoint(0, 1), data_of(64, i), i), Status::done);
    size_t done = 0;
    ASSERT_EQ(settle([&] { return endpoint(1, 0).recv(data.data(), 64, i, done); }), Status::done);
  }
}

TEST_P(TransportWatch, TheWatchedWordTellsAnArrivalAndNothingElse) {
  connect(2, 1);
  for (uint64_t i = 0; i < 20; ++i) {
    const Watch watch = endpoint(1, 0).watch();
    ASSERT_NE(watch.word, nullptr);
    EXPECT_NE(watch.word->load(), watch.until);
    EXPECT_FALSE(watch.wait());
    const size_t bytes = i % 2 == 0 ? 8 : 4096;
    ASSERT_EQ(send(endpoint(0, 1), data_of(bytes, i), i), Status::done);
    EXPECT_TRUE(watch.wait());
    std::vector<std::byte> data(bytes);
    ASSERT_EQ(recv(endpoint(1, 0), data, i), Status::done);
  }
}

TEST_P(TransportConformance, ViewShowsTheSamePlaceUntilReleased) {
  connect(2, 1);
  for (const size_t bytes : {size_t{8}, size_t{65}, size_t{4096}}) {
    ASSERT_EQ(send(endpoint(0, 1), data_of(bytes, 1), 1), Status::done);
    ASSERT_EQ(send(endpoint(0, 1), data_of(bytes, 2), 2), Status::done);
    const std::byte *first = nullptr, *again = nullptr, *second = nullptr;
    ASSERT_EQ(settle([&] { return endpoint(1, 0).view(bytes, 1, first); }), Status::done);
    for (int i = 0; i < 10; ++i) let_move();
    ASSERT_EQ(endpoint(1, 0).view(bytes, 1, again), Status::done);
    EXPECT_EQ(first, again);
    EXPECT_TRUE(holds(first, bytes, 1));
    endpoint(1, 0).release();
    ASSERT_EQ(settle([&] { return endpoint(1, 0).view(bytes, 2, second); }), Status::done);
    EXPECT_TRUE(holds(second, bytes, 2));
    endpoint(1, 0).release();
  }
}

TEST_P(TransportConformance, KeepsEveryMessageInOrderAtRandomPace) {
  connect(2, 1);
  constexpr uint64_t count = 2000;
  const Traffic traffic(11, bytes_max_);
  Sender sender(endpoint(0, 1), traffic, count, 1, bytes_max_);
  Receiver receiver(endpoint(1, 0), traffic, count, 2, bytes_max_);
  std::mt19937_64 random(3);
  const TimeNs deadline = now_ns() + patience_ns;
  while (!receiver.finished() && !sender.finished() && now_ns() < deadline) {
    for (uint64_t i = random() % 8; i > 0; --i) sender.step();
    for (uint64_t i = random() % 8; i > 0; --i) receiver.step();
    let_move();
  }
  while (!receiver.finished() && now_ns() < deadline)
    if (!receiver.step()) let_move();
  EXPECT_EQ(receiver.received(), count);
  EXPECT_TRUE(all_has_come(0, 1));
}

TEST_P(TransportConformance, AFullFifoSaysAgainAndLosesNothing) {
  connect(2, 1);
  constexpr uint64_t count = 4096;
  const std::vector<std::byte> data = data_of(bytes_max_, 5);
  uint64_t sent = 0;
  size_t done = 0;
  for (int idle = 0; idle < 1000 && sent < count; ++idle) {
    const size_t before = done;
    const Status status = endpoint(0, 1).send(data.data(), bytes_max_, sent, done);
    ASSERT_NE(status, Status::failed);
    if (status == Status::done) ++sent, done = 0;
    if (status == Status::done || done != before) idle = 0;
    let_move();
  }
  ASSERT_LT(sent, count) << "the FIFO has no end";
  EXPECT_GE(sent + (done > 0), 1u);
  std::vector<std::byte> received(bytes_max_);
  for (uint64_t i = 0; i <= sent; ++i) {
    size_t received_bytes = 0;
    Status sending = i < sent ? Status::done : Status::again;
    const Status receiving = settle([&] {
      if (sending == Status::again) sending = endpoint(0, 1).send(data.data(), bytes_max_, sent, done);
      return endpoint(1, 0).recv(received.data(), bytes_max_, i, received_bytes);
    });
    ASSERT_EQ(receiving, Status::done) << "message " << i << " of " << sent;
    ASSERT_EQ(received, data);
  }
}

TEST_P(TransportConformance, MessagesThatAreSaidToFollowArriveOneByOne) {
  connect(2, 1);
  uint64_t signature = 0;
  for (const size_t bytes : {size_t{8}, size_t{2000}, bytes_max_ / 3, bytes_max_}) {
    for (const size_t last : {size_t{0}, size_t{1}, bytes - 1}) {
      const size_t all = 20 * bytes + last;
      const std::vector<std::byte> data = data_of(all, ++signature);
      std::vector<std::byte> received(all);
      size_t sent = 0, sent_of_message = 0, came = 0, came_of_message = 0;
      ASSERT_EQ(settle([&] {
        if (sent < all) {
          const size_t message = std::min(bytes, all - sent);
          endpoint(0, 1).may_send_on(all - sent - message);
          const Status status = endpoint(0, 1).send(data.data() + sent, message, signature, sent_of_message);
          if (status == Status::failed) return status;
          if (status == Status::done) sent += message, sent_of_message = 0;
        }
        const size_t message = std::min(bytes, all - came);
        Status status = Status::again;
        const std::byte* seen = nullptr;
        if (came / bytes % 3 == 2) {
          status = endpoint(1, 0).view(message, signature, seen);
          if (status == Status::done) std::memcpy(received.data() + came, seen, message), endpoint(1, 0).release();
        } else {
          status = endpoint(1, 0).recv(received.data() + came, message, signature, came_of_message);
        }
        if (status != Status::done) return status;
        came += message, came_of_message = 0;
        return came == all ? Status::done : Status::again;
      }), Status::done) << bytes << " bytes, last " << last;
      EXPECT_EQ(received, data) << bytes << " bytes, last " << last;
      EXPECT_EQ(sent, all);
    }
  }
  EXPECT_TRUE(all_has_come(0, 1));
}

TEST_P(TransportConformance, ReservedPlacesAreAlignedAndStay) {
  connect(2, 1);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{40}, size_t{104}, size_t{105}, size_t{128}, size_t{4096}, bytes_max_}) {
    std::byte* place = nullptr;
    ASSERT_EQ(settle([&] {
      place = endpoint(0, 1).reserve(bytes);
      return place == nullptr ? Status::again : Status::done;
    }), Status::done);
    EXPECT_TRUE(bytes < 128 || reinterpret_cast<uintptr_t>(place) % 64 == 0);
    EXPECT_EQ(endpoint(0, 1).reserve(bytes), place);
    fill(place, bytes, bytes);
    endpoint(0, 1).commit(bytes, 9);
    std::vector<std::byte> received(bytes);
    ASSERT_EQ(recv(endpoint(1, 0), received, 9), Status::done);
    EXPECT_TRUE(holds(received.data(), bytes, bytes));
  }
}

TEST_P(TransportConformance, AnotherSignatureIsAFaultThatShowsIt) {
  for (const bool by_view : {false, true}) {
    connect(2, 1);
    ASSERT_EQ(send(endpoint(0, 1), data_of(100, 1), 0xabcd), Status::done);
    std::vector<std::byte> data(100);
    const std::byte* place = nullptr;
    size_t done = 0;
    const auto attempt = [&](uint64_t signature) {
      return by_view ? endpoint(1, 0).view(100, signature, place)
                     : endpoint(1, 0).recv(data.data(), 100, signature, done);
    };
    ASSERT_EQ(settle([&] { return attempt(0xabce); }), Status::failed);
    EXPECT_EQ(endpoint(1, 0).fault().kind, FaultKind::mismatch);
    EXPECT_EQ(endpoint(1, 0).fault().signature, 0xabcdu);
    EXPECT_EQ(endpoint(1, 0).fault().bytes, 100u);
    EXPECT_EQ(attempt(0xabcd), Status::failed) << "an endpoint that has failed stays failed";
  }
}

TEST_P(TransportConformance, AnotherSizeIsAFaultThatShowsIt) {
  constexpr std::array<std::pair<size_t, size_t>, 6> sent_and_expected = {
      {{8, 16}, {16, 8}, {0, 8}, {8, 0}, {4096, 8}, {8, 4096}}};
  for (const auto& [sent, expected] : sent_and_expected)
    for (const bool by_view : {false, true}) {
      connect(2, 1);
      ASSERT_EQ(send(endpoint(0, 1), data_of(sent, 1), 77), Status::done);
      std::vector<std::byte> data(expected);
      const std::byte* place = nullptr;
      size_t done = 0;
      const Status status = settle([&, bytes = expected] {
        return by_view ? endpoint(1, 0).view(bytes, 77, place) : endpoint(1, 0).recv(data.data(), bytes, 77, done);
      });
      ASSERT_EQ(status, Status::failed) << sent << " bytes sent, " << expected << " expected";
      EXPECT_EQ(endpoint(1, 0).fault().kind, FaultKind::mismatch);
      EXPECT_EQ(endpoint(1, 0).fault().signature, 77u);
      EXPECT_EQ(endpoint(1, 0).fault().bytes, sent);
    }
}

TEST_P(TransportConformance, PairsAndChannelsDoNotMix) {
  constexpr int ranks = 4, channels = 3;
  constexpr uint64_t count = 60;
  connect(ranks, channels);
  const size_t bytes_max = std::min<size_t>(bytes_max_, 32 * 1024);
  std::vector<Sender> senders;
  std::vector<Receiver> receivers;
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b)
      for (int c = 0; c < channels && a != b; ++c) {
        const uint64_t seed = uint64_t(a * 100 + b * 10 + c);
        senders.emplace_back(endpoint(a, b, c), Traffic(seed, bytes_max), count, seed, bytes_max);
        receivers.emplace_back(endpoint(b, a, c), Traffic(seed, bytes_max), count, seed + 1, bytes_max);
      }
  std::mt19937_64 random(4);
  const TimeNs deadline = now_ns() + patience_ns;
  for (bool open = true; open && now_ns() < deadline;) {
    open = false;
    for (size_t i = 0; i < senders.size(); ++i) {
      if (random() % 2 != 0) senders[i].step();
      if (random() % 2 != 0) receivers[i].step();
      open = open || !receivers[i].finished();
    }
    let_move();
  }
  for (const Receiver& receiver : receivers) EXPECT_EQ(receiver.received(), count);
}

// Runs `step` (true: something moved) until `finished`, sleeping after a random number of vain tries, as a
// communicator does.
template <class Step, class Finished>
void run_and_sleep(Transport& transport, uint64_t seed, uint64_t spins_max, Step step, Finished finished) {
  std::mt19937_64 random(seed);
  std::array<pollfd, 16> fds{};
  while (!finished()) {
    bool moved = false;
    for (uint64_t spins = random() % (spins_max + 1) + 1; spins > 0 && !moved; --spins) {
      transport.progress();
      moved = step();
    }
    if (moved) continue;
    transport.arm();
    transport.progress();
    if (!step() && !finished()) {
      const size_t n = transport.poll_fds(fds);
      if (::poll(fds.data(), n, int(patience_ns / ns_per_ms / 2)) == 0) {
        ADD_FAILURE() << "a wake-up was lost";
        return;
      }
    }
    transport.disarm();
  }
}

void flush_all(Transport& transport, Endpoint& endpoint) {
  const TimeNs deadline = now_ns() + patience_ns;
  while (endpoint.flush() == Status::again && now_ns() < deadline) transport.progress();
}

TEST_P(TransportThreads, TwoThreadsHammerBothWays) {
  constexpr uint64_t count = 3000;
  connect(2, 1);
  const auto run = [&](int rank) {
    Sender sender(endpoint(rank, 1 - rank), Traffic(uint64_t(rank), bytes_max_), count, 5 + uint64_t(rank), bytes_max_);
    Receiver receiver(endpoint(rank, 1 - rank), Traffic(uint64_t(1 - rank), bytes_max_), count, 7, bytes_max_);
    const TimeNs deadline = now_ns() + patience_ns;
    while (!(sender.finished() && receiver.finished()) && now_ns() < deadline) {
      transport(rank).progress();
      const bool sent = sender.step(), received = receiver.step();
      if (!sent && !received) std::this_thread::yield();
    }
    flush_all(transport(rank), endpoint(rank, 1 - rank));
    EXPECT_EQ(receiver.received(), count);
  };
  std::jthread other([&] { run(1); });
  run(0);
}

TEST_P(TransportSleep, AnArrivalWakesASleeperThatWasArmedBefore) {
  connect(2, 1);
  std::array<pollfd, 16> fds{};
  EXPECT_EQ(transport(1).poll_fds({}), 0u);
  for (uint64_t i = 0; i < 100; ++i) {
    std::vector<std::byte> data(8);
    size_t done = 0;
    transport(1).arm();
    ASSERT_EQ(endpoint(1, 0).recv(data.data(), 8, i, done), Status::again);
    ASSERT_EQ(send(endpoint(0, 1), data_of(8, i), i), Status::done);
    ASSERT_EQ(settle([&] { return endpoint(0, 1).flush(); }), Status::done);
    const size_t n = transport(1).poll_fds(fds);
    ASSERT_GT(n, 0u);
    // The sender goes on meanwhile: what did not get there by one path, it sends by another.
    bool woken = false;
    for (const TimeNs deadline = now_ns() + patience_ns / 2; !woken && now_ns() < deadline; transport(0).progress())
      woken = ::poll(fds.data(), n, 1) > 0;
    ASSERT_TRUE(woken);
    transport(1).disarm();
    ASSERT_EQ(recv(endpoint(1, 0), data, i), Status::done);
  }
  bool quiet = false;
  for (int i = 0; i < 10 && !quiet; ++i) {
    transport(1).arm();
    let_move();
    quiet = ::poll(fds.data(), transport(1).poll_fds(fds), 1) == 0;
    transport(1).disarm();
  }
  EXPECT_TRUE(quiet) << "descriptors stay ready though nothing comes: a sleeper would spin";
}

TEST_P(TransportSleepingThreads, NoWakeUpIsLostOverManyHandshakes) {
  const uint64_t count = GetParam().handshakes / (test::sanitized ? 10 : 1);
  connect(2, 1);
  const auto run = [&](int rank) {
    Endpoint& peer = endpoint(rank, 1 - rank);
    uint64_t sent = 0, received = 0;
    size_t sent_bytes = 0, received_bytes = 0;
    uint64_t out = 0, in = 0;
    const auto step = [&] {
      const bool my_turn = rank == 0 ? sent == received : sent < received;
      if (my_turn && sent < count) {
        out = sent;
        if (peer.send(reinterpret_cast<const std::byte*>(&out), 8, sent, sent_bytes) != Status::done) return false;
        ++sent, sent_bytes = 0;
        return true;
      }
      if (peer.recv(reinterpret_cast<std::byte*>(&in), 8, received, received_bytes) != Status::done) return false;
      EXPECT_EQ(in, received);
      ++received, received_bytes = 0;
      return true;
    };
    run_and_sleep(transport(rank), uint64_t(rank + 1), 300, step, [&] {
      return (sent == count && received == count) || peer.fault().kind != FaultKind::none || HasFailure();
    });
    flush_all(transport(rank), peer);
  };
  std::jthread other([&] { run(1); });
  run(0);
}

TEST_P(TransportSleepingThreads, ASenderWithoutRoomSleepsUntilThereIsSome) {
  constexpr uint64_t count = 1500;
  connect(2, 1);
  const Traffic traffic(21, bytes_max_);
  std::jthread other([&] {
    Receiver receiver(endpoint(1, 0), traffic, count, 5, bytes_max_);
    run_and_sleep(transport(1), 1, 20, [&] { return receiver.step(); },
                  [&] { return receiver.finished() || HasFailure(); });
    EXPECT_EQ(receiver.received(), count);
  });
  Sender sender(endpoint(0, 1), traffic, count, 6, bytes_max_);
  run_and_sleep(transport(0), 2, 2, [&] { return sender.step(); }, [&] { return sender.finished() || HasFailure(); });
  flush_all(transport(0), endpoint(0, 1));
}

std::vector<TransportCase> cases_that(bool (*can)(const TransportCase&)) {
  std::vector<TransportCase> cases = transport_cases();
  std::erase_if(cases, [can](const TransportCase& c) { return !can(c); });
  return cases;
}

std::string name_of(const ::testing::TestParamInfo<TransportCase>& tested) { return tested.param.name; }

INSTANTIATE_TEST_SUITE_P(Of, TransportConformance, ::testing::ValuesIn(transport_cases()), name_of);

INSTANTIATE_TEST_SUITE_P(Of, TransportThreads,
                         ::testing::ValuesIn(cases_that([](const TransportCase& c) { return c.threads; })), name_of);
INSTANTIATE_TEST_SUITE_P(Of, TransportSleep,
                         ::testing::ValuesIn(cases_that([](const TransportCase& c) { return c.sleeps; })), name_of);
INSTANTIATE_TEST_SUITE_P(Of, TransportWatch,
                         ::testing::ValuesIn(cases_that([](const TransportCase& c) { return c.watched; })), name_of);
INSTANTIATE_TEST_SUITE_P(
    Of, TransportSleepingThreads,
    ::testing::ValuesIn(cases_that([](const TransportCase& c) { return c.threads && c.sleeps; })), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportThreads);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportSleep);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportWatch);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportSleepingThreads);

}  // namespace
}  // namespace tutti
