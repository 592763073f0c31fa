// The checks, one function each, and the list of them.
#include "tools/doctor/checks.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <linux/membarrier.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/fd.h"
#include "device/platform.h"
#include "topology/system.h"
#include "tools/doctor/rdma.h"
#include "topology/tree.h"

namespace tutti {
namespace {

std::string reason_now() { return std::generic_category().message(errno); }

std::string size_of_dev_shm() {
  struct statvfs facts{};
  if (::statvfs("/dev/shm", &facts) != 0) return "which is not there";
  return human_bytes(uint64_t{facts.f_blocks} * facts.f_frsize);
}

// Shared memory is a memfd, passed from process to process over a Unix socket.
Finding check_shared_memory() {
  Finding finding{"shared memory", Severity::problem, "", "allow memfd_create and Unix sockets in the container's "
                  "seccomp profile; until then set TUTTI_TRANSPORT=tcp"};
  constexpr size_t bytes = 1 << 20;
  const Fd memory(::memfd_create("tutti-doctor", MFD_CLOEXEC));
  if (!memory.valid() || ::ftruncate(memory.get(), bytes) != 0) {
    finding.sentence = fmt::format("memfd_create or ftruncate is refused: {}", reason_now());
    return finding;
  }
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) {
    finding.sentence = fmt::format("mmap of a memfd is refused: {}", reason_now());
    return finding;
  }
  std::memset(mapped, 1, bytes);
  ::munmap(mapped, bytes);
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    finding.sentence = fmt::format("Unix sockets are refused: {}", reason_now());
    return finding;
  }
  const Fd one(ends[0]), other(ends[1]);
  return {"shared memory", Severity::ok,
          fmt::format("memfd_create, mmap and Unix sockets work; /dev/shm ({}) is not needed", size_of_dev_shm()), ""};
}

Finding check_cpu_time() {
  const size_t cores = thread_affinity().size();
  const double quota = cgroup_cpu_quota();
  if (quota == 0 || quota >= double(cores))
    return {"CPU time", Severity::ok, fmt::format("{} logical CPUs are allowed, without a lower quota", cores), ""};
  return {"CPU time", Severity::note,
          fmt::format("the cgroup grants {:g} CPUs' worth of time on {} allowed logical CPUs: ranks that wait by "
                      "spinning use it up, and the kernel then stops all of them", quota, cores),
          fmt::format("start at most {} ranks here, or raise the container's CPU limit",
                      std::max(1, int(quota)))};
}

Finding check_open_files() {
  constexpr rlim_t few = 256, enough = 1024;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string fix = limit.rlim_max > limit.rlim_cur
                              ? fmt::format("ulimit -n {}", uint64_t(std::min<rlim_t>(limit.rlim_max, 65536)))
                              : "raise the hard limit (LimitNOFILE=, or limits.conf)";
  const std::string count = limit.rlim_cur == RLIM_INFINITY ? "any number of" : std::to_string(limit.rlim_cur);
  const std::string sentence = fmt::format("a process may open {} files; each peer of a rank takes a few", count);
  if (limit.rlim_cur < few) return {"open files", Severity::problem, sentence, fix};
  if (limit.rlim_cur < enough) return {"open files", Severity::note, sentence, fix};
  return {"open files", Severity::ok, sentence, ""};
}

// Interfaces that are up and have an IPv4 or IPv6 address.
struct Interfaces {
  bool loopback = false;
  std::set<std::string> others;
};

Interfaces interfaces_up() {
  Interfaces found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6) continue;
    if ((i->ifa_flags & IFF_LOOPBACK) != 0) found.loopback = true;
    else found.others.insert(i->ifa_name);
  }
  return found;
}

Finding check_network() {
  const Interfaces up = interfaces_up();
  if (!up.loopback)
    return {"network", Severity::problem, "the loopback interface has no address or is down: ranks of this host cannot "
            "meet", "ip link set lo up"};
  if (up.others.empty())
    return {"network", Severity::note, "only the loopback interface is up: ranks on other hosts cannot be reached",
            "nothing, if all ranks run on this host; else bring an interface up"};
  std::string list;
  for (const std::string& interface : up.others) {
    const std::string speed = human_speed(network_link(interface).bits_per_s);
    list += fmt::format("{}{}{}", list.empty() ? "" : ", ", interface, speed.empty() ? "" : " (" + speed + ")");
  }
  return {"network", Severity::ok, "up with addresses: " + list, ""};
}

Finding check_interface_choice() {
  const auto wanted = environment_text("TUTTI_IFNAME");
  if (!wanted) return {"interface choice", Severity::ok, "TUTTI_IFNAME is not set: what connects is used", ""};
  Interfaces up = interfaces_up();
  if (up.loopback) up.others.insert("lo");
  std::string missing;
  for (size_t at = 0; at <= wanted->size();) {
    const size_t end = std::min(wanted->find(',', at), wanted->size());
    const std::string name = wanted->substr(at, end - at);
    if (!up.others.contains(name)) missing += (missing.empty() ? "" : ", ") + name;
    at = end + 1;
  }
  if (missing.empty()) return {"interface choice", Severity::ok, "TUTTI_IFNAME=" + *wanted + " is up", ""};
  return {"interface choice", Severity::problem,
          fmt::format("TUTTI_IFNAME={} names {}, which is not an interface that is up with an address", *wanted,
                      missing),
          "name interfaces as the network check above lists them, or unset TUTTI_IFNAME"};
}

