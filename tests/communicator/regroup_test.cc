// New communicators from old ones: who is in them, in which order, that they work alone, and what is refused.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "communicator/c_api.h"
#include "communicator/ranks.h"
#include "sanitizer.h"

namespace tutti {
namespace {

using test::run_processes;
using test::run_threads;

std::string last_error() { return tuttiGetLastError(nullptr); }

int rank_of(tuttiComm_t comm) {
  int rank = -1;
  EXPECT_EQ(tuttiCommUserRank(comm, &rank), tuttiSuccess);
  return rank;
}
int size_of(tuttiComm_t comm) {
  int size = -1;
  EXPECT_EQ(tuttiCommCount(comm, &size), tuttiSuccess);
  return size;
}

// What each rank of comm gives, by rank.
std::vector<int> gathered(tuttiComm_t comm, int mine) {
  std::vector<int> all(size_t(size_of(comm)), -1);
  EXPECT_EQ(tuttiAllGather(&mine, all.data(), 1, tuttiInt32, comm, nullptr), tuttiSuccess) << last_error();
  return all;
}

void expect_refused(tuttiResult_t result, tuttiResult_t code, const char* words) {
  EXPECT_EQ(result, code);
  EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
}

TEST(Split, RanksOfOneColourMeetInTheOrderOfTheirKeys) {
  for (int n = 1; n <= 7; ++n)
    for (int colours = 1; colours <= 3; ++colours)
      run_threads(n, {}, [=](int rank, tuttiComm_t comm) {
        tuttiComm_t part = nullptr;
        ASSERT_EQ(tuttiCommSplit(comm, rank % colours, -rank, &part, nullptr), tuttiSuccess) << last_error();
        std::vector<int> expected;
        for (int r = n - 1; r >= 0; --r)
          if (r % colours == rank % colours) expected.push_back(r);
        EXPECT_EQ(gathered(part, rank), expected);
        EXPECT_EQ(rank_of(part), std::find(expected.begin(), expected.end(), rank) - expected.begin());
        std::vector<int> everyone(static_cast<size_t>(n));
        std::iota(everyone.begin(), everyone.end(), 0);
        EXPECT_EQ(gathered(comm, rank), everyone) << "the parent works on";
        EXPECT_EQ(tuttiCommDestroy(part), tuttiSuccess);
      });
}

TEST(Split, EqualKeysKeepTheOrderOfRanksAndNoColourGivesNone) {
  run_threads(5, {}, [](int rank, tuttiComm_t comm) {
    tuttiComm_t part = comm;
    ASSERT_EQ(tuttiCommSplit(comm, rank == 2 ? TUTTI_SPLIT_NOCOLOR : 7, 0, &part, nullptr), tuttiSuccess)
        << last_error();
    if (rank == 2) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    EXPECT_EQ(gathered(part, rank), (std::vector<int>{0, 1, 3, 4}));
    EXPECT_EQ(tuttiCommDestroy(part), tuttiSuccess);
  });
}

TEST(Split, ChildrenOutliveTheirParentAndSplitFurther) {
  run_processes(6, {}, [](int rank, tuttiComm_t comm) {
    tuttiComm_t copy = nullptr, half = nullptr, quarter = nullptr;
    ASSERT_EQ(tuttiCommDup(comm, &copy, nullptr), tuttiSuccess) << last_error();
    ASSERT_EQ(tuttiCommSplit(copy, rank / 3, 0, &half, nullptr), tuttiSuccess) << last_error();
    ASSERT_EQ(tuttiCommDestroy(copy), tuttiSuccess);
    ASSERT_EQ(tuttiCommSplit(half, rank % 3 == 0 ? 0 : 1, 0, &quarter, nullptr), tuttiSuccess) << last_error();
    ASSERT_EQ(tuttiCommDestroy(half), tuttiSuccess);
    const std::vector<int> expected =
        rank % 3 == 0 ? std::vector{rank} : std::vector{rank / 3 * 3 + 1, rank / 3 * 3 + 2};
    EXPECT_EQ(gathered(quarter, rank), expected);
    EXPECT_EQ(tuttiCommDestroy(quarter), tuttiSuccess);
  });
}

TEST(Split, InAGroupOneThreadIsSeveralRanks) {
  std::array<tuttiComm_t, 4> comms{}, parts{};
  ASSERT_EQ(tuttiCommInitAll(comms.data(), 4, nullptr), tuttiSuccess) << last_error();
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  for (int rank = 0; rank < 4; ++rank)
    ASSERT_EQ(tuttiCommSplit(comms[size_t(rank)], rank % 2, 0, &parts[size_t(rank)], nullptr), tuttiSuccess);
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << last_error();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(size_of(parts[size_t(rank)]), 2);
    EXPECT_EQ(rank_of(parts[size_t(rank)]), rank / 2);
  }
  for (const tuttiComm_t comm : parts) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST(Split, SettingsAreTheParentsUnlessOthersAreGiven) {
  test::RanksOptions options;
  options.transport = "tcp";
  run_threads(2, options, [](int, tuttiComm_t comm) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.transport = "shm";
    for (const tuttiConfig_t* given : {static_cast<tuttiConfig_t*>(nullptr), &config}) {
      tuttiComm_t copy = nullptr;
      ASSERT_EQ(tuttiCommDup(comm, &copy, given), tuttiSuccess) << last_error();
      const char* name = nullptr;
      ASSERT_EQ(tuttiCommTransport(copy, 1 - rank_of(copy), &name), tuttiSuccess);
      EXPECT_STREQ(name, given == nullptr ? "tcp" : "shm");
      EXPECT_EQ(tuttiCommDestroy(copy), tuttiSuccess);
    }
  });
}

// Two ranks with two cores spin while they wait; not where two more of their job, in the other part, need the cores as well.
TEST(Split, APartKnowsThatItsCoresAreCrowdedByOthers) {
  test::RanksOptions options;
  options.before_join = [](int) { test::stay_on_two_cores(); };
  const auto yields = [](tuttiComm_t comm) { return communicator_of(comm).patience().spin_ns == 0; };
  run_threads(4, options, [&](int rank, tuttiComm_t comm) {
    ASSERT_TRUE(yields(comm));
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    tuttiComm_t part = nullptr, copy = nullptr, rest = nullptr;
    ASSERT_EQ(tuttiCommSplit(comm, rank / 2, rank, &part, nullptr), tuttiSuccess) << last_error();
    EXPECT_TRUE(yields(part));
    ASSERT_EQ(tuttiCommDup(part, &copy, &config), tuttiSuccess) << last_error();
    EXPECT_TRUE(yields(copy));
    // Those that a shrink leaves out are taken for gone.
    if (rank < 2) {
      const std::array<int, 2> gone{2, 3};
      ASSERT_EQ(tuttiCommShrink(comm, gone.data(), 2, &rest, nullptr, TUTTI_SHRINK_DEFAULT), tuttiSuccess) << last_error();
      EXPECT_EQ(yields(rest), std::thread::hardware_concurrency() < 2);
      EXPECT_EQ(tuttiCommDestroy(rest), tuttiSuccess);
    }
    EXPECT_EQ(tuttiCommDestroy(copy), tuttiSuccess);
    EXPECT_EQ(tuttiCommDestroy(part), tuttiSuccess);
  });
}

TEST(Shrink, TheRestGoesOnInTheirOrder) {
  for (int n = 2; n <= 6; ++n)
    run_threads(n, {}, [n](int rank, tuttiComm_t comm) {
      const int out = n / 2;
      if (rank == out) return;
      tuttiComm_t rest = nullptr;
      ASSERT_EQ(tuttiCommShrink(comm, &out, 1, &rest, nullptr, TUTTI_SHRINK_DEFAULT), tuttiSuccess) << last_error();
      std::vector<int> expected;
      for (int r = 0; r < n; ++r)
        if (r != out) expected.push_back(r);
      EXPECT_EQ(gathered(rest, rank), expected);
      EXPECT_EQ(tuttiCommDestroy(rest), tuttiSuccess);
    });
}

// Ranks die one after the other, the first of all among them; each time the others shrink and go on.
TEST(Shrink, SurvivorsOfDeathsGoOn) {
  for (const char* transport : {"shm", "tcp"}) {
    test::RanksOptions options;
    options.transport = transport;
    constexpr int n = 5;
    test::Processes processes(n, options, [](int world_rank, tuttiComm_t world) {
      const std::array<int, 2> deaths = {0, 3};  // world ranks
      tuttiComm_t comm = world;
      std::vector<int> members = {0, 1, 2, 3, 4};
      for (const int dying : deaths) {
        EXPECT_EQ(gathered(comm, world_rank), members);
        tuttiBarrier(comm, nullptr);  // all have gathered; who still meets the others here may miss the dying one
        if (world_rank == dying) ::kill(::getpid(), SIGKILL);
        int value = 1, sum = 0;
        tuttiResult_t result = tuttiSuccess;
        while (result == tuttiSuccess) result = tuttiAllReduce(&value, &sum, 1, tuttiInt32, tuttiSum, comm, nullptr);
        EXPECT_EQ(result, tuttiRemoteError) << last_error();
        const int excluded = int(std::find(members.begin(), members.end(), dying) - members.begin());
        const int other = (excluded + 1) % int(members.size());
        tuttiComm_t rest = nullptr;
        if (members[size_t(other)] != world_rank && members.size() > 2)
          expect_refused(tuttiCommShrink(comm, &other, 1, &rest, nullptr, TUTTI_SHRINK_DEFAULT), tuttiInvalidArgument,
                         "which has failed");
        ASSERT_EQ(tuttiCommShrink(comm, &excluded, 1, &rest, nullptr, TUTTI_SHRINK_DEFAULT), tuttiSuccess)
            << last_error();
        if (comm != world) {
          EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
        }
        comm = rest;
        members.erase(members.begin() + excluded);
      }
      EXPECT_EQ(gathered(comm, world_rank), members);
      EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
    });
    for (int rank = 0; rank < n; ++rank) {
      const int status = processes.wait(rank);
      const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      EXPECT_TRUE(rank == 0 || rank == 3 ? killed : status == 0) << "rank " << rank << " ended with status " << status;
    }
  }
}

TEST(Shrink, WithAbortWhatIsPendingEndsFirst) {
  run_threads(3, {}, [](int rank, tuttiComm_t comm) {
    const int out = 2;
    tuttiComm_t rest = nullptr;
    int value = 1, sum = 0;
    if (rank == out) {  // waits for two who never come
      EXPECT_EQ(tuttiAllReduce(&value, &sum, 1, tuttiInt32, tuttiSum, comm, nullptr), tuttiAborted);
      return;
    }
    ASSERT_EQ(tuttiCommShrink(comm, &out, 1, &rest, nullptr, TUTTI_SHRINK_ABORT), tuttiSuccess) << last_error();
    EXPECT_EQ(gathered(rest, rank), (std::vector<int>{0, 1}));
    EXPECT_EQ(tuttiCommDestroy(rest), tuttiSuccess);
  });
}

TEST(Grow, NewcomersJoinAndOldRanksKeepTheirNumbers) {
  for (const int newcomers : {1, 3}) {
    tuttiUniqueId id;
    ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    constexpr int n = 3;
    const int size = n + newcomers;
    std::vector<int> everyone(static_cast<size_t>(size));
    std::iota(everyone.begin(), everyone.end(), 0);
    std::vector<std::jthread> threads;
    for (int rank = n; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        tuttiComm_t grown = nullptr;
        ASSERT_EQ(tuttiCommGrow(nullptr, size, &id, rank, &grown, nullptr), tuttiSuccess) << last_error();
        EXPECT_EQ(gathered(grown, rank), everyone);
        EXPECT_EQ(tuttiCommDestroy(grown), tuttiSuccess);
      });
    run_threads(n, {}, [&](int rank, tuttiComm_t comm) {
      tuttiComm_t grown = nullptr;
      ASSERT_EQ(tuttiCommGrow(comm, size, rank == 1 ? &id : nullptr, -1, &grown, nullptr), tuttiSuccess)
          << last_error();
      EXPECT_EQ(gathered(grown, rank), everyone);
      EXPECT_EQ(tuttiCommDestroy(grown), tuttiSuccess);
    });
  }
}

