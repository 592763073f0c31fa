// From hwloc's tree of objects to plain data.
#include "topology/topology.h"

#include <fcntl.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/fd.h"
#include "topology/system.h"

namespace tutti {
namespace {

// Names under which what hwloc does not know travels inside its XML.
constexpr const char* info_quota = "TuttiCpuQuota";
constexpr const char* info_bits_per_s = "TuttiBitsPerSecond";
constexpr const char* info_down = "TuttiLinkDown";
constexpr const char* info_driver = "TuttiDriver";
constexpr const char* info_model = "TuttiModel";

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

Topology new_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw system_error("cannot begin a topology (hwloc_topology_init)", errno);
  Topology topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  return topology;
}

std::vector<int> cores_of(hwloc_const_cpuset_t set) {
  std::vector<int> cores;
  if (set == nullptr || hwloc_bitmap_weight(set) < 0) return cores;  // none, or infinitely many
  for (int core = hwloc_bitmap_first(set); core >= 0; core = hwloc_bitmap_next(set, core)) cores.push_back(core);
  return cores;
}

std::string info(hwloc_obj_t object, const char* key) {
  const char* value = hwloc_obj_get_info_by_name(object, key);
  return value == nullptr ? "" : value;
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::string pci_id(hwloc_obj_t object) {
  for (; object != nullptr; object = object->parent)
    if (object->type == HWLOC_OBJ_PCI_DEVICE) {
      const auto& pci = object->attr->pcidev;
      return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.dev, pci.func);
    }
  return "";
}

hwloc_obj_t pci_parent(hwloc_obj_t object) {
  return object->parent != nullptr && object->parent->type == HWLOC_OBJ_PCI_DEVICE ? object->parent : nullptr;
}

// The NUMA node nearest to an I/O object: that of the part of the machine it hangs on, if it is one. The tree is
// asked, not the bus id, which need not be unique in a file that was put together.
int numa_of(hwloc_topology_t topology, hwloc_obj_t object) {
  const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, object);
  if (place == nullptr || place->nodeset == nullptr || hwloc_bitmap_weight(place->nodeset) != 1) return -1;
  return hwloc_bitmap_first(place->nodeset);
}

bool begins_with_and_number(std::string_view text, std::string_view prefix) {
  return text.starts_with(prefix) && text.size() > prefix.size() && text[prefix.size()] >= '0' &&
         text[prefix.size()] <= '9';
}

// hwloc 3 writes other numbers for the kinds of devices than hwloc 2 reads, so evidence decides: what it is called and
// what is known about it.
std::optional<DeviceKind> kind_of(hwloc_obj_t object) {
  const std::string_view name = object->name == nullptr ? "" : object->name;
  if (!info(object, "NodeGUID").empty() || !info(object, "Port1State").empty()) return DeviceKind::hca;
  for (const char* runtime : {"cuda", "nvml", "rsmi", "ze"})
    if (begins_with_and_number(name, runtime)) return DeviceKind::gpu;
  if (!info(object, "Address").empty()) return DeviceKind::nic;
  return std::nullopt;
}

std::string model_of(hwloc_obj_t object) {
  const std::string own = trimmed(info(object, "GPUModel"));
  if (!own.empty()) return own;
  const hwloc_obj_t pci = pci_parent(object);
  const hwloc_obj_t source = pci != nullptr ? pci : object;
  const std::string forced = info(source, info_model);
  if (!forced.empty()) return forced;
  return trimmed(info(source, "PCIVendor") + " " + info(source, "PCIDevice"));
}

HostDevice device_of(hwloc_topology_t topology, hwloc_obj_t object, DeviceKind kind, std::string name) {
  HostDevice device{kind, std::move(name), model_of(object), numa_of(topology, object), pci_id(object), 0, true};
  device.bits_per_s = std::strtoull(info(object, info_bits_per_s).c_str(), nullptr, 10);
  device.up = info(object, info_down).empty();
  return device;
}

// Names of the devices by object, for the matrices.
using DeviceNames = std::map<hwloc_obj_t, std::string>;

// A GPU shows up once per runtime (cuda0, nvml0, …): the first in this order names it.
int runtime_order(const std::string& name) {
  constexpr std::array<std::string_view, 4> order = {"cuda", "nvml", "rsmi", "ze"};
  for (size_t i = 0; i < order.size(); ++i)
    if (name.starts_with(order[i])) return int(i);
  return int(order.size());
}

void add_os_devices(hwloc_topology_t topology, Host& host, DeviceNames& names) {
  std::map<std::string, size_t> gpu_at;  // by PCI id
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_osdev(topology, o)) != nullptr;) {
    const auto kind = kind_of(o);
    if (!kind || o->name == nullptr) continue;
    HostDevice device = device_of(topology, o, *kind, o->name);
    names[o] = device.name;
    if (*kind == DeviceKind::gpu && !device.pci.empty()) {
      const auto [known, fresh] = gpu_at.try_emplace(device.pci, host.devices.size());
      if (!fresh) {
        HostDevice& first = host.devices[known->second];
        if (runtime_order(device.name) < runtime_order(first.name)) first = device;
        continue;
      }
    }
    host.devices.push_back(std::move(device));
  }
}

