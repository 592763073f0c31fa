// Draws line plots: ticks, axes, curves and legend become SVG elements.
#include "tools/plot.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace tutti::plot {
namespace {

// Colours that people with any colour vision can tell apart, and that print well.
constexpr std::array<std::string_view, colours> palette = {"#2563a8", "#d1602b", "#2a8f5b", "#a3478f", "#c79a15",
                                                           "#4ba3c7", "#7a5c3e", "#9aa3ad", "#24292f"};
constexpr std::string_view ink = "#24292f", pale_ink = "#57606a", line_colour = "#d8dee4", faint_colour = "#eef1f4";
constexpr double text_width_per_size = 0.56;  // of an average character, in units of the font size
constexpr size_t marked_points_max = 64;      // a curve of more points is drawn without markers

std::string number(double value, int decimals) {
  std::array<char, 400> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, decimals);
  return {text.data(), end.ptr};
}

std::string shortest(double value) {
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6);
  return {text.data(), end.ptr};
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') result += "&amp;";
    else if (c == '<') result += "&lt;";
    else if (c == '>') result += "&gt;";
    else if (c == '"') result += "&quot;";
    else if (static_cast<unsigned char>(c) < 0x20) result += ' ';  // control characters are not allowed in XML
    else result += c;
  }
  return result;
}

struct Tick {
  double value;
  std::string label;  // "" for a minor one
};

std::string bytes_label(double value) {
  constexpr std::array<std::string_view, 6> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) value /= 1024, ++unit;
  return shortest(value) + " " + std::string(units[unit]);
}

// 10000 as "10k", 2e6 as "2M"; small and huge numbers in scientific notation.
std::string decimal_label(double value) {
  const double size = std::abs(value);
  if (size >= 1e4 && size < 1e6) return shortest(value / 1e3) + "k";
  if (size >= 1e6 && size < 1e9) return shortest(value / 1e6) + "M";
  return shortest(value);
}

// One axis: maps values to 0..1 and knows its ticks.
struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  std::vector<Tick> ticks;

  double position(double value) const {
    if (logarithmic) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
    return (value - low) / (high - low);
  }
  bool drawable(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }
};

// The round step (1, 2 or 5 times a power of ten) that gives about `wanted` intervals.
double round_step(double range, int wanted) {
  const double raw = range / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power * 1.0001) return factor * power;
  return 10 * power;
}

void linear_ticks(Axis& axis, bool bytes, bool to_round) {
  if (axis.high <= axis.low) {
    const double margin = axis.low == 0 ? 1 : std::abs(axis.low) * 0.5;
    axis.low -= margin, axis.high += margin;
  }
  const double step = bytes ? std::exp2(std::ceil(std::log2((axis.high - axis.low) / 7)))
                            : round_step(axis.high - axis.low, 6);
  const double slack = step * 1e-6;
  if (to_round) {
    axis.low = std::floor(axis.low / step + 1e-6) * step;
    axis.high = std::ceil(axis.high / step - 1e-6) * step;
  }
  for (double k = std::ceil((axis.low - slack) / step) + 0.0; k * step <= axis.high + slack; ++k)
    axis.ticks.push_back({k * step, bytes ? bytes_label(k * step) : decimal_label(k * step)});
}

void binary_ticks(Axis& axis) {
  if (axis.high <= axis.low) axis.low /= 2, axis.high *= 2;
  const int first = int(std::floor(std::log2(axis.low) + 1e-9)), last = int(std::ceil(std::log2(axis.high) - 1e-9));
  const int every = std::max(1, (last - first + 13) / 14);
  for (int k = first; k <= last; ++k) {
    const double value = std::exp2(k);
    if (value < axis.low * 0.999 || value > axis.high * 1.001) continue;
    if (every > 4 && (k - first) % every != 0) continue;
    axis.ticks.push_back({value, (k - first) % every == 0 ? bytes_label(value) : ""});
  }
}

void decade_ticks(Axis& axis) {
  const int first = int(std::floor(std::log10(axis.low) + 1e-9));
  const int last = std::max(first + 1, int(std::ceil(std::log10(axis.high) - 1e-9)));
  axis.low = std::pow(10.0, first), axis.high = std::pow(10.0, last);
  const int every = std::max(1, (last - first + 7) / 8);
  for (int k = first; k <= last; ++k) {
    if (every > 4 && (k - first) % every != 0) continue;
    axis.ticks.push_back({std::pow(10.0, k), (k - first) % every == 0 ? decimal_label(std::pow(10.0, k)) : ""});
    if (k == last || last - first > 4) continue;
    // Between two powers of ten: 2 and 5 are named where there is room, the others are faint lines.
    for (int factor = 2; factor <= 9; ++factor) {
      const double value = factor * std::pow(10.0, k);
      const bool named = last - first <= 2 && (factor == 2 || factor == 5);
      axis.ticks.push_back({value, named ? decimal_label(value) : ""});
    }
  }
}

