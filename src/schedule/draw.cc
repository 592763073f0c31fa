// Schedules as pictures.
#include "schedule/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace tutti {
namespace {

// Lengths of the picture, in pixels.
constexpr int left = 64, top = 40, tick_width = 84, lane_height = 56, radius = 9, margin = 24;

struct Sent {
  int tick;
  Slice slice;
  bool finished;
};

class Ticker {
 public:
  explicit Ticker(std::span<const Plan> plans) : plans_(plans), step_(plans.size()), free_(plans.size()) {}

  Drawing run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t rank = 0; rank < plans_.size(); ++rank)
        while (step_[rank] < plans_[rank].steps.size() && act(rank)) moved = true;
    }
    for (uint32_t rank = 0; rank < plans_.size(); ++rank)
      if (step_[rank] < plans_[rank].steps.size())
        throw Error(Code::internal_error, "a plan that waits for ever has no picture");
    std::stable_sort(drawing_.steps.begin(), drawing_.steps.end(), [](const DrawnStep& a, const DrawnStep& b) {
      return std::tie(a.tick, a.rank) < std::tie(b.tick, b.rank);
    });
    return std::move(drawing_);
  }

 private:
  bool act(uint32_t rank) {
    const Plan& plan = plans_[rank];
    const Fold& fold = plan.steps[step_[rank]];
    for (uint32_t peer : plan.from(fold))
      if (fifos_[{peer, rank}].empty()) return false;
    int tick = free_[rank];
    Slice slice = fold.dst.count > 0 ? fold.dst : fold.a;
    bool finished = fold.finish || (fold.n_from == 0 && finished_.contains({rank, fold.a.first}));
    for (uint32_t peer : plan.from(fold)) tick = std::max(tick, fifos_[{peer, rank}].front().tick + 1);
    for (uint32_t peer : plan.from(fold)) {
      const Sent sent = fifos_[{peer, rank}].front();
      fifos_[{peer, rank}].pop_front();
      drawing_.messages.push_back({peer, rank, sent.tick, tick, sent.slice, sent.finished});
      if (slice.count == 0) slice = sent.slice;
      finished = finished || sent.finished;
    }
    if (finished && fold.dst.count > 0)
      for (uint32_t c = 0; c < slice.count; ++c) finished_[{rank, slice.first + c}] = true;
    for (uint32_t peer : plan.to(fold)) fifos_[{rank, peer}].push_back({tick, slice, finished});
    drawing_.steps.push_back({rank, tick, step_[rank]});
    drawing_.ticks = std::max(drawing_.ticks, tick + 1);
    free_[rank] = tick + 1;
    ++step_[rank];
    return true;
  }

  std::span<const Plan> plans_;
  std::vector<size_t> step_;
  std::vector<int> free_;  // the first tick at which a rank is free
  std::map<std::pair<uint32_t, uint32_t>, std::deque<Sent>> fifos_;
  std::map<std::pair<uint32_t, uint32_t>, bool> finished_;  // (rank, chunk): output holds a result
  Drawing drawing_;
};

std::string chunk_name(const Slice& slice) {
  return slice.count == 1 ? fmt::format("{}", slice.first)
                          : fmt::format("{}-{}", slice.first, slice.first + slice.count - 1);
}

int x_of(int tick) { return left + tick * tick_width + tick_width / 2; }
int y_of(uint32_t rank) { return top + int(rank) * lane_height + lane_height / 2; }

const char* colour_of(const DrawnMessage& message) { return message.finished ? "#2a8a4a" : "#2a62b8"; }

// An arrow that ends at the edges of both circles.
std::string arrow(const DrawnMessage& message) {
  const double x0 = x_of(message.sent), y0 = y_of(message.from), x1 = x_of(message.received), y1 = y_of(message.to);
  const double length = std::hypot(x1 - x0, y1 - y0), dx = (x1 - x0) / length, dy = (y1 - y0) / length;
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"1.4\" "
      "marker-end=\"url(#{})\"/>\n",
      x0 + dx * radius, y0 + dy * radius, x1 - dx * (radius + 5), y1 - dy * (radius + 5), colour_of(message),
      message.finished ? "result" : "part");
}

// Its chunk's number near its start, where arrows lie apart.
std::string label(const DrawnMessage& message) {
  const double x0 = x_of(message.sent), y0 = y_of(message.from), x1 = x_of(message.received), y1 = y_of(message.to);
  constexpr double at = 0.36;
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\" class=\"chunk\">{}</text>\n", x0 + (x1 - x0) * at,
                     y0 + (y1 - y0) * at + 3.5, colour_of(message), chunk_name(message.slice));
}

