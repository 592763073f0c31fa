// A host as nested boxes, by which cores each part holds: what text and drawing share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "topology/topology.h"

namespace tutti {

enum class BoxKind : uint8_t { machine, package, numa, cache, core };

// The whole host, or one of host.packages, numa, caches, physical_cores. The host outlives it.
struct Box {
  BoxKind kind = BoxKind::machine;
  size_t index = 0;                    // in the host's vector of that kind
  std::vector<int> cores;              // logical CPUs
  std::vector<const HostDevice*> devices;  // nearest to this box
  std::vector<Box> children;
};

// What holds more contains what holds less; where two hold the same, the order is machine, package, NUMA node, cache
// by level, core. Devices hang on their NUMA node, or on the machine.
Box boxes(const Host& host);

// "package 0", "NUMA node 1, 32 GiB", "L3 20 MiB", "core 0,16".
std::string label(const Host& host, const Box& box);

// "2 packages, 2 NUMA nodes, 16 cores, 32 logical CPUs".
std::string summary_of(const Host& host);

// "32 GiB", "256 KiB", "100 B": one decimal where it says something.
std::string human_bytes(uint64_t bytes);
// "25 Gbit/s"; "" for 0.
std::string human_speed(uint64_t bits_per_s);
// "0-3,8,10-11".
std::string ranges_of(const std::vector<int>& numbers);

}  // namespace tutti
