// The checks of InfiniBand and RoCE devices, from /sys and libibverbs.
#include "tools/doctor/rdma.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "topology/system.h"
#include "topology/tree.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string line_of(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return "";
  std::ifstream file(path);
  std::string line;
  try {
    std::getline(file, line);
  } catch (const std::ios_base::failure&) {  // the kernel refuses to tell of GIDs that are not there
  }
  return line;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

struct Gid {
  int index;
  std::string address, type, interface_name;
};

std::vector<Gid> gids_of(const fs::path& port) {
  constexpr int index_max = 64;
  std::vector<Gid> gids;
  for (int i = 0; i < index_max; ++i) {
    const std::string n = std::to_string(i), address = line_of(port / "gids" / n);
    if (address.empty()) break;
    if (address.find_first_not_of("0:") == std::string::npos) continue;
    gids.push_back({i, address, line_of(port / "gid_attrs" / "types" / n), line_of(port / "gid_attrs" / "ndevs" / n)});
  }
  return gids;
}

bool is_v2(const Gid& gid) { return gid.type.ends_with("v2"); }
bool is_link_local(const Gid& gid) { return gid.address.starts_with("fe80"); }

// The interface of a RoCE port: of its GIDs, which go with a port that is down; else its device's. "": not known.
std::string interface_of(const fs::path& device, const std::vector<Gid>& gids) {
  if (!gids.empty() && !gids[0].interface_name.empty()) return gids[0].interface_name;
  const std::vector<std::string> interfaces = names_in(device / "device" / "net");
  return interfaces.size() == 1 ? interfaces[0] : line_of(device / "parent");
}

// The largest packet whose headers fit the interface's too: 256 << n bytes.
int packet_bytes(int interface_mtu) {
  constexpr int headers = 64, largest = 4096;
  int bytes = 256;
  while (bytes < largest && 2 * bytes + headers <= interface_mtu) bytes *= 2;
  return bytes;
}

Finding roce_port(const std::string& check, const std::string& facts, const std::vector<Gid>& gids,
                  const std::string& interface_name, const fs::path& sys) {
  const std::string the_interface = interface_name.empty() ? "its interface" : interface_name;
  const auto best = std::find_if(gids.begin(), gids.end(), [](const Gid& g) { return is_v2(g) && !is_link_local(g); });
  if (gids.empty())
    return {check, Severity::problem, facts + ", but has no GID: no peer can be reached",
            fmt::format("give {} an address", the_interface)};
  if (best == gids.end())
    return {check, Severity::note, facts + ", but its GIDs are link-local or RoCE v1 only: no router passes them",
            fmt::format("give {} an IPv4 or IPv6 address", the_interface)};
  const std::string mtu_text = line_of(sys / "class/net" / best->interface_name / "mtu");
  const std::string gid = fmt::format("{}, GID {} is {} ({})", facts, best->index, best->address, best->type);
  const int mtu = mtu_text.empty() ? 0 : std::atoi(mtu_text.c_str());
  constexpr int wanted = 4200;
  if (mtu > 0 && mtu < wanted)
    return {check, Severity::note,
            fmt::format("{}; packets hold {} bytes, since {} has an MTU of {}", gid, packet_bytes(mtu),
                        best->interface_name, mtu),
            fmt::format("ip link set {} mtu {}, where all switches between the hosts pass that", best->interface_name,
                        wanted)};
  return {check, Severity::ok, mtu > 0 ? fmt::format("{}, packets hold {} bytes", gid, packet_bytes(mtu)) : gid, ""};
}

Finding infiniband_port(const std::string& check, const std::string& facts, const fs::path& port) {
  const std::string lid = line_of(port / "lid");
  if (lid.empty() || lid == "0x0" || lid == "0")
    return {check, Severity::problem, facts + ", but has no LID", "start a subnet manager (opensm) on the network"};
  return {check, Severity::ok, fmt::format("{}, LID {}", facts, lid), ""};
}

Finding check_port(const RdmaMachine& machine, const std::string& device, const std::string& number) {
  const fs::path sys = machine.root + "/sys", port = sys / "class/infiniband" / device / "ports" / number;
  const std::string check = fmt::format("InfiniBand {}:{}", device, number);
  const std::string state = line_of(port / "state"), layer = line_of(port / "link_layer"),
                    rate = line_of(port / "rate");
  const bool ethernet = layer == "Ethernet";
  const std::vector<Gid> gids = gids_of(port);
  const std::string interface_name = interface_of(sys / "class/infiniband" / device, gids);
  if (!state.starts_with("4")) {
    const bool initialising = state.starts_with("2") || state.starts_with("3");
    const std::string fix = initialising ? "start a subnet manager (opensm) on the network"
                            : ethernet   ? fmt::format("bring its interface up (ip link set {} up), and look at the cable",
                                                       interface_name.empty() ? "…" : interface_name)
                                         : "look at the cable and the switch's port";
    return {check, Severity::note, fmt::format("{} port is not active ({})", ethernet ? "the RoCE" : "the", state),
            fix};
  }
  const std::string facts = fmt::format("{}, active, {}", ethernet ? "RoCE" : "InfiniBand", rate);
  if (machine.gid_index_wanted.value_or(-1) >= 0 &&
      std::none_of(gids.begin(), gids.end(), [&](const Gid& g) { return g.index == *machine.gid_index_wanted; }))
    return {
        check, Severity::problem,
        fmt::format("{}, but it has no GID {}, which TUTTI_IB_GID_INDEX asks for", facts, *machine.gid_index_wanted),
        "unset TUTTI_IB_GID_INDEX: what works is found by trying"};
  return ethernet ? roce_port(check, facts, gids, interface_name, sys) : infiniband_port(check, facts, port);
}

