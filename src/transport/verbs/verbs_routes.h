// Ports and GIDs as plain data, which of them may reach each other, and what ranks tell each other of them. Needs no
// libibverbs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "bootstrap/bootstrap.h"
#include "transport/verbs/verbs.h"

namespace tutti {

// In the order in which they are preferred.
enum class GidKind : uint8_t { infiniband, roce_v2_ipv4, roce_v2_ipv6, roce_v2_link_local, roce_v1 };
const char* name(GidKind kind) noexcept;

struct VerbsGid {
  std::array<uint8_t, 16> address;
  uint8_t index;
  GidKind kind;
};
inline constexpr size_t verbs_gids_max = 12;

// A port that is up. Plain bytes, as ranks tell each other of theirs.
struct VerbsPort {
  std::array<char, 32> device;
  uint64_t subnet;      // InfiniBand: the prefix of its GIDs
  uint16_t lid;
  uint8_t number;       // of the port, from 1
  uint8_t mtu;          // ibv_mtu
  uint8_t infiniband;   // 0: Ethernet
  uint8_t device_index; // among this rank's open devices
  uint8_t gid_count;
  uint8_t unused;
  std::array<VerbsGid, verbs_gids_max> gids;
};
static_assert(std::is_trivially_copyable_v<VerbsPort> && sizeof(VerbsPort) == 32 + 16 + verbs_gids_max * 18);

// A way from one of this rank's ports to one of a peer's: places in the two ranks' lists of ports, and in their GIDs.
struct VerbsRoute {
  uint8_t my_port, my_gid, their_port, their_gid;
  uint8_t mtu;  // ibv_mtu
};

// What speaks for a port of this rank's.
struct VerbsMerit {
  uint32_t megabits_per_s = 0;  // 0: not known
  bool near = true;             // its device hangs on a NUMA node where this rank runs; or it is not known
};
// The places of ports, the best first: the fastest, and of these the nearest. Of ports that are alike, each rank of a host
// begins with another: `turn` counts them.
std::vector<size_t> verbs_preference(const std::vector<VerbsMerit>& merits, int turn);

// Every way that might connect, the likeliest first, and of these between the ports that stand first in both lists; the
// same list on both sides, seen from each. lower: this rank's number is below the peer's.
std::vector<VerbsRoute> verbs_routes(const std::vector<VerbsPort>& mine, const std::vector<VerbsPort>& theirs,
                                     bool lower);

// Ranks try so many rounds of routes at most.
inline constexpr int verbs_rounds_max = 6;

// What a rank says first.
struct VerbsHello {
  uint64_t message_bytes_max = 0;
  uint64_t memory_bytes_max = 0;
  uint32_t paths_max = 0;
  std::vector<VerbsPort> ports;  // none: this rank has no verbs
};
// Collective; by rank. Throws Error(invalid_usage) where a rank's is of another version.
std::vector<VerbsHello> exchange_verbs_hellos(Bootstrap& bootstrap, const VerbsHello& mine);

// Collective: of all ranks' lists of plain values, each with a rank `to`, those for this rank; by sender.
template <class T>
std::vector<std::vector<T>> gather_for_me(Bootstrap& bootstrap, const std::vector<T>& mine, int me) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::vector<T>> for_me;
  for (const Bytes& theirs : bootstrap.all_gather(std::as_bytes(std::span(mine)))) {
    std::vector<T>& list = for_me.emplace_back();
    if (theirs.size() % sizeof(T) != 0) throw Error(Code::invalid_usage, "verbs: a rank runs another version");
    for (size_t at = 0; at < theirs.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, theirs.data() + at, sizeof value);
      if (value.to == me) list.push_back(value);
    }
  }
  return for_me;
}

// Collective: whether some rank says so.
bool any_rank(Bootstrap& bootstrap, bool mine);

// Throws Error(invalid_argument), naming what is out of range.
void check_verbs_options(const VerbsOptions& options);

}  // namespace tutti
