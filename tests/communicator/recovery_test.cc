// Real processes that are killed while eight of them work: what survivors say, how soon they go on as fewer, and how soon
// a newcomer has taken a dead rank's place. Prints what it measured.
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/clock.h"
#include "communicator/ranks.h"
#include "sanitizer.h"

namespace tutti {
namespace {

constexpr int n = 8;

// What the processes tell each other and the test.
struct Board {
  std::atomic<int> at_work{0};
  std::atomic<int> told{0};  // of the failure
  std::atomic<int> id_is_there{0};
  tuttiUniqueId id;
  struct Seen {
    TimeNs told_at = 0;    // of the failure
    TimeNs went_on_at = 0; // the first right result after it
    char sentence[256] = {};
  };
  std::array<Seen, n> seen;
};

class Shared {
 public:
  Shared() : memory_(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) std::abort();
    new (memory_) Board;
  }
  ~Shared() { ::munmap(memory_, sizeof(Board)); }
  Board* operator->() const { return static_cast<Board*>(memory_); }

 private:
  void* memory_;
};

// One call whose sum says who took part.
tuttiResult_t call(tuttiComm_t comm, int rank, int64_t& sum) {
  const int64_t mine = int64_t{1} << rank;
  return tuttiAllReduce(&mine, &sum, 1, tuttiInt64, tuttiSum, comm, nullptr);
}

int64_t sum_without(const std::set<int>& victims) {
  int64_t sum = 0;
  for (int rank = 0; rank < n; ++rank) sum += victims.contains(rank) ? 0 : int64_t{1} << rank;
  return sum;
}

// Works until the communicator fails, and notes why and when.
void work_until_told(const Shared& board, int rank, tuttiComm_t comm) {
  int64_t sum = 0;
  tuttiResult_t result = tuttiSuccess;
  for (int calls = 0; (result = call(comm, rank, sum)) == tuttiSuccess; ++calls) {
    EXPECT_EQ(sum, sum_without({}));
    if (calls == 10) ++board->at_work;
  }
  Board::Seen& seen = board->seen[size_t(rank)];
  seen.told_at = now_ns();
  EXPECT_EQ(result, tuttiRemoteError);
  std::strncpy(seen.sentence, tuttiGetLastError(comm), sizeof seen.sentence - 1);
}

// Kills the victims once all are at work; then waits for all.
void kill_and_wait(const Shared& board, test::Processes& processes, const std::set<int>& victims) {
  while (board->at_work.load() < n) ::usleep(1000);
  for (const int victim : victims) ::kill(processes.pid(victim), SIGKILL);
  for (int rank = 0; rank < n; ++rank) {
    const int status = processes.wait(rank);
    if (!victims.contains(rank)) {
      EXPECT_EQ(status, 0) << "rank " << rank;
    }
  }
}

// All survivors were told one thing, of a victim. The longest time from being told to the next right result.
TimeNs slowest(const Shared& board, const std::set<int>& victims) {
  TimeNs longest = 0;
  std::string first;
  for (int rank = 0; rank < n; ++rank) {
    if (victims.contains(rank)) continue;
    const Board::Seen& seen = board->seen[size_t(rank)];
    if (first.empty()) first = seen.sentence;
    EXPECT_STREQ(seen.sentence, first.c_str()) << "rank " << rank;
    longest = std::max(longest, seen.went_on_at - seen.told_at);
  }
  const bool names_victim = std::ranges::any_of(
      victims, [&](int victim) { return first.starts_with(fmt::format("rank {} (host ", victim)); });
  EXPECT_TRUE(names_victim) << first;
  return longest;
}

// Says how long they took, and no more: a busy machine is no mistake. What was seen is in docs/simulation.md.
void tell(const char* what, const std::set<int>& victims, TimeNs took) {
  fmt::print("{} ranks, {} {}: from the verdict to the next right all_reduce {:.1f} ms\n", n, fmt::join(victims, " and "),
             what, double(took) / 1e6);
  std::fflush(stdout);  // before the next fork
}

TEST(Recovery, SurvivorsOfEightGoOn) {
  for (const std::set<int>& victims : std::vector<std::set<int>>{{3}, {0}, {7}, {0, 1}, {1, 3}, {2, 6}, {0, 4}}) {
    const Shared board;
    test::Processes processes(n, {}, [&](int rank, tuttiComm_t comm) {
      work_until_told(board, rank, comm);
      tuttiComm_t rest = nullptr;
      ASSERT_EQ(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_AGREE), tuttiSuccess)
          << tuttiGetLastError(nullptr);
      int64_t sum = 0;
      ASSERT_EQ(call(rest, rank, sum), tuttiSuccess) << tuttiGetLastError(nullptr);
      board->seen[size_t(rank)].went_on_at = now_ns();
      EXPECT_EQ(sum, sum_without(victims));
      int size = 0;
      EXPECT_EQ(tuttiCommCount(rest, &size), tuttiSuccess);
      EXPECT_EQ(size, n - int(victims.size()));
      EXPECT_EQ(tuttiCommDestroy(rest), tuttiSuccess);
    });
    kill_and_wait(board, processes, victims);
    tell("killed", victims, slowest(board, victims));
  }
}

