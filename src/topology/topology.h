// Machines as plain data: what a host has, which ranks sit where, and what it costs to reach each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/price.h"

namespace tutti {

// `cores` are logical CPU numbers (the OS index), ascending; a physical core with two hardware threads has two.

struct Cache {
  int level = 0;             // 1, 2, 3
  uint64_t bytes = 0;
  std::vector<int> cores;    // that share it
  friend bool operator==(const Cache&, const Cache&) = default;
};

struct NumaNode {
  int index = 0;             // OS index
  uint64_t bytes = 0;
  std::vector<int> cores;    // empty for memory without cores (HBM, CXL)
  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

enum class DeviceKind : uint8_t { nic, hca, gpu, gpu_switch };
const char* name(DeviceKind kind) noexcept;

struct HostDevice {
  DeviceKind kind = DeviceKind::nic;
  std::string name;          // eth0, mlx5_0, cuda0
  std::string model;         // vendor and product where known
  int numa = -1;             // nearest NUMA node, or -1
  std::string pci;           // bus id, or ""
  uint64_t bits_per_s = 0;   // link speed where known
  bool up = true;            // a link that is known to be down is not
  friend bool operator==(const HostDevice&, const HostDevice&) = default;
};

struct Package {
  int index = 0;
  std::string model;
  std::vector<int> cores;
  friend bool operator==(const Package&, const Package&) = default;
};

// A matrix over NUMA nodes or devices: what is lower is nearer (latency) or farther (bandwidth, 0: no link).
struct LinkMatrix {
  std::string name;               // as hwloc calls it: NUMALatency, NVLinkBandwidth (MB/s)
  bool bandwidth = false;
  std::vector<std::string> ends;  // names of devices, or numa0, numa1, …
  std::vector<uint64_t> values;   // ends.size() squared, [from * ends.size() + to]
  uint64_t at(size_t from, size_t to) const { return values[from * ends.size() + to]; }
  friend bool operator==(const LinkMatrix&, const LinkMatrix&) = default;
};

// One host.
struct Host {
  std::string name;
  std::string model;
  std::vector<Package> packages;
  std::vector<NumaNode> numa;
  std::vector<Cache> caches;       // for data, or for data and code
  std::vector<HostDevice> devices;
  std::vector<LinkMatrix> links;
  std::vector<std::vector<int>> physical_cores;  // each with the logical CPUs on it
  std::vector<int> cores;          // all
  std::vector<int> cores_allowed;  // by cgroup and affinity
  double cpu_quota = 0;            // CPUs' worth of time that the cgroup grants; 0: no limit
  friend bool operator==(const Host&, const Host&) = default;
};

// Where a rank is: what it tells the others about itself.
struct Place {
  int host = 0;                    // number of its host, by proof
  std::vector<int> cores_allowed;
  int numa = -1;                   // the NUMA node that holds all its cores, or -1
  int last_cache = -1;             // the last-level cache that holds all its cores (index in Host::caches), or -1
  double cpu_quota = 0;            // as Host
  uint64_t nic_bits_per_s = 0;     // its fastest network interface that is up; 0: not known
  uint64_t link_bits_per_s = 0;    // from other hosts, as measured; 0: not measured. Not encoded
  double ranks_per_core = 1;       // of its host's, as far as more is known of that than the ranks at hand tell. Not encoded
  friend bool operator==(const Place&, const Place&) = default;
};

// This machine, by hwloc; the affinity is the calling thread's. A GPU is listed where a driver for computing has it.
// Throws Error(system_error). `xml`: where not null, gets the same as hwloc XML, which load_host reads back.
Host discover_host(std::string* xml = nullptr);
// From an hwloc XML file. cores_allowed: those that the file allows (all, where it was not written for one process).
// Throws Error that names the file: system_error where it cannot be read, invalid_argument where it is no topology.
Host load_host(const std::string& xml_path, std::string* xml = nullptr);

// Of the cores that this process may use: the largest cache that a core has to itself (its threads share it), the least
// where cores differ; the largest of all, or what of it can be its cores'; and what its cores are likely to have of that, with caches
// of their own, while all cores of the processor fill it. 0: not known.
struct CacheSizes {
  uint64_t own_bytes = 0, last_bytes = 0, likely_bytes = 0;
};
CacheSizes cache_sizes(const Host& host);

// The part of `host` that a rank with this affinity sees. Place::host stays 0.
Place place_of(const Host& host);

// For the all-gather. decode_place throws Error(invalid_argument) where the bytes are no place of this version.
std::vector<std::byte> encode(const Place& place);
Place decode_place(std::span<const std::byte> bytes);

}  // namespace tutti