TEST(Grow, DisagreementIsTheSameErrorOnAll) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  run_threads(2, {}, [&](int rank, tuttiComm_t comm) {
    tuttiComm_t grown = nullptr;
    expect_refused(tuttiCommGrow(comm, 3, nullptr, -1, &grown, nullptr), tuttiInvalidUsage, "no rank gives the id");
    expect_refused(tuttiCommGrow(comm, 3, &id, -1, &grown, nullptr), tuttiInvalidUsage, "rank 1 gives an id");
    expect_refused(tuttiCommGrow(comm, 3 + rank, &id, -1, &grown, nullptr), tuttiInvalidUsage,
                   "rank 0 wants to grow to 3 ranks, rank 1 to 4");
    expect_refused(tuttiCommGrow(comm, 2, &id, -1, &grown, nullptr), tuttiInvalidArgument, "nranks is 2");
    expect_refused(tuttiCommGrow(comm, 3, &id, 2, &grown, nullptr), tuttiInvalidArgument, "rank is 2");
    expect_refused(tuttiCommGrow(nullptr, 3, nullptr, 2, &grown, nullptr), tuttiInvalidArgument, "id is NULL");
  });
}

// Who has left is no death, and the others need not know of it to go on without it.
TEST(Shrink, AllWhoLiveAgreeOnWhoThatIs) {
  for (int n = 2; n <= 6; ++n)
    run_threads(n, {}, [n](int rank, tuttiComm_t comm) {
      const int out = n / 2;
      if (rank == out) return;
      tuttiComm_t rest = nullptr;
      ASSERT_EQ(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_AGREE), tuttiSuccess) << last_error();
      std::vector<int> expected;
      for (int r = 0; r < n; ++r)
        if (r != out) expected.push_back(r);
      EXPECT_EQ(gathered(rest, rank), expected);
      EXPECT_EQ(tuttiCommDestroy(rest), tuttiSuccess);
    });
}

