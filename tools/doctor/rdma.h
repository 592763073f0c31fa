// What can be wrong with InfiniBand and RoCE devices: library, drivers, ports, GIDs, packet sizes, locked memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/checks.h"

namespace tutti {

// What is looked at beside /sys.
struct RdmaMachine {
  std::string root;                                       // before /sys and /dev; "" for this machine
  bool library = false;                                   // libibverbs can be loaded
  std::optional<std::vector<std::string>> driven;         // devices that it has a driver for; none: it was not asked
  std::optional<uint64_t> locked_bytes_max;               // none: no limit holds for this process
  std::string devices_wanted;                             // TUTTI_IB_HCA
  std::optional<int64_t> gid_index_wanted;                // TUTTI_IB_GID_INDEX
};

RdmaMachine this_rdma_machine();

// One finding where there is no device; else one of the devices, one of each port, and one of locked memory.
std::vector<Finding> check_rdma(const RdmaMachine& machine);

}  // namespace tutti
