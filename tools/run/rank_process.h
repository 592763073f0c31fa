// One rank as a process: its environment, its start, and the words for its end.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace tutti::run {

// What all ranks of a job have in common.
struct JobEnvironment {
  int ranks;
  int port;         // of rank 0's meeting place
  std::string key;  // 256 random bits in hexadecimal
};

// A fresh key and a free port. Throws std::runtime_error.
JobEnvironment make_job_environment(int ranks);

// This process's environment with the variables of `rank` set as torchrun sets them.
std::vector<std::string> rank_environment(const JobEnvironment& job, int rank);

// The cores that each of `ranks` ranks gets: equal shares of those that this process may use, near each other; shared
// where there are fewer cores than ranks.
std::vector<cpu_set_t> core_shares(int ranks);

struct RankProcess {
  pid_t pid = -1;  // also its process group
  Fd out, err;     // read ends, non-blocking; invalid where the rank writes to our own
};

// Which of its output streams a rank shares with us instead of writing into a pipe.
struct SharedOutput {
  bool out = false, err = false;
};

// Starts `command` in its own process group, killed when the calling thread's process dies. Standard input is
// /dev/null, but rank 0 keeps one that is no terminal. Throws std::runtime_error with a sentence where the program
// cannot be run.
RankProcess start_rank(int rank, const std::vector<std::string>& command, const std::vector<std::string>& environment,
                       const std::optional<cpu_set_t>& cores, SharedOutput shared);

// "exit code 3", "killed by SIGSEGV (Segmentation fault), core dumped"; and the exit code that says the same.
std::string describe_end(int wait_status);
int exit_code_of(int wait_status);

}  // namespace tutti::run
