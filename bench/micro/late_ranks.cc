// late-ranks: what all_reduces take where ranks do not arrive together, as in a program, whose ranks compute between calls and are
// rarely done at once. Prints µs from the begin of the last rank, which comes LATE µs after the others, having computed so long or
// slept: of one call, and of ten in a row, medians, and what nine of ten runs stay below. And how much of a core a rank uses that
// waits for another for a second.
//
// Then what an asynchronous all_reduce takes where each rank computes on the core that the call's thread has, and begins
// late or not: until the call has ended, beside the same call that its rank just waits for.
// Usage, of a launcher's ranks: tutti-run -n 2 late-ranks; the last table with two ranks only.
//
// For the same of an MPI: mpicxx -DRANKS_OF_MPI -O2 -std=c++20 late_ranks.cc -o late-ranks-mpi; mpirun -n 2 ./late-ranks-mpi
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "ranks.h"

namespace {

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point start) { return std::chrono::duration<double, std::micro>(Clock::now() - start).count(); }
void compute(double us) {
  for (const auto start = Clock::now(); us_since(start) < us;) {
  }
}
void sleep(double us) { std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(us)); }

constexpr int runs = 41;
struct Spread {
  double median, nine_of_ten;
};
template <class Run>
Spread spread_of(Run run) {
  std::vector<double> us(runs);
  for (double& each : us) each = run();
  std::sort(us.begin(), us.end());
  return {us[runs / 2], us[runs * 9 / 10]};
}

// `delay` keeps the last rank.
template <class Delay, class Work>
Spread after(Ranks& ranks, Delay delay, Work work) {
  return spread_of([&] {
    ranks.barrier();
    if (ranks.rank() == 0) delay();
    const auto start = Clock::now();
    work();
    return us_since(start);
  });
}

double processor_seconds() {
  rusage used;
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) / 1e6; };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Printed by the last rank that waits.
void measure_waiting(Ranks& ranks) {
  ranks.barrier();
  const double before = processor_seconds();
  if (ranks.rank() == 0) sleep(1e6);
  ranks.barrier();
  const double used = processor_seconds() - before;
  if (ranks.rank() == ranks.size() - 1) std::printf("a rank that waits for a second uses %.3f s of a core\n", used);
}

void measure_beside_computing(Ranks& ranks, const float* input, float* output) {
  stay_on_own_core(ranks);
  if (ranks.rank() == 0) std::printf("%9s %9s %12s %20s\n", "bytes", "late", "waited for", "beside computing");
  for (const size_t bytes : {size_t{65536}, size_t{1} << 20, size_t{16} << 20})
    for (const double late : {0.0, 2000.0}) {
      const size_t count = bytes / sizeof(float);
      const auto delay = [&] { compute(late); };
      const Spread alone = after(ranks, [] {}, [&] {
        ranks.begin_all_reduce(input, output, count);
        ranks.wait();
      });
      const Spread beside = after(ranks, delay, [&] {
        ranks.begin_all_reduce(input, output, count);
        while (!ranks.has_ended()) compute(20);
      });
      if (ranks.rank() == 0)
        std::printf("%9zu %9.0f %12.1f %10.1f < %7.1f\n", bytes, late, alone.median, beside.median, beside.nine_of_ten);
    }
}

}  // namespace

int main() {
  Ranks ranks;
  constexpr size_t bytes_max = size_t{16} << 20;
  std::vector<float> input(bytes_max / sizeof(float)), output(bytes_max / sizeof(float));
  if (ranks.rank() == 0) std::printf("%9s %9s %20s %20s %22s\n", "bytes", "late", "computed", "slept", "ten calls");
  for (const size_t bytes : {size_t{8}, size_t{4096}, size_t{65536}, size_t{1} << 20}) {
    const auto call = [&] { ranks.all_reduce(input.data(), output.data(), bytes / sizeof(float)); };
    for (int i = 0; i < 300; ++i) call();
    for (const double late : {50.0, 300.0, 1000.0, 5000.0, 15000.0}) {
      const Spread computed = after(ranks, [&] { compute(late); }, call);
      const Spread slept = after(ranks, [&] { sleep(late); }, call);
      const Spread ten = after(ranks, [&] { compute(late); }, [&] {
        for (int i = 0; i < 10; ++i) call();
      });
      if (ranks.rank() != 0) continue;
      std::printf("%9zu %9.0f %10.2f < %7.2f %10.2f < %7.2f %12.2f < %7.2f\n", bytes, late, computed.median,
                  computed.nine_of_ten, slept.median, slept.nine_of_ten, ten.median, ten.nine_of_ten);
    }
  }
  measure_waiting(ranks);
  if (ranks.size() == 2) measure_beside_computing(ranks, input.data(), output.data());
}
