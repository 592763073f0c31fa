// tutti-perf: time, bandwidth and correctness of the collectives, with nccl-tests' options and columns.
#include <cstdio>
#include <exception>
#include <string>

#include <fmt/format.h>

#include "bench/perf/options.h"
#include "bench/perf/ranks.h"

namespace {

// Under a launcher, what all ranks would say is said by rank 0.
bool speaks() {
  int rank = 0;
  return tuttiEnvRank(&rank, nullptr, nullptr) != tuttiSuccess || rank == 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string text;
    const std::optional<tutti::perf::Options> options = tutti::perf::parse_options(argc, argv, text);
    if (options) return tutti::perf::run_ranks(*options);
    if (speaks()) fmt::print("{}", text);
    return 0;
  } catch (const tutti::perf::UsageError& error) {
    if (speaks()) fmt::print(stderr, "tutti-perf: {}\n", error.what());
    return tutti::perf::exit_usage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tutti-perf: {}\n", error.what());
    return tutti::perf::exit_failure;
  }
}
