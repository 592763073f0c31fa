// Pictures hold every message, at the right ranks and in the right order.
#include "schedule/draw.h"

#include <gtest/gtest.h>

#include "algorithms/catalog.h"
#include "base/error.h"
#include "schedule/price.h"

namespace tutti {
namespace {

std::vector<Plan> plans(Collective collective, std::string_view name, int n) {
  Group group;
  group.n = n;
  group.pipeline = 4;
  return plans_of(*find_algorithm(collective, name), group);
}

size_t count(const std::string& text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Draw, ShowsEveryMessageOnce) {
  for (const Algorithm& algorithm : catalog()) {
    const auto all = plans(algorithm.collective, algorithm.name, 6);
    size_t messages = 0, steps = 0;
    for (const Plan& plan : all) {
      steps += plan.steps.size();
      for (const Fold& fold : plan.steps) messages += fold.n_to;
    }
    const Drawing drawing = drawing_of(all);
    EXPECT_EQ(drawing.messages.size(), messages);
    EXPECT_EQ(drawing.steps.size(), steps);
    for (const DrawnMessage& message : drawing.messages) EXPECT_LT(message.sent, message.received);
    const std::string svg = to_svg(all, algorithm.name);
    EXPECT_EQ(count(svg, "marker-end"), messages);
    EXPECT_EQ(count(svg, "<circle"), steps);
    EXPECT_EQ(count(svg, ">rank "), 6u);
    EXPECT_EQ(count(svg, "</svg>"), 1u);
  }
}

TEST(Draw, TellsResultsFromParts) {
  for (const DrawnMessage& message : drawing_of(plans(Collective::all_reduce, "two_shot", 5)).messages)
    EXPECT_EQ(message.finished, message.slice.buffer == Buffer::output);
  for (const DrawnMessage& message : drawing_of(plans(Collective::broadcast, "chain", 5)).messages)
    EXPECT_FALSE(message.finished);
}

TEST(Draw, IsATableAsWell) {
  EXPECT_EQ(to_table(plans(Collective::all_reduce, "tree", 3)),
            "<r receives from rank r, >r sends to rank r, [c] chunk c, + adds, * completes the sum\n\n"
            "tick | rank 0            | rank 1   | rank 2\n"
            "   0 |                   | [0] >0   | [0] >0\n"
            "   1 | <1 <2 +[0]* >2 >1 |          |\n"
            "   2 |                   | <0 [0]   | <0 [0]\n");
}

TEST(Draw, RefusesPlansThatWaitForEver) {
  auto broken = plans(Collective::all_reduce, "ring", 3);
  broken[1].steps.clear();
  EXPECT_THROW(drawing_of(broken), Error);
}

}  // namespace
}  // namespace tutti
