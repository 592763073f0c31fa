// The cost model of a communicator, and machine constants as bytes.
#include "topology/cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "topology/bytes.h"

namespace tutti {
namespace {

constexpr uint32_t costs_version = 0x43540004;  // "TC", 4
constexpr double cost_max = 1e12;               // 1000 s

constexpr std::array rows = std::to_array<MachineCostRow>({
    {"step_ns", &MachineCosts::step_ns},
    {"copy_byte_ns", &MachineCosts::copy_byte_ns},
    {"near_copy_byte_ns", &MachineCosts::near_copy_byte_ns},
    {"reduce_byte_ns", &MachineCosts::reduce_byte_ns},
    {"hop_ns", &MachineCosts::hop_ns},
    {"far_hop_ns", &MachineCosts::far_hop_ns},
    {"hand_over_ns", &MachineCosts::hand_over_ns},
    {"shm_message_ns", &MachineCosts::shm_message_ns},
    {"tcp_message_ns", &MachineCosts::tcp_message_ns},
    {"tcp_receive_ns", &MachineCosts::tcp_receive_ns},
    {"verbs_message_ns", &MachineCosts::verbs_message_ns},
    {"verbs_receive_ns", &MachineCosts::verbs_receive_ns},
    {"verbs_latency_ns", &MachineCosts::verbs_latency_ns},
    {"loopback_latency_ns", &MachineCosts::loopback_latency_ns},
    {"loopback_byte_ns", &MachineCosts::loopback_byte_ns},
    {"network_latency_ns", &MachineCosts::network_latency_ns},
    {"network_byte_ns", &MachineCosts::network_byte_ns},
});
static_assert(sizeof(MachineCosts) == rows.size() * sizeof(double), "every constant has its row");

// What decides the cost of a pair.
struct Pair {
  LinkKind kind = LinkKind::self;
  bool same_host = true;
  bool same_cache = true;
  bool same_core = false, other_core = false;  // both are bound, to one or to two
  uint64_t bits_per_s = 0;
  friend auto operator<=>(const Pair&, const Pair&) = default;
};

Pair pair_of(const Place& a, const Place& b, LinkKind kind) {
  const bool same_host = a.host == b.host, bound = same_host && a.cores_allowed.size() == 1 && b.cores_allowed.size() == 1;
  Pair pair{kind, same_host, same_host && a.last_cache >= 0 && a.last_cache == b.last_cache,
            bound && a.cores_allowed == b.cores_allowed, bound && a.cores_allowed != b.cores_allowed, 0};
  if (kind != LinkKind::tcp && kind != LinkKind::verbs) return pair;
  pair.bits_per_s = std::min(a.link_bits_per_s, b.link_bits_per_s);
  if (pair.bits_per_s == 0 && !pair.same_host) pair.bits_per_s = std::min(a.nic_bits_per_s, b.nic_bits_per_s);
  return pair;
}

// A message that has no room beside its flag makes more lines cross before copying gets going. (Fits what pipelines
// of 64 B to 8 KiB pieces measured; see bench/choices.) Not where ranks share cores: a reader whose turn comes late finds
// all its messages complete, half of two cores' in its own core's cache, and fetches the others at once.
constexpr double bulk_hops = 3;

// What flows that share a queue lose, of messages too large for it. (Fits four hosts at 1 Gbit/s; see bench/choices.)
constexpr double network_fan_out = 0.25;
constexpr uint64_t network_queued_bytes = 16 << 10;

// What a byte takes over the loopback where messages are written in a row, of what it takes otherwise. (docs/tuning.md, over TCP.)
constexpr double loopback_in_a_row = 0.7;

// What a byte takes that another core has written, of what copying it takes, where ranks share cores: who has its turn next finds in its
// core's cache what the one before has left. (Fits 8 ranks on two cores; see bench/choices.)
constexpr double fetched = 0.6;

// `waiting_ns`: how long a rank that shares its core waits for it.
LinkCost link_cost(const Pair& pair, const MachineCosts& m, double waiting_ns) {
  LinkCost link{.byte_ns = m.copy_byte_ns};
  if (pair.kind == LinkKind::self) return link;
  link.latency_ns = waiting_ns;
  if (pair.kind == LinkKind::shm) {
    link.message_ns = m.shm_message_ns;
    link.receive_ns = pair.same_cache ? m.hop_ns : m.far_hop_ns;
    link.bulk_ns = waiting_ns > 0 ? 0 : bulk_hops * link.receive_ns;
    link.inline_bytes = shm_inline_bytes;
    link.shared_bytes = shm_shared_bytes;
    link.near_bytes = shm_near_bytes;
    link.near_byte_ns = std::min(m.near_copy_byte_ns, m.copy_byte_ns);
    if (waiting_ns > 0 && pair.same_core) link.byte_ns = link.near_byte_ns;
    if (waiting_ns > 0 && pair.other_core) {
      link.byte_ns += fetched * m.copy_byte_ns;
      link.near_byte_ns += fetched * m.copy_byte_ns;
    }
    return link;
  }
  const double link_speed_byte_ns = pair.bits_per_s > 0 ? 8e9 / double(pair.bits_per_s) : m.network_byte_ns;
  if (pair.kind == LinkKind::verbs) {
    link.message_ns = m.verbs_message_ns;
    link.receive_ns = m.verbs_receive_ns;
    link.latency_ns += m.verbs_latency_ns;
    link.byte_ns = std::max(link_speed_byte_ns, m.copy_byte_ns);  // what is not lent is copied on its way
    link.fan_out_byte_ns = network_fan_out * link_speed_byte_ns;
    link.queued_bytes = network_queued_bytes;
    link.core_byte_ns = m.copy_byte_ns;
    return link;
  }
  link.message_ns = m.tcp_message_ns;
  link.receive_ns = m.tcp_receive_ns;
  link.latency_ns += pair.same_host ? m.loopback_latency_ns : m.network_latency_ns;
  link.byte_ns = link.core_byte_ns = m.loopback_byte_ns;
  if (pair.same_host && pair.bits_per_s == 0) {
    link.row_byte_ns = loopback_in_a_row * link.byte_ns;
    return link;
  }
  // A fast link leaves the kernel's own work per byte, for which the loopback stands.
  link.byte_ns = std::max(link_speed_byte_ns, m.loopback_byte_ns);
  link.fan_out_byte_ns = network_fan_out * link_speed_byte_ns;
  link.queued_bytes = network_queued_bytes;
  return link;
}

}  // namespace

std::span<const MachineCostRow> machine_cost_rows() { return rows; }

std::vector<std::byte> encode(const MachineCosts& costs) {
  std::vector<std::byte> bytes;
  put(bytes, costs_version);
  for (const MachineCostRow& row : rows) put(bytes, std::bit_cast<uint64_t>(costs.*row.value));
  return bytes;
}

MachineCosts decode_machine_costs(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "the table of machine constants");
  if (reader.take<uint32_t>() != costs_version) reader.refuse("its version is not this build's");
  MachineCosts costs;
  for (const MachineCostRow& row : rows) {
    const double value = std::bit_cast<double>(reader.take<uint64_t>());
    if (!(value >= 0 && value <= cost_max)) reader.refuse(fmt::format("{} is {}", row.name, value));
    costs.*row.value = value;
  }
  reader.end();
  return costs;
}