struct Frame {  // the drawing area of one plot, in pixels
  double left, right, top, bottom;
};

struct Canvas {
  Axis x, y;
  Frame frame;
  std::string svg;

  double px(double value) const { return frame.left + x.position(value) * (frame.right - frame.left); }
  double py(double value) const { return frame.bottom - y.position(value) * (frame.bottom - frame.top); }
};

void add_line(std::string& svg, double x1, double y1, double x2, double y2, std::string_view colour, double width) {
  svg += "<line x1='" + number(x1, 1) + "' y1='" + number(y1, 1) + "' x2='" + number(x2, 1) + "' y2='" +
         number(y2, 1) + "' stroke='" + std::string(colour) + "' stroke-width='" + number(width, 1) + "'/>\n";
}

void add_text(std::string& svg, double x, double y, std::string_view text, int size, std::string_view anchor,
              std::string_view colour, std::string_view more = "") {
  svg += "<text x='" + number(x, 1) + "' y='" + number(y, 1) + "' font-size='" + std::to_string(size) +
         "' text-anchor='" + std::string(anchor) + "' fill='" + std::string(colour) + "'" + std::string(more) + ">" +
         escaped(text) + "</text>\n";
}

// Lowest and highest drawable value of one coordinate over all series; false where there is none.
bool find_range(std::span<const Series> series, bool of_x, Axis& x, Axis& y) {
  Axis& axis = of_x ? x : y;
  axis.low = std::numeric_limits<double>::infinity(), axis.high = -axis.low;
  for (const Series& one : series)
    for (const auto& [px, py] : one.points) {
      if (!x.drawable(px) || !y.drawable(py)) continue;
      axis.low = std::min(axis.low, of_x ? px : py);
      axis.high = std::max(axis.high, of_x ? px : py);
    }
  return axis.low <= axis.high;
}

bool set_up_axes(Canvas& canvas, std::span<const Series> series, const PlotOptions& options) {
  canvas.x.logarithmic = options.log_x;
  canvas.y.logarithmic = options.log_y;
  const bool any = find_range(series, true, canvas.x, canvas.y) && find_range(series, false, canvas.x, canvas.y);
  if (!any) canvas.x.low = canvas.y.low = 1, canvas.x.high = canvas.y.high = 10;
  if (options.y_max > options.y_min) canvas.y.low = options.y_min, canvas.y.high = options.y_max;
  else if (!options.log_y && options.y_from_zero && canvas.y.low > 0) canvas.y.low = 0;

  if (options.log_x && options.x_bytes) binary_ticks(canvas.x);
  else if (options.log_x) decade_ticks(canvas.x);
  else linear_ticks(canvas.x, options.x_bytes, false);
  if (options.log_y) decade_ticks(canvas.y);
  else linear_ticks(canvas.y, false, true);
  return any;
}

void draw_grid(Canvas& canvas) {
  const Frame& f = canvas.frame;
  for (const Tick& tick : canvas.x.ticks) {
    const double at = canvas.px(tick.value);
    add_line(canvas.svg, at, f.top, at, f.bottom, tick.label.empty() ? faint_colour : line_colour, 1);
    if (!tick.label.empty()) add_text(canvas.svg, at, f.bottom + 20, tick.label, 12, "middle", pale_ink);
  }
  for (const Tick& tick : canvas.y.ticks) {
    const double at = canvas.py(tick.value);
    add_line(canvas.svg, f.left, at, f.right, at, tick.label.empty() ? faint_colour : line_colour, 1);
    if (!tick.label.empty()) add_text(canvas.svg, f.left - 9, at + 4, tick.label, 12, "end", pale_ink);
  }
  add_line(canvas.svg, f.left, f.bottom, f.right, f.bottom, pale_ink, 1.2);
  add_line(canvas.svg, f.left, f.top, f.left, f.bottom, pale_ink, 1.2);
}

// The x coordinates of labels must not run into each other: every k-th stays.
void thin_out_labels(Axis& x, double width) {
  double widest = 0;
  size_t named = 0;
  for (const Tick& tick : x.ticks) {
    widest = std::max(widest, double(tick.label.size()) * 12 * text_width_per_size + 14);
    named += !tick.label.empty();
  }
  const size_t room = std::max<size_t>(1, size_t(width / std::max(widest, 1.0)));
  const size_t every = (named + room - 1) / room;
  size_t index = 0;
  for (Tick& tick : x.ticks)
    if (!tick.label.empty() && index++ % std::max<size_t>(every, 1) != 0) tick.label.clear();
}

std::string_view colour_of(std::span<const Series> series, size_t i) {
  return palette[(series[i].colour < 0 ? i : size_t(series[i].colour)) % palette.size()];
}

