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

#include "base/clock.h"

namespace tutti {

// Where the core does not exist or is not allowed, the thread stays where it is.
inline void pin_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// Runs body(0) and body(1) at once on two cores, `repetitions` times, and returns the least time of one run in ns:
// on a machine that others use too, the least is what the hardware can do.
inline double least_run_ns(int core_a, int core_b, int repetitions, const std::function<void(int)>& body) {
  std::atomic<int> arrived{0};
  double least = 1e300;
  const auto run = [&](int side) {
    pin_to_core(side == 0 ? core_a : core_b);
    for (int i = 0; i < repetitions; ++i) {
      arrived.fetch_add(1);
      while (arrived.load() < 2 * (i + 1)) {}
      const TimeNs start = now_ns();
      body(side);
      if (side == 0) least = std::min(least, double(now_ns() - start));
    }
  };
  std::thread other(run, 1);
  std::thread first(run, 0);
  first.join();
  other.join();
  return least;
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
