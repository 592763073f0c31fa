// by-turns: what all_reduces of several sizes take one after the other, as in a program, beside the sum of what each takes when
// it alone is called again and again, as in a benchmark, and what they take at once: in a group (of an MPI: begun all, and then
// waited for). Prints µs, medians of nine runs of 200, and how many times the sum.
// Usage, of a launcher's ranks, on as many cores as there are: tutti-run -n 2 by-turns [BYTES,BYTES,... ...]
// BYTES may be COUNTxBYTES, so many of that size.
//
// For the same of an MPI: mpicxx -DRANKS_OF_MPI -O2 -std=c++20 by_turns.cc -o by-turns-mpi; mpirun -n 2 ./by-turns-mpi
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "ranks.h"

namespace {

// µs of one `call`.
template <class Call>
double median_us(Ranks& ranks, Call call) {
  using Clock = std::chrono::steady_clock;
  constexpr int runs = 9, calls = 200;
  for (int i = 0; i < 50; ++i) call();
  std::vector<double> times;
  for (int run = 0; run < runs; ++run) {
    ranks.barrier();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls);
  }
  std::sort(times.begin(), times.end());
  return times[runs / 2];
}

struct Buffers {
  explicit Buffers(size_t bytes) : input(bytes / sizeof(float), 1.0f), output(input.size()) {}
  std::vector<float> input, output;
};

// Of each size, which are separated by commas.
std::vector<Buffers> buffers_of(const std::string& sizes) {
  std::vector<Buffers> buffers;
  std::istringstream words(sizes);
  for (std::string word; std::getline(words, word, ',');) {
    char* end = nullptr;
    size_t bytes = std::strtoul(word.c_str(), &end, 10), times = 1;
    if (*end == 'x') {
      times = bytes;
      bytes = std::strtoul(end + 1, &end, 10);
    }
    if (*end != '\0' || bytes == 0 || bytes % sizeof(float) != 0 || bytes > size_t{1} << 30 || times == 0 || times > 1000) {
      std::fprintf(stderr, "by-turns: \"%s\" is no number of bytes of floats, up to 1 GiB, nor up to 1000 times such\n",
                   word.c_str());
      std::exit(2);
    }
    for (size_t i = 0; i < times; ++i) buffers.emplace_back(bytes);
  }
  return buffers;
}

void measure(Ranks& ranks, const std::string& sizes) {
  std::vector<Buffers> buffers = buffers_of(sizes);
  const auto call = [&](Buffers& of) { ranks.all_reduce(of.input.data(), of.output.data(), of.input.size()); };
  double sum = 0;
  for (Buffers& of : buffers) sum += median_us(ranks, [&] { call(of); });
  const double by_turns = median_us(ranks, [&] {
    for (Buffers& of : buffers) call(of);
  });
  const double at_once = median_us(ranks, [&] {
    ranks.begin_together();
    for (Buffers& of : buffers) ranks.all_reduce_of_several(of.input.data(), of.output.data(), of.input.size());
    ranks.end_together();
  });
  if (ranks.rank() == 0)
    std::printf("%-32s %9.2f %9.2f %6.2f %9.2f %6.2f\n", sizes.c_str(), sum, by_turns, by_turns / sum, at_once, at_once / sum);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> all(argv + 1, argv + argc);
  if (all.empty())
    all = {"64,128,256,512", "1024,2048,4096,8192", "8,4096,65536", "8192,262144", "16384,65536,262144,1048576", "100000,200000,300000", "16x8",
           "16x1024", "16x16384"};
  Ranks ranks;
  stay_on_own_core(ranks);
  if (ranks.rank() == 0)
    std::printf("%-32s %9s %9s %6s %9s %6s\n", "bytes of each all_reduce", "alone, µs", "by turns", "ratio", "at once", "ratio");
  for (const std::string& sizes : all) measure(ranks, sizes);
  return 0;
}
