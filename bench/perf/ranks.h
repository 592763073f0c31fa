// Where the ranks of tutti-perf come from: a launcher's environment, processes started here, threads.
#pragma once

#include "bench/perf/options.h"

namespace tutti::perf {

inline constexpr int exit_wrong = 1;    // results were wrong
inline constexpr int exit_usage = 2;    // wrong command line
inline constexpr int exit_failure = 3;  // the library failed, or a file could not be written

// How many ranks there will be in all; 0 where a launcher's environment does not say.
int count_ranks(const Options& options);

// Runs the whole measurement on this process's ranks and returns its exit code. Says on standard error what failed.
int run_ranks(const Options& options);

}  // namespace tutti::perf
