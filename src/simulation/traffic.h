// Who holds which link of a fabric until when. Links are taken in the order of the calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simulation/fabric.h"

namespace tutti {

// A message before its next link: when its head and its tail reach it.
struct Passage {
  uint64_t bytes = 0;
  double head_ns = 0, tail_ns = 0;
};

class Traffic {
 public:
  explicit Traffic(const Fabric& fabric) : fabric_(fabric), free_ns_(fabric.links()), busy_bytes_(fabric.links()) {}

  // Over one link, which is held for the message's bytes, `share` times as long; what the link has saved passes at once.
  // Returns when the tail has left it, before the link's latency.
  double cross(FabricPath::Hop hop, Passage& passage, double share = 1, double saved_ns = 0) {
    const FabricTier& tier = fabric_.tiers()[hop.tier];
    const double held_ns = double(passage.bytes) * tier.byte_ns * share;
    const double turn_ns = std::max(passage.head_ns, free_ns_[hop.link]);
    free_ns_[hop.link] = turn_ns + held_ns;
    busy_bytes_[hop.link] += double(passage.bytes);
    const double left_ns = std::max(passage.tail_ns, turn_ns + held_ns - saved_ns);
    passage.head_ns = std::max(passage.head_ns, turn_ns - saved_ns) + tier.latency_ns;
    passage.tail_ns = left_ns + tier.latency_ns;
    return left_ns;
  }
  // Over all links from one rank to another. Returns when the tail is there.
  double cross_all(int from, int to, Passage passage) {
    FabricPath path;
    fabric_.route(from, to, path);
    for (size_t i = 0; i < path.count; ++i) cross(path.hops[i], passage);
    return passage.tail_ns;
  }

  double busy_bytes(uint32_t link) const { return busy_bytes_[link]; }

 private:
  const Fabric& fabric_;
  std::vector<double> free_ns_;     // of each link: when what it was given has passed
  std::vector<double> busy_bytes_;  // of each link
};

}  // namespace tutti
