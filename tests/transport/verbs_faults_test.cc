// Faults of devices and of the network between them, at moments that a seed chooses, over devices of the process alone: whatever
// happens, every message comes once, in order and whole, by another path or by TCP. TUTTI_TEST_FAULTS: how many worlds begin with
// each kind of fault (40; calls: a quarter of it).
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "sanitizer.h"
#include "transport/fake_verbs.h"
#include "transport/traffic.h"
#include "transport/verbs_calls.h"

namespace tutti {
namespace {

constexpr TimeNs patience_ns = 20 * ns_per_s;

int worlds_wanted() {
  const char* const wanted = std::getenv("TUTTI_TEST_FAULTS");
  return wanted != nullptr ? std::atoi(wanted) : test::sanitized ? 10 : 40;
}

struct VerbsFaults : ::testing::Test {
  ~VerbsFaults() override { FakeVerbs::reset(1); }  // for tests that follow, all is whole
};

enum class Fault { cable_told, cable_untold, device, queue_pair, refused_sends };
constexpr Fault faults[] = {Fault::cable_told, Fault::cable_untold, Fault::device, Fault::queue_pair, Fault::refused_sends};

void strike(Fault fault, std::mt19937_64& random) {
  switch (fault) {
    case Fault::cable_told: return FakeVerbs::cut_cable(true);
    case Fault::cable_untold: return FakeVerbs::cut_cable(false);
    case Fault::device: return FakeVerbs::kill_device(int(random() % FakeVerbs::devices));
    case Fault::queue_pair: return FakeVerbs::break_queue_pair(random());
    case Fault::refused_sends: return FakeVerbs::refuse_sends(uint32_t(1 + random() % 20));
  }
}

struct Outcome {
  uint64_t paths_failed = 0, resent = 0;
};

// Traffic of all pairs of two or three ranks, both ways, moved in an order that the seed decides.
class TrafficUnderFaults {
 public:
  explicit TrafficUnderFaults(uint64_t seed) : random_(seed), ranks_(2 + int(random_() % 2)) {
    FakeVerbs::reset(seed);
    options_.message_bytes_max = random_() % 2 == 0 ? 4096 : 32 * 1024;
    options_.memory_bytes_max = random_() % 2 == 0 ? 1 : 2 << 20;  // rings of three messages, or of many
    options_.inline_bytes_max = random_() % 2 == 0 ? 0 : 256;
    const bool both_devices = random_() % 2 == 0;
    transports_ = connected_verbs(ranks_, options_, [&](VerbsOptions& o, int) {
      if (both_devices) o.devices = "";
    });
    FakeVerbs::reset(seed);  // whatever the threads of the set-up have made of it
    for (int from = 0; from < ranks_; ++from)
      for (int to = 0; to < ranks_; ++to) {
        if (from == to) continue;
        const uint64_t of_pair = seed * 100 + uint64_t(from * ranks_ + to);
        const Traffic traffic(of_pair, options_.message_bytes_max);
        senders_.emplace_back(*endpoint(from, to), traffic, count, of_pair + 1, options_.message_bytes_max);
        receivers_.emplace_back(*endpoint(to, from), traffic, count, of_pair + 2, options_.message_bytes_max);
      }
  }

  ~TrafficUnderFaults() { end_together(transports_); }

  // Some faults, one after the other.
  Outcome run(Fault first) {
    const uint64_t all = count * receivers_.size();
    uint64_t next_fault = random_() % all;
    Fault next = first;
    const TimeNs deadline = now_ns() + patience_ns;
    for (uint64_t received = 0; received < all && !::testing::Test::HasFailure();) {
      if (now_ns() > deadline) {
        ADD_FAILURE() << "only " << received << " of " << all << " messages have come";
        break;
      }
      for (Sender& sender : senders_)
        if (random_() % 2 != 0) sender.step();
      for (Receiver& receiver : receivers_)
        if (random_() % 2 != 0) receiver.step();
      for (const auto& transport : transports_)
        if (random_() % 4 != 0) transport->progress();
      received = 0;
      for (const Receiver& receiver : receivers_) received += receiver.received();
      if (received < next_fault) continue;
      strike(next, random_);
      next = faults[random_() % std::size(faults)];
      next_fault += 1 + random_() % all;
    }
    Outcome outcome;
    for (const auto& transport : transports_) {
      outcome.paths_failed += verbs_counters(*transport)->paths_failed;
      outcome.resent += verbs_counters(*transport)->resent;
    }
    return outcome;
  }

 private:
  static constexpr uint64_t count = 60;  // messages of each stream
  Endpoint* endpoint(int rank, int peer) { return transports_[size_t(rank)]->endpoint(peer, 0); }

