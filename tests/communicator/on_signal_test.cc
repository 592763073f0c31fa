// Reacting to signals: what is called, in which order, and what becomes of the process.
#include "communicator/on_signal.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

void wait_until(const std::atomic<int>& value, int wanted) {
  for (int i = 0; i < 10'000 && value.load() != wanted; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(OnSignal, NamesAndNumbersAreUnderstoodAndOthersRefused) {
  EXPECT_EQ(signal_number("USR2"), SIGUSR2);
  EXPECT_EQ(signal_number("SIGTERM"), SIGTERM);
  EXPECT_EQ(signal_number("sigint"), SIGINT);
  EXPECT_EQ(signal_number(std::to_string(SIGUSR1)), SIGUSR1);
  for (const char* name : {"", "KILL", "9", "SEGV", "USR3", "-1", "10x", "0", "99999999999"}) {
    try {
      signal_number(name);
      ADD_FAILURE() << name << " was understood";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_usage);
      EXPECT_NE(std::string(error.what()).find(std::string("\"") + name + "\" is none of HUP, INT"), std::string::npos)
          << error.what();
    }
  }
}

TEST(OnSignal, EveryWatcherReactsToEachSignalAndNothingIsLeftBehind) {
  struct sigaction before {}, after {};
  ::sigaction(SIGUSR2, nullptr, &before);
  {
    std::vector<std::atomic<int>> reactions(5);
    std::vector<std::unique_ptr<OnSignal>> watchers;
    for (auto& count : reactions)
      watchers.push_back(std::make_unique<OnSignal>(SIGUSR2, [&count] { count.fetch_add(1); }));
    for (int signals = 1; signals <= 20; ++signals) {
      ::raise(SIGUSR2);
      for (auto& count : reactions) {
        wait_until(count, signals);
        ASSERT_EQ(count.load(), signals);
      }
    }
    EXPECT_THROW(OnSignal(SIGUSR1, [] {}), Error) << "another signal";
    watchers.resize(2);
    ::raise(SIGUSR2);
    wait_until(reactions[1], 21);
    EXPECT_EQ(reactions[1].load(), 21);
    EXPECT_EQ(reactions[4].load(), 20);
  }
  ::sigaction(SIGUSR2, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

std::atomic<int> own_handler_saw{0};
std::atomic<int> reacted{0};

TEST(OnSignal, TheProgramsOwnHandlerIsCalledAfterTheReaction) {
  struct sigaction own {}, before {};
  own.sa_handler = [](int) { own_handler_saw.store(reacted.load() + 100); };
  ::sigaction(SIGTERM, &own, &before);
  {
    const OnSignal watcher(SIGTERM, [] { reacted.fetch_add(1); });
    ::raise(SIGTERM);
    EXPECT_EQ(own_handler_saw.load(), 101);
  }
  ::raise(SIGTERM);
  EXPECT_EQ(own_handler_saw.load(), 101) << "the program's handler alone";
  EXPECT_EQ(reacted.load(), 1);
  ::sigaction(SIGTERM, &before, nullptr);
}

TEST(OnSignal, ASignalThatEndsTheProcessStillDoesAfterTheReaction) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGTERM, SIG_DFL);
    const OnSignal watcher(SIGTERM, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (::write(ends[1], "x", 1) != 1) ::_exit(3);
    });
    ::raise(SIGTERM);
    ::_exit(4);
  }
  ::close(ends[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  char letter = 0;
  EXPECT_EQ(::read(ends[0], &letter, 1), 1);
  ::close(ends[0]);
}

}  // namespace
}  // namespace tutti
