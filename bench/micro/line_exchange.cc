// line-exchange: prints the nanoseconds of an exchange of two flag lines between two cores, the limit of small
// operations. Usage: line-exchange [CORE CORE]; by default the first two that are allowed.
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/micro/line_exchange.h"

int main(int argc, char** argv) {
  cpu_set_t allowed;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  if (argc == 3) cores = {std::atoi(argv[1]), std::atoi(argv[2])};
  if (argc == 2 || argc > 3 || cores.size() < 2 || cores[0] == cores[1]) {
    std::fprintf(stderr, "usage: line-exchange [CORE CORE], two different cores\n");
    return 2;
  }
  std::printf("%.1f ns between cores %d and %d\n", tutti::line_exchange_ns(cores[0], cores[1]), cores[0], cores[1]);
  return 0;
}
