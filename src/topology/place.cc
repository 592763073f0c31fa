// A rank's place: the part of its host that it sees, and the bytes by which the others learn of it.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "topology/bytes.h"
#include "topology/topology.h"

namespace tutti {
namespace {

constexpr uint32_t place_version = 0x50540001;  // "TP", 1
constexpr size_t ranges_max = 4096;
constexpr int core_max = 1 << 16;

bool holds(const std::vector<int>& outer, const std::vector<int>& inner) {
  return std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}

bool meet(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int core) { return std::binary_search(b.begin(), b.end(), core); });
}

// What of a cache is its cores' at most. A virtual machine is shown the whole last cache of its processor, however few of the
// cores that fill it are its own (260 MiB for two cores, where loads found 8 to 16). No processor has had more than this for
// each of its cores (AMD EPYC 7373X).
constexpr uint64_t share_max = uint64_t{48} << 20;
// What one core has of it where each has as much: an assumption. (The first Scalable Xeons have 1.375 MiB a core, those of the fifth
// generation 5.)
constexpr uint64_t share_likely = uint64_t{4} << 20;

uint64_t cores_at(const Host& host, const Cache& cache) {
  const auto& cores = host.physical_cores;
  return uint64_t(std::count_if(cores.begin(), cores.end(), [&](const auto& core) { return meet(core, cache.cores); }));
}

constexpr double quota_unit = 1.0 / 1024;

}  // namespace

CacheSizes cache_sizes(const Host& host) {
  CacheSizes sizes;
  uint64_t cores = 0;  // at the last one
  for (const std::vector<int>& core : host.physical_cores) {
    if (!meet(core, host.cores_allowed)) continue;
    uint64_t own = 0;
    for (const Cache& cache : host.caches) {
      if (!meet(cache.cores, core)) continue;
      const uint64_t here = cores_at(host, cache), bytes = std::min(cache.bytes, share_max * here);
      if (bytes > sizes.last_bytes) sizes.last_bytes = bytes, cores = here;
      if (holds(core, cache.cores)) own = std::max(own, cache.bytes);
    }
    sizes.own_bytes = sizes.own_bytes == 0 ? own : std::min(sizes.own_bytes, own);
  }
  sizes.likely_bytes = std::min(sizes.last_bytes, (sizes.own_bytes + share_likely) * cores);
  return sizes;
}

Place place_of(const Host& host) {
  Place place;
  place.cores_allowed = host.cores_allowed;
  place.cpu_quota = host.cpu_quota;
  for (const NumaNode& node : host.numa)
    if (!node.cores.empty() && holds(node.cores, host.cores_allowed)) place.numa = node.index;
  int level = 0;
  for (size_t i = 0; i < host.caches.size(); ++i)
    if (host.caches[i].level > level && holds(host.caches[i].cores, host.cores_allowed)) {
      level = host.caches[i].level;
      place.last_cache = int(i);
    }
  for (const HostDevice& device : host.devices)
    if (device.kind == DeviceKind::nic && device.up)
      place.nic_bits_per_s = std::max(place.nic_bits_per_s, device.bits_per_s);
  return place;
}

std::vector<std::byte> encode(const Place& place) {
  std::vector<std::pair<int, int>> ranges;  // first and last
  for (int core : place.cores_allowed) {
    if (!ranges.empty() && ranges.back().second + 1 == core) ranges.back().second = core;
    else ranges.push_back({core, core});
  }
  TUTTI_ASSERT(ranges.size() <= ranges_max);
  std::vector<std::byte> bytes;
  put(bytes, place_version);
  put(bytes, int32_t(place.host));
  put(bytes, int32_t(place.numa));
  put(bytes, int32_t(place.last_cache));
  put(bytes, uint32_t(std::lround(place.cpu_quota / quota_unit)));
  put(bytes, place.nic_bits_per_s);
  put(bytes, uint32_t(ranges.size()));
  for (const auto& [first, last] : ranges) {
    put(bytes, uint32_t(first));
    put(bytes, uint32_t(last));
  }
  return bytes;
}

Place decode_place(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "a rank's place");
  if (reader.take<uint32_t>() != place_version) reader.refuse("its version is not this build's");
  Place place;
  place.host = reader.take<int32_t>();
  place.numa = reader.take<int32_t>();
  place.last_cache = reader.take<int32_t>();
  place.cpu_quota = reader.take<uint32_t>() * quota_unit;
  place.nic_bits_per_s = reader.take<uint64_t>();
  if (place.host < 0 || place.numa < -1 || place.last_cache < -1) reader.refuse("a number is negative");
  const uint32_t ranges = reader.take<uint32_t>();
  if (ranges > ranges_max) reader.refuse("it has too many ranges of cores");
  int next = 0;  // ascending, so that the sum of all ranges is bounded
  for (uint32_t i = 0; i < ranges; ++i) {
    const uint32_t first = reader.take<uint32_t>(), last = reader.take<uint32_t>();
    if (first < uint32_t(next) || last < first || last >= uint32_t(core_max)) reader.refuse("its cores are no ranges");
    for (uint32_t core = first; core <= last; ++core) place.cores_allowed.push_back(int(core));
    next = int(last) + 1;
  }
  reader.end();
  return place;
}

}  // namespace tutti
