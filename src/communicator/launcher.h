// Which rank of which job this process is, as its launcher says in the environment.
#pragma once

#include <cstdint>
#include <string>

#include "bootstrap/bootstrap.h"

namespace tutti {

struct LaunchedRank {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  std::string launcher;        // "RANK" (torchrun, tutti-run), "Open MPI", "PMI", "Slurm"
  std::string master_address;  // where rank 0 can be reached
  uint16_t master_port = 0;
  std::string job;             // text that is the same on all ranks of the job and differs between jobs
};

// Throws Error(invalid_usage) that names the variable which is missing, malformed or out of range.
LaunchedRank launched_rank();

// As above without the meeting place (master_address, master_port, job stay empty).
LaunchedRank launched_rank_only();

// Ranks that a launcher says it has started on this host; 1 where none does.
int launched_on_this_host();

// The key of the environment rendezvous: from TUTTI_JOB_KEY where set, else from the launcher's job text.
Key job_key(const LaunchedRank& launched);

}  // namespace tutti