bool may_meet(const Place& a, const Place& b) {
  return a.host == b.host && std::any_of(a.cores_allowed.begin(), a.cores_allowed.end(), [&](int core) {
           return std::find(b.cores_allowed.begin(), b.cores_allowed.end(), core) != b.cores_allowed.end();
         });
}

double contention_of(std::span<const Place> places) {
  std::map<int, std::vector<const Place*>> by_host;
  for (const Place& place : places) by_host[place.host].push_back(&place);
  double worst = 1;
  for (const auto& [host, ranks] : by_host) {
    // Ranks that must run inside one set of cores crowd it; every set that some rank has is tried.
    std::set<std::vector<int>> sets;
    for (const Place* rank : ranks) sets.insert(rank->cores_allowed);
    std::vector<int> all;
    for (const auto& cores : sets) all.insert(all.end(), cores.begin(), cores.end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    sets.insert(all);
    for (const auto& cores : sets) {
      if (cores.empty()) continue;
      double inside = 0, quota = 0;
      for (const Place* rank : ranks) {
        const std::vector<int>& own = rank->cores_allowed;
        if (!std::includes(cores.begin(), cores.end(), own.begin(), own.end())) continue;
        ++inside;
        quota = std::max(quota, rank->cpu_quota > 0 ? rank->cpu_quota : double(cores.size()));
      }
      worst = std::max(worst, inside / std::min(double(cores.size()), quota));
    }
  }
  for (const Place& place : places) worst = std::max(worst, place.ranks_per_core);
  return worst;
}

std::vector<int> shared_cores_of(std::span<const Place> places) {
  std::map<std::pair<int, int>, int> lowest;  // of a host and a core
  std::vector<int> found;
  bool any_share = false;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const Place& place = places[rank];
    found.push_back(int(rank));
    if (place.cores_allowed.size() != 1) continue;
    found.back() = lowest.emplace(std::pair(place.host, place.cores_allowed[0]), int(rank)).first->second;
    any_share |= found.back() != int(rank);
  }
  if (!any_share) found.clear();
  return found;
}

CostModel cost_model(std::span<const Place> places, std::span<const LinkKind> links, const MachineCosts& costs) {
  const size_t n = places.size();
  if (links.size() != n * n)
    throw Error(Code::invalid_argument, fmt::format("{} links for {} ranks: {} are needed", links.size(), n, n * n));
  CostModel model;
  model.n = int(n);
  model.step_ns = costs.step_ns;
  model.copy_byte_ns = costs.copy_byte_ns;
  model.reduce_byte_ns = costs.reduce_byte_ns;
  model.contention = contention_of(places);
  model.core_of = shared_cores_of(places);
  if (model.contention > 1) {
    model.switch_ns = costs.hand_over_ns;
    // Ranks with a core each wait for lines of other cores instead, one after the other.
    model.near_reduce_bytes = shm_near_bytes;
    model.near_reduce_byte_ns = std::min(costs.near_copy_byte_ns, costs.reduce_byte_ns);
  }
  // Whoever runs when the message comes must be done waiting before the receiver gets its turn. (Fits four ranks on two
  // cores; see bench/choices.)
  constexpr double hand_overs = 2;
  const double waiting_ns = hand_overs * (model.contention - 1) * costs.hand_over_ns;
  model.link_class.assign(n * n, 0);
  model.classes.push_back(link_cost({}, costs, 0));
  constexpr size_t classes_max = 256;  // what a uint8_t tells apart
  std::map<Pair, uint8_t> known;
  for (size_t from = 0; from < n; ++from)
    for (size_t to = 0; to < n; ++to) {
      if (from == to) continue;
      const Pair pair = pair_of(places[from], places[to], links[from * n + to]);
      auto found = known.find(pair);
      if (found == known.end() && model.classes.size() < classes_max) {
        found = known.emplace(pair, uint8_t(model.classes.size())).first;
        model.classes.push_back(link_cost(pair, costs, waiting_ns));
      }
      // More link speeds than classes: the last class stands for the rest.
      model.link_class[from * n + to] = found == known.end() ? uint8_t(classes_max - 1) : found->second;
    }
  return model;
}

}  // namespace tutti
