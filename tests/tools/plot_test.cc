// The plotter: ticks at round numbers, broken lines, escaped texts, no data.
#include "tools/plot.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>

#include <gtest/gtest.h>

namespace tutti::plot {
namespace {

using testing::Test;

size_t occurrences(const std::string& text, const std::string& wanted) {
  size_t n = 0;
  for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) ++n;
  return n;
}

TEST(Plot, NamesSizesOnALogarithmicAxis) {
  const std::vector<Series> series = {{"ring", {{8, 0.1}, {1024, 1}, {1 << 20, 5}}}};
  const std::string svg = plot_svg(series, {.title = "bandwidth", .log_x = true, .x_bytes = true});
  EXPECT_NE(svg.find(">8 B<"), std::string::npos);
  EXPECT_NE(svg.find(" KiB<"), std::string::npos);
  EXPECT_EQ(occurrences(svg, "r='3.2'"), 3u);
}

TEST(Plot, NamesPowersOfTen) {
  const std::vector<Series> series = {{"time", {{1, 1}, {2, 250000}}}};
  const std::string svg = plot_svg(series, {.log_y = true});
  for (const char* label : {">1<", ">10<", ">100<", ">1000<", ">10k<", ">100k<", ">1M<"})
    EXPECT_NE(svg.find(label), std::string::npos) << label;
}

TEST(Plot, BreaksALineAtAPointThatCannotBeDrawn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Series> series = {{"loss", {{1, 1}, {2, 2}, {3, nan}, {4, 1}, {5, -1}, {6, 1}}}};
  const std::string svg = plot_svg(series, {.log_y = true});
  const size_t start = svg.find("<path d='") + 9;
  const std::string path = svg.substr(start, svg.find('\'', start) - start);
  EXPECT_EQ(occurrences(path, "M"), 3u);
  EXPECT_EQ(occurrences(path, "L"), 1u);
}

TEST(Plot, KeepsColoursThatAreAskedFor) {
  const auto colour = [](const std::vector<Series>& series) {  // of the last
    const std::string svg = plot_svg(series, {});
    return svg.substr(svg.find("stroke='#", svg.rfind("<path")), 16);
  };
  const Series a{"a", {{1, 1}, {2, 2}}}, b{"b", {{1, 1}, {2, 2}}}, third{"a", {{1, 1}, {2, 2}}, 2};
  EXPECT_NE(colour({a}), colour({a, b}));
  EXPECT_EQ(colour({third}), colour({b, third}));
  EXPECT_EQ(colour({third}), colour({a, b, {"c", {{1, 1}, {2, 2}}}}));
}

TEST(Plot, ColoursAreAllDifferent) {
  std::set<std::string> seen;
  for (size_t i = 0; i < colours; ++i) {
    const std::vector<Series> series = {{"a", {{1, 1}, {2, 2}}, int(i)}};
    const std::string svg = plot_svg(series, {});
    seen.insert(svg.substr(svg.find("stroke='#", svg.rfind("<path")), 16));
  }
  EXPECT_EQ(seen.size(), colours);
}

TEST(Plot, EscapesTexts) {
  const std::vector<Series> series = {{"a<b & \"c\"\n", {{1, 1}}}};
  const std::string svg = plot_svg(series, {.title = "<script>"});
  EXPECT_NE(svg.find("a&lt;b &amp; &quot;c&quot; <"), std::string::npos);
  EXPECT_EQ(svg.find("<script>"), std::string::npos);
}

TEST(Plot, SurvivesAnything) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<Series>> cases = {
      {}, {{"", {}}}, {{"one", {{5, 5}}}}, {{"zero", {{0, 0}, {0, 0}}}}, {{"flat", {{1, 3}, {2, 3}}}},
      {{"wide", {{1e-300, 1e-300}, {1e300, 1e300}}}}, {{"infinite", {{infinity, 1}, {1, -infinity}}}},
      {{"negative", {{-5, -7}, {-4, -2}}}}};
  for (const auto& series : cases)
    for (int flags = 0; flags < 16; ++flags) {
      PlotOptions options;
      options.log_x = (flags & 1) != 0, options.log_y = (flags & 2) != 0;
      options.x_bytes = (flags & 4) != 0, options.y_from_zero = (flags & 8) != 0;
      const std::string svg = plot_svg(series, options);
      EXPECT_TRUE(svg.ends_with("</svg>\n"));
      EXPECT_EQ(svg.find("nan"), std::string::npos) << flags << svg;
      EXPECT_LT(svg.size(), 50'000u);
    }
}

TEST(Plot, SaysThatThereIsNoData) { EXPECT_NE(plot_svg({}, {}).find("no data"), std::string::npos); }

// With TUTTI_TEST_PLOT=FILE, writes an example to look at.
TEST(Plot, StacksPlots) {
  Plot bandwidth{{.title = "all_reduce, float32 sum, 4 ranks", .x_label = "size", .y_label = "bus bandwidth (GB/s)",
                  .log_x = true, .x_bytes = true, .height = 420}, {}};
  Plot time{{.title = "time", .x_label = "size", .y_label = "time (µs)", .log_x = true, .log_y = true,
             .x_bytes = true, .height = 420}, {}};
  for (const auto& [name, peak] : {std::pair{"out of place", 9.0}, {"in place", 11.5}, {"Open MPI", 5.4}}) {
    Series b{name, {}}, t{name, {}};
    for (double bytes = 8; bytes <= (64 << 20); bytes *= 2) {
      const double us = 0.3 + bytes / (peak * 1e3);
      b.points.push_back({bytes, bytes / us / 1e3});
      t.points.push_back({bytes, us});
    }
    bandwidth.series.push_back(b);
    time.series.push_back(t);
  }
  const std::vector<Plot> plots = {bandwidth, time};
  const std::string svg = plots_svg(plots);
  EXPECT_EQ(occurrences(svg, ">-0<"), 0u);
  EXPECT_EQ(occurrences(svg, "<path "), 6u);
  EXPECT_NE(svg.find("height='840'"), std::string::npos);
  if (const char* file = std::getenv("TUTTI_TEST_PLOT")) std::ofstream(file) << svg;
}

}  // namespace
}  // namespace tutti::plot
