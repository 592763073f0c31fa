// What a program that measures another library has in common with the next: options, cases, table, file.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bench/perf/library.h"

namespace tutti::perf {

// The value of an environment variable that the launcher sets. Throws UsageError where it is not set.
std::string from_environment(const char* name);

// Parses the command line, takes the core that is the rank's (--bind), joins the other ranks, and measures as tutti-perf
// does. `make` joins and gives the library; `title` then names it. Returns the program's exit code.
int run_peer(int argc, char** argv, const char* program,
             const std::function<std::unique_ptr<Library>(const Options& options, std::string& title)>& make);

}  // namespace tutti::perf
