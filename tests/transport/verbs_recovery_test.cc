// Paths that fail while messages are under way: nothing is lost, doubled or out of order. Over devices of this process alone
// (fake_verbs.h), or for a guest with RDMA devices (tests/rdma boots one). TUTTI_TEST_FAULTS: how many random faults (20).
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "transport/traffic.h"
#include "transport/verbs/verbs_device.h"
#include "transport/verbs/verbs_path.h"
#include "transport/verbs_support.h"

namespace tutti {
namespace {

constexpr TimeNs patience_ns = 60 * ns_per_s;

int faults_wanted() {
  const char* const wanted = std::getenv("TUTTI_TEST_FAULTS");
  return wanted == nullptr ? 20 : std::atoi(wanted);
}

struct Outcome {
  uint64_t received = 0, paths_failed = 0, resent = 0;
};

// Traffic both ways between two ranks, of which some path fails now and then.
Outcome run_with_faults(uint64_t seed, int faults, bool both_devices, uint64_t count) {
  VerbsOptions options;
  options.message_bytes_max = 32 * 1024;
  options.memory_bytes_max = 2 << 20;
  auto transports = connected_verbs(2, options, [&](VerbsOptions& o, int) {
    if (both_devices) o.devices = "";
  });
  Endpoint &one = *transports[0]->endpoint(1, 0), &other = *transports[1]->endpoint(0, 0);
  const Traffic there(seed, options.message_bytes_max), back(seed + 1, options.message_bytes_max);
  Sender to(one, there, count, seed, options.message_bytes_max),
      fro(other, back, count, seed + 2, options.message_bytes_max);
  Receiver at_other(other, there, count, seed + 3, options.message_bytes_max);
  Receiver at_one(one, back, count, seed + 4, options.message_bytes_max);
  std::mt19937_64 random(seed);
  const uint64_t apart = 2 * count / uint64_t(faults + 1);
  uint64_t next_fault = random() % (apart + 1);
  const TimeNs deadline = now_ns() + patience_ns;
  while (!(at_other.finished() && at_one.finished()) && now_ns() < deadline) {
    if (random() % 2 != 0) to.step();
    if (random() % 2 != 0) fro.step();
    if (random() % 2 != 0) at_other.step();
    if (random() % 2 != 0) at_one.step();
    for (const auto& transport : transports) transport->progress();
    if (at_other.received() + at_one.received() >= next_fault) {
      const int rank = int(random() % 2);
      break_verbs_path(*transports[size_t(rank)], 1 - rank, 0, int(random() % 2));
      next_fault += random() % (apart + 1) + 1;
    }
  }
  Outcome outcome{at_other.received() + at_one.received(), 0, 0};
  for (const auto& transport : transports) {
    outcome.paths_failed += verbs_counters(*transport)->paths_failed;
    outcome.resent += verbs_counters(*transport)->resent;
    EXPECT_EQ(transport->endpoint(1 - int(&transport - transports.data()), 0)->fault().kind, FaultKind::none);
  }
  end_together(transports);
  return outcome;
}

TEST(VerbsRecovery, MessagesUnderWayGoAnotherWayWhateverFailsWhen) {
  constexpr uint64_t count = 120;
  uint64_t failed = 0, resent = 0;
  for (int i = 0; i < faults_wanted(); ++i) {
    SCOPED_TRACE(i);
    const Outcome outcome = run_with_faults(uint64_t(i) * 10 + 1, 2, i % 2 == 0, count);
    ASSERT_EQ(outcome.received, 2 * count);
    failed += outcome.paths_failed;
    resent += outcome.resent;
  }
  EXPECT_GE(failed, uint64_t(faults_wanted())) << "nothing failed: the test tried nothing";
  EXPECT_GT(resent, 0u);
  std::printf("%lu paths failed, %lu messages were sent again\n", failed, resent);
}

// Messages that the peer had consumed, which was lost with the path, are sent again by a connection that takes only some of them;
// then the peer says what it has consumed. Larger messages that come to lie at the same places do not go out in their stead.
TEST(VerbsRecovery, APlaceIsNotUsedForAnotherMessageWhileItsOwnIsSentAgain) {
  constexpr size_t place = 1 << 20, bytes_max = place - verbs_unit_bytes, first_bytes = place / 2 - verbs_unit_bytes;
  constexpr uint64_t first_count = 20;
  VerbsOptions options;
  options.message_bytes_max = bytes_max;
  options.memory_bytes_max = 24 * 2 * place;  // of both directions
  const auto transports = connected_verbs(2, options);
  Endpoint &from = *transports[0]->endpoint(1, 0), &to = *transports[1]->endpoint(0, 0);
  const TimeNs deadline = now_ns() + patience_ns;
  uint64_t sent = 0, received = 0;
  std::vector<uint64_t> data(bytes_max / 8), arrived(bytes_max / 8);
  const auto fill = [](std::vector<uint64_t>& words, uint64_t number) {
    for (size_t i = 0; i < words.size(); ++i) words[i] = number << 32 | i;
  };
  const auto send_one = [&](size_t bytes) {
    fill(data, sent);
    size_t done = 0;
    const bool taken = from.send(reinterpret_cast<const std::byte*>(data.data()), bytes, sent, done) == Status::done;
    sent += taken ? 1 : 0;
    return taken;
  };
  const auto receive_one = [&](size_t bytes) {
    size_t done = 0;
    while (to.recv(reinterpret_cast<std::byte*>(arrived.data()), bytes, received, done) == Status::again &&
           now_ns() < deadline)
      for (const auto& transport : transports) transport->progress();
    fill(data, received++);
    return std::memcmp(arrived.data(), data.data(), bytes) == 0;
  };
  while (sent < first_count) ASSERT_TRUE(send_one(first_bytes));
  while (received < first_count) ASSERT_TRUE(receive_one(first_bytes)) << received;
  ASSERT_EQ(verbs_counters(*transports[1])->credits, 0u) << "the sender knows what was consumed, and sends nothing again";
  ASSERT_TRUE(break_verbs_path(*transports[1], 0, 0, 0));  // whose path fails first hears last that both are stopped
  while (verbs_counters(*transports[1])->credits == 0 && now_ns() < deadline)
    for (const auto& transport : transports) transport->progress();
  ASSERT_GT(verbs_counters(*transports[0])->resent, first_count / 2);
  constexpr int looks = 1000;
  int taken = 0;
  for (int look = 0; look < looks; ++look) {  // the receiver takes nothing from the connection
    transports[0]->progress();
    taken += send_one(bytes_max) ? 1 : 0;
  }
  EXPECT_GT(taken, 0);
  while (received < sent) ASSERT_TRUE(receive_one(bytes_max)) << "message " << received;
  while (!send_one(bytes_max) && now_ns() < deadline)
    for (const auto& transport : transports) transport->progress();
  EXPECT_TRUE(receive_one(bytes_max)) << "all places are free again";
}

// No way left: an error that says which device and port, to whom, what happened and what is likely.
TEST(VerbsRecovery, WithoutTcpTheLastPathsFailureIsAFaultThatSaysAll) {
  VerbsOptions options;
  options.message_bytes_max = 4096;
  options.tcp = false;
  const auto transports = connected_verbs(2, options);
  ASSERT_TRUE(break_verbs_path(*transports[0], 1, 0, 0));
  std::vector<std::byte> data(4096);
  const TimeNs deadline = now_ns() + patience_ns;
  for (size_t r = 0; r < 2; ++r) {
    Endpoint& endpoint = *transports[r]->endpoint(int(1 - r), 0);
    Status status = Status::again;
    while (status != Status::failed && now_ns() < deadline) {
      size_t done = 0;
      status = endpoint.send(data.data(), data.size(), 1, done);
      for (const auto& transport : transports) transport->progress();
    }
    ASSERT_EQ(status, Status::failed);
    EXPECT_EQ(endpoint.fault().kind, FaultKind::system);
    const std::string text(endpoint.fault().text);
    EXPECT_NE(text.find(device_of(int(r)) + " port 1"), std::string::npos) << text;
    EXPECT_NE(text.find("rank " + std::to_string(1 - r)), std::string::npos) << text;
    EXPECT_NE(text.find("likely"), std::string::npos) << text;
  }
}

// --- Who sleeps, which is: arm(), look once more, wait for a descriptor.

// Whether a descriptor of the armed transport becomes ready while `meanwhile` goes on.
template <class Meanwhile>
bool is_woken(Transport& sleeper, Meanwhile meanwhile) {
  std::array<pollfd, 4> fds{};
  const size_t n = sleeper.poll_fds(fds);
  for (const TimeNs deadline = now_ns() + patience_ns / 6; now_ns() < deadline; meanwhile())
    if (::poll(fds.data(), nfds_t(n), 1) > 0) return true;
  return false;
}

// What it knows of a broken path, it has told before: the peer's answer wakes it. Nothing else would, for the broken queue
// pair's completions have all come.
TEST(VerbsSleep, WhoSleepsHasToldThePeerOfAPathThatFailed) {
  VerbsOptions options;
  options.message_bytes_max = 4096;
  const auto transports = connected_verbs(2, options);
  ASSERT_TRUE(break_verbs_path(*transports[0], 1, 0, 0));
  ::usleep(200'000);
  std::array<std::byte, 8> data{};
  size_t done = 0;
  transports[0]->arm();
  ASSERT_EQ(transports[0]->endpoint(1, 0)->recv(data.data(), data.size(), 1, done), Status::again);
  EXPECT_TRUE(is_woken(*transports[0], [&] { transports[1]->progress(); }));
  transports[0]->disarm();
  EXPECT_EQ(verbs_counters(*transports[1])->paths_failed, 1u);
  size_t sent = 0;
  ASSERT_EQ(transports[1]->endpoint(0, 0)->send(data.data(), data.size(), 1, sent), Status::done);
  Status status = Status::again;
  for (const TimeNs deadline = now_ns() + patience_ns; status == Status::again && now_ns() < deadline;) {
    for (const auto& transport : transports) transport->progress();
    status = transports[0]->endpoint(1, 0)->recv(data.data(), data.size(), 1, done);
  }
  EXPECT_EQ(status, Status::done);
}

// A peer's end is believed a little later than it is heard of, and nothing comes after it.
TEST(VerbsSleep, WhoSleepsComesToKnowThatThePeerHasEnded) {
  auto transports = connected_verbs(2, {});
  transports[1].reset();
  ::usleep(50'000);
  std::array<std::byte, 8> data{};
  size_t done = 0;
  for (int sleeps = 0; sleeps < 20; ++sleeps) {
    transports[0]->arm();
    const Status status = transports[0]->endpoint(1, 0)->recv(data.data(), data.size(), 1, done);
    if (status != Status::again) {
      EXPECT_EQ(transports[0]->endpoint(1, 0)->fault().kind, FaultKind::closed);
      return;
    }
    ASSERT_TRUE(is_woken(*transports[0], [] {}));
    transports[0]->disarm();
  }
  FAIL() << "it wakes up for nothing again and again";
}

// Who has read all may end at once: what was lent to it is known to be read.
TEST(VerbsEnd, ALenderLearnsThatAllWasReadThoughTheReaderHasEnded) {
  for (int i = 0; i < 10; ++i) {
    auto transports = connected_verbs(2, {});
    Endpoint &lender = *transports[0]->endpoint(1, 0), &reader = *transports[1]->endpoint(0, 0);
    std::vector<std::byte> memory(lent_bytes_min), received(lent_bytes_min);
    const LentRegion region{1, memory.data(), memory.size(), -1, 0, 0, std::make_shared<std::atomic<uint64_t>>(0)};
    size_t done = 0;
    ASSERT_EQ(lender.lend(region, memory.data(), memory.size(), 1, done), Status::done);
    done = 0;
    const TimeNs deadline = now_ns() + patience_ns;
    while (reader.recv(received.data(), received.size(), 1, done) == Status::again && now_ns() < deadline)
      for (const auto& transport : transports) transport->progress();
    transports[1].reset();
    Status status = Status::again;
    while ((status = lender.flush()) == Status::again && now_ns() < deadline) transports[0]->progress();
    ASSERT_EQ(status, Status::done);
  }
}

// More than the reader's kernel takes at once: the sender's end awaits that it has all, or what the reader says meanwhile would make
// the sender's kernel forget the rest.
TEST(VerbsEnd, WhatGoesByTcpComesThoughItsSenderHasEnded) {
  constexpr size_t bytes = 64 * 1024;
  constexpr uint64_t count = 16;
  auto transports = connected_verbs(2, {});
  Endpoint &from = *transports[0]->endpoint(1, 0), &to = *transports[1]->endpoint(0, 0);
  const TimeNs deadline = now_ns() + patience_ns;
  std::vector<std::byte> data(bytes), received(bytes);
  const auto send = [&](uint64_t number) {
    size_t done = 0;
    fill(data.data(), bytes, number);
    while (from.send(data.data(), bytes, number, done) == Status::again && now_ns() < deadline)
      for (const auto& transport : transports) transport->progress();
  };
  const auto receive = [&](uint64_t number, bool alone) {
    Status status = Status::again;
    size_t done = 0;
    while ((status = to.recv(received.data(), bytes, number, done)) == Status::again && now_ns() < deadline) {
      transports[1]->progress();
      if (!alone) transports[0]->progress();
    }
    EXPECT_EQ(status, Status::done) << "message " << number;
    EXPECT_TRUE(holds(received.data(), bytes, number)) << "message " << number;
  };
  ASSERT_TRUE(break_verbs_path(*transports[0], 1, 0, 0));
  send(0);
  receive(0, false);  // comes by TCP, once both know of the path
  for (uint64_t number = 1; number <= count; ++number) send(number);
  transports[0]->progress();
  {
    const std::jthread end([&] { transports[0].reset(); });
    ::usleep(100'000);
    size_t done = 0;
    ASSERT_EQ(to.send(data.data(), 8, 1, done), Status::done);
    ::usleep(10'000);
    for (uint64_t number = 1; number <= count; ++number) receive(number, true);
  }
}

// What a stream costs: one work request a message, and not one completion for sixteen.
TEST(VerbsCounters, WorkRequestsAndCompletionsPerMessageAreFew) {
  constexpr uint64_t count = 1000;
  VerbsOptions options;
  options.message_bytes_max = 8192;
  const auto transports = connected_verbs(2, options);
  Endpoint &from = *transports[0]->endpoint(1, 0), &to = *transports[1]->endpoint(0, 0);
  std::vector<std::byte> data(8192), received(8192);
  const VerbsCounters before = *verbs_counters(*transports[0]), before_there = *verbs_counters(*transports[1]);
  for (uint64_t sent = 0, arrived = 0; arrived < count;) {
    size_t done = 0;
    if (sent < count && from.send(data.data(), data.size(), sent, done) == Status::done) ++sent;
    done = 0;
    if (to.recv(received.data(), received.size(), arrived, done) == Status::done) ++arrived;
    for (const auto& transport : transports) transport->progress();
  }
  const VerbsCounters &after = *verbs_counters(*transports[0]), &after_there = *verbs_counters(*transports[1]);
  EXPECT_EQ(after.messages - before.messages, count);
  const uint64_t requests =
      after.work_requests - before.work_requests + after_there.work_requests - before_there.work_requests;
  EXPECT_LE(double(requests), 1.05 * count) << "credit among them";
  EXPECT_LE(after.completions - before.completions, count / 16);
}

// A device keeps what it was told of memory; after the last transport has ended there is nothing left with it.
TEST(VerbsMemory, WhatWasRegisteredIsDeregistered) {
  std::string why_not;
  const VerbsLibrary* const library = verbs_under_test() != nullptr ? verbs_under_test() : VerbsLibrary::load(why_not);
  ASSERT_NE(library, nullptr) << why_not;
  VerbsHardware hardware = open_verbs_hardware(*library, {}, Log("test"));
  ASSERT_FALSE(hardware.devices.empty());
  VerbsCounters counters;
  {
    VerbsRegions regions(hardware.devices, counters);
    std::vector<std::byte> memory(1 << 16);
    const auto changes = std::make_shared<std::atomic<uint64_t>>(0);
    for (uint64_t i = 0; i < 2 * VerbsRegions::regions_max; ++i) {
      const LentRegion region{i + 1, memory.data(), memory.size(), -1, 0, 0, changes};
      ASSERT_NE(regions.find(region), nullptr);
      EXPECT_EQ(regions.find(region), regions.find(region));
    }
    EXPECT_EQ(regions.size(), VerbsRegions::regions_max) << "the oldest ones went";
    const LentRegion last{2 * VerbsRegions::regions_max, memory.data(), memory.size(), -1, 0, 0, changes};
    const uint64_t before = counters.bytes_registered;
    ASSERT_NE(regions.find(last), nullptr);
    EXPECT_EQ(counters.bytes_registered, before) << "it was registered already";
    ++*changes;
    ASSERT_NE(regions.find(last), nullptr);
    EXPECT_GT(counters.bytes_registered, before) << "its pages are others now";
    EXPECT_EQ(regions.size(), 1u) << "what cannot be lent any more was let go";
  }
  EXPECT_GT(counters.bytes_registered, 0u);
  EXPECT_EQ(counters.bytes_registered, counters.bytes_deregistered);
}

}  // namespace
}  // namespace tutti