// While the others shrink, which takes some milliseconds, at any of its moments.
TEST(Recovery, WhoDiesWhileOthersShrinkIsNotWaitedFor) {
  constexpr int moments = 16;
  constexpr auto between_us = 1700;
  TimeNs longest = 0;
  for (int moment = 0; moment < moments; ++moment) {
    const int first = 5, second = moment % 5;
    const Shared board;
    test::Processes processes(n, {}, [&](int rank, tuttiComm_t comm) {
      work_until_told(board, rank, comm);
      ++board->told;
      tuttiComm_t rest = nullptr;
      ASSERT_EQ(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_AGREE), tuttiSuccess)
          << tuttiGetLastError(nullptr);
      // It may have died after they had all joined.
      int64_t sum = 0;
      tuttiResult_t result = tuttiSuccess;
      while ((result = call(rest, rank, sum)) == tuttiSuccess && sum != sum_without({first, second}))
        EXPECT_EQ(sum, sum_without({first}));
      if (result != tuttiSuccess) {
        EXPECT_EQ(result, tuttiRemoteError);
        tuttiComm_t last = nullptr;
        ASSERT_EQ(tuttiCommShrink(rest, nullptr, 0, &last, nullptr, TUTTI_SHRINK_AGREE), tuttiSuccess)
            << tuttiGetLastError(nullptr);
        EXPECT_EQ(tuttiCommDestroy(rest), tuttiSuccess);
        rest = last;
        ASSERT_EQ(call(rest, rank, sum), tuttiSuccess);
      }
      board->seen[size_t(rank)].went_on_at = now_ns();
      EXPECT_EQ(sum, sum_without({first, second}));
      EXPECT_EQ(tuttiCommDestroy(rest), tuttiSuccess);
    });
    while (board->at_work.load() < n) ::usleep(1000);
    ::kill(processes.pid(first), SIGKILL);
    while (board->told.load() == 0) ::usleep(100);
    ::usleep(useconds_t(moment * between_us));
    ::kill(processes.pid(second), SIGKILL);
    for (int rank = 0; rank < n; ++rank) {
      const int status = processes.wait(rank);
      if (rank != first && rank != second) {
        EXPECT_EQ(status, 0) << "rank " << rank << ", moment " << moment;
      }
    }
    longest = std::max(longest, slowest(board, {first, second}));
  }
  fmt::print("{} ranks, a second killed while they shrink: at most {:.1f} ms to the next right all_reduce\n", n,
             double(longest) / 1e6);
}

// By a list too: whose end comes while the others shrink is told at once, as its or as one that the list lacks.
TEST(Recovery, WhoDiesInsteadOfShrinkingByAListIsNotWaitedFor) {
  for (const int victim : {0, 3, 6}) {
    const Shared board;
    test::Processes processes(n, {}, [&](int rank, tuttiComm_t comm) {
      ++board->at_work;
      if (rank == victim) ::pause();  // until it is killed
      if (rank == n - 1) return;      // excluded
      const int excluded = n - 1;
      tuttiComm_t rest = nullptr;
      const TimeNs since = now_ns();
      const tuttiResult_t result = tuttiCommShrink(comm, &excluded, 1, &rest, nullptr, TUTTI_SHRINK_DEFAULT);
      EXPECT_TRUE(result == tuttiRemoteError || result == tuttiInvalidArgument) << result << ": " << tuttiGetLastError(nullptr);
      EXPECT_NE(std::string(tuttiGetLastError(nullptr)).find(fmt::format("rank {}", victim)), std::string::npos)
          << tuttiGetLastError(nullptr);
      EXPECT_LT(now_ns() - since, 10 * ns_per_s);  // far from the deadline
    });
    while (board->at_work.load() < n) ::usleep(1000);
    ::usleep(100000);  // the others are in the call
    ::kill(processes.pid(victim), SIGKILL);
    for (int rank = 0; rank < n; ++rank) {
      const int status = processes.wait(rank);
      if (rank != victim) {
        EXPECT_EQ(status, 0) << "rank " << rank << ", victim " << victim;
      }
    }
  }
}

