// Handles: live, dead, and used again only late.
#include "communicator/handle.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "communicator/c_api.h"
#include "communicator/calling_thread.h"
#include "communicator/communicator.h"
#include "communicator/ranks.h"
#include "sanitizer.h"

namespace tutti {
namespace {

struct Cell : Handle<int> {};

TEST(Handle, ADeadOneIsToldFromALiveOneAndIsNotUsedAgainSoon) {
  HandleStore<int, Cell> store;
  Cell* const first = store.make(std::make_unique<int>(7));
  EXPECT_TRUE(first->is_live());
  EXPECT_EQ(*store.take(first), 7);
  EXPECT_FALSE(first->is_live());
  EXPECT_EQ(store.take(first), nullptr);
  std::set<Cell*> later;
  for (int i = 0; i < 200; ++i) {
    Cell* const cell = store.make(std::make_unique<int>(i));
    later.insert(cell);
    store.take(cell);
  }
  EXPECT_FALSE(later.contains(first));
}

TEST(Handle, InAForkItSaysThatTheParentHasTheObjectWhichIsLeftAlone) {
  struct Counted {
    int* destroyed;
    explicit Counted(int* counter) : destroyed(counter) {}
    ~Counted() { ++*destroyed; }
  };
  struct CountedCell : Handle<Counted> {};
  int destroyed = 0;
  {
    HandleStore<Counted, CountedCell> store;
    CountedCell* const cell = store.make(std::make_unique<Counted>(&destroyed));
    Counted* const object = cell->object.get();
    store.before_fork();
    store.after_fork(false);
    EXPECT_TRUE(cell->is_live());
    store.before_fork();
    store.after_fork(true);
    EXPECT_FALSE(cell->is_live());
    EXPECT_TRUE(cell->is_of_parent());
    EXPECT_EQ(store.take(cell), nullptr);
    EXPECT_EQ(destroyed, 0);
    delete object;
  }
  EXPECT_EQ(destroyed, 1);
}

TEST(Handle, AForkIsRefusedEveryCallAndEndsWhileItsParentGoesOn) {
  if (test::thread_sanitizer) GTEST_SKIP() << "forks";
  tuttiComm_t comms[2];
  ASSERT_EQ(tuttiCommInitAll(comms, 2, nullptr), tuttiSuccess);
  const pid_t child = ::fork();
  if (child == 0) {
    float value = 1;
    const bool right = tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiSum, comms[0], nullptr) == tuttiInvalidUsage &&
                       std::string(tuttiGetLastError(nullptr)).find("forked") != std::string::npos &&
                       tuttiCommDestroy(comms[0]) == tuttiInvalidUsage;
    if (test::address_sanitizer) ::_exit(right ? 0 : 1);  // which would call what is left alone leaked
    std::exit(right ? 0 : 1);  // destroys what is static
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::thread other([&] { EXPECT_EQ(tuttiBarrier(comms[1], nullptr), tuttiSuccess); });
  EXPECT_EQ(tuttiBarrier(comms[0], nullptr), tuttiSuccess);
  other.join();
  for (tuttiComm_t comm : comms) tuttiCommDestroy(comm);
}

// Rank 1 is forked, goes on, and is killed while its fork lives. Rank 0 must not lose it before, and miss it at once
// then.
void lose_rank_1_whose_fork_lives(const char* transport) {
  SCOPED_TRACE(transport);
  constexpr int calls_before = 20;
  std::array<int, 2> life{};  // rank 1's fork lives until its writing end, which the test has, is closed
  ASSERT_EQ(::pipe(life.data()), 0);
  test::RanksOptions options;
  options.transport = transport;
  options.timeout_ms = 10000;
  test::Processes ranks(2, options, [&](int rank, tuttiComm_t comm) {
    ::close(life[1]);
    float value = 1;
    const auto all_reduce = [&] { return tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiMax, comm, nullptr); };
    if (rank == 1 && ::fork() == 0) {
      char never;
      ::_exit(::read(life[0], &never, 1) == 0 ? 0 : 1);
    }
    for (int call = 0; call < calls_before; ++call) ASSERT_EQ(all_reduce(), tuttiSuccess) << tuttiGetLastError(nullptr);
    if (rank == 1) ::raise(SIGKILL);
    const auto began = std::chrono::steady_clock::now();
    EXPECT_EQ(all_reduce(), tuttiRemoteError);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1)) << "the fork hides the death";
    EXPECT_NE(std::string(tuttiGetLastError(nullptr)).find("rank 1"), std::string::npos) << tuttiGetLastError(nullptr);
  });
  EXPECT_EQ(ranks.wait(0), 0);
  EXPECT_TRUE(WIFSIGNALED(ranks.wait(1)));
  for (const int end : life) ::close(end);
}

TEST(Handle, AForkClosesNothingOfItsParentsAndDoesNotHideItsDeath) {
  if (test::thread_sanitizer) GTEST_SKIP() << "forks";
  for (const char* transport : {"shm", "tcp"}) lose_rank_1_whose_fork_lives(transport);
}

TEST(CallingThread, KeepsNothingFromOtherThreads) {
  CallingThread::current().sentence = "mine";
  std::thread([] { EXPECT_EQ(CallingThread::current().sentence, ""); }).join();
  EXPECT_EQ(CallingThread::current().sentence, "mine");
}

}  // namespace
}  // namespace tutti
