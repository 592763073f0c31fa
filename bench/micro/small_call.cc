// small-call: prints what an all_reduce of 8 bytes between two ranks on two cores takes, through the C interface,
// beside the hand-written exchange of two flag lines between the same cores (X) and the goal of 1.5 X + 40 ns. Both are
// measured in turns, and both as the least of many runs of 1,000. Usage: small-call [ROUNDS]
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "bench/micro/line_exchange.h"
#include "tutti/tutti.hpp"

namespace {

constexpr int core_a = 0, core_b = 1;

// ns of one call, both ranks calling at once.
double all_reduce_ns(std::array<tuttiComm_t, 2> ranks) {
  constexpr int calls = 1000;
  return tutti::least_run_ns(core_a, core_b, 100, [&](int side) {
    uint64_t input = 1, output = 0;
    for (int i = 0; i < calls; ++i) {
      if (tuttiAllReduce(&input, &output, 1, tuttiUint64, tuttiSum, ranks[size_t(side)], nullptr) == tuttiSuccess)
        continue;
      std::fprintf(stderr, "small-call: %s\n", tuttiGetLastError(nullptr));
      std::exit(1);
    }
    if (output != 2) std::exit(1);
  }) / calls;
}

// ns of one call of a rank that is alone: the software before and after the exchange.
double alone_ns(tuttiComm_t alone) {
  constexpr int calls = 1000;
  return tutti::least_run_ns(core_a, core_b, 100, [&](int side) {
    uint64_t input = 1, output = 0;
    for (int i = 0; side == 0 && i < calls; ++i)
      tuttiAllReduce(&input, &output, 1, tuttiUint64, tuttiSum, alone, nullptr);
  }) / calls;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc == 2 ? std::atoi(argv[1]) : 5;
  if (argc > 2 || rounds < 1) {
    std::fprintf(stderr, "usage: small-call [ROUNDS]\n");
    return 2;
  }
  std::array<tuttiComm_t, 2> ranks{};
  tuttiComm_t alone = nullptr;
  if (tuttiCommInitAll(ranks.data(), 2, nullptr) != tuttiSuccess ||
      tuttiCommInitAll(&alone, 1, nullptr) != tuttiSuccess) {
    std::fprintf(stderr, "small-call: %s\n", tuttiGetLastError(nullptr));
    return 1;
  }
  std::printf("%8s %14s %14s %10s %10s   (ns)\n", "X", "all_reduce 8 B", "1.5 X + 40", "ratio", "alone");
  for (int round = 0; round < rounds; ++round) {
    const double x_before = tutti::line_exchange_ns(core_a, core_b);
    const double call = all_reduce_ns(ranks);
    const double x = (x_before + tutti::line_exchange_ns(core_a, core_b)) / 2;
    const double goal = 1.5 * x + 40;
    std::printf("%8.1f %14.1f %14.1f %10.2f %10.1f\n", x, call, goal, call / goal, alone_ns(alone));
  }
  for (const tuttiComm_t comm : {ranks[0], ranks[1], alone}) tuttiCommDestroy(comm);
  return 0;
}
