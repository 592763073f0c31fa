// Which transport connects each pair of ranks, and how fast: tutti-doctor --pairs, started as ranks are.
#pragma once

#include <vector>

#include "tools/doctor/checks.h"

namespace tutti {

// Collective among the ranks that the environment tells of (torchrun, mpirun, srun, tutti-run). All ranks get the same
// findings, one for each pair; where they do not meet, a finding that says why. rank: of the caller.
std::vector<Finding> examine_pairs(int& rank);

}  // namespace tutti
