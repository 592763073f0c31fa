// Opening devices, listing ports and GIDs, registering memory.
#include "transport/verbs/verbs_device.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {
namespace {

constexpr int gid_index_max = 128;
constexpr size_t devices_max = 255;  // looked at

// "eth", "RoCE v2": what the kernel says of a GID; empty where it says nothing.
std::string gid_type(const std::string& device, int port, int index) {
  std::ifstream file(fmt::format("/sys/class/infiniband/{}/ports/{}/gid_attrs/types/{}", device, port, index));
  std::string type;
  std::getline(file, type);
  return type;
}

bool is_zero(const ibv_gid& gid) { return gid.global.subnet_prefix == 0 && gid.global.interface_id == 0; }

GidKind kind_of(const ibv_gid& gid, bool infiniband, const std::string& type) {
  if (infiniband) return GidKind::infiniband;
  if (!type.ends_with("v2")) return GidKind::roce_v1;
  constexpr std::array<uint8_t, 12> v4_mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(v4_mapped.begin(), v4_mapped.end(), gid.raw)) return GidKind::roce_v2_ipv4;
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80 ? GidKind::roce_v2_link_local : GidKind::roce_v2_ipv6;
}

void list_gids(const VerbsDevice& device, const VerbsOptions& options, int table_length, VerbsPort& port) {
  std::vector<VerbsGid> gids;
  for (int i = 0; i < std::min(table_length, gid_index_max); ++i) {
    if (options.gid_index >= 0 && i != options.gid_index) continue;
    ibv_gid gid{};
    if (device.library().query_gid(device.context(), port.number, i, &gid) != 0 || is_zero(gid)) continue;
    VerbsGid& found = gids.emplace_back();
    std::copy(std::begin(gid.raw), std::end(gid.raw), found.address.begin());
    found.index = uint8_t(i);
    found.kind = kind_of(gid, port.infiniband != 0, gid_type(device.name(), port.number, i));
  }
  std::stable_sort(gids.begin(), gids.end(), [](const auto& a, const auto& b) { return a.kind < b.kind; });
  port.gid_count = uint8_t(std::min(gids.size(), verbs_gids_max));
  std::copy_n(gids.begin(), port.gid_count, port.gids.begin());
}

std::optional<VerbsPort> describe_port(const VerbsDevice& device, int number, const VerbsOptions& options,
                                       const Log& log) {
  ibv_port_attr facts{};
  const int result = device.library().query_port(device.context(), uint8_t(number),
                                                 reinterpret_cast<_compat_ibv_port_attr*>(&facts));
  if (result != 0 || facts.state != IBV_PORT_ACTIVE) {
    log.debug(fmt::format("verbs: {} port {} is {}", device.name(), number, result != 0 ? "silent" : "not active"));
    return std::nullopt;
  }
  VerbsPort port{};
  std::strncpy(port.device.data(), device.name().c_str(), port.device.size() - 1);
  port.number = uint8_t(number);
  port.lid = facts.lid;
  port.mtu = uint8_t(facts.active_mtu);
  port.infiniband = facts.link_layer != IBV_LINK_LAYER_ETHERNET;
  list_gids(device, options, facts.gid_tbl_len, port);
  if (port.infiniband != 0 && port.gid_count > 0) std::memcpy(&port.subnet, port.gids[0].address.data(), 8);
  if (port.infiniband == 0 && port.gid_count == 0) {
    log.warn(fmt::format("verbs: {} port {} has no {}: it is not used", device.name(), number,
                         options.gid_index >= 0 ? fmt::format("GID {} (TUTTI_IB_GID_INDEX)", options.gid_index)
                                                : std::string("GID; its interface needs an address")));
    return std::nullopt;
  }
  return port;
}

// Whether the calling thread may run on a core of the device's NUMA node; or that is not known.
bool is_near(const std::string& device) {
  int node = -1;
  std::ifstream(fmt::format("/sys/class/infiniband/{}/device/numa_node", device)) >> node;
  cpu_set_t allowed;
  if (node < 0 || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return true;
  std::ifstream list(fmt::format("/sys/devices/system/node/node{}/cpulist", node));  // "0-7,16-23"
  bool any = false;
  for (int first = 0, last = 0; list >> first; list.ignore()) {
    any = true;
    last = first;
    if (list.peek() == '-') list.ignore() >> last;
    for (int core = first; core <= std::min(last, CPU_SETSIZE - 1); ++core)
      if (CPU_ISSET(core, &allowed)) return true;
  }
  return !any;
}

VerbsMerit merit_of(const VerbsPort& port) {
  double gigabits = 0;  // "100 Gb/sec (4X EDR)"
  std::ifstream(fmt::format("/sys/class/infiniband/{}/ports/{}/rate", port.device.data(), port.number)) >> gigabits;
  return {uint32_t(std::clamp(gigabits, 0.0, 1e6) * 1000), is_near(port.device.data())};
}

// Whether the comma list names the device, or the device and port; "" names all.
bool allows(const std::string& list, const std::string& device, int port) {
  if (list.empty()) return true;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string item = list.substr(at, end - at);
    if (item == device || item == fmt::format("{}:{}", device, port)) return true;
    at = end + 1;
  }
  return false;
}