Finding check_membarrier() {
  const long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  constexpr long wanted = MEMBARRIER_CMD_GLOBAL_EXPEDITED | MEMBARRIER_CMD_PRIVATE_EXPEDITED;
  if (commands > 0 && (commands & wanted) == wanted)
    return {"membarrier", Severity::ok, "membarrier is available, expedited too", ""};
  return {"membarrier", Severity::note, "the membarrier system call is missing or restricted: going to sleep costs a "
          "full memory fence more", "allow membarrier in the container's seccomp profile (Linux 4.16 or newer)"};
}

bool library_loads(const char* name) {
  void* library = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}

Finding check_gpu() {
  const bool library = library_loads("libcuda.so.1");
  const std::vector<GpuFacts> gpus = nvidia_gpus();
  if (gpus.empty() && !library) return {"GPU", Severity::ok, "no NVIDIA driver: host memory only", ""};
  if (gpus.empty())
    return {"GPU", Severity::note, "libcuda is installed, but the kernel's driver shows no GPU",
            "load the driver (modprobe nvidia), or give the container its devices"};
  const std::string found = fmt::format("{} × {}", gpus.size(), gpus[0].model);
  if (!library)
    return {"GPU", Severity::note, found + " present, but libcuda.so.1 cannot be loaded",
            "install the driver's user-space library, or run the container with it"};
  return {"GPU", Severity::ok, found, ""};
}

// What buffers of calls may lie on. A GPU that is there and not found by Tutti is worth a remark, others are not.
Finding check_devices() {
  try {
    const FoundPlatform& found = find_platform();
    if (found.platform == nullptr)
      return {"devices", nvidia_gpus().empty() ? Severity::ok : Severity::note,
              fmt::format("buffers must be the host's: {}", found.why_not),
              nvidia_gpus().empty() ? "" : "give the container its GPUs (--gpus all), or install libtutti_cuda.so beside libtutti.so"};
    Platform& platform = *found.platform;
    std::string devices;
    for (int i = 0; i < platform.count(); ++i) {
      const DeviceInfo& info = platform.device(i).info();
      devices += fmt::format("{}{} {} ({} MiB{})", i == 0 ? "" : ", ", i, info.name, info.memory_bytes >> 20,
                             info.exports_memory ? "" : ", exports no memory");
      for (int peer = 0; peer < platform.count(); ++peer)
        if (!platform.has_peer_access(i, peer)) devices += fmt::format(", no access to {}", peer);
    }
    return {"devices", Severity::ok, fmt::format("{}: {}", platform.name(), devices), ""};
  } catch (const Error& error) {
    return {"devices", Severity::problem, error.what(), "correct or unset TUTTI_DEVICE"};
  }
}

// A value that does not parse, as a sentence; "" where all is well.
std::string parse_error(const Variable& variable) {
  try {
    switch (variable.type) {
      case VariableType::integer: environment_integer(variable.name); break;
      case VariableType::bytes: environment_bytes(variable.name); break;
      case VariableType::flag: environment_flag(variable.name); break;
      case VariableType::text: break;
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<Finding> check_environment() {
  std::vector<Finding> findings;
  for (const UnknownVariable& unknown : unknown_environment())
    findings.push_back({"environment", Severity::problem, unknown.name + " is set, but Tutti has no such variable",
                        unknown.nearest.empty() ? "unset it; tutti-doctor --environment lists all"
                                                : "did you mean " + unknown.nearest + "?"});
  for (const Variable& variable : environment_table())
    if (const std::string error = parse_error(variable); !error.empty())
      findings.push_back({"environment", Severity::problem, error, std::string(variable.sentence)});
  if (findings.empty())
    findings.push_back({"environment", Severity::ok, "every TUTTI_* variable that is set is known and has a value "
                        "of its type", ""});
  return findings;
}

constexpr std::array checks = {check_shared_memory, check_cpu_time,   check_open_files, check_network,
                               check_interface_choice, check_membarrier};

}  // namespace

const char* name(Severity severity) noexcept {
  constexpr std::array<const char*, 3> names = {"ok", "note", "problem"};
  return names[size_t(severity)];
}

std::vector<Finding> examine() {
  std::vector<Finding> findings;
  for (const auto check : checks) findings.push_back(check());
  for (Finding& finding : check_rdma(this_rdma_machine())) findings.push_back(std::move(finding));
  findings.push_back(check_gpu());
  findings.push_back(check_devices());
  for (Finding& finding : check_environment()) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace tutti
