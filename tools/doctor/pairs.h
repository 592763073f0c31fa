// Which transport connects each pair of ranks, and how fast: tutti-doctor --pairs, started as ranks are.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/checks.h"

namespace tutti {

// Collective among the ranks that the environment tells of (torchrun, mpirun, srun, tutti-run). All ranks get the same
// findings, one for each pair; where they do not meet, a finding that says why. rank: of the caller.
std::vector<Finding> examine_pairs(int& rank);

struct PairEnd {
  int rank;
  std::string host;
  int rdma_ports_up;
};
struct PairSpeed {
  std::string transport;
  double half_us, mib_per_s;  // of a small message, half a round trip; of large ones
};
// allowed: TUTTI_TRANSPORT; what was asked for is no remark.
Finding judge_pair(const PairEnd& one, const PairEnd& other, const PairSpeed& speed, const std::string& allowed);

}  // namespace tutti
