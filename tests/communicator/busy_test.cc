// Ranks that share their cores with busy processes are late, and never taken for dead.
//
// TUTTI_TEST_SECONDS=N in the environment makes it last so long; usually 10.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "communicator/ranks.h"

namespace tutti {
namespace {

// A name that belongs to this test only.
double seconds_asked_for() {
  const char* text = std::getenv("TUTTI_TEST_SECONDS");
  return text == nullptr ? 10 : std::strtod(text, nullptr);
}

// Processes that do nothing but use their core.
class BusyProcesses {
 public:
  explicit BusyProcesses(int n) {
    for (int i = 0; i < n; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0)
        for (volatile uint64_t turns = 0;;) turns = turns + 1;
      pids_.push_back(pid);
    }
  }
  ~BusyProcesses() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

 private:
  std::vector<pid_t> pids_;
};

// Calls of all sizes, one after the other, until the time is over on some rank: all learn of it by the last call.
void work(int rank, tuttiComm_t comm, TimeNs until, int n) {
  std::vector<int32_t> in(1 << 18, rank + 1), out(in.size());
  const int32_t sum = n * (n + 1) / 2;
  TimeNs longest_ns = 0;
  size_t calls = 0;
  for (int32_t over = 0, any = 0; any == 0; ++calls) {
    const size_t count = size_t{1} << (calls % 7 * 3);
    const TimeNs begun = now_ns();
    ASSERT_EQ(tuttiAllReduce(in.data(), out.data(), count, tuttiInt32, tuttiSum, comm, nullptr), tuttiSuccess)
        << tuttiGetLastError(nullptr);
    longest_ns = std::max(longest_ns, now_ns() - begun);
    ASSERT_TRUE(out[0] == sum && out[count - 1] == sum) << out[0];
    if (calls % 16 != 15) continue;
    over = now_ns() > until;
    ASSERT_EQ(tuttiAllReduce(&over, &any, 1, tuttiInt32, tuttiMax, comm, nullptr), tuttiSuccess) << tuttiGetLastError(nullptr);
  }
  EXPECT_GT(calls, 100u);
  if (rank == 0) fmt::print("{} calls, the longest {:.0f} ms\n", calls, double(longest_ns) / 1e6);
}

TEST(Busy, NobodyIsTakenForDeadWhileEightOthersUseTheCores) {
  constexpr int ranks = 4, others = 8;
  // A fifth of what users get, so that there is something to miss.
  ASSERT_EQ(::setenv("TUTTI_SILENCE_MS", "2000", 1), 0);
  test::stay_on_two_cores();
  const BusyProcesses busy(others);
  for (const char* transport : {"shm", "tcp"}) {
    test::RanksOptions options;
    options.transport = transport;
    options.timeout_ms = 60'000;
    const TimeNs until = now_ns() + TimeNs(seconds_asked_for() / 2 * double(ns_per_s));
    fmt::print("{} ranks over {} beside {} busy processes on 2 cores:\n", ranks, transport, others);
    std::fflush(stdout);
    test::Processes processes(ranks, options,
                              [&](int rank, tuttiComm_t comm) { work(rank, comm, until, ranks); });
    processes.expect_success();
  }
}

}  // namespace
}  // namespace tutti