// GPUs that only their driver has named, and the switches between GPUs.
void add_pci_devices(hwloc_topology_t topology, Host& host, DeviceNames& names) {
  int switches = 0, gpus = 0;
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_pcidev(topology, o)) != nullptr;) {
    const bool is_switch = o->subtype != nullptr && std::strcmp(o->subtype, "NVSwitch") == 0;
    const bool is_gpu = !info(o, info_driver).empty();
    if (!is_switch && !is_gpu) continue;
    const std::string name = is_switch ? fmt::format("nvswitch{}", switches++) : fmt::format("gpu{}", gpus++);
    HostDevice device = device_of(topology, o, is_switch ? DeviceKind::gpu_switch : DeviceKind::gpu, name);
    const bool known = is_gpu && std::any_of(host.devices.begin(), host.devices.end(), [&](const HostDevice& d) {
      return d.kind == DeviceKind::gpu && d.pci == device.pci;
    });
    if (known) continue;
    names[o] = name;
    host.devices.push_back(std::move(device));
  }
}

void add_links(hwloc_topology_t topology, Host& host, const DeviceNames& names) {
  unsigned count = 0;
  if (hwloc_distances_get(topology, &count, nullptr, 0, 0) != 0 || count == 0) return;
  std::vector<hwloc_distances_s*> all(count);
  if (hwloc_distances_get(topology, &count, all.data(), 0, 0) != 0) return;
  for (hwloc_distances_s* distances : all) {
    const char* name = hwloc_distances_get_name(topology, distances);
    LinkMatrix matrix;
    matrix.name = name == nullptr ? "distances" : name;
    matrix.bandwidth = (distances->kind & HWLOC_DISTANCES_KIND_MEANS_BANDWIDTH) != 0;
    for (unsigned i = 0; i < distances->nbobjs; ++i) {
      const hwloc_obj_t o = distances->objs[i];
      const auto device = names.find(o);
      if (device != names.end()) matrix.ends.push_back(device->second);
      else if (o != nullptr && o->type == HWLOC_OBJ_NUMANODE) matrix.ends.push_back(fmt::format("numa{}", o->os_index));
    }
    // Matrices between other things (cores, caches) say nothing that Tutti uses.
    if (matrix.ends.size() == distances->nbobjs) {
      matrix.values.assign(distances->values, distances->values + size_t(distances->nbobjs) * distances->nbobjs);
      host.links.push_back(std::move(matrix));
    }
    hwloc_distances_release(topology, distances);
  }
}

void add_caches(hwloc_topology_t topology, Host& host) {
  for (hwloc_obj_type_t type : {HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE,
                                HWLOC_OBJ_L1CACHE})
    for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(topology, type, o)) != nullptr;)
      host.caches.push_back({int(o->attr->cache.depth), o->attr->cache.size, cores_of(o->cpuset)});
}

Host host_of(hwloc_topology_t topology) {
  Host host;
  const hwloc_obj_t root = hwloc_get_root_obj(topology);
  host.name = info(root, "HostName");
  host.model = trimmed(info(root, "DMIProductName"));
  host.cpu_quota = std::strtod(info(root, info_quota).c_str(), nullptr);
  host.cores = cores_of(hwloc_topology_get_topology_cpuset(topology));
  host.cores_allowed = cores_of(hwloc_topology_get_allowed_cpuset(topology));
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, o)) != nullptr;)
    host.packages.push_back({int(o->os_index), trimmed(info(o, "CPUModel")), cores_of(o->cpuset)});
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, o)) != nullptr;)
    host.numa.push_back({int(o->os_index), o->attr->numanode.local_memory, cores_of(o->cpuset)});
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, o)) != nullptr;)
    host.physical_cores.push_back(cores_of(o->cpuset));
  if (host.physical_cores.empty())  // some virtual machines name logical CPUs only
    for (int core : host.cores) host.physical_cores.push_back({core});
  add_caches(topology, host);
  DeviceNames names;
  add_os_devices(topology, host, names);
  add_pci_devices(topology, host, names);
  add_links(topology, host, names);
  return host;
}

// Writes what hwloc does not know of this machine into the tree, so that it travels in the XML too.
void annotate(hwloc_topology_t topology) {
  const hwloc_obj_t root = hwloc_get_root_obj(topology);
  if (const double quota = cgroup_cpu_quota(); quota > 0)
    hwloc_obj_add_info(root, info_quota, fmt::format("{}", quota).c_str());
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_osdev(topology, o)) != nullptr;) {
    const auto kind = kind_of(o);
    if (kind != DeviceKind::nic && kind != DeviceKind::hca) continue;
    const LinkFacts link = kind == DeviceKind::nic ? network_link(o->name) : infiniband_link(o->name);
    if (link.bits_per_s > 0) hwloc_obj_add_info(o, info_bits_per_s, fmt::format("{}", link.bits_per_s).c_str());
    if (!link.up) hwloc_obj_add_info(o, info_down, "1");
  }
  for (const GpuFacts& gpu : nvidia_gpus()) {
    const hwloc_obj_t pci = hwloc_get_pcidev_by_busidstring(topology, gpu.pci.c_str());
    if (pci == nullptr) continue;
    hwloc_obj_add_info(pci, info_driver, "nvidia");
    hwloc_obj_add_info(pci, info_model, gpu.model.c_str());
  }
}

