// Fabrics: routes that end where they should, over links that exist.
#include "simulation/fabric.h"

#include <set>

#include <gtest/gtest.h>

#include "simulation/fabric_graph.h"

namespace tutti {
namespace {

std::vector<uint32_t> links_of(const Fabric& fabric, int from, int to) {
  FabricPath path;
  fabric.route(from, to, path);
  std::vector<uint32_t> links;
  for (size_t i = 0; i < path.count; ++i) {
    const FabricTier& tier = fabric.tiers()[path.hops[i].tier];
    EXPECT_GE(path.hops[i].link, tier.first);
    EXPECT_LT(path.hops[i].link, tier.first + tier.count);
    links.push_back(path.hops[i].link);
  }
  return links;
}

TEST(Fabric, RoutesEveryPairOverLinksOfItsOwnTiers) {
  for (const char* text : {"switch:24", "fat-tree:4x6", "fat-tree:2x3x4", "fat-tree:4x6,oversubscription=4",
                           "dragonfly:3x4x2", "torus:4x6", "torus:2x3x4", "switch:6,ranks=4,rails=4",
                           "switch:6,ranks=4,numa=2,socket=20GB"}) {
    const Fabric fabric = parse_fabric(text, 24);
    ASSERT_EQ(fabric.ranks(), 24) << text;
    for (int from = 0; from < 24; ++from)
      for (int to = 0; to < 24; ++to) {
        const std::vector<uint32_t> links = links_of(fabric, from, to);
        EXPECT_EQ(std::set<uint32_t>(links.begin(), links.end()).size(), links.size()) << text;
        EXPECT_GE(links.size(), fabric.same_host(from, to) ? 0u : 2u) << text;
      }
  }
}

// The first and last links are the hosts', and as many lie between as the kind says.
TEST(Fabric, HasTheHopsOfItsKind) {
  const auto hops = [](const char* text, int from, int to) { return links_of(parse_fabric(text, 2), from, to).size(); };
  EXPECT_EQ(hops("switch:8", 0, 7), 2u);
  EXPECT_EQ(hops("fat-tree:4x4", 0, 3), 2u);
  EXPECT_EQ(hops("fat-tree:4x4", 0, 4), 4u);
  EXPECT_EQ(hops("fat-tree:4x4x4", 0, 15), 4u);
  EXPECT_EQ(hops("fat-tree:4x4x4", 0, 16), 6u);
  EXPECT_EQ(hops("dragonfly:3x4x2", 0, 1), 2u);
  EXPECT_EQ(hops("dragonfly:3x4x2", 0, 3), 3u);
  EXPECT_LE(hops("dragonfly:3x4x2", 0, 23), 5u);
  EXPECT_EQ(hops("torus:8x8", 0, 7), 3u);   // round the back
  EXPECT_EQ(hops("torus:8x8", 0, 4), 6u);
  EXPECT_EQ(hops("torus:8x8", 0, 36), 10u);
}

// D-mod-k: where nothing is oversubscribed, no two messages of a shift share a link.
TEST(Fabric, GivesEachMessageOfAShiftItsOwnLinks) {
  const Fabric fabric = parse_fabric("fat-tree:4x4x4", 64);
  for (int shift = 1; shift < 64; ++shift) {
    std::set<uint32_t> used;
    size_t all = 0;
    for (int from = 0; from < 64; ++from) {
      const std::vector<uint32_t> links = links_of(fabric, from, (from + shift) % 64);
      used.insert(links.begin(), links.end());
      all += links.size();
    }
    EXPECT_EQ(used.size(), all) << shift;
  }
}

TEST(Fabric, TakesTheReceiversRail) {
  const Fabric fabric = parse_fabric("switch:2,ranks=4,rails=4", 8);
  std::set<uint32_t> used;
  for (int to = 4; to < 8; ++to)
    for (const uint32_t link : links_of(fabric, 0, to)) used.insert(link);
  EXPECT_EQ(used.size(), 8u);
}

TEST(Fabric, IsAsLargeAsItsRanksNeed) {
  for (const char* kind : {"switch", "fat-tree", "dragonfly", "torus"})
    for (const int n : {1, 2, 33, 1000, 1'000'000}) {
      if (n > 100'000 && std::string(kind) == "torus") continue;
      EXPECT_GE(parse_fabric(kind, n).ranks(), n) << kind;
    }
}

// Of several shortest routes the receiver's number picks, so that all of them are used.
TEST(FabricGraphs, SpreadRoutesOverParallelSwitches) {
  FabricGraph graph;
  graph.nodes = 4;  // hosts 0 and 1, switches 2 and 3
  graph.out.resize(4);
  graph.in.resize(4);
  for (const auto& [from, to] : {std::pair{0, 2}, std::pair{0, 3}, std::pair{2, 1}, std::pair{3, 1}}) {
    const auto index = uint32_t(graph.links.size());
    graph.links.push_back({from, to, index, 0});
    graph.out[size_t(from)].push_back(index);
    graph.in[size_t(to)].push_back(index);
  }
  EXPECT_EQ(graph.towards(1)[0], 1u);
  EXPECT_EQ(graph.towards(1)[2], 2u);
  EXPECT_EQ(graph.towards(0)[1], ~0u);
}

}  // namespace
}  // namespace tutti
