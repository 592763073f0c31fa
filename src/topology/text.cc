// Prints the boxes of a host, with equal cores gathered on one line.
#include "topology/text.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "topology/tree.h"

namespace tutti {
namespace {

std::string indent(int depth) { return std::string(size_t(2 * depth), ' '); }

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// A core with the caches that it alone has: "L2 256 KiB, L1 32 KiB", and which box the core is. Null where the box
// holds more than one core.
const Box* core_of(const Host& host, const Box& box, std::string& caches) {
  const Box* at = &box;
  while (at->kind == BoxKind::cache && at->children.size() == 1 && at->devices.empty()) {
    caches += (caches.empty() ? "" : ", ") + label(host, *at);
    at = &at->children[0];
  }
  return at->kind == BoxKind::core ? at : nullptr;
}

std::string core_text(const Host& host, const Box& core) {
  std::string text;
  for (int cpu : core.cores) {
    const bool allowed = std::binary_search(host.cores_allowed.begin(), host.cores_allowed.end(), cpu);
    text += fmt::format("{}{}", text.empty() ? "" : "+", allowed ? fmt::format("{}", cpu) : fmt::format("({})", cpu));
  }
  return text;
}

std::string device_text(const HostDevice& device) {
  std::string text = fmt::format("{} {}", name(device.kind), device.name);
  for (const std::string& part : {device.model, device.pci.empty() ? "" : "PCI " + device.pci,
                                  human_speed(device.bits_per_s), std::string(device.up ? "" : "down")})
    if (!part.empty()) text += ", " + part;
  return text;
}

// Children that are single cores with equal caches, gathered: the caches they share and the CPUs of each.
struct CoreRow {
  std::string caches;
  std::vector<std::string> cores;
};

void print_cores(std::string& text, const std::vector<CoreRow>& rows, int depth) {
  for (const CoreRow& row : rows) {
    text += indent(depth) + fmt::format("{} core{}", row.cores.size(), row.cores.size() == 1 ? "" : "s");
    if (!row.caches.empty()) text += fmt::format(", {}{}", row.cores.size() > 1 ? "each " : "", row.caches);
    text += ": cpu " + joined(row.cores) + "\n";
  }
}

void print(std::string& text, const Host& host, const Box& box, int depth) {
  std::vector<CoreRow> rows;
  for (const Box& child : box.children) {
    std::string caches;
    if (const Box* core = core_of(host, child, caches)) {
      if (rows.empty() || rows.back().caches != caches) rows.push_back({caches, {}});
      rows.back().cores.push_back(core_text(host, *core));
    }
  }
  print_cores(text, rows, depth);
  for (const Box& child : box.children) {
    std::string caches;
    if (core_of(host, child, caches) != nullptr) continue;
    text += indent(depth) + label(host, child);
    if (child.kind == BoxKind::package && !host.packages[child.index].model.empty())
      text += ", " + host.packages[child.index].model;
    text += "\n";
    print(text, host, child, depth + 1);
  }
  for (const HostDevice* device : box.devices) text += indent(depth) + device_text(*device) + "\n";
}

// A matrix between devices is mostly holes: one line per device, with whom it is linked and how fast.
void print_bandwidths(std::string& text, const LinkMatrix& matrix) {
  for (size_t from = 0; from < matrix.ends.size(); ++from) {
    std::map<uint64_t, std::vector<std::string>, std::greater<>> reached;
    for (size_t to = 0; to < matrix.ends.size(); ++to)
      if (from != to && matrix.at(from, to) > 0) reached[matrix.at(from, to)].push_back(matrix.ends[to]);
    for (const auto& [value, ends] : reached)
      text += fmt::format("  {}: {} to each of {}\n", matrix.ends[from], value, joined(ends));
  }
}

void print_latencies(std::string& text, const LinkMatrix& matrix) {
  for (size_t from = 0; from < matrix.ends.size(); ++from) {
    text += fmt::format("  {}:", matrix.ends[from]);
    for (size_t to = 0; to < matrix.ends.size(); ++to) text += fmt::format(" {:3}", matrix.at(from, to));
    text += "\n";
  }
}

}  // namespace

std::string to_text(const Host& host) {
  std::string text = fmt::format("host {}", host.name.empty() ? "without a name" : host.name);
  if (!host.model.empty()) text += " (" + host.model + ")";
  text += ": " + summary_of(host) + "\n";
  text += fmt::format("  allowed here: {} of them ({}); CPU time: ", host.cores_allowed.size(),
                      ranges_of(host.cores_allowed));
  text += host.cpu_quota > 0 ? fmt::format("{:g} CPUs' worth by cgroup\n", host.cpu_quota) : "no limit by cgroup\n";
  print(text, host, boxes(host), 1);
  for (const LinkMatrix& matrix : host.links) {
    text += matrix.name + (matrix.bandwidth ? " (MB/s)\n" : "\n");
    matrix.bandwidth ? print_bandwidths(text, matrix) : print_latencies(text, matrix);
  }
  return text;
}

}  // namespace tutti
