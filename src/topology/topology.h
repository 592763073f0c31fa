// Machines as plain data: what a host has, which ranks sit where, and what it costs to reach each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/price.h"

namespace tutti {

struct Cache {
  int level = 0;             // 1, 2, 3
  uint64_t bytes = 0;
  std::vector<int> cores;    // logical CPU numbers (OS index) that share it
};

struct NumaNode {
  int index = 0;             // OS index
  uint64_t bytes = 0;
  std::vector<int> cores;
};

enum class DeviceKind : uint8_t { nic, hca, gpu };

struct Device {
  DeviceKind kind = DeviceKind::nic;
  std::string name;          // eth0, mlx5_0, cuda0
  std::string model;         // vendor and product where known
  int numa = -1;             // nearest NUMA node, or -1
  std::string pci;           // bus id, or ""
  uint64_t bits_per_s = 0;   // link speed where known
};

struct Package {
  int index = 0;
  std::string model;
  std::vector<int> cores;
};

// One host.
struct Host {
  std::string name;
  std::vector<Package> packages;
  std::vector<NumaNode> numa;
  std::vector<Cache> caches;
  std::vector<Device> devices;
  std::vector<int> cores;          // all
  std::vector<int> cores_allowed;  // by cgroup and affinity
  double cpu_quota = 0;            // CPUs' worth of time that the cgroup grants; 0: no limit
};

// Where a rank is: what it tells the others about itself.
struct Place {
  int host = 0;                    // number of its host, by proof
  std::vector<int> cores_allowed;
  int numa = -1;                   // the NUMA node that holds all its cores, or -1
  int last_cache = -1;             // the last-level cache that holds all its cores, or -1
};

// This machine, by hwloc. Throws Error(system_error).
Host discover_host();
// From an hwloc XML file (cores_allowed: all of them). Throws Error that names the file.
Host load_host(const std::string& xml_path);
// The part of `host` that a rank with this affinity sees.
Place place_of(const Host& host);

}  // namespace tutti