void set_non_blocking(int fd, const std::string& what) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) throw system_error("verbs: " + what, errno);
}

template <class T>
VerbsOwner<T> owned(T* made, const VerbsLibrary& library, const std::string& what) {
  if (made == nullptr) throw system_error("verbs: " + what, errno);
  return VerbsOwner<T>(made, VerbsDeleter{&library});
}

}  // namespace

VerbsMemory::VerbsMemory(const VerbsLibrary& library, ibv_pd* pd, void* data, size_t bytes, int access,
                         VerbsCounters& counters)
    : library_(&library), region_(library.reg_mr(pd, data, bytes, access)), counters_(&counters) {
  if (region_ == nullptr) {
    const int error = errno;
    rlimit locked{};
    ::getrlimit(RLIMIT_MEMLOCK, &locked);
    const std::string limit =
        locked.rlim_cur == RLIM_INFINITY ? "no limit" : fmt::format("{} bytes (ulimit -l)", locked.rlim_cur);
    throw system_error(fmt::format("verbs: cannot register {} bytes with {}; the locked-memory limit is {}", bytes,
                                   pd->context->device->name, limit),
                       error);
  }
  counters_->bytes_registered += bytes;
}

VerbsMemory::VerbsMemory(const VerbsLibrary& library, VerbsRegisterFile* register_file, ibv_pd* pd, const LentRegion& file,
                         VerbsCounters& counters)
    : library_(&library),
      region_(register_file(pd, 0, file.bytes, reinterpret_cast<uintptr_t>(file.begin), file.fd, IBV_ACCESS_LOCAL_WRITE)),
      counters_(&counters) {
  if (region_ == nullptr)
    throw system_error(fmt::format("verbs: {} takes no memory of devices, whose messages go by way of the host: ibv_reg_dmabuf_mr",
                                   pd->context->device->name),
                       errno);
  counters_->bytes_registered += file.bytes;
}

VerbsMemory& VerbsMemory::operator=(VerbsMemory&& other) noexcept {
  if (this != &other) {
    reset();
    library_ = other.library_;
    counters_ = other.counters_;
    region_ = std::exchange(other.region_, nullptr);
  }
  return *this;
}

void VerbsMemory::reset() noexcept {
  if (region_ == nullptr) return;
  counters_->bytes_deregistered += region_->length;
  library_->dereg_mr(std::exchange(region_, nullptr));
}

VerbsDevice::VerbsDevice(const VerbsLibrary& library, VerbsOwner<ibv_context> context, std::string name)
    : library_(library), name_(std::move(name)), context_(std::move(context)),
      pd_(owned(library.alloc_pd(context_.get()), library, "making a protection domain on " + name_)),
      channel_(owned(library.create_comp_channel(context_.get()), library, "making a completion channel on " + name_)) {
  set_non_blocking(channel_->fd, "setting up the completion channel of " + name_);
  set_non_blocking(context_->async_fd, "setting up the events of " + name_);
}

void VerbsDevice::make_queue(size_t completions) {
  ibv_device_attr facts{};
  if (library_.query_device(context_.get(), &facts) != 0) throw system_error("verbs: asking about " + name_, errno);
  if (completions > size_t(facts.max_cqe))
    throw Error(Code::system_error, fmt::format("verbs: {} takes {} completions at a time, and {} may come: too many "
                                                "ranks or channels", name_, facts.max_cqe, completions));
  cq_ = owned(library_.create_cq(context_.get(), int(completions), nullptr, channel_.get(), 0), library_,
              "making a completion queue on " + name_);
}

void VerbsDevice::arm() noexcept { ibv_req_notify_cq(cq_.get(), 0); }

void VerbsDevice::drain_channel() noexcept {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  unsigned events = 0;
  while (library_.get_cq_event(channel_.get(), &cq, &context) == 0) ++events;
  if (events > 0) library_.ack_cq_events(cq_.get(), events);
}

