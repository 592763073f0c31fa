// Windows as their callers see them: what is put arrives, what is awaited has come, and every wait ends.
#include "communicator/window.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/links.h"
#include "communicator/ranks.h"
#include "communicator/window_link.h"
#include "communicator/window_opening.h"
#include "communicator/window_service.h"
#include "sanitizer.h"

namespace tutti {
namespace {

using test::RanksOptions;
using namespace std::chrono_literals;

constexpr size_t large_bytes = test::sanitized ? size_t{1} << 20 : size_t{5} << 20;

std::string last_error() { return tuttiGetLastError(nullptr); }

void expect_success(tuttiResult_t result) { EXPECT_EQ(result, tuttiSuccess) << last_error(); }

// Where a rank's memory comes from, and how its peers are reached.
struct Way {
  const char* name;
  const char* transport;
  bool shared_on_even, shared_on_odd;  // of tuttiMemAlloc

  bool shares(int rank) const { return rank % 2 == 0 ? shared_on_even : shared_on_odd; }
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

constexpr Way ways[] = {{"Direct", nullptr, true, true},
                        {"OrdinaryMemory", nullptr, false, false},
                        {"Mixed", nullptr, true, false},
                        {"Tcp", "tcp", true, true}};

// A rank's window and its memory, which begins with `content`. (A thread sanitizer does not see that a barrier orders what
// the owner writes later before what the window's thread reads for others.)
class Opened {
 public:
  Opened(const Way& way, int rank, tuttiComm_t comm, size_t bytes, const std::vector<unsigned char>& content = {})
      : comm_(comm) {
    if (way.shares(rank)) expect_success(tuttiMemAlloc(&shared_, bytes));
    else ordinary_.resize(bytes);
    std::copy(content.begin(), content.end(), data());
    expect_success(tuttiCommWindowRegister(comm, data(), bytes, &window_));
  }
  ~Opened() {
    tuttiCommWindowDeregister(comm_, window_);
    tuttiMemFree(shared_);
  }
  unsigned char* data() { return shared_ != nullptr ? static_cast<unsigned char*>(shared_) : ordinary_.data(); }
  tuttiWindow_t get() const { return window_; }

