// determinism-cost: prints what an all_reduce of float32 takes in each mode of determinism, among threads of this process
// over shared memory. The modes are measured in turns, so that what else the machine does meets all of them; ratios are
// taken within a turn. Usage: determinism-cost [MEBIBYTES [ROUNDS [apart]]]; apart: the ranks' inputs are of magnitudes that
// lie so far apart that no two doubles hold their sum.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

constexpr std::array<const char*, 3> modes = {"bitwise", "strict", "invariant"};  // as tuttiDeterminism_t numbers them
using Round = std::array<double, modes.size()>;                                   // us of a call in each mode

void check(tuttiResult_t result) {
  if (result == tuttiSuccess) return;
  std::fprintf(stderr, "determinism-cost: %s\n", tuttiGetLastError(nullptr));
  std::exit(1);
}

// us of one call, as this rank sees it.
double call_us(tuttiComm_t comm, const std::vector<float>& input, std::vector<float>& output, int mode) {
  constexpr int calls = 20;
  tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
  options.determinism = mode;
  check(tuttiBarrier(comm, nullptr));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i)
    check(tuttiAllReduceWith(input.data(), output.data(), input.size(), tuttiFloat32, tuttiSum, comm, nullptr, &options));
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
}

// Rank 0's rounds, but the first, which plans.
std::vector<Round> measure(int ranks, size_t count, int rounds, bool apart) {
  std::vector<tuttiComm_t> comms(size_t(ranks), nullptr);
  check(tuttiCommInitAll(comms.data(), ranks, nullptr));
  std::vector<Round> seen(size_t(rounds) + 1);
  const auto run = [&](int rank) {
    std::vector<float> input(count), output(count);
    for (size_t i = 0; i < count; ++i) {
      input[i] = float(i % 1000 + size_t(rank)) * 0.37f;
      if (apart) input[i] = std::ldexp(input[i], int((i + size_t(rank)) % 4) * 70 - 130);
    }
    for (Round& round : seen)
      for (size_t mode = 0; mode < modes.size(); ++mode) {
        const double us = call_us(comms[size_t(rank)], input, output, int(mode));
        if (rank == 0) round[mode] = us;
      }
  };
  {
    std::vector<std::jthread> others;
    for (int rank = 1; rank < ranks; ++rank) others.emplace_back(run, rank);
    run(0);
  }
  for (const tuttiComm_t comm : comms) check(tuttiCommDestroy(comm));
  seen.erase(seen.begin());
  return seen;
}

template <class Value>
double median(const std::vector<Round>& rounds, Value value) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(value(round));
  std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int mebibytes = argc > 1 ? std::atoi(argv[1]) : 1, rounds = argc > 2 ? std::atoi(argv[2]) : 100;
  const bool apart = argc == 4 && std::strcmp(argv[3], "apart") == 0;
  if (argc > 4 || (argc == 4 && !apart) || mebibytes < 1 || rounds < 1) {
    std::fprintf(stderr, "usage: determinism-cost [MEBIBYTES [ROUNDS [apart]]]\n");
    return 2;
  }
  std::printf("%5s %10s %12s %12s %12s   (medians of %d rounds)\n", "ranks", "mode", "us", "least us", "x bitwise",
              rounds);
  for (const int ranks : {2, 4}) {
    const std::vector<Round> seen = measure(ranks, (size_t(mebibytes) << 20) / sizeof(float), rounds, apart);
    for (size_t mode = 0; mode < modes.size(); ++mode) {
      double least = seen[0][mode];
      for (const Round& round : seen) least = std::min(least, round[mode]);
      std::printf("%5d %10s %12.1f %12.1f %12.2f\n", ranks, modes[mode],
                  median(seen, [&](const Round& round) { return round[mode]; }), least,
                  median(seen, [&](const Round& round) { return round[mode] / round[0]; }));
    }
  }
  return 0;
}
