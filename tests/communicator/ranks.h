// Ranks for tests: threads of this process, or processes, each with a communicator of its own.
#pragma once

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tutti/tutti.h"

namespace tutti::test {

struct RanksOptions {
  const char* transport = nullptr;  // as tuttiConfig_t
  const char* algorithm = nullptr;
  int timeout_ms = 20000;
  int channels = -1;
  int determinism = -1;
  std::function<int(int rank)> device{};  // that a rank names; empty: none does
  std::function<void(int rank)> before_join{};

  tuttiConfig_t config(int rank) const {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.transport = transport;
    config.algorithm = algorithm;
    config.timeout_ms = timeout_ms;
    config.channels = channels;
    config.determinism = determinism;
    if (device) config.device = device(rank);
    return config;
  }
};

// The calling thread, and what it starts from now on, has two cores.
inline void stay_on_two_cores() {
  cpu_set_t allowed, two;
  CPU_ZERO(&two);
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++core)
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &two);
  ASSERT_EQ(::sched_setaffinity(0, sizeof two, &two), 0);
}

// The calling thread has the first or the second core of those, or the only one.
inline void stay_on_one_core_of_two(int which) {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = -1;
  for (int core = 0, seen = 0; core < CPU_SETSIZE && seen <= which; ++core)
    if (CPU_ISSET(core, &allowed)) last = core, ++seen;
  CPU_SET(last, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
}

using Body = std::function<void(int rank, tuttiComm_t comm)>;

// Joins, runs body, destroys. Failures of gtest assertions on threads count as on the main thread.
inline void join_and_run(int n, const tuttiUniqueId& id, int rank, const RanksOptions& options, const Body& body) {
  const tuttiConfig_t config = options.config(rank);
  tuttiComm_t comm = nullptr;
  if (options.before_join) options.before_join(rank);
  const tuttiResult_t result = tuttiCommInitRankConfig(&comm, n, id, rank, &config);
  ASSERT_EQ(result, tuttiSuccess) << "rank " << rank << ": " << tuttiGetLastError(nullptr);
  body(rank, comm);
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

// n ranks as threads; returns when all have ended.
inline void run_threads(int n, const RanksOptions& options, const Body& body) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << tuttiGetLastError(nullptr);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] { join_and_run(n, id, rank, options, body); });
}

// n forked processes. The parent opens the meeting place after forking, so that no thread is lost in a fork.
class Processes {
 public:
  Processes(int n, const RanksOptions& options, const Body& body) {
    std::vector<int> pipes;
    for (int rank = 0; rank < n; ++rank) {
      int ends[2];
      if (::pipe(ends) != 0) std::abort();
      const pid_t pid = ::fork();
      if (pid == 0) run_child(n, ends[0], rank, options, body);
      ::close(ends[0]);
      pipes.push_back(ends[1]);
      pids_.push_back(pid);
    }
    tuttiUniqueId id;
    EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << tuttiGetLastError(nullptr);
    for (const int pipe : pipes) {
      EXPECT_EQ(::write(pipe, &id, sizeof id), ssize_t(sizeof id));
      ::close(pipe);
    }
  }
  ~Processes() {
    for (size_t i = 0; i < pids_.size(); ++i)
      if (pids_[i] > 0) {
        ::kill(pids_[i], SIGKILL);
        ::waitpid(pids_[i], nullptr, 0);
      }
  }

  pid_t pid(int rank) const { return pids_[size_t(rank)]; }
  // Waits for a rank to end; its wait status.
  int wait(int rank) {
    int status = -1;
    ::waitpid(pids_[size_t(rank)], &status, 0);
    pids_[size_t(rank)] = -1;
    return status;
  }
  // Expects every rank to end with exit code 0.
  void expect_success() {
    for (size_t rank = 0; rank < pids_.size(); ++rank)
      EXPECT_EQ(wait(int(rank)), 0) << "rank " << rank;
  }

 private:
  [[noreturn]] static void run_child(int n, int pipe, int rank, const RanksOptions& options, const Body& body) {
    tuttiUniqueId id;
    if (::read(pipe, &id, sizeof id) != ssize_t(sizeof id)) ::_exit(3);
    ::close(pipe);
    join_and_run(n, id, rank, options, body);
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }

  std::vector<pid_t> pids_;
};

inline void run_processes(int n, const RanksOptions& options, const Body& body) {
  Processes processes(n, options, body);
  processes.expect_success();
}

}  // namespace tutti::test
