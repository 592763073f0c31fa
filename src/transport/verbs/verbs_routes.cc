// Scoring routes, and the exchange of ports.
#include "transport/verbs/verbs_routes.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>

#include <fmt/format.h>

#include "base/environment.h"

namespace tutti {
namespace {

constexpr uint32_t hello_version = 0x7e5b0002;
constexpr uint8_t mtu_1024 = 3;  // ibv_mtu

struct HelloHead {
  uint32_t version, paths_max;
  uint64_t message_bytes_max, memory_bytes_max;
};

// How many of the leading bits of two addresses agree.
int common_bits(const VerbsGid& a, const VerbsGid& b) {
  for (size_t i = 0; i < a.address.size(); ++i)
    if (const unsigned differ = a.address[i] ^ b.address[i]; differ != 0)
      return int(8 * i) + __builtin_clz(differ) - 24;
  return 128;
}

// 0: of one network, as far as addresses say that; else, how many bits they do not share. Hosts of one network have up to 8
// bits of their own in IPv4, 64 in IPv6. InfiniBand's subnets were compared before, and link-local addresses say nothing.
int distance(const VerbsGid& a, const VerbsGid& b) {
  if (a.kind == GidKind::infiniband || a.kind == GidKind::roce_v2_link_local) return 0;
  const int differ = 128 - common_bits(a, b);
  return differ <= (a.kind == GidKind::roce_v2_ipv6 ? 64 : 8) ? 0 : differ;
}

struct Scored {
  VerbsRoute route;  // from the lower rank's side
  // Compared in this order, less is better.
  int small_mtu, kind, far, places;
  auto rank() const { return std::tie(small_mtu, kind, far, places, route.my_port, route.their_port); }
};

void add_routes(const std::vector<VerbsPort>& lower, const std::vector<VerbsPort>& upper, size_t a, size_t b,
                std::vector<Scored>& scored) {
  const VerbsPort &one = lower[a], &other = upper[b];
  if (one.infiniband != other.infiniband) return;
  if (one.infiniband != 0 && one.subnet != other.subnet) return;
  const uint8_t mtu = std::min(one.mtu, other.mtu);
  const auto gids = [](const VerbsPort& port) {
    return port.infiniband != 0 ? std::min<size_t>(port.gid_count, 1) : port.gid_count;
  };
  for (size_t i = 0; i < gids(one); ++i)
    for (size_t j = 0; j < gids(other); ++j) {
      if (one.gids[i].kind != other.gids[j].kind) continue;
      const VerbsRoute route{uint8_t(a), uint8_t(i), uint8_t(b), uint8_t(j), mtu};
      Scored whole{route, 0, int(one.gids[i].kind), distance(one.gids[i], other.gids[j]), int(a + b)};
      scored.push_back(whole);
      if (mtu > mtu_1024) {
        whole.small_mtu = 1;
        whole.route.mtu = mtu_1024;
        scored.push_back(whole);
      }
    }
}

}  // namespace

const char* name(GidKind kind) noexcept {
  constexpr std::array<const char*, 5> names = {"InfiniBand", "RoCE v2 over IPv4", "RoCE v2 over IPv6",
                                                "RoCE v2 over a link-local address", "RoCE v1"};
  return names[size_t(kind)];
}

std::vector<size_t> verbs_preference(const std::vector<VerbsMerit>& merits, int turn) {
  std::vector<size_t> places(merits.size());
  std::iota(places.begin(), places.end(), size_t{0});
  const auto badness = [&](size_t place) {
    return std::tuple(-int64_t{merits[place].megabits_per_s}, merits[place].near ? 0 : 1);
  };
  std::stable_sort(places.begin(), places.end(), [&](size_t a, size_t b) { return badness(a) < badness(b); });
  for (auto first = places.begin(); first != places.end();) {
    const auto last = std::find_if(first, places.end(), [&](size_t place) { return badness(place) != badness(*first); });
    std::rotate(first, first + turn % (last - first), last);
    first = last;
  }
  return places;
}

std::vector<VerbsRoute> verbs_routes(const std::vector<VerbsPort>& mine, const std::vector<VerbsPort>& theirs,
                                     bool lower) {
  const std::vector<VerbsPort>&one = lower ? mine : theirs, &other = lower ? theirs : mine;
  std::vector<Scored> scored;
  for (size_t a = 0; a < one.size(); ++a)
    for (size_t b = 0; b < other.size(); ++b) add_routes(one, other, a, b, scored);
  std::stable_sort(scored.begin(), scored.end(), [](const Scored& x, const Scored& y) { return x.rank() < y.rank(); });
  std::vector<VerbsRoute> routes;
  for (const Scored& s : scored) {
    const VerbsRoute& r = s.route;
    routes.push_back(lower ? r : VerbsRoute{r.their_port, r.their_gid, r.my_port, r.my_gid, r.mtu});
  }
  return routes;
}

std::vector<VerbsHello> exchange_verbs_hellos(Bootstrap& bootstrap, const VerbsHello& mine) {
  const HelloHead head{hello_version, mine.paths_max, mine.message_bytes_max, mine.memory_bytes_max};
  const auto head_bytes = std::as_bytes(std::span(&head, 1)), port_bytes = std::as_bytes(std::span(mine.ports));
  Bytes packet(head_bytes.begin(), head_bytes.end());
  packet.insert(packet.end(), port_bytes.begin(), port_bytes.end());
  const std::vector<Bytes> all = bootstrap.all_gather(packet);
  std::vector<VerbsHello> hellos;
  for (size_t r = 0; r < all.size(); ++r) {
    HelloHead theirs{};
    if (all[r].size() >= sizeof theirs) std::memcpy(&theirs, all[r].data(), sizeof theirs);
    const size_t rest = all[r].size() - std::min(all[r].size(), sizeof theirs);
    if (theirs.version != hello_version || rest % sizeof(VerbsPort) != 0)
      throw Error(Code::invalid_usage, fmt::format("verbs: {} runs another version than {}", bootstrap.describe(int(r)),
                                                   bootstrap.describe(bootstrap.rank())));
    VerbsHello& hello = hellos.emplace_back();
    hello = {theirs.message_bytes_max, theirs.memory_bytes_max, theirs.paths_max, {}};
    hello.ports.resize(rest / sizeof(VerbsPort));
    if (rest > 0) std::memcpy(hello.ports.data(), all[r].data() + sizeof theirs, rest);
    for (VerbsPort& port : hello.ports) port.gid_count = uint8_t(std::min<size_t>(port.gid_count, verbs_gids_max));
  }
  return hellos;
}

bool any_rank(Bootstrap& bootstrap, bool mine) {
  const std::byte word{mine};
  const std::vector<Bytes> all = bootstrap.all_gather(std::span(&word, 1));
  return std::any_of(all.begin(), all.end(), [](const Bytes& b) { return !b.empty() && b[0] != std::byte{0}; });
}

void check_verbs_options(const VerbsOptions& options) {
  const auto refuse = [](const std::string& what) { throw Error(Code::invalid_argument, "verbs: " + what); };
  constexpr size_t message_bytes_min = 4096, message_bytes_limit = size_t{1} << 30;
  if (options.channels < 1) refuse(fmt::format("{} channels; at least 1 is needed", options.channels));
  if (options.message_bytes_max < message_bytes_min || options.message_bytes_max > message_bytes_limit ||
      options.message_bytes_max % 64 != 0)
    refuse(fmt::format("messages of {} bytes; a multiple of 64 from {} to {} is needed", options.message_bytes_max,
                       message_bytes_min, message_bytes_limit));
  if (options.paths_max < 1 || options.paths_max > verbs_paths_max)
    refuse(fmt::format("{} paths; 1 to {} are needed", options.paths_max, verbs_paths_max));
}

VerbsOptions verbs_options_from_environment() {
  VerbsOptions options;
  options.devices = environment_text("TUTTI_IB_HCA").value_or("");
  const int64_t index = environment_integer("TUTTI_IB_GID_INDEX").value_or(-1);
  constexpr int64_t index_max = 127;
  if (index < -1 || index > index_max)
    throw Error(Code::invalid_usage,
                fmt::format("environment variable TUTTI_IB_GID_INDEX={} is not 0 to {}, or -1 for what works", index,
                            index_max));
  options.gid_index = int(index);
  return options;
}

}  // namespace tutti