Finding check_devices(const RdmaMachine& machine, const std::vector<std::string>& devices) {
  std::string list;
  for (const std::string& device : devices) {
    const LinkFacts link = infiniband_link(device, machine.root);
    list += fmt::format("{}{}{}{}", list.empty() ? "" : ", ", device, link.bits_per_s > 0 ? " " : "",
                        human_speed(link.bits_per_s)) + (link.up ? "" : " (down)");
  }
  const char* const packages = "apt-get install libibverbs1 ibverbs-providers";
  if (!machine.library)
    return {"InfiniBand", Severity::note, "devices are present (" + list + ") but libibverbs is not installed",
            packages};
  for (const std::string& device : devices) {
    if (!machine.driven || std::find(machine.driven->begin(), machine.driven->end(), device) != machine.driven->end())
      continue;
    std::error_code error;
    if (!fs::exists(machine.root + "/dev/infiniband", error))
      return {"InfiniBand", Severity::problem, fmt::format("{} is present, but /dev/infiniband is not", device),
              "give the container its devices (--device=/dev/infiniband), or load the module ib_uverbs"};
    return {"InfiniBand", Severity::problem, fmt::format("libibverbs has no driver for {}", device), packages};
  }
  return {"InfiniBand", Severity::ok, "libibverbs and devices are present: " + list, ""};
}

Finding check_choice(const RdmaMachine& machine, const std::vector<std::string>& devices) {
  for (size_t at = 0; at <= machine.devices_wanted.size();) {
    const size_t end = std::min(machine.devices_wanted.find(',', at), machine.devices_wanted.size());
    const std::string item = machine.devices_wanted.substr(at, end - at), device = item.substr(0, item.find(':'));
    const fs::path ports = machine.root + "/sys/class/infiniband/" + device + "/ports";
    const bool is_device = std::find(devices.begin(), devices.end(), device) != devices.end();
    std::error_code error;
    if (!is_device || (item != device && !fs::exists(ports / item.substr(device.size() + 1), error)))
      return {"InfiniBand choice", Severity::problem,
              fmt::format("TUTTI_IB_HCA={} names {}, which is no {} here", machine.devices_wanted, item,
                          is_device ? "port" : "device"),
              "name devices and ports as /sys/class/infiniband does, or unset TUTTI_IB_HCA"};
    at = end + 1;
  }
  return {"InfiniBand choice", Severity::ok, "TUTTI_IB_HCA=" + machine.devices_wanted + " names devices that are there",
          ""};
}

Finding check_locked_memory(const RdmaMachine& machine) {
  constexpr uint64_t enough = uint64_t{64} << 20;
  if (!machine.locked_bytes_max)
    return {"locked memory", Severity::ok, "this process may lock any amount of memory", ""};
  const std::string sentence = fmt::format(
      "a process may lock {} of memory; rings of a communicator take up to {}, and "
      "memory of tuttiMemAlloc is locked where it is sent from",
      human_bytes(*machine.locked_bytes_max), human_bytes(enough));
  if (*machine.locked_bytes_max < 2 * enough)
    return {"locked memory", Severity::note, sentence, "ulimit -l unlimited (LimitMEMLOCK=infinity, or limits.conf)"};
  return {"locked memory", Severity::ok, sentence, ""};
}

// What libibverbs itself lists; none where it cannot be loaded.
std::optional<std::vector<std::string>> listed_by_library() {
  void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return std::nullopt;
  const auto list = reinterpret_cast<void** (*)(int*)>(::dlsym(library, "ibv_get_device_list"));
  const auto name = reinterpret_cast<const char* (*)(void*)>(::dlsym(library, "ibv_get_device_name"));
  const auto end = reinterpret_cast<void (*)(void**)>(::dlsym(library, "ibv_free_device_list"));
  if (list == nullptr || name == nullptr || end == nullptr) return std::nullopt;
  int count = 0;
  void** const devices = list(&count);
  std::vector<std::string> names;
  for (int i = 0; devices != nullptr && i < count; ++i) names.push_back(name(devices[i]));
  if (devices != nullptr) end(devices);
  return names;
}

// CAP_IPC_LOCK, which limits do not hold for.
bool may_lock_anything() {
  constexpr unsigned cap_ipc_lock = 14;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("CapEff:")) return (std::strtoull(line.c_str() + 7, nullptr, 16) >> cap_ipc_lock & 1) != 0;
  return false;
}

}  // namespace

RdmaMachine this_rdma_machine() {
  RdmaMachine machine;
  machine.driven = listed_by_library();
  machine.library = machine.driven.has_value();
  rlimit locked{};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  if (locked.rlim_cur != RLIM_INFINITY && !may_lock_anything()) machine.locked_bytes_max = locked.rlim_cur;
  machine.devices_wanted = environment_text("TUTTI_IB_HCA").value_or("");
  try {
    machine.gid_index_wanted = environment_integer("TUTTI_IB_GID_INDEX");
  } catch (const Error&) {  // the environment's own check tells of it
  }
  return machine;
}

std::vector<Finding> check_rdma(const RdmaMachine& machine) {
  const std::vector<std::string> devices = infiniband_devices(machine.root);
  std::vector<Finding> findings;
  if (devices.empty()) {
    findings.push_back({"InfiniBand", Severity::ok,
                        fmt::format("no device; libibverbs is {}installed", machine.library ? "" : "not "), ""});
  } else {
    findings.push_back(check_devices(machine, devices));
    for (const std::string& device : devices)
      for (const std::string& port : names_in(machine.root + "/sys/class/infiniband/" + device + "/ports"))
        findings.push_back(check_port(machine, device, port));
    findings.push_back(check_locked_memory(machine));
  }
  if (!machine.devices_wanted.empty()) findings.push_back(check_choice(machine, devices));
  return findings;
}

}  // namespace tutti
