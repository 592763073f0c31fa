// tutti-perf: time, bandwidth and correctness of the collectives, with nccl-tests' options and columns.
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "bench/micro/line_exchange.h"
#include "bench/perf/options.h"
#include "bench/perf/ranks.h"
#include "bench/perf/report.h"

namespace {

// Under a launcher, what all ranks would say is said by rank 0.
bool speaks() {
  int rank = 0;
  return tuttiEnvRank(&rank, nullptr, nullptr) != tuttiSuccess || rank == 0;
}

// All ranks find the same fault, and the first to leave makes a launcher end the others: rank 0 gets time to say it.
int refuse(const char* sentence) {
  if (speaks()) fmt::print(stderr, "tutti-perf: {}\n", sentence);
  else std::this_thread::sleep_for(std::chrono::seconds(1));
  return tutti::perf::exit_usage;
}

// What can be known to be wrong before the ranks meet.
void look_ahead(const tutti::perf::Options& options) {
  if (const int ranks = tutti::perf::count_ranks(options); ranks > 0) tutti::perf::make_cases(options, ranks);
  if (speaks()) tutti::perf::look_at_files(options);
}

// Between the first two cores of this process. The ranks share the cores later on, so it is measured before.
double line_exchange_here() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) return 0;
  int cores[2], found = 0;
  for (int core = 0; found < 2; ++core)
    if (CPU_ISSET(core, &allowed)) cores[found++] = core;
  return tutti::line_exchange_ns(cores[0], cores[1]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string text;
    std::optional<tutti::perf::Options> options = tutti::perf::parse_options(argc, argv, text);
    if (!options) {
      if (speaks()) fmt::print("{}", text);
      return 0;
    }
    look_ahead(*options);
    if (options->line_exchange && speaks()) options->line_exchange_ns = line_exchange_here();
    return tutti::perf::run_ranks(*options);
  } catch (const tutti::perf::UsageError& error) {
    return refuse(error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "tutti-perf: {}\n", error.what());
    return tutti::perf::exit_failure;
  }
}
