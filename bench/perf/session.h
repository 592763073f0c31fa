// One rank's whole run: heading, cases, summary, files.
#pragma once

#include <tutti/tutti.h>

#include "bench/perf/options.h"

namespace tutti::perf {

// Of a rank's communicator. device: its number, -1: none.
tuttiConfig_t settings_of(const Options& options, int device);

// Takes over `comm`, which all ranks have joined; every rank calls it. Rank 0 prints. Returns the exit code.
// Throws LibraryError, UsageError, std::bad_alloc, std::runtime_error (a file); the other ranks then end as well.
int run_session(const Options& options, tuttiComm_t comm);

}  // namespace tutti::perf
