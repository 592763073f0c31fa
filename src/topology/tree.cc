// Nests the parts of a host, and names them.
#include "topology/tree.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

bool holds(const Box& outer, const Box& inner) {
  return std::includes(outer.cores.begin(), outer.cores.end(), inner.cores.begin(), inner.cores.end());
}

// Puts `box` into the deepest child that holds it. Boxes come largest first.
void place(Box& into, Box box) {
  for (Box& child : into.children)
    if (!box.cores.empty() && holds(child, box)) return place(child, std::move(box));
  into.children.push_back(std::move(box));
}

void hang(Box& box, const Host& host) {
  for (const HostDevice& device : host.devices) {
    const bool here = box.kind == BoxKind::numa && host.numa[box.index].index == device.numa;
    const bool nowhere = std::none_of(host.numa.begin(), host.numa.end(),
                                      [&](const NumaNode& node) { return node.index == device.numa; });
    if (here || (box.kind == BoxKind::machine && nowhere)) box.devices.push_back(&device);
  }
  for (Box& child : box.children) hang(child, host);
}

}  // namespace

Box boxes(const Host& host) {
  std::vector<Box> parts;
  const auto add = [&](BoxKind kind, size_t index, const std::vector<int>& cores) {
    parts.push_back({kind, index, cores, {}, {}});
  };
  for (size_t i = 0; i < host.packages.size(); ++i) add(BoxKind::package, i, host.packages[i].cores);
  for (size_t i = 0; i < host.numa.size(); ++i) add(BoxKind::numa, i, host.numa[i].cores);
  for (size_t i = 0; i < host.caches.size(); ++i) add(BoxKind::cache, i, host.caches[i].cores);
  for (size_t i = 0; i < host.physical_cores.size(); ++i) add(BoxKind::core, i, host.physical_cores[i]);
  std::stable_sort(parts.begin(), parts.end(), [&](const Box& a, const Box& b) {
    if (a.cores.size() != b.cores.size()) return a.cores.size() > b.cores.size();
    if (a.kind != b.kind) return a.kind < b.kind;
    return a.kind == BoxKind::cache && host.caches[a.index].level > host.caches[b.index].level;
  });
  Box machine{BoxKind::machine, 0, host.cores, {}, {}};
  for (Box& part : parts) place(machine, std::move(part));
  hang(machine, host);
  return machine;
}

std::string label(const Host& host, const Box& box) {
  switch (box.kind) {
    case BoxKind::machine: return host.name;
    case BoxKind::package: return fmt::format("package {}", host.packages[box.index].index);
    case BoxKind::numa: {
      const NumaNode& node = host.numa[box.index];
      return fmt::format("NUMA node {}, {}", node.index, human_bytes(node.bytes));
    }
    case BoxKind::cache: {
      const Cache& cache = host.caches[box.index];
      return fmt::format("L{} {}", cache.level, human_bytes(cache.bytes));
    }
    case BoxKind::core: return "core " + ranges_of(box.cores);
  }
  return "";
}

std::string summary_of(const Host& host) {
  const auto counted = [](size_t count, std::string_view one) {
    return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
  };
  return counted(host.packages.size(), "package") + ", " + counted(host.numa.size(), "NUMA node") + ", " +
         counted(host.physical_cores.size(), "core") + ", " + counted(host.cores.size(), "logical CPU");
}

std::string human_bytes(uint64_t bytes) {
  constexpr std::array<std::string_view, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) value /= 1024, ++unit;
  const bool whole = std::abs(value - std::round(value)) < 0.05;
  return whole || value >= 100 ? fmt::format("{:.0f} {}", value, units[unit])
                               : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string human_speed(uint64_t bits_per_s) {
  if (bits_per_s == 0) return "";
  if (bits_per_s >= 1'000'000'000) return fmt::format("{:g} Gbit/s", double(bits_per_s) / 1e9);
  return fmt::format("{:g} Mbit/s", double(bits_per_s) / 1e6);
}

std::string ranges_of(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace tutti