 private:
  tuttiComm_t comm_;
  void* shared_ = nullptr;
  std::vector<unsigned char> ordinary_;
  tuttiWindow_t window_ = nullptr;
};

std::vector<unsigned char> pattern(size_t bytes, unsigned seed) {
  std::vector<unsigned char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>((i * 2654435761u + seed * 40503u) >> 7);
  return data;
}

class Windows : public ::testing::TestWithParam<Way> {
 protected:
  static RanksOptions options(int timeout_ms = 20000) {
    RanksOptions options;
    options.transport = GetParam().transport;
    options.timeout_ms = timeout_ms;
    return options;
  }
  // Each number of ranks, as threads, and some as processes too.
  template <class Body>
  static void run_all(std::initializer_list<int> numbers, Body body) {
    for (const int n : numbers) {
      SCOPED_TRACE(n);
      const auto run = [&, n](int rank, tuttiComm_t comm) { body(n, rank, comm); };
      test::run_threads(n, options(), run);
      if (n == 3 && !test::thread_sanitizer) test::run_processes(n, options(), run);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, Windows, ::testing::ValuesIn(ways),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(Windows, ARingOfPutsArrivesBeforeItsSignal) {
  run_all({1, 2, 3, 4, 5, 6, 7}, [](int n, int rank, tuttiComm_t comm) {
    constexpr size_t bytes = 70'001, rounds = 10;  // a rank may be ahead of another by several
    Opened window(GetParam(), rank, comm, rounds * bytes);
    const int right = (rank + 1) % n, left = (rank + n - 1) % n;
    for (unsigned round = 0; round < rounds; ++round) {
      const size_t at = round * bytes;
      const std::vector<unsigned char> sent = pattern(bytes, round * 8 + unsigned(rank));
      expect_success(tuttiPut(sent.data(), bytes, right, at, window.get()));
      expect_success(tuttiSignal(right, window.get()));
      expect_success(tuttiWaitSignal(left, 1, window.get()));
      const std::vector<unsigned char> wanted = pattern(bytes, round * 8 + unsigned(left));
      ASSERT_EQ(std::memcmp(window.data() + at, wanted.data(), bytes), 0) << "rank " << rank << ", round " << round;
    }
  });
}

// Puts of one rank into its part of every other's memory, drawn alike on both sides.
struct Draw {
  size_t offset, bytes;
  unsigned seed;
};
std::vector<Draw> draws(int from, int to, size_t part_bytes, bool large) {
  std::mt19937 random(unsigned(from * 31 + to));
  const size_t sizes[] = {0, 1, 3, 40, 64, 1000, 4097, 70'001, large ? part_bytes : 5000};
  std::vector<Draw> all;
  for (unsigned i = 0; i < 18; ++i) {
    const size_t bytes = std::min(sizes[i % 9], part_bytes);
    all.push_back({random() % (part_bytes - bytes + 1), bytes, unsigned(random())});
  }
  return all;
}

TEST_P(Windows, PutsOfAnySizeToAnyPlaceArriveInOrder) {
  run_all({1, 2, 3, 5, 6, 7}, [](int n, int rank, tuttiComm_t comm) {
    const bool large = n <= 3;
    const size_t part = large ? large_bytes + 13 : 100'003;
    Opened window(GetParam(), rank, comm, size_t(n) * part);
    for (int peer = 0; peer < n; ++peer) {
      for (const Draw& draw : draws(rank, peer, part, large)) {
        const std::vector<unsigned char> sent = pattern(draw.bytes, draw.seed);
        expect_success(tuttiPut(sent.data(), draw.bytes, peer, size_t(rank) * part + draw.offset, window.get()));
      }
      expect_success(tuttiSignal(peer, window.get()));
    }
    for (int peer = 0; peer < n; ++peer) {
      expect_success(tuttiWaitSignal(peer, 1, window.get()));
      std::vector<unsigned char> wanted(part);
      for (const Draw& draw : draws(peer, rank, part, large)) {
        const std::vector<unsigned char> sent = pattern(draw.bytes, draw.seed);
        std::copy(sent.begin(), sent.end(), wanted.begin() + ptrdiff_t(draw.offset));
      }
      EXPECT_EQ(std::memcmp(window.data() + size_t(peer) * part, wanted.data(), part), 0) << peer << " to " << rank;
    }
  });
}

TEST_P(Windows, GetsBringWhatLiesThere) {
  run_all({1, 3, 5}, [](int n, int rank, tuttiComm_t comm) {
    const bool large = n <= 3;
    const auto bytes_of = [large](int r) { return (large ? large_bytes : 100'000) + size_t(r) * 1001; };
    Opened window(GetParam(), rank, comm, bytes_of(rank), pattern(bytes_of(rank), unsigned(rank)));
    for (int peer = 0; peer < n; ++peer) {
      const std::vector<unsigned char> theirs = pattern(bytes_of(peer), unsigned(peer));
      for (const Draw& draw : draws(rank, peer, bytes_of(peer), large)) {
        std::vector<unsigned char> got(draw.bytes, 0xff);
        expect_success(tuttiGet(got.data(), draw.bytes, peer, draw.offset, window.get()));
        EXPECT_TRUE(std::equal(got.begin(), got.end(), theirs.begin() + ptrdiff_t(draw.offset)));
      }
    }
  });
}

TEST_P(Windows, WhatWasFlushedIsThereForAllWhoAreTold) {
  run_all({3, 5}, [](int n, int rank, tuttiComm_t comm) {
    constexpr size_t bytes = 200'003;
    Opened window(GetParam(), rank, comm, bytes);
    const int right = (rank + 1) % n;
    const std::vector<unsigned char> sent = pattern(bytes, unsigned(rank));
    expect_success(tuttiPut(sent.data(), bytes, right, 0, window.get()));
    expect_success(tuttiWindowFlush(right, window.get()));
    expect_success(tuttiBarrier(comm, nullptr));
    const int further = (rank + 2) % n;
    std::vector<unsigned char> got(bytes);
    expect_success(tuttiGet(got.data(), bytes, further, 0, window.get()));
    EXPECT_EQ(got, pattern(bytes, unsigned(right)));
    expect_success(tuttiBarrier(comm, nullptr));
  });
}

// The next signal is sent only after the answer: one signal too many would let the receiver look before the put.
TEST_P(Windows, SignalsAreCountedExactly) {
  run_all({2, 3}, [](int n, int rank, tuttiComm_t comm) {
    constexpr int rounds = 40;
    Opened window(GetParam(), rank, comm, rounds);
    const int right = (rank + 1) % n, left = (rank + n - 1) % n;
    for (int round = 0; round < rounds; ++round) {
      const int count = 1 + round % 3;
      expect_success(tuttiPut("x", 1, right, size_t(round), window.get()));
      for (int i = 0; i < count; ++i) expect_success(tuttiSignal(right, window.get()));
      expect_success(tuttiWaitSignal(left, count, window.get()));
      ASSERT_EQ(window.data()[round], 'x');
      expect_success(tuttiSignal(left, window.get()));
      expect_success(tuttiWaitSignal(right, 1, window.get()));
    }
  });
}

TEST_P(Windows, ManyThreadsPutSignalAndWaitAtOnce) {
  run_all({1, 2, 3}, [](int n, int rank, tuttiComm_t comm) {
    constexpr size_t bytes = 5000;
    constexpr int threads = 4, rounds = test::sanitized ? 20 : 50;
    Opened window(GetParam(), rank, comm, size_t(n) * threads * bytes);
    {
      std::vector<std::jthread> all;
      for (int t = 0; t < threads; ++t)
        all.emplace_back([&, t] {
          for (int round = 0; round < rounds; ++round)
            for (int peer = 0; peer < n; ++peer) {
              const std::vector<unsigned char> sent = pattern(bytes, unsigned(rank * threads + t + round));
              const size_t at = (size_t(rank) * threads + size_t(t)) * bytes;
              expect_success(tuttiPut(sent.data(), bytes, peer, at, window.get()));
              expect_success(tuttiSignal(peer, window.get()));
            }
        });
      for (int t = 0; t < threads; ++t)
        all.emplace_back([&] {
          for (int peer = 0; peer < n; ++peer) expect_success(tuttiWaitSignal(peer, rounds, window.get()));
        });
    }
    for (int peer = 0; peer < n; ++peer)
      for (int t = 0; t < threads; ++t) {
        const std::vector<unsigned char> wanted = pattern(bytes, unsigned(peer * threads + t + rounds - 1));
        const unsigned char* part = window.data() + (size_t(peer) * threads + size_t(t)) * bytes;
        EXPECT_EQ(std::memcmp(part, wanted.data(), bytes), 0);
      }
  });
}

TEST_P(Windows, WindowsOfNoBytesSignal) {
  run_all({3}, [](int n, int rank, tuttiComm_t comm) {
    tuttiWindow_t window = nullptr;
    expect_success(tuttiCommWindowRegister(comm, nullptr, 0, &window));
    for (int peer = 0; peer < n; ++peer) expect_success(tuttiSignal(peer, window));
    for (int peer = 0; peer < n; ++peer) expect_success(tuttiWaitSignal(peer, 1, window));
    expect_success(tuttiPut(nullptr, 0, 0, 0, window));
    EXPECT_EQ(tuttiPut(&rank, 1, 0, 0, window), tuttiInvalidArgument);
    expect_success(tuttiCommWindowDeregister(comm, window));
  });
}

TEST_P(Windows, SeveralAreOpenAtOnceAndCollectivesGoOn) {
  run_all({3}, [](int n, int rank, tuttiComm_t comm) {
    Opened first(GetParam(), rank, comm, 100);
    {
      Opened second(GetParam(), rank, comm, 100);
      const int right = (rank + 1) % n, left = (rank + n - 1) % n;
      expect_success(tuttiPut("first", 6, right, 0, first.get()));
      expect_success(tuttiPut("second", 7, right, 0, second.get()));
      int sum = 1;
      expect_success(tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiSum, comm, nullptr));
      EXPECT_EQ(sum, n);
      expect_success(tuttiSignal(right, second.get()));
      expect_success(tuttiWaitSignal(left, 1, second.get()));
      EXPECT_STREQ(reinterpret_cast<char*>(second.data()), "second");
    }
    expect_success(tuttiSignal((rank + 1) % n, first.get()));
    expect_success(tuttiWaitSignal((rank + n - 1) % n, 1, first.get()));
    EXPECT_STREQ(reinterpret_cast<char*>(first.data()), "first");
  });
}

// --- What goes wrong

TEST_P(Windows, AWaitForAKilledRankEndsAndNamesIt) {
  if (test::thread_sanitizer) GTEST_SKIP() << "forks";
  test::Processes ranks(3, options(), [](int rank, tuttiComm_t comm) {
    Opened window(GetParam(), rank, comm, 100);
    if (rank == 2) {
      tuttiWaitSignal(0, 1, window.get());
      ::raise(SIGKILL);
    }
    if (rank == 0) tuttiSignal(2, window.get());
    EXPECT_EQ(tuttiWaitSignal(2, 1, window.get()), tuttiRemoteError);
    EXPECT_NE(last_error().find("rank 2"), std::string::npos) << last_error();
    EXPECT_EQ(tuttiPut("x", 1, 2, 0, window.get()), tuttiRemoteError);
    EXPECT_EQ(tuttiCommWindowDeregister(comm, window.get()), tuttiRemoteError);
    EXPECT_EQ(tuttiCommWindowDeregister(comm, window.get()), tuttiInvalidArgument);
  });
  EXPECT_EQ(ranks.wait(0), 0);
  EXPECT_EQ(ranks.wait(1), 0);
  EXPECT_TRUE(WIFSIGNALED(ranks.wait(2)));
}

TEST_P(Windows, PutsAndGetsEndWithAKilledRank) {
  if (test::thread_sanitizer) GTEST_SKIP() << "forks";
  test::Processes ranks(3, options(), [](int rank, tuttiComm_t comm) {
    Opened window(GetParam(), rank, comm, large_bytes);
    if (rank == 2) std::jthread([] {
        std::this_thread::sleep_for(50ms);
        ::raise(SIGKILL);
      }).detach();
    std::vector<unsigned char> mine(large_bytes);
    tuttiResult_t result = tuttiSuccess;
    while (result == tuttiSuccess)
      result = rank == 0 ? tuttiPut(mine.data(), mine.size(), 2, 0, window.get())
                         : tuttiGet(mine.data(), mine.size(), (rank + 1) % 3, 0, window.get());
    EXPECT_EQ(result, tuttiRemoteError);
    EXPECT_NE(last_error().find("rank 2"), std::string::npos) << last_error();
  });
  EXPECT_EQ(ranks.wait(0), 0);
  EXPECT_EQ(ranks.wait(1), 0);
  EXPECT_TRUE(WIFSIGNALED(ranks.wait(2)));
}

TEST_P(Windows, AWaitEndsAtTheDeadlineAndSaysWhatItWaitedFor) {
  test::run_threads(2, options(400), [](int rank, tuttiComm_t comm) {
    Opened window(GetParam(), rank, comm, 100);
    if (rank == 1) {
      expect_success(tuttiSignal(0, window.get()));
      while (tuttiSignal(1, window.get()) == tuttiSuccess) std::this_thread::sleep_for(1ms);
      return;
    }
    EXPECT_EQ(tuttiWaitSignal(1, 2, window.get()), tuttiTimeout);
    const std::string said = last_error();
    EXPECT_NE(said.find("waited 400 ms in a window for 2 signals of rank 1"), std::string::npos) << said;
    EXPECT_NE(said.find("1 had come"), std::string::npos) << said;
  });
}

TEST_P(Windows, AnAbortEndsTheWaitsOfAllRanks) {
  test::run_threads(3, options(), [](int rank, tuttiComm_t comm) {
    Opened window(GetParam(), rank, comm, 100);
    std::jthread other;
    if (rank == 1) other = std::jthread([comm] {
        std::this_thread::sleep_for(50ms);
        tuttiCommAbort(comm);
      });
    EXPECT_EQ(tuttiWaitSignal((rank + 1) % 3, 1, window.get()), tuttiAborted);
    EXPECT_NE(last_error().find("rank 1"), std::string::npos) << last_error();
  });
}

// A rank's requests are answered by its peers' services alone, so aborts must find requests of every kind under way.
TEST_P(Windows, AnAbortEndsPutsAndGetsUnderWay) {
  test::run_threads(3, options(), [](int rank, tuttiComm_t comm) {
    Opened window(GetParam(), rank, comm, large_bytes);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        std::vector<unsigned char> mine(large_bytes / 4);
        const int peer = (rank + 1) % 3;
        tuttiResult_t result = tuttiSuccess;
        while (result == tuttiSuccess)
          result = t % 2 == 0 ? tuttiGet(mine.data(), mine.size(), peer, size_t(t) * mine.size(), window.get())
                              : tuttiWindowFlush(peer, window.get());
        EXPECT_EQ(result, tuttiAborted);
      });
    std::this_thread::sleep_for(30ms);
    if (rank == 0) tuttiCommAbort(comm);
  });
}

size_t entries(const char* folder) {
  return size_t(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST_P(Windows, NothingIsLeftBehind) {
  const size_t threads_before = entries("/proc/self/task");
  // One process holds all ranks: what is counted by one rank while the others wait is stable.
  test::run_threads(3, options(), [](int rank, tuttiComm_t comm) {
    size_t fds = 0, threads = 0;
    { const Opened first(GetParam(), rank, comm, 5000); }  // what is made once is made now
    for (const bool counts_before : {true, false}) {
      expect_success(tuttiBarrier(comm, nullptr));
      std::this_thread::sleep_for(20ms);
      if (rank == 0 && counts_before) {
        fds = entries("/proc/self/fd");
        threads = entries("/proc/self/task");
      } else if (rank == 0) {
        EXPECT_EQ(entries("/proc/self/fd"), fds);
        EXPECT_EQ(entries("/proc/self/task"), threads);
      }
      expect_success(tuttiBarrier(comm, nullptr));
      if (counts_before)
        for (int i = 0; i < 3; ++i) const Opened again(GetParam(), rank, comm, 5000);
    }
  });
  for (int i = 0; i < 100 && entries("/proc/self/task") > threads_before; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_LE(entries("/proc/self/task"), threads_before);
}

TEST(WindowWay, IsDirectWhereMemoryIsSharedAndNeedsNoThread) {
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    const size_t threads = entries("/proc/self/task");
    expect_success(tuttiBarrier(comm, nullptr));
    Opened window(ways[0], rank, comm, 5000);
    expect_success(tuttiBarrier(comm, nullptr));
    EXPECT_LE(entries("/proc/self/task"), threads);
  });
}

}  // namespace
}  // namespace tutti
