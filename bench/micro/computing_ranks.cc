// computing-ranks: what a step takes of ranks that begin an asynchronous all_reduce, compute, and wait for it, as in training whose
// gradients are averaged while others are made; beside the same one after the other, computing alone and the call alone. Prints µs a
// step, the least of five runs of twenty steps.
// Usage, of a launcher's ranks: tutti-run -n 4 computing-ranks
//
// For the same of an MPI: mpicxx -DRANKS_OF_MPI -O2 -std=c++20 computing_ranks.cc -o computing-ranks-mpi; mpirun -n 4 ./computing-ranks-mpi
#include <ctime>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "ranks.h"

namespace {

double own_us() {
  timespec used;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return double(used.tv_sec) * 1e6 + double(used.tv_nsec) / 1e3;
}

// So much of a core's time, whoever else has the core in between.
void compute(double us) {
  volatile double made = 1;
  for (const double end = own_us() + us; own_us() < end;)
    for (int i = 0; i < 200; ++i) made = made * 1.0000001;
}

template <class Step>
double us_of(Ranks& ranks, Step step) {
  using Clock = std::chrono::steady_clock;
  constexpr int runs = 5, steps = 20;
  double least = 1e30;
  for (int run = 0; run < runs; ++run) {
    ranks.barrier();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < steps; ++i) step();
    ranks.barrier();
    least = std::min(least, std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / steps);
  }
  return least;
}

}  // namespace

int main() {
  Ranks ranks;
  stay_on_own_core(ranks);
  if (ranks.rank() == 0)
    std::printf("%9s %10s %10s %10s %12s %12s\n", "bytes", "computed", "alone", "the call", "by turns", "at once");
  for (const size_t bytes : {size_t{64} << 10, size_t{1} << 20, size_t{16} << 20}) {
    std::vector<float> input(bytes / sizeof(float), 1.0f), output(input.size());
    const auto call = [&] { ranks.all_reduce(input.data(), output.data(), input.size()); };
    const double called = us_of(ranks, call);
    for (const double us : {200.0, 2000.0, 10000.0}) {
      const double computed = us_of(ranks, [&] { compute(us); });
      const double by_turns = us_of(ranks, [&] {
        call();
        compute(us);
      });
      const double at_once = us_of(ranks, [&] {
        ranks.begin_all_reduce(input.data(), output.data(), input.size());
        compute(us);
        ranks.wait();
      });
      if (ranks.rank() == 0)
        std::printf("%9zu %10.0f %10.0f %10.0f %12.0f %12.0f\n", bytes, us, computed, called, by_turns, at_once);
    }
  }
}
