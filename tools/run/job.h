// One job of local ranks: started together, watched, and ended together.
#pragma once

#include <string>
#include <vector>

namespace tutti::run {

inline constexpr int ranks_max = 4096;

struct RunOptions {
  int ranks = 1;                     // 1..ranks_max
  bool bind = false;                 // give each rank its share of the cores that this process may use
  bool prefix = true;                // "[rank] " before each line
  double timeout_s = 0;              // the job is ended after so long; 0: never
  double grace_s = 5;                // between SIGTERM and SIGKILL
  std::string output_dir;            // one log per rank goes here; "": none
  std::vector<std::string> command;  // program and its arguments, at least one
};

inline constexpr int exit_usage = 2;      // wrong options, or the program cannot be run
inline constexpr int exit_timeout = 124;  // as timeout(1)

// Runs the job to its end and returns the exit code for it: 0, or that of the rank that failed first (128 + signal).
// Signals that ask for an end must be blocked; they are taken from a signalfd. SIGUSR2 says that the process that
// watches over this one is gone: everything ends at once.
// Throws std::runtime_error, with nothing left running, where a rank cannot be started.
int run_job(const RunOptions& options);

}  // namespace tutti::run