TEST(Shrink, WhoLivesAndDoesNotCallIsNamedAtTheDeadline) {
  test::RanksOptions options;
  options.timeout_ms = 300;
  std::atomic<int> done{0};
  run_threads(3, options, [&](int rank, tuttiComm_t comm) {
    tuttiComm_t rest = nullptr;
    if (rank == 0)
      expect_refused(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_AGREE), tuttiTimeout,
                     "rank 2 did not call");
    if (rank == 1)
      expect_refused(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_AGREE), tuttiTimeout, "did not call");
    ++done;
    while (done.load() < 3) std::this_thread::yield();
  });
}

TEST(Replace, ANewcomerTakesTheNumberOfWhoLeft) {
  constexpr int n = 4;
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  constexpr int out = 2;
  std::jthread newcomer([&] {
    tuttiComm_t again = nullptr;
    ASSERT_EQ(tuttiCommInitRank(&again, n, id, out), tuttiSuccess) << last_error();
    EXPECT_EQ(gathered(again, out), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(tuttiCommDestroy(again), tuttiSuccess);
  });
  run_threads(n, {}, [&](int rank, tuttiComm_t comm) {
    if (rank == out) return;
    tuttiComm_t again = nullptr;
    ASSERT_EQ(tuttiCommReplace(comm, rank == 1 ? &id : nullptr, &again, nullptr), tuttiSuccess) << last_error();
    EXPECT_EQ(rank_of(again), rank);
    EXPECT_EQ(gathered(again, rank), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(tuttiCommDestroy(again), tuttiSuccess);
  });
}

TEST(Replace, DisagreementIsTheSameErrorOnAll) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  run_threads(3, {}, [&](int rank, tuttiComm_t comm) {
    tuttiComm_t again = nullptr;
    expect_refused(tuttiCommReplace(comm, nullptr, &again, nullptr), tuttiInvalidUsage, "no rank gives the id");
    expect_refused(tuttiCommReplace(comm, rank > 0 ? &id : nullptr, &again, nullptr), tuttiInvalidUsage,
                   "both give an id");
    expect_refused(tuttiCommReplace(comm, rank == 2 ? &id : nullptr, &again, nullptr), tuttiInvalidUsage,
                   "nobody is to be replaced: all 3 ranks live");
    expect_refused(tuttiCommReplace(comm, nullptr, nullptr, nullptr), tuttiInvalidArgument, "newcomm is NULL");
    EXPECT_EQ(again, nullptr);
  });
}

// Many communicators, driven by several threads of each rank, each in an order of its own.
TEST(Many, CommunicatorsAreDrivenByThreadsInAnyOrder) {
  constexpr int threads_of_rank = 8;
  constexpr size_t each = test::sanitized ? 2 : 16;
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    std::vector<tuttiComm_t> copies(threads_of_rank * each);
    for (tuttiComm_t& copy : copies) ASSERT_EQ(tuttiCommDup(comm, &copy, nullptr), tuttiSuccess) << last_error();
    std::vector<std::jthread> threads;
    for (int t = 0; t < threads_of_rank; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random(unsigned(100 * rank + t));
        std::vector<size_t> mine(each);
        std::iota(mine.begin(), mine.end(), size_t(t) * each);
        for (int round = 0; round < 10; ++round) {
          std::shuffle(mine.begin(), mine.end(), random);
          std::vector<int64_t> in(each), out(each);
          ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
          for (size_t i = 0; i < each; ++i) {
            in[i] = int64_t(mine[i]) + round;
            ASSERT_EQ(tuttiAllReduce(&in[i], &out[i], 1, tuttiInt64, tuttiSum, copies[mine[i]], nullptr), tuttiSuccess);
          }
          ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << last_error();
          for (size_t i = 0; i < each; ++i) ASSERT_EQ(out[i], 2 * in[i]);
        }
      });
    threads.clear();
    for (const tuttiComm_t copy : copies) EXPECT_EQ(tuttiCommDestroy(copy), tuttiSuccess);
  });
}

}  // namespace
}  // namespace tutti
