// Routes through a fabric, computed from the numbers of the two hosts.
#include "simulation/fabric.h"

#include <deque>

#include "base/error.h"
#include "simulation/fabric_graph.h"

namespace tutti {
namespace {

// Tiers stand in the order in which FabricMaker adds them.
constexpr uint32_t tier_up = 0, tier_down = 1, tier_next = 2;

}  // namespace

const std::vector<uint32_t>& FabricGraph::towards(int host) const {
  std::vector<uint32_t>& next = next_[host];
  if (!next.empty()) return next;
  next.assign(nodes, ~0u);
  std::vector<int> distance(nodes, -1);
  distance[size_t(host)] = 0;
  std::deque<int> open{host};
  while (!open.empty()) {
    const int node = open.front();
    open.pop_front();
    for (const uint32_t index : in[size_t(node)]) {
      const int before = links[index].from;
      if (distance[size_t(before)] >= 0) continue;
      distance[size_t(before)] = distance[size_t(node)] + 1;
      open.push_back(before);
    }
  }
  for (size_t node = 0; node < nodes; ++node) {
    std::vector<uint32_t> nearer;
    for (const uint32_t index : out[node])
      if (distance[size_t(links[index].to)] >= 0 && distance[size_t(links[index].to)] < distance[node])
        nearer.push_back(index);
    if (!nearer.empty()) next[node] = nearer[size_t(host) % nearer.size()];
  }
  return next;
}

const FabricEnds& Fabric::ends(int from, int to) const {
  if (!same_host(from, to)) return network_;
  return numa_of(from) == numa_of(to) ? near_ : far_;
}

void Fabric::route(int from, int to, FabricPath& path) const {
  path.clear();
  const int a = host_of(from), b = host_of(to);
  if (a == b) {
    if (socket_tier_ == ~0u || numa_of(from) == numa_of(to)) return;
    return path.add(tiers_[socket_tier_].first + uint32_t(2 * a + (numa_of(from) < numa_of(to))), socket_tier_);
  }
  const auto plane = uint32_t(to % ranks_per_host_ % rails_);
  switch (kind_) {
    case Kind::tree: return route_tree(a, b, plane, path);
    case Kind::dragonfly: return route_dragonfly(a, b, plane, path);
    case Kind::torus: return route_torus(a, b, plane, path);
    case Kind::graph: return route_graph(a, b, path);
  }
}

// Up to the lowest switch above both, and down again. Both ways the receiver's number says which of the parallel links
// is taken, so a shift of all hosts by one distance meets nobody where nothing is oversubscribed.
void Fabric::route_tree(int from, int to, uint32_t plane, FabricPath& path) const {
  hop(path, tier_up, plane, uint32_t(from));
  size_t level = 0;
  for (; level < up_links_.size() && from / below_[level] != to / below_[level]; ++level) {
    const int switch_at = from / below_[level];
    hop(path, tier_next + uint32_t(2 * level), plane, uint32_t(switch_at * up_links_[level] + to % up_links_[level]));
  }
  while (level-- > 0) {
    const int switch_at = to / below_[level];
    hop(path, tier_next + uint32_t(2 * level) + 1, plane,
        uint32_t(switch_at * up_links_[level] + to % up_links_[level]));
  }
  hop(path, tier_down, plane, uint32_t(to));
}

// To the router of this group that is joined with the other group, across, and to the host's router there.
void Fabric::route_dragonfly(int from, int to, uint32_t plane, FabricPath& path) const {
  const int groups = dimensions_[0], routers = dimensions_[1], hosts = dimensions_[2];
  int at = from / hosts;
  const int goal = to / hosts, group = at / routers, other = goal / routers;
  const auto local = [&](int router) {
    if (router == at) return;
    const int i = at % routers, j = router % routers;
    hop(path, tier_next, plane, uint32_t((at / routers * routers + i) * routers + j));
    at = router;
  };
  hop(path, tier_up, plane, uint32_t(from));
  if (group != other) {
    local(group * routers + other % routers);
    hop(path, tier_next + 1, plane, uint32_t(group * groups + other));
    at = other * routers + group % routers;
  }
  local(goal);
  hop(path, tier_down, plane, uint32_t(to));
}

void Fabric::route_torus(int from, int to, uint32_t plane, FabricPath& path) const {
  hop(path, tier_up, plane, uint32_t(from));
  int stride = 1, at = from;
  for (size_t d = 0; d < dimensions_.size(); ++d) {
    const int size = dimensions_[d], goal = to / stride % size;
    for (int place = at / stride % size; place != goal;) {
      const bool forward = (goal - place + size) % size <= size / 2;
      hop(path, tier_next, plane, uint32_t((size_t(at) * dimensions_.size() + d) * 2 + (forward ? 0 : 1)));
      const int next = (place + (forward ? 1 : size - 1)) % size;
      at += (next - place) * stride;
      place = next;
    }
    stride *= size;
  }
  hop(path, tier_down, plane, uint32_t(to));
}

void Fabric::route_graph(int from, int to, FabricPath& path) const {
  const std::vector<uint32_t>& next = graph_->towards(to);
  for (int node = from; node != to;) {
    const FabricGraph::Link& link = graph_->links[next[size_t(node)]];
    TUTTI_ASSERT(path.count < FabricPath::hops_max);
    path.add(link.number, link.tier);
    node = link.to;
  }
}

}  // namespace tutti