// Takes the calling thread's affinity into the allowed cores.
void allow_affinity(hwloc_topology_t topology) {
  const std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_t)> set(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  for (int core : thread_affinity()) hwloc_bitmap_set(set.get(), unsigned(core));
  hwloc_bitmap_and(set.get(), set.get(), hwloc_topology_get_allowed_cpuset(topology));
  if (!hwloc_bitmap_iszero(set.get()))
    hwloc_topology_allow(topology, set.get(), nullptr, HWLOC_ALLOW_FLAG_CUSTOM);
}

Topology discover() {
  Topology topology = new_topology();
  // Not asked: libpciaccess, which leaks some memory each time (the kernel's files name the same devices), and
  // libraries that would start a driver or talk to a display inside the caller's process.
  for (const char* component : {"pci", "opencl", "gl"})
    hwloc_topology_set_components(topology.get(), HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  if (hwloc_topology_load(topology.get()) != 0)
    throw system_error("cannot discover this machine (hwloc_topology_load)", errno);
  return topology;
}

// What hwloc would find otherwise than before in this process: its settings, the network devices.
std::string what_may_change() {
  std::string all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (std::string_view(*entry).starts_with("HWLOC_")) all += fmt::format("{}\n", *entry);
  return fmt::format("{}{}\n{}", all, fmt::join(network_interfaces(), " "), fmt::join(infiniband_devices(), " "));
}

// As hwloc finds it: once, since asking each PCI device takes ten milliseconds and more. The caller's own copy.
Topology this_machine() {
  // Also because libudev, which hwloc asks, draws the key of its tables anew for each thread that comes first, also while
  // another thread uses them.
  struct Found {
    std::mutex mutex;
    Topology topology;
    std::string with;
  };
  static Found& found = *new Found;  // for threads that the process's end meets at work
  const std::lock_guard lock(found.mutex);
  if (std::string now = what_may_change(); found.topology == nullptr || now != found.with) {
    found.topology = discover();
    found.with = std::move(now);
  }
  hwloc_topology_t copy = nullptr;
  if (hwloc_topology_dup(&copy, found.topology.get()) != 0)
    throw system_error("cannot copy a topology (hwloc_topology_dup)", errno);
  return Topology(copy);
}

void export_xml(hwloc_topology_t topology, std::string& xml) {
  char* buffer = nullptr;
  int bytes = 0;
  if (hwloc_topology_export_xmlbuffer(topology, &buffer, &bytes, 0) != 0)
    throw system_error("cannot write the topology as XML (hwloc_topology_export_xmlbuffer)", errno);
  xml.assign(buffer, size_t(std::max(bytes, 1)) - 1);  // hwloc counts the ending zero
  hwloc_free_xmlbuffer(topology, buffer);
}

}  // namespace

const char* name(DeviceKind kind) noexcept {
  constexpr std::array<const char*, 4> names = {"nic", "hca", "gpu", "gpu switch"};
  return names[size_t(kind)];
}

Host discover_host(std::string* xml) {
  const Topology topology = this_machine();
  // With HWLOC_XMLFILE set, hwloc describes another machine than this one: then this one's kernel has nothing to add.
  if (hwloc_topology_is_thissystem(topology.get())) {
    allow_affinity(topology.get());
    annotate(topology.get());
  }
  if (xml != nullptr) export_xml(topology.get(), *xml);
  return host_of(topology.get());
}

Host load_host(const std::string& xml_path, std::string* xml) {
  const Fd file(::open(xml_path.c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 0;
  if (!file.valid() || ::read(file.get(), &byte, 1) < 0)
    throw system_error(fmt::format("cannot read topology file {}", xml_path), errno);
  const Topology topology = new_topology();
  if (hwloc_topology_set_xml(topology.get(), xml_path.c_str()) != 0 || hwloc_topology_load(topology.get()) != 0)
    throw Error(Code::invalid_argument, fmt::format("{} is not a topology in hwloc's XML format", xml_path));
  // hwloc 2 does not read hwloc 3's host name; the file's is better than none.
  const hwloc_obj_t root = hwloc_get_root_obj(topology.get());
  if (info(root, "HostName").empty())
    hwloc_obj_add_info(root, "HostName", std::filesystem::path(xml_path).stem().c_str());
  if (xml != nullptr) export_xml(topology.get(), *xml);
  return host_of(topology.get());
}

}  // namespace tutti