void draw_series(Canvas& canvas, const Series& series, std::string_view colour) {
  std::string path, markers;
  bool pen_down = false;
  for (const auto& [x, y] : series.points) {
    if (!canvas.x.drawable(x) || !canvas.y.drawable(y)) {
      pen_down = false;
      continue;
    }
    const std::string px = number(canvas.px(x), 2), py = number(canvas.py(y), 2);
    path += (pen_down ? 'L' : 'M') + px + ' ' + py;
    pen_down = true;
    if (series.points.size() <= marked_points_max)
      markers += "<circle cx='" + px + "' cy='" + py + "' r='3.2'/>";
  }
  if (path.empty()) return;
  canvas.svg += "<path d='" + path + "' fill='none' stroke='" + std::string(colour) +
                "' stroke-width='2' stroke-linejoin='round' stroke-linecap='round'/>\n";
  if (!markers.empty())
    canvas.svg += "<g fill='" + std::string(colour) + "' stroke='#ffffff' stroke-width='1'>" + markers + "</g>\n";
}

double legend_width(const Series& series) { return 34 + double(series.name.size()) * 13 * text_width_per_size + 20; }

// Entries from left to right, in as many rows as they need; returns the number of rows. Draws only if `svg` is given.
int lay_out_legend(std::span<const Series> series, double left, double right, double top, std::string* svg) {
  double x = left;
  int row = 0;
  for (size_t i = 0; i < series.size(); ++i) {
    if (series[i].name.empty()) continue;
    const double width = legend_width(series[i]);
    if (x > left && x + width > right) x = left, ++row;
    if (svg != nullptr) {
      const std::string_view colour = colour_of(series, i);
      const double y = top + row * 21;
      add_line(*svg, x, y, x + 24, y, colour, 2.5);
      *svg += "<circle cx='" + number(x + 12, 1) + "' cy='" + number(y, 1) + "' r='3.5' fill='" + std::string(colour) +
              "'/>\n";
      add_text(*svg, x + 31, y + 4.5, series[i].name, 13, "start", ink);
    }
    x += width;
  }
  return x > left ? row + 1 : 0;
}

// The elements of one plot whose top edge is at `top`; `clip` names its clip path.
std::string draw_plot(std::span<const Series> series, const PlotOptions& options, double top, int clip) {
  Canvas canvas;
  canvas.frame = {78, options.width - 28.0, top + 22, top + options.height - 56.0};
  if (!options.title.empty()) {
    add_text(canvas.svg, canvas.frame.left, top + 32, options.title, 17, "start", ink, " font-weight='600'");
    canvas.frame.top += 26;
  }
  const double legend_top = canvas.frame.top + 10;
  const int rows = lay_out_legend(series, canvas.frame.left, canvas.frame.right, legend_top, &canvas.svg);
  canvas.frame.top += rows * 21 + 14;

  const bool any = set_up_axes(canvas, series, options);
  const Frame& f = canvas.frame;
  thin_out_labels(canvas.x, f.right - f.left);
  draw_grid(canvas);
  add_text(canvas.svg, (f.left + f.right) / 2, f.bottom + 44, options.x_label, 13, "middle", ink);
  const double middle = (f.top + f.bottom) / 2;
  add_text(canvas.svg, 20, middle, options.y_label, 13, "middle", ink,
           " transform='rotate(-90 20 " + number(middle, 1) + ")'");
  if (!any) add_text(canvas.svg, (f.left + f.right) / 2, middle, "no data", 15, "middle", pale_ink);

  const std::string name = "area" + std::to_string(clip);
  canvas.svg += "<clipPath id='" + name + "'><rect x='" + number(f.left - 5, 1) + "' y='" + number(f.top - 5, 1) +
                "' width='" + number(f.right - f.left + 10, 1) + "' height='" + number(f.bottom - f.top + 10, 1) +
                "'/></clipPath>\n<g clip-path='url(#" + name + ")'>\n";
  for (size_t i = 0; any && i < series.size(); ++i) draw_series(canvas, series[i], colour_of(series, i));
  return canvas.svg + "</g>\n";
}

}  // namespace

std::string plots_svg(std::span<const Plot> plots) {
  int width = 1, height = 0;
  std::string body;
  for (size_t i = 0; i < plots.size(); ++i) {
    body += draw_plot(plots[i].series, plots[i].options, height, int(i));
    width = std::max(width, plots[i].options.width);
    height += plots[i].options.height;
  }
  const std::string w = std::to_string(width), h = std::to_string(std::max(height, 1));
  return "<svg xmlns='http://www.w3.org/2000/svg' width='" + w + "' height='" + h + "' viewBox='0 0 " + w + " " + h +
         "' font-family='Inter, Helvetica, Arial, sans-serif'>\n<rect width='100%' height='100%' fill='#ffffff'/>\n" +
         body + "</svg>\n";
}

std::string plot_svg(std::span<const Series> series, const PlotOptions& options) {
  const Plot plot{options, {series.begin(), series.end()}};
  return plots_svg({&plot, 1});
}

}  // namespace tutti::plot
