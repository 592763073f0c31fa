// Text and drawing of a host: everything is on them, well formed, whatever the names hold.
#include "topology/draw.h"

#include <gtest/gtest.h>

#include "topology/text.h"
#include "topology/tree.h"

namespace tutti {
namespace {

Host machine(const std::string& name) { return load_host(std::string(TOPOLOGIES) + "/" + name + ".xml"); }

size_t times(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

size_t boxes_of(const Box& box, BoxKind kind) {
  size_t count = box.kind == kind;
  for (const Box& child : box.children) count += boxes_of(child, kind);
  return count;
}

TEST(Tree, APackageHoldsANumaNodeOrANumaNodeHoldsPackages) {
  const Host two = machine("2socket-1gpu-1ib");
  const Box small = boxes(two);
  ASSERT_EQ(small.children.size(), 2u);
  EXPECT_EQ(small.children[0].kind, BoxKind::package);
  EXPECT_EQ(small.children[0].children[0].kind, BoxKind::numa);
  EXPECT_EQ(small.children[1].children[0].devices.size(), 5u);
  const Host four = machine("4socket-96core");
  const Box large = boxes(four);
  ASSERT_EQ(large.children.size(), 4u);
  EXPECT_EQ(large.children[0].kind, BoxKind::numa);
  EXPECT_EQ(large.children[0].children.size(), 4u);
  EXPECT_EQ(large.children[0].children[0].kind, BoxKind::package);
}

TEST(Tree, HoldsEveryPartOnce) {
  for (const char* name : {"2socket-1gpu-1ib", "4socket-96core", "dgx2-16gpu-nvswitch"}) {
    const Host host = machine(name);
    const Box box = boxes(host);
    EXPECT_EQ(boxes_of(box, BoxKind::package), host.packages.size());
    EXPECT_EQ(boxes_of(box, BoxKind::numa), host.numa.size());
    EXPECT_EQ(boxes_of(box, BoxKind::cache), host.caches.size());
    EXPECT_EQ(boxes_of(box, BoxKind::core), host.physical_cores.size());
  }
}

TEST(Tree, AHostOfNothingIsABoxOfNothing) {
  const Host nothing;
  EXPECT_TRUE(boxes(nothing).children.empty());
  EXPECT_FALSE(to_text(nothing).empty());
  EXPECT_TRUE(contains(to_svg(nothing), "</svg>"));
}

TEST(Words, OfSizesSpeedsAndRanges) {
  EXPECT_EQ(human_bytes(100), "100 B");
  EXPECT_EQ(human_bytes(256 << 10), "256 KiB");
  EXPECT_EQ(human_bytes(3 << 19), "1.5 MiB");
  EXPECT_EQ(human_bytes(34330173440), "32 GiB");
  EXPECT_EQ(human_speed(0), "");
  EXPECT_EQ(human_speed(100'000'000), "100 Mbit/s");
  EXPECT_EQ(human_speed(2'500'000'000), "2.5 Gbit/s");
  EXPECT_EQ(ranges_of({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(ranges_of({}), "");
}

TEST(Text, ShowsCoresCachesAndDevices) {
  Host host = machine("2socket-1gpu-1ib");
  host.cores_allowed = {0, 1};
  host.cpu_quota = 1.5;
  const std::string text = to_text(host);
  EXPECT_TRUE(contains(text, "2 packages, 2 NUMA nodes, 16 cores, 32 logical CPUs\n")) << text;
  EXPECT_TRUE(contains(text, "allowed here: 2 of them (0-1); CPU time: 1.5 CPUs' worth by cgroup\n")) << text;
  EXPECT_TRUE(contains(text, "8 cores, each L2 256 KiB, L1 32 KiB: cpu 0+(16) 1+(17) (2)+(18)")) << text;
  EXPECT_TRUE(contains(text, "hca mlx5_0, Mellanox")) << text;
  EXPECT_TRUE(contains(text, "NUMALatency\n  numa0:  10  20\n  numa1:  20  10\n")) << text;
}

TEST(Text, ShowsWhichSwitchesAGpuReaches) {
  const std::string text = to_text(machine("dgx2-16gpu-nvswitch"));
  EXPECT_TRUE(contains(text, "  nvml0: 25000 to each of nvswitch3 nvswitch0 nvswitch2 nvswitch5 nvswitch1 nvswitch4\n"))
      << text;
}

TEST(Drawing, ShowsEveryGpuSwitchAndLink) {
  const std::string svg = to_svg(machine("dgx2-16gpu-nvswitch"));
  EXPECT_EQ(times(svg, "<path "), 96u);
  EXPECT_TRUE(contains(svg, "NVLinkBandwidth: each line 25 GB/s"));
  for (int gpu = 0; gpu < 16; ++gpu) EXPECT_TRUE(contains(svg, ">nvml" + std::to_string(gpu) + "</text>"));
  EXPECT_EQ(times(svg, ">gpu switch</text>"), 12u);
}

TEST(Drawing, HighlightsAllowedCores) {
  Host host = machine("2socket-1gpu-1ib");
  const std::string highlight = "fill=\"#2f6fde\"";
  EXPECT_EQ(times(to_svg(host), highlight), 16u + 1);  // and the legend's
  host.cores_allowed = {3, 16};
  EXPECT_EQ(times(to_svg(host), highlight), 2u + 1);
}

TEST(Drawing, EscapesNames) {
  Host host = machine("2socket-1gpu-1ib");
  host.name = "<&\"\x01>";
  EXPECT_TRUE(contains(to_svg(host), "&lt;&amp;&quot; &gt;"));
}

}  // namespace
}  // namespace tutti
