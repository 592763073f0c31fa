// What the kernel's files say beyond hwloc: CPU quota, affinity, link speeds, GPU drivers.
//
// `root` stands before every path, so that a test can lay out a tree of its own. A file that is missing or says
// nothing useful gives the value for "not known"; nothing here throws for a file's content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// CPUs' worth of time that the cgroup of this process grants (v1 or v2, the least of all levels); 0: no limit.
double cgroup_cpu_quota(const std::string& root = "");

// The logical CPUs that the calling thread may run on.
std::vector<int> thread_affinity();

struct LinkFacts {
  uint64_t bits_per_s = 0;
  bool up = true;
};
// A network interface of /sys/class/net.
LinkFacts network_link(const std::string& interface_name, const std::string& root = "");
// All of them but loopback, in alphabetical order.
std::vector<std::string> network_interfaces(const std::string& root = "");
// The devices of /sys/class/infiniband, in alphabetical order.
std::vector<std::string> infiniband_devices(const std::string& root = "");
// The fastest port of a device of /sys/class/infiniband.
LinkFacts infiniband_link(const std::string& device, const std::string& root = "");

struct GpuFacts {
  std::string pci;    // bus id, lower case
  std::string model;
};
// The GPUs that the NVIDIA driver of this kernel has, in the order of bus ids.
std::vector<GpuFacts> nvidia_gpus(const std::string& root = "");

}  // namespace tutti
