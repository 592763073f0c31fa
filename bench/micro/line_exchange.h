// The limit that small operations are measured against: two threads exchange two flag lines, written by hand.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace tutti {

// Where the core does not exist or is not allowed, the thread stays where it is.
inline void pin_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// Runs body(0) and body(1) at once on two cores, `repetitions` times; of each run the time in ns until both had ended.
inline std::vector<double> run_times_ns(int core_a, int core_b, int repetitions, const std::function<void(int)>& body) {
  std::atomic<int> arrived{0};
  std::array<std::vector<double>, 2> times;
  const auto run = [&](int side) {
    pin_to_core(side == 0 ? core_a : core_b);
    for (int i = 0; i < repetitions; ++i) {
      arrived.fetch_add(1);
      while (arrived.load() < 2 * (i + 1)) {}
      const TimeNs start = now_ns();
      body(side);
      times[size_t(side)].push_back(double(now_ns() - start));
    }
  };
  std::thread other(run, 1);
  std::thread first(run, 0);
  first.join();
  other.join();
  for (size_t i = 0; i < times[0].size(); ++i) times[0][i] = std::max(times[0][i], times[1][i]);
  return times[0];
}

// The least of them: on a machine that others use too, what the hardware can do.
inline double least_run_ns(int core_a, int core_b, int repetitions, const std::function<void(int)>& body) {
  const std::vector<double> times = run_times_ns(core_a, core_b, repetitions, body);
  return *std::min_element(times.begin(), times.end());
}

// The median, of an odd number of them: what it could do at the time.
inline double median_run_ns(int core_a, int core_b, int repetitions, const std::function<void(int)>& body) {
  std::vector<double> times = run_times_ns(core_a, core_b, repetitions, body);
  const auto middle = times.begin() + repetitions / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// ns of one exchange: each side stores a number in its own line and waits until the other's line holds it too.
inline double line_exchange_ns(int core_a, int core_b) {
  struct alignas(128) Line {
    std::atomic<uint64_t> number{0};
  };
  constexpr uint64_t rounds = 1000;
  std::array<Line, 2> lines;
  std::array<uint64_t, 2> last{};
  return least_run_ns(core_a, core_b, 100, [&](int side) {
    Line &mine = lines[size_t(side)], &theirs = lines[size_t(1 - side)];
    uint64_t& k = last[size_t(side)];
    for (uint64_t i = 0; i < rounds; ++i) {
      mine.number.store(++k, std::memory_order_release);  // pairs with the other side's load
      while (theirs.number.load(std::memory_order_acquire) < k) {}
    }
  }) / double(rounds);
}

}  // namespace tutti
