// Fabrics: routes that end where they should, over links that exist, and texts that are refused.
#include "simulation/fabric.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
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
        if (!fabric.same_host(from, to)) EXPECT_GE(links.size(), 2u) << text;
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

std::string refused(const std::string& text, int n = 4) {
  try {
    parse_fabric(text, n);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "taken";
}

TEST(Fabric, SaysWhatCannotBe) {
  EXPECT_EQ(refused("ring:4"), "fabric: \"ring\" is none of switch, fat-tree, dragonfly, torus");
  EXPECT_EQ(refused("switch:2"), "fabric: \"switch:2\" holds 2 ranks, and 4 are asked for");
  EXPECT_EQ(refused("switch:4x4"), "fabric: switch has one dimension, not \"4x4\"");
  EXPECT_EQ(refused("fat-tree:0x4"), "fabric: a dimension is 0, which is not one of 1 to 16777216");
  EXPECT_EQ(refused("dragonfly:4"), "fabric: dragonfly is GROUPSxROUTERSxHOSTS, not \"4\"");
  EXPECT_EQ(refused("switch,link"), "fabric: \"link\" is no key=value");
  EXPECT_EQ(refused("switch,link=0"), "fabric: link is 0, which is not above 0");
  EXPECT_EQ(refused("switch,link=fast"),
            "fabric: link is \"fast\", which is no number with one of the suffixes  k M G T");
  EXPECT_EQ(refused("switch,rails=2"), "fabric: rails is 2, and a host has only 1 ranks");
  EXPECT_NE(refused("switch,speed=1G").find("\"speed\" is none of ranks, rails"), std::string::npos);
  EXPECT_NE(refused("torus:400").find("202 hops"), std::string::npos);
}

class FabricFile : public ::testing::Test {
 protected:
  ~FabricFile() override { std::remove(path_.c_str()); }
  const std::string& write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  std::string refused(const std::string& text) {
    try {
      load_fabric(write(text), 2);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  }
  const std::string path_ = fmt::format("fabric_test_{}.json", ::getpid());
};

TEST_F(FabricFile, IsATextOrLinks) {
  EXPECT_EQ(load_fabric(write(R"({"fabric": "fat-tree:4x8,ranks=2"})"), 64).hosts(), 32);
  const Fabric fabric = load_fabric(write(R"({"hosts": 4, "keys": "ranks=2", "links": [
    {"from": "host0", "to": "left", "link": "10G"}, {"from": "host1", "to": "left", "link": "10G"},
    {"from": "host2", "to": "right", "link": "10G"}, {"from": "host3", "to": "right", "link": "10G"},
    {"from": "left", "to": "right", "link": "1G", "hop": "2us", "name": "trunk"}]})"), 8);
  EXPECT_EQ(fabric.ranks(), 8);
  EXPECT_EQ(fabric.links(), 10u);
  ASSERT_EQ(fabric.tiers().size(), 2u);
  EXPECT_EQ(fabric.tiers()[1].name, "trunk");
  EXPECT_EQ(fabric.tiers()[1].byte_ns, 8);
  EXPECT_EQ(links_of(fabric, 0, 2).size(), 2u);
  EXPECT_EQ(links_of(fabric, 0, 7).size(), 3u);
  EXPECT_EQ(links_of(fabric, 0, 1).size(), 0u);
}

TEST_F(FabricFile, SaysWhatCannotBeWithItsName) {
  EXPECT_EQ(refused(R"({"hosts": 2, "links": []})"), path_ + ": no links lead between host0 and host1");
  EXPECT_EQ(refused(R"({"hosts": 2, "links": [{"from": "host0", "to": "host9"}]})"),
            path_ + ": a link's host is 9, which is not one of 0 to 1");
  EXPECT_NE(refused("{").find(path_ + ": "), std::string::npos);
  EXPECT_NE(refused(R"({"links": []})").find("hosts"), std::string::npos);
  EXPECT_THROW(load_fabric("no such file", 2), Error);
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
