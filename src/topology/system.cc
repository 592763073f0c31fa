// Reads /proc and /sys: cgroup quotas, affinity, network and InfiniBand links, NVIDIA's driver.
#include "topology/system.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// The first line of a file; "" where it cannot be read.
std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// The number that a text begins with; nothing in these files reaches 1e9 (-1 and "max" stand for none).
std::optional<double> number(const std::string& text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop == text.data()) return std::nullopt;
  return value < 1e9 ? std::optional(value) : std::nullopt;
}

std::vector<std::string> directory_names(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// A mounted cgroup hierarchy that may limit CPU time.
struct Hierarchy {
  fs::path mount_point;
  fs::path mount_root;  // which cgroup is visible at the mount point
  bool version_2 = false;
};

bool lists(const std::string& comma_list, const std::string& wanted) {
  const std::vector<std::string> items = split(comma_list, ',');
  return std::find(items.begin(), items.end(), wanted) != items.end();
}

// From /proc/self/mountinfo: "31 23 0:28 ROOT MOUNT_POINT options … - TYPE source super_options".
std::vector<Hierarchy> hierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  for (const std::string& line : lines_of(root + "/proc/self/mountinfo")) {
    const std::vector<std::string> fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (dash - fields.begin() < 6 || fields.end() - dash < 4) continue;
    const bool version_2 = dash[1] == "cgroup2";
    if (version_2 || (dash[1] == "cgroup" && lists(dash[3], "cpu"))) found.push_back({fields[4], fields[3], version_2});
  }
  return found;
}

// This process's path in a hierarchy, from /proc/self/cgroup: "0::/path" or "4:cpu,cpuacct:/path".
fs::path cgroup_path(const std::string& root, bool version_2) {
  for (const std::string& line : lines_of(root + "/proc/self/cgroup")) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version_2 ? line.starts_with("0::") : lists(controllers, "cpu")) return line.substr(second + 1);
  }
  return "/";
}

// The quota that one directory states; 0: none.
double quota_at(const fs::path& directory, bool version_2) {
  std::optional<double> quota, period;
  if (version_2) {
    const std::vector<std::string> fields = split(first_line(directory / "cpu.max"), ' ');
    if (fields.size() == 2) quota = number(fields[0]), period = number(fields[1]);
  } else {
    quota = number(first_line(directory / "cpu.cfs_quota_us"));
    period = number(first_line(directory / "cpu.cfs_period_us"));
  }
  return quota && period && *quota > 0 && *period > 0 ? *quota / *period : 0;
}

}  // namespace

double cgroup_cpu_quota(const std::string& root) {
  double least = 0;
  for (const Hierarchy& h : hierarchies(root)) {
    // Inside a container the path may lie outside of what is mounted; then the mount point itself is our cgroup.
    fs::path inside = cgroup_path(root, h.version_2).lexically_relative(h.mount_root);
    if (inside.empty() || *inside.begin() == "..") inside = ".";
    const fs::path top = root + h.mount_point.string();
    for (fs::path at = inside; ; at = at.parent_path()) {
      const double quota = quota_at(top / at, h.version_2);
      if (quota > 0) least = least > 0 ? std::min(least, quota) : quota;
      if (at.empty() || at == ".") break;
    }
  }
  return least;
}

std::vector<int> thread_affinity() {
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 4) {
    std::vector<unsigned long> mask(size_t(cpus) / (8 * sizeof(unsigned long)));
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    const size_t bytes = mask.size() * sizeof(unsigned long);
    if (::sched_getaffinity(0, bytes, set) == 0) {
      std::vector<int> allowed;
      for (int cpu = 0; cpu < cpus; ++cpu)
        if (CPU_ISSET_S(size_t(cpu), bytes, set)) allowed.push_back(cpu);
      return allowed;
    }
    if (errno != EINVAL) break;  // EINVAL: the kernel's mask is longer
  }
  throw system_error("cannot read this thread's affinity (sched_getaffinity)", errno);
}

LinkFacts network_link(const std::string& interface_name, const std::string& root) {
  const fs::path directory = root + "/sys/class/net/" + interface_name;
  LinkFacts facts;
  if (const auto mbit = number(first_line(directory / "speed")); mbit && *mbit > 0)
    facts.bits_per_s = uint64_t(*mbit * 1e6);
  facts.up = first_line(directory / "operstate") != "down";
  return facts;
}

std::vector<std::string> network_interfaces(const std::string& root) {
  std::vector<std::string> names = directory_names(root + "/sys/class/net");
  constexpr const char* loopback = "772";  // ARPHRD_LOOPBACK
  std::erase_if(names, [&](const std::string& n) {
    const std::string type = first_line(root + "/sys/class/net/" + n + "/type");
    return type.empty() || type == loopback;  // no type: a plain file such as bonding_masters
  });
  return names;
}

std::vector<std::string> infiniband_devices(const std::string& root) {
  return directory_names(root + "/sys/class/infiniband");
}

LinkFacts infiniband_link(const std::string& device, const std::string& root) {
  const fs::path ports = root + "/sys/class/infiniband/" + device + "/ports";
  const std::vector<std::string> names = directory_names(ports);
  LinkFacts facts;
  facts.up = names.empty();  // no port is visible: not known to be down
  for (const std::string& port : names) {
    // "100 Gb/sec (4X EDR)", "4: ACTIVE"
    if (const auto gbit = number(first_line(ports / port / "rate")); gbit && *gbit > 0)
      facts.bits_per_s = std::max(facts.bits_per_s, uint64_t(*gbit * 1e9));
    if (first_line(ports / port / "state").starts_with("4")) facts.up = true;
  }
  return facts;
}

std::vector<GpuFacts> nvidia_gpus(const std::string& root) {
  std::vector<GpuFacts> gpus;
  const fs::path directory = root + "/proc/driver/nvidia/gpus";
  for (const std::string& pci : directory_names(directory)) {
    GpuFacts gpu{pci, "NVIDIA GPU"};
    std::transform(pci.begin(), pci.end(), gpu.pci.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const std::string& line : lines_of(directory / pci / "information"))
      if (const size_t at = line.find_first_not_of(" \t", 6); line.starts_with("Model:") && at != std::string::npos)
        gpu.model = line.substr(at);
    gpus.push_back(gpu);
  }
  return gpus;
}

}  // namespace tutti