namespace {

// The best ports first, and their devices in that order; of more devices than regions have keys for, the last are left out.
VerbsHardware in_order(VerbsHardware found, int turn) {
  std::vector<VerbsMerit> merits;
  for (const VerbsPort& port : found.ports) merits.push_back(merit_of(port));
  VerbsHardware ordered;
  std::vector<int> places(found.devices.size(), -1);
  for (const size_t i : verbs_preference(merits, turn)) {
    VerbsPort port = found.ports[i];
    int& place = places[port.device_index];
    if (place < 0) {
      if (ordered.devices.size() == VerbsRegions::Keys().size()) continue;
      place = int(ordered.devices.size());
      ordered.devices.push_back(std::move(found.devices[port.device_index]));
    }
    port.device_index = uint8_t(place);
    ordered.ports.push_back(port);
  }
  return ordered;
}

}  // namespace

VerbsHardware open_verbs_hardware(const VerbsLibrary& library, const VerbsOptions& options, const Log& log) {
  VerbsHardware found;
  int count = 0;
  ibv_device** const list = library.get_device_list(&count);
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> owner(list, library.free_device_list);
  for (int i = 0; list != nullptr && i < count && found.devices.size() < devices_max; ++i) {
    const std::string device_name = library.get_device_name(list[i]);
    try {
      auto context = owned(library.open_device(list[i]), library, "opening " + device_name);
      ibv_device_attr facts{};
      if (library.query_device(context.get(), &facts) != 0)
        throw system_error("verbs: asking about " + device_name, errno);
      auto device = std::make_unique<VerbsDevice>(library, std::move(context), device_name);
      std::vector<VerbsPort> ports;
      for (int number = 1; number <= facts.phys_port_cnt; ++number) {
        if (!allows(options.devices, device_name, number)) continue;
        if (auto port = describe_port(*device, number, options, log)) ports.push_back(*port);
      }
      for (VerbsPort& port : ports) {
        port.device_index = uint8_t(found.devices.size());
        found.ports.push_back(port);
      }
      if (!ports.empty()) found.devices.push_back(std::move(device));
    } catch (const Error& error) {
      log.warn(fmt::format("{}: this device is not used", error.what()));
    }
  }
  if (!options.devices.empty() && found.ports.empty())
    log.warn(fmt::format("TUTTI_IB_HCA={} names no port that is up", options.devices));
  return in_order(std::move(found), options.turn);
}

const VerbsRegions::Keys* VerbsRegions::find(const LentRegion& region, Use use) noexcept {
  if (region.changes == nullptr) return nullptr;  // its pages may change unseen, so none are kept pinned: messages are copied
  const uint64_t change = region.changes->load(std::memory_order_acquire);
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->number != region.number || entry->use != use) continue;
    if (entry->change == change) {
      if (entry != entries_.begin()) entries_.splice(entries_.begin(), entries_, entry);
      return &entries_.front().keys;
    }
    entries_.erase(entry);
    break;
  }
  if (use == Use::of_device ? !takes_devices() : refused_ == region.number) return nullptr;
  try {
    return add(region, use, change);
  } catch (const std::exception& error) {  // messages are copied then
    if (use == Use::of_device) {
      register_file_ = nullptr;
      why_no_devices_ = error.what();
    } else {
      refused_ = region.number;
    }
    return nullptr;
  }
}

const VerbsRegions::Keys* VerbsRegions::add(const LentRegion& region, Use use, uint64_t change) {
  sweep();
  Entry entry{region.number, use, change, region.changes, {}, {}};
  const int access = IBV_ACCESS_LOCAL_WRITE | (use == Use::written ? IBV_ACCESS_REMOTE_WRITE : 0);
  for (size_t i = 0; i < devices_.size(); ++i) {
    const VerbsDevice& device = *devices_[i];
    if (use == Use::of_device)
      entry.memory.emplace_back(device.library(), register_file_, device.pd(), region, counters_);
    else
      entry.memory.emplace_back(device.library(), device.pd(), const_cast<std::byte*>(region.begin), region.bytes, access,
                                counters_);
    entry.keys[i] = use == Use::written ? entry.memory.back().rkey() : entry.memory.back().lkey();
  }
  entries_.push_front(std::move(entry));
  if (entries_.size() > regions_max) entries_.pop_back();
  return &entries_.front().keys;
}

void VerbsRegions::withdraw() noexcept {
  entries_.remove_if([](const Entry& entry) { return entry.use == Use::written; });
}

void VerbsRegions::sweep() noexcept {
  entries_.remove_if([](const Entry& entry) {
    return entry.changes->load(std::memory_order_acquire) != entry.change;
  });
}

}  // namespace tutti
