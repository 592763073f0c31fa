// Prints what one exchange of two flag lines between two cores takes: the limit of small operations in shared memory.
#include <algorithm>
#include <array>
#include <cstdlib>

#include <fmt/format.h>

#include "line_exchange.h"

int main(int argc, char** argv) {
  if (argc != 1 && argc != 3) {
    fmt::print(stderr, "usage: {} [CORE_A CORE_B]\n", argv[0]);
    return 1;
  }
  const int core_a = argc == 3 ? std::atoi(argv[1]) : 0, core_b = argc == 3 ? std::atoi(argv[2]) : 1;
  std::array<double, 11> rounds;
  for (double& round : rounds) round = tutti::line_exchange_ns(core_a, core_b);
  std::sort(rounds.begin(), rounds.end());
  fmt::print("line exchange between cores {} and {}: median {:.1f} ns, least {:.1f} ns, of {} rounds\n", core_a, core_b,
             rounds[rounds.size() / 2], rounds.front(), rounds.size());
}
