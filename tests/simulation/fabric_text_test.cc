// Fabrics as texts and files, and what is refused.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "simulation/fabric.h"

namespace tutti {
namespace {

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
            "fabric: link is \"fast\", which is no number with one of the suffixes k M G T");
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
  const auto hops = [&](int to) {
    FabricPath path;
    fabric.route(0, to, path);
    return path.count;
  };
  EXPECT_EQ(hops(2), 2u);
  EXPECT_EQ(hops(7), 3u);
  EXPECT_EQ(hops(1), 0u);
}

TEST_F(FabricFile, SaysWhatCannotBeWithItsName) {
  EXPECT_EQ(refused(R"({"hosts": 2, "links": []})"), path_ + ": no links lead between host0 and host1");
  EXPECT_EQ(refused(R"({"hosts": 2, "links": [{"from": "host0", "to": "host9"}]})"),
            path_ + ": a link's host is 9, which is not one of 0 to 1");
  EXPECT_NE(refused("{").find(path_ + ": "), std::string::npos);
  EXPECT_NE(refused(R"({"links": []})").find("hosts"), std::string::npos);
  EXPECT_THROW(load_fabric("no such file", 2), Error);
}

}  // namespace
}  // namespace tutti
