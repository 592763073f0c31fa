// A fabric: the hosts of a job, the ranks on them, and the links that their messages cross, as plain data. For planning:
// it may have a million ranks, so routes are computed and never stored.
//
// A text describes one: KIND:DIMENSIONS,key=value,… where KIND:DIMENSIONS is
//   switch[:H]             H hosts on one switch that never blocks
//   fat-tree:AxBx…         A hosts to a leaf switch, B of those to the next level, and so on; `oversubscription=R` gives
//                          each level's switches R times less up than down. Up-links are taken by destination (D-mod-k)
//   dragonfly:GxRxH        G groups of R routers with H hosts each; routers of a group and groups are joined all to all
//   torus:XxYx…            hosts in a grid that wraps; a message crosses one dimension after another, the short way round
// and the keys are
//   ranks=8                ranks of a host                    rails=8       networks, each with a link to every host;
//   numa=2                 NUMA nodes of a host                             the receiver's number says which is taken
//   link=100G              bits per second of a link          hop=500ns     latency of a link and what it leads to
//   global=100G            of links between groups            socket=40GB   bytes per second between NUMA nodes
//   down=100G              of links to hosts, where they differ from those of hosts
//   message=, receive=     work of a sender and a receiver    latency=15us  beside that of the links
//   byte=0.4ns             sender's work for each byte        buffer=0      bytes that a sender may be ahead of its link
//   fan_out=0.25           part by which messages to several peers at once are slower (LinkCost::fan_out_byte_ns)
//   cores=0                that all ranks share; 0: each has  burst=0       bytes that pass a host's link at once when it
//                          its own                                         has rested (a token bucket)
// What is not said is as MachineCosts has it for TCP between hosts. A file (JSON) has the same text as "fabric", or hosts,
// switches and links of its own: see load_fabric.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topology/cost.h"

namespace tutti {

// Links of one kind and speed; they have consecutive numbers.
struct FabricTier {
  std::string name;
  uint32_t first = 0;
  uint32_t count = 0;
  double byte_ns = 0;
  double latency_ns = 0;
};

// The links that a message crosses, in order.
struct FabricPath {
  static constexpr size_t hops_max = 64;
  struct Hop {
    uint32_t link;
    uint32_t tier;
  };
  std::array<Hop, hops_max> hops;
  size_t count = 0;

  void clear() { count = 0; }
  void add(uint32_t link, uint32_t tier) { hops[count++] = {link, tier}; }
};

// What ranks themselves do for a message, and how long it is on its way beside the fabric's links.
struct FabricEnds {
  double latency_ns = 0;
  double message_ns = 0;
  double byte_ns = 0;
  double receive_ns = 0;
  double bulk_ns = 0;
  uint64_t inline_bytes = 0;
  double fan_out = 0;  // part of a link's time that messages to several peers at once cost more, as they share a queue
};

struct FabricGraph;

class Fabric {
 public:
  enum class Kind : uint8_t { tree, dragonfly, torus, graph };

  int hosts() const { return hosts_; }
  int ranks() const { return hosts_ * ranks_per_host_; }
  int ranks_per_host() const { return ranks_per_host_; }
  int host_of(int rank) const { return rank / ranks_per_host_; }
  bool same_host(int a, int b) const { return host_of(a) == host_of(b); }
  uint32_t links() const { return links_; }
  const std::vector<FabricTier>& tiers() const { return tiers_; }
  const FabricEnds& ends(int from, int to) const;
  uint64_t buffer_bytes() const { return buffer_bytes_; }
  uint64_t burst_bytes() const { return burst_bytes_; }
  int shared_cores() const { return shared_cores_; }
  const MachineCosts& costs() const { return costs_; }
  const std::string& text() const { return text_; }

  // From one rank to another; none inside a host of one NUMA node.
  void route(int from, int to, FabricPath& path) const;

 private:
  friend class FabricMaker;

  void route_tree(int from, int to, uint32_t plane, FabricPath& path) const;
  void route_dragonfly(int from, int to, uint32_t plane, FabricPath& path) const;
  void route_torus(int from, int to, uint32_t plane, FabricPath& path) const;
  void route_graph(int from, int to, FabricPath& path) const;
  void hop(FabricPath& path, uint32_t tier, uint32_t plane, uint32_t index) const {
    path.add(tiers_[tier].first + plane * per_plane_[tier] + index, tier);
  }
  int numa_of(int rank) const { return rank % ranks_per_host_ * numa_ / ranks_per_host_; }

  Kind kind_ = Kind::tree;
  std::string text_;
  int hosts_ = 1;
  int ranks_per_host_ = 1;
  int rails_ = 1;
  int numa_ = 1;
  std::vector<int> dimensions_;
  std::vector<int> below_;     // tree: hosts under a switch of each level
  std::vector<int> up_links_;  // tree: of a switch of each level
  std::vector<FabricTier> tiers_;
  std::vector<uint32_t> per_plane_;  // links of each tier in one rail's network
  uint32_t socket_tier_ = ~0u;
  uint32_t links_ = 0;
  FabricEnds network_, near_, far_;
  uint64_t buffer_bytes_ = 0;
  uint64_t burst_bytes_ = 0;
  int shared_cores_ = 0;
  MachineCosts costs_;
  std::shared_ptr<const FabricGraph> graph_;
};

// n: the ranks it is for; where a kind's dimensions are left out, it is as large as they need. Throws
// Error(invalid_argument) that names what in the text cannot be, or how many ranks it holds where those are too few.
Fabric parse_fabric(std::string_view text, int n, const MachineCosts& costs = {});

// From a JSON file: {"fabric": "fat-tree:4x8,link=100G"}, or
// {"hosts": 4, "links": [{"from": "host0", "to": "leaf0", "link": "100G", "hop": "500ns", "name": "leaf"}, …],
//  "keys": "ranks=8,message=2us"}. Links are both ways unless "one_way" is true; ends that are not host0 … are switches;
// routes are the shortest, and of several the one that the receiver's number picks. Throws Error that names the file.
Fabric load_fabric(const std::string& path, int n, const MachineCosts& costs = {});

// Either: a file where the text ends with .json.
Fabric fabric_of(const std::string& text, int n);

// "100G", "1.5ms", "64K": a number with a suffix. `unit` says which: 'b' bits per second (k, M, G, T), 'B' bytes per second,
// 't' time in ns (ns, us, ms, s), 'n' bytes or a count (K, M, G: powers of 1024). Throws Error that names `what`.
double quantity(std::string_view text, char unit, std::string_view what);

}  // namespace tutti