// What one rank cannot do is every rank's error, and the communicator that they come from is as it was.
TEST(Recovery, WhereOneCannotJoinAllAreToldAndMayShrinkAgain) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer needs descriptors of its own, and takes memory that it cannot try for broken";
  const Shared board;
  test::Processes processes(n, {}, [&](int rank, tuttiComm_t comm) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeout_ms = 2000;
    tuttiComm_t twin = nullptr;
    ASSERT_EQ(tuttiCommDup(comm, &twin, nullptr), tuttiSuccess) << tuttiGetLastError(nullptr);
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none{0, limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, rank == 3 ? &none : &limit), 0);
    tuttiComm_t all = nullptr;
    const tuttiResult_t result = tuttiCommShrink(twin, nullptr, 0, &all, &config, TUTTI_SHRINK_AGREE);
    EXPECT_EQ(result, tuttiSystemError);  // the reason, not that others waited in vain
    EXPECT_EQ(all, nullptr);
    std::strncpy(board->seen[size_t(rank)].sentence, tuttiGetLastError(nullptr), sizeof Board::Seen::sentence - 1);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    ASSERT_EQ(tuttiCommShrink(twin, nullptr, 0, &all, &config, TUTTI_SHRINK_AGREE), tuttiSuccess)
        << tuttiGetLastError(nullptr);
    int64_t sum = 0;
    EXPECT_EQ(call(all, rank, sum), tuttiSuccess) << tuttiGetLastError(nullptr);
    EXPECT_EQ(sum, sum_without({}));
    EXPECT_EQ(tuttiCommDestroy(all), tuttiSuccess);
    EXPECT_EQ(tuttiCommDestroy(twin), tuttiSuccess);
  });
  processes.expect_success();
  for (int rank = 0; rank < n; ++rank) {
    EXPECT_NE(std::string(board->seen[size_t(rank)].sentence).find("rank 3 "), std::string::npos)
        << "rank " << rank << ": " << board->seen[size_t(rank)].sentence;
    EXPECT_STREQ(board->seen[size_t(rank)].sentence, board->seen[0].sentence) << "rank " << rank;
  }
}

// A process that stands by and joins under a number that has become free.
pid_t fork_stand_in(const Shared& board, int rank) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  while (board->id_is_there.load() == 0) ::usleep(200);
  tuttiComm_t comm = nullptr;
  int64_t sum = 0;
  int code = 1;
  if (tuttiCommInitRank(&comm, n, board->id, rank) == tuttiSuccess && call(comm, rank, sum) == tuttiSuccess &&
      sum == sum_without({}) && tuttiCommDestroy(comm) == tuttiSuccess)
    code = 0;
  ::_exit(code);
}

TEST(Recovery, ARankIsReplacedUnderItsNumber) {
  for (const std::set<int>& victims : std::vector<std::set<int>>{{3}, {0}, {0, 5}}) {
    const Shared board;
    std::vector<pid_t> stand_ins;
    for (const int victim : victims) stand_ins.push_back(fork_stand_in(board, victim));
    test::Processes processes(n, {}, [&](int rank, tuttiComm_t comm) {
      work_until_told(board, rank, comm);
      const bool gives_id = rank == n - 1;
      if (gives_id) {
        ASSERT_EQ(tuttiGetUniqueId(&board->id), tuttiSuccess);
        board->id_is_there = 1;
      }
      tuttiComm_t again = nullptr;
      ASSERT_EQ(tuttiCommReplace(comm, gives_id ? &board->id : nullptr, &again, nullptr), tuttiSuccess)
          << tuttiGetLastError(nullptr);
      int mine = -1, size = 0;
      EXPECT_EQ(tuttiCommUserRank(again, &mine), tuttiSuccess);
      EXPECT_EQ(mine, rank);
      EXPECT_EQ(tuttiCommCount(again, &size), tuttiSuccess);
      EXPECT_EQ(size, n);
      int64_t sum = 0;
      ASSERT_EQ(call(again, rank, sum), tuttiSuccess) << tuttiGetLastError(nullptr);
      board->seen[size_t(rank)].went_on_at = now_ns();
      EXPECT_EQ(sum, sum_without({}));
      EXPECT_EQ(tuttiCommDestroy(again), tuttiSuccess);
    });
    kill_and_wait(board, processes, victims);
    for (const pid_t pid : stand_ins) {
      int status = -1;
      ::waitpid(pid, &status, 0);
      EXPECT_EQ(status, 0);
    }
    tell("killed and replaced", victims, slowest(board, victims));
  }
}

}  // namespace
}  // namespace tutti