// A step: a plus where it adds, filled where it completes a sum.
std::string circle(const DrawnStep& step, const Fold& fold) {
  const bool adds = fold.operands() > 1;
  std::string svg =
      fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\" stroke=\"#333333\" stroke-width=\"1.2\"/>\n",
                  x_of(step.tick), y_of(step.rank), radius, fold.finish ? "#bfe5ca" : "#ffffff");
  if (adds)
    svg += fmt::format("<text x=\"{}\" y=\"{}\" class=\"plus\">+</text>\n", x_of(step.tick), y_of(step.rank) + 5);
  return svg;
}

std::string head(int width, int height, std::string_view title) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<style>.chunk{{font-size:11px;text-anchor:middle;paint-order:stroke;stroke:#ffffff;stroke-width:4px}}"
      ".plus{{font-size:15px;text-anchor:middle}}</style>\n"
      "<defs>\n"
      "<marker id=\"part\" orient=\"auto\" markerWidth=\"6\" markerHeight=\"6\" refX=\"3\" refY=\"3\">"
      "<path d=\"M0,0 L6,3 L0,6 z\" fill=\"#2a62b8\"/></marker>\n"
      "<marker id=\"result\" orient=\"auto\" markerWidth=\"6\" markerHeight=\"6\" refX=\"3\" refY=\"3\">"
      "<path d=\"M0,0 L6,3 L0,6 z\" fill=\"#2a8a4a\"/></marker>\n"
      "</defs>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
      "<text x=\"{2}\" y=\"24\" font-weight=\"bold\">{3}</text>\n",
      width, height, margin / 2, title);
}

std::string cell(const Plan& plan, const Fold& fold) {
  std::string text;
  for (uint32_t peer : plan.from(fold)) text += fmt::format("<{} ", peer);
  if (fold.a.count > 0 || fold.dst.count > 0)
    text +=
        fmt::format("{}{}{}", fold.operands() > 1 ? "+" : "",
                    fmt::format("[{}]", chunk_name(fold.dst.count > 0 ? fold.dst : fold.a)), fold.finish ? "*" : "");
  for (uint32_t peer : plan.to(fold)) text += fmt::format(" >{}", peer);
  return text;
}

}  // namespace

Drawing drawing_of(std::span<const Plan> plans) { return Ticker(plans).run(); }

std::string to_svg(std::span<const Plan> plans, std::string_view title) {
  const Drawing drawing = drawing_of(plans);
  const int width = std::max(360, left + drawing.ticks * tick_width + margin);
  std::string svg = head(width, top + int(plans.size()) * lane_height + margin / 2, title);
  for (uint32_t rank = 0; rank < plans.size(); ++rank)
    svg += fmt::format(
        "<text x=\"{0}\" y=\"{1}\">rank {2}</text>\n<line x1=\"{3}\" y1=\"{4}\" x2=\"{5}\" y2=\"{4}\" "
        "stroke=\"#cccccc\"/>\n",
        margin / 2, y_of(rank) + 4, rank, left, y_of(rank), width - margin / 2);
  for (const DrawnMessage& message : drawing.messages) svg += arrow(message);
  for (const DrawnMessage& message : drawing.messages) svg += label(message);
  for (const DrawnStep& step : drawing.steps) svg += circle(step, plans[step.rank].steps[step.step]);
  return svg + "</svg>\n";
}

std::string to_table(std::span<const Plan> plans) {
  const Drawing drawing = drawing_of(plans);
  std::vector<std::vector<std::string>> lines(size_t(drawing.ticks), std::vector<std::string>(plans.size()));
  std::vector<size_t> widths(plans.size(), 8);
  for (const DrawnStep& step : drawing.steps) {
    std::string& text = lines[size_t(step.tick)][step.rank];
    text = cell(plans[step.rank], plans[step.rank].steps[step.step]);
    widths[step.rank] = std::max(widths[step.rank], text.size());
  }
  std::string table = "<r receives from rank r, >r sends to rank r, [c] chunk c, + adds, * completes the sum\n\ntick";
  for (size_t rank = 0; rank < plans.size(); ++rank)
    table += fmt::format(" | {:<{}}", fmt::format("rank {}", rank), widths[rank]);
  table.erase(table.find_last_not_of(' ') + 1);
  table += "\n";
  for (size_t tick = 0; tick < lines.size(); ++tick) {
    table += fmt::format("{:4}", tick);
    for (size_t rank = 0; rank < plans.size(); ++rank)
      table += fmt::format(" | {:<{}}", lines[tick][rank], widths[rank]);
    table.erase(table.find_last_not_of(' ') + 1);
    table += "\n";
  }
  return table;
}

}  // namespace tutti