  std::mt19937_64 random_;
  int ranks_;
  VerbsOptions options_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<Sender> senders_;
  std::vector<Receiver> receivers_;
};

TEST_F(VerbsFaults, WhateverFailsEveryMessageComesOnce) {
  Outcome all;
  for (const Fault first : faults)
    for (int world = 0; world < worlds_wanted(); ++world) {
      const uint64_t seed = uint64_t(world) * std::size(faults) + uint64_t(first);
      SCOPED_TRACE(seed);
      const Outcome outcome = TrafficUnderFaults(seed).run(first);
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(FakeVerbs::misuse(), "");
      all.paths_failed += outcome.paths_failed;
      all.resent += outcome.resent;
    }
  std::printf("%lu paths failed, %lu messages were sent again\n", all.paths_failed, all.resent);
  EXPECT_GT(all.resent, 0u);
}

// While what one path did not bring is sent again by the other, that one's device refuses it: both have failed then, and it goes by TCP.
TEST_F(VerbsFaults, APathThatFailsWhileAnotherIsMadeUpForIsMadeUpForToo) {
  auto transports = connected_verbs(2, {}, [](VerbsOptions& o, int) { o.devices = ""; });
  Endpoint &from = *transports[0]->endpoint(1, 0), &to = *transports[1]->endpoint(0, 0);
  const auto progress_until = [&](size_t rank, auto condition) {
    for (const TimeNs deadline = now_ns() + patience_ns; !condition() && now_ns() < deadline;) transports[rank]->progress();
    ASSERT_TRUE(condition());
  };
  const VerbsCounters &sender = *verbs_counters(*transports[0]), &receiver = *verbs_counters(*transports[1]);
  uint64_t message = 17, received = 0;
  size_t done = 0;
  ASSERT_EQ(from.send(reinterpret_cast<const std::byte*>(&message), sizeof message, 1, done), Status::done);
  ASSERT_TRUE(break_verbs_path(*transports[0], 1, 0, 0));
  constexpr int until_told = 1000;  // times, in which the device has given back what was posted
  for (int i = 0; i < until_told; ++i) transports[0]->progress();
  ASSERT_EQ(sender.paths_failed, 1u);
  progress_until(1, [&] { return receiver.credits == 1; });  // the receiver has stopped that path as well
  FakeVerbs::refuse_sends(1);
  progress_until(0, [&] { return sender.resent == 1; });
  FakeVerbs::refuse_sends(0);
  ASSERT_EQ(sender.paths_failed, 2u);
  done = 0;
  Status status = Status::again;
  for (const TimeNs deadline = now_ns() + patience_ns; status == Status::again && now_ns() < deadline;) {
    for (const auto& transport : transports) transport->progress();
    status = to.recv(reinterpret_cast<std::byte*>(&received), sizeof received, 1, done);
  }
  EXPECT_EQ(status, Status::done);
  EXPECT_EQ(received, message);
  end_together(transports);
}

// --- Whole calls, each rank a thread that waits, and sleeps, as ranks do.

constexpr size_t elements_max = (size_t{1} << 16) + 4;

// What the ranks of a world have in common.
struct CallsWorld {
  uint64_t seed;
  Fault fault;
  int ranks;
  bool both_devices, lends;
  int rounds, struck_in;  // in which round somebody strikes
  std::atomic<bool> struck{false};
};

class CallingRank {
 public:
  CallingRank(CallsWorld& played, const tuttiUniqueId& id, int rank) : world_(played), rank_(rank) {
    VerbsOptions options;
    options.devices = played.both_devices ? "" : device_of(rank);
    const Transport* verbs = nullptr;
    communicator_ = join_by_verbs(id, rank, played.ranks, options, false, patience_ns, verbs);
    for (int64_t** buffer : {&in_, &out_}) {
      void* memory = std::calloc(elements_max, sizeof(int64_t));
      if (played.lends) {
        std::free(memory);
        EXPECT_EQ(tuttiMemAlloc(&memory, elements_max * sizeof(int64_t)), tuttiSuccess);
      }
      *buffer = static_cast<int64_t*>(memory);
    }
  }
  ~CallingRank() {
    communicator_.reset();
    for (int64_t* buffer : {in_, out_}) {
      if (world_.lends) tuttiMemFree(buffer);
      else std::free(buffer);
    }
  }

  void work() {
    std::mt19937_64 random(world_.seed), moments(world_.seed + uint64_t(rank_));
    for (int round = 0; round < world_.rounds; ++round) {
      const size_t count = size_t{1} << random() % 17;
      const bool all_to_all = random() % 3 == 0;
      if (round >= world_.struck_in && moments() % 2 == 0 && !world_.struck.exchange(true)) strike(world_.fault, moments);
      if (!call(all_to_all, all_to_all ? count / size_t(world_.ranks) + 1 : count, round)) return;
    }
    communicator_->leave();
  }

 private:
  bool call(bool all_to_all, size_t count, int round) {
    std::string wrong;
    const Code code = call_and_check(*communicator_, all_to_all, count, round, in_, out_, wrong);
    EXPECT_EQ(code, Code::success) << "rank " << rank_ << ", round " << round << ": " << communicator_->failure()->sentence;
    EXPECT_EQ(wrong, "") << "rank " << rank_;
    return code == Code::success && wrong.empty();
  }

  CallsWorld& world_;
  int rank_;
  std::unique_ptr<Communicator> communicator_;
  int64_t *in_ = nullptr, *out_ = nullptr;
};

TEST_F(VerbsFaults, CallsGoOnWithRightResults) {
  for (const Fault fault : faults)
    for (int i = 0; i < (worlds_wanted() + 3) / 4; ++i) {
      const uint64_t seed = uint64_t(i) * std::size(faults) + uint64_t(fault);
      SCOPED_TRACE(seed);
      std::mt19937_64 random(seed);
      FakeVerbs::reset(seed);
      CallsWorld world{seed, fault, 2 + int(random() % 3), random() % 2 == 0, random() % 2 == 0, 8, int(random() % 8)};
      tuttiUniqueId id;
      ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
      {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < world.ranks; ++rank)
          threads.emplace_back([&, rank] { CallingRank(world, id, rank).work(); });
      }
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(FakeVerbs::misuse(), "");
    }
}

}  // namespace
}  // namespace tutti
