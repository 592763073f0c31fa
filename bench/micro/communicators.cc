// communicators: what making and ending communicators takes, at rank 0: joining, 40 duplicates, and their ends; the first call of
// a communicator, which plans; and what memory this rank has beside its program (Pss: shared memory counts once).
// Usage: tutti-run -n RANKS communicators
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tutti/tutti.h"

namespace {

void check(tuttiResult_t result) {
  if (result == tuttiSuccess) return;
  std::fprintf(stderr, "communicators: %s\n", tuttiGetLastError(nullptr));
  std::exit(1);
}

template <class Work>
double ms_of(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

long pss_kb() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Pss:")) return std::atol(line.c_str() + 4);
  return 0;
}

}  // namespace

int main() {
  constexpr int duplicates = 40;
  const long before_kb = pss_kb();
  tuttiComm_t comm = nullptr;
  const double init_ms = ms_of([&] { check(tuttiCommInitEnv(&comm, nullptr)); });
  const long joined_kb = pss_kb();
  int rank = 0, size = 0;
  check(tuttiCommUserRank(comm, &rank));
  check(tuttiCommCount(comm, &size));
  float one = 1, sum = 0;
  const double first_ms = ms_of([&] { check(tuttiAllReduce(&one, &sum, 1, tuttiFloat32, tuttiSum, comm, nullptr)); });
  std::vector<double> dup_ms, destroy_ms;
  for (int i = 0; i < duplicates; ++i) {
    tuttiComm_t again = nullptr;
    dup_ms.push_back(ms_of([&] { check(tuttiCommDup(comm, &again, nullptr)); }));
    destroy_ms.push_back(ms_of([&] { check(tuttiCommDestroy(again)); }));
  }
  if (rank == 0)
    std::printf("%d ranks: init %.1f ms, first all_reduce %.2f ms, dup %.2f ms, destroy %.2f ms (longest %.1f), memory %.1f MB\n", size,
                init_ms, first_ms, median(dup_ms), median(destroy_ms), *std::max_element(destroy_ms.begin(), destroy_ms.end()),
                double(joined_kb - before_kb) / 1024);
  check(tuttiCommDestroy(comm));
  return 0;
}
