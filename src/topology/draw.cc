// Lays the boxes of a host out from the inside, then draws them; links between devices below.
#include "topology/draw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "topology/tree.h"

namespace tutti {
namespace {

constexpr double gap = 8, padding = 10, title_height = 22, margin = 24;
constexpr double core_width = 84, core_height = 38, device_width = 208, device_height = 38;
constexpr const char* ink = "#1d2433";
constexpr const char* faint_ink = "#5b6577";

struct Colour {
  const char* fill;
  const char* line;
};

Colour colour_of(BoxKind kind) {
  switch (kind) {
    case BoxKind::machine: return {"#ffffff", "#b8c0cc"};
    case BoxKind::package: return {"#eef2f9", "#8fa3c7"};
    case BoxKind::numa: return {"#e9f5ec", "#83b892"};
    case BoxKind::cache: return {"#fdf6e3", "#d9bd74"};
    case BoxKind::core: return {"#2f6fde", "#2458b3"};
  }
  return {"#ffffff", ink};
}

Colour colour_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::nic: return {"#ffe3cc", "#d9822b"};
    case DeviceKind::hca: return {"#ead9f7", "#8e4ec6"};
    case DeviceKind::gpu: return {"#d3f0c4", "#5a9e32"};
    case DeviceKind::gpu_switch: return {"#cdeef0", "#2a8c95"};
  }
  return {"#ffffff", ink};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += uint8_t(c) < 32 ? ' ' : c;
    }
  }
  return out;
}

// Cut so that it fits a width; a letter is about 0.56 of its size wide.
std::string fitted(const std::string& text, double width, double size) {
  const size_t letters = size_t(std::max(1.0, width / (0.56 * size)));
  return text.size() <= letters ? text : text.substr(0, letters - 1) + "…";
}

class Canvas {
 public:
  void rectangle(double x, double y, double w, double h, Colour colour, double radius = 5) {
    body_ += fmt::format(R"(<rect x="{:g}" y="{:g}" width="{:g}" height="{:g}" rx="{:g}" fill="{}" stroke="{}"/>)" "\n",
                         x, y, w, h, radius, colour.fill, colour.line);
  }
  void text(double x, double y, double size, const char* colour, std::string_view what, std::string_view style = "") {
    body_ += fmt::format(R"(<text x="{:g}" y="{:g}" font-size="{:g}" fill="{}"{}{}>{}</text>)" "\n", x, y, size, colour,
                         style.empty() ? "" : " ", style, escaped(what));
  }
  void curve(double x1, double y1, double x2, double y2, double bend_y1, double bend_y2, const char* colour,
             std::string_view title) {
    body_ += fmt::format(R"(<path d="M{:g} {:g} C{:g} {:g} {:g} {:g} {:g} {:g}" fill="none" stroke="{}" )"
                         R"(stroke-width="1.6" stroke-opacity="0.6"><title>{}</title></path>)" "\n",
                         x1, y1, x1, bend_y1, x2, bend_y2, x2, y2, colour, escaped(title));
  }
  std::string document(double width, double height) const {
    return fmt::format(R"(<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{0:g}" height="{1:g}" viewBox="0 0 {0:g} {1:g}" )"
                       R"(font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif">
<rect width="100%" height="100%" fill="#ffffff"/>
{2}</svg>
)",
                       width, height, body_);
  }

 private:
  std::string body_;
};

// --- Boxes. A tile has a size once it is measured, and a place relative to its parent.

struct Tile {
  enum class What : uint8_t { box, core, device } what = What::box;
  const Box* box = nullptr;
  const HostDevice* device = nullptr;
  std::string caches;  // of a core: those that it alone has
  double x = 0, y = 0, width = 0, height = 0;
  std::vector<Tile> tiles;
};

struct Size {
  double width = 0, height = 0;
};

// Places tiles [first, last) in rows of `columns`, all as large as the largest.
Size lay_rows(std::vector<Tile>& tiles, size_t first, size_t last, size_t columns, double x, double y) {
  double width = 0, height = 0;
  for (size_t i = first; i < last; ++i) {
    width = std::max(width, tiles[i].width);
    height = std::max(height, tiles[i].height);
  }
  for (size_t i = first; i < last; ++i) {
    const size_t row = (i - first) / columns, column = (i - first) % columns;
    tiles[i].x = x + double(column) * (width + gap);
    tiles[i].y = y + double(row) * (height + gap);
    tiles[i].width = width, tiles[i].height = height;
  }
  const size_t n = last - first, rows = (n + columns - 1) / columns;
  return {double(std::min(columns, n)) * (width + gap) - gap, double(rows) * (height + gap) - gap};
}

// The number of columns whose rows come nearest to a pleasant shape, with as few holes as possible.
Size lay_best(std::vector<Tile>& tiles, size_t first, size_t last, double x, double y) {
  constexpr std::array<double, 3> pleasant_by_what = {2.8, 3.5, 7};  // width to height, of boxes, cores, devices
  const double pleasant = pleasant_by_what[size_t(tiles[first].what)];
  constexpr double hole_cost = 2.2;
  size_t best = 1;
  double least = 1e9;
  const size_t n = last - first;
  for (size_t columns = 1; columns <= n; ++columns) {
    const Size size = lay_rows(tiles, first, last, columns, x, y);
    const size_t holes = (columns - n % columns) % columns;
    const double cost =
        std::abs(std::log(size.width / size.height / pleasant)) + hole_cost * double(holes) / double(columns);
    if (cost < least) least = cost, best = columns;
  }
  return lay_rows(tiles, first, last, best, x, y);
}

double title_width(const Host& host, const Box& box) {
  return 2 * padding + 0.6 * 12 * double(label(host, box).size());
}

Tile measured(const Host& host, const Box& box);

// A box with one core in it and nothing else is drawn as that core.
Tile tile_of(const Host& host, const Box& box) {
  std::string caches;
  const Box* at = &box;
  while (at->kind == BoxKind::cache && at->children.size() == 1) {
    caches += (caches.empty() ? "" : " · ") + label(host, *at);
    at = &at->children[0];
  }
  if (at->kind != BoxKind::core) return measured(host, box);
  Tile tile;
  tile.what = Tile::What::core;
  tile.box = at;
  tile.caches = caches;
  tile.width = std::max(core_width, 12 + 0.56 * 9 * double(caches.size()));
  tile.height = core_height;
  return tile;
}

// Tiles of one group stand in rows together: boxes, cores, then devices kind by kind, network and its adapters as one.
int group_of(const Tile& tile) {
  if (tile.what != Tile::What::device) return int(tile.what);
  const DeviceKind kind = tile.device->kind;
  return int(Tile::What::device) + (kind == DeviceKind::hca ? int(DeviceKind::nic) : int(kind));
}

Tile measured(const Host& host, const Box& box) {
  Tile tile;
  tile.box = &box;
  for (const Box& child : box.children) tile.tiles.push_back(tile_of(host, child));
  for (const HostDevice* device : box.devices) {
    Tile chip;
    chip.what = Tile::What::device;
    chip.device = device;
    chip.width = device_width, chip.height = device_height;
    tile.tiles.push_back(chip);
  }
  std::stable_sort(tile.tiles.begin(), tile.tiles.end(),
                   [](const Tile& a, const Tile& b) { return group_of(a) < group_of(b); });
  double y = title_height + gap, width = title_width(host, box);
  for (size_t first = 0; first < tile.tiles.size();) {
    size_t last = first;
    while (last < tile.tiles.size() && group_of(tile.tiles[last]) == group_of(tile.tiles[first])) ++last;
    const Size size = lay_best(tile.tiles, first, last, padding, y);
    y += size.height + gap;
    width = std::max(width, size.width + 2 * padding);
    first = last;
  }
  tile.width = width;
  tile.height = y - gap + padding;
  return tile;
}

void draw_core(Canvas& canvas, const Host& host, const Tile& tile, double x, double y) {
  const bool allowed = std::any_of(tile.box->cores.begin(), tile.box->cores.end(), [&](int cpu) {
    return std::binary_search(host.cores_allowed.begin(), host.cores_allowed.end(), cpu);
  });
  const Colour colour = allowed ? colour_of(BoxKind::core) : Colour{"#e3e6eb", "#b3bac5"};
  const char* letters = allowed ? "#ffffff" : faint_ink;
  canvas.rectangle(x, y, tile.width, tile.height, colour, 4);
  std::string cpus;
  for (int cpu : tile.box->cores) cpus += (cpus.empty() ? "cpu " : " + ") + std::to_string(cpu);
  canvas.text(x + 6, y + 16, 12, letters, fitted(cpus, tile.width - 8, 12), R"(font-weight="bold")");
  if (!tile.caches.empty()) canvas.text(x + 6, y + 30, 9, letters, tile.caches);
}

void draw_device(Canvas& canvas, const HostDevice& device, double x, double y) {
  canvas.rectangle(x, y, device_width, device_height, colour_of(device.kind), 4);
  std::string side = human_speed(device.bits_per_s);
  if (!device.up) side = "down";
  canvas.text(x + 6, y + 16, 12, ink, device.name, R"(font-weight="bold")");
  canvas.text(x + device_width - 6, y + 16, 10, faint_ink, side.empty() ? name(device.kind) : side,
              R"(text-anchor="end")");
  const std::string& detail = device.model.empty() ? device.pci : device.model;
  canvas.text(x + 6, y + 30, 9, faint_ink, fitted(detail, device_width - 10, 9));
}

void draw(Canvas& canvas, const Host& host, const Tile& tile, double x, double y) {
  if (tile.what == Tile::What::core) return draw_core(canvas, host, tile, x, y);
  if (tile.what == Tile::What::device) return draw_device(canvas, *tile.device, x, y);
  canvas.rectangle(x, y, tile.width, tile.height, colour_of(tile.box->kind), 6);
  const std::string title = label(host, *tile.box);
  canvas.text(x + padding, y + 18, 12, ink, title, R"(font-weight="bold")");
  const double left = tile.width - title_width(host, *tile.box) - padding;
  if (tile.box->kind == BoxKind::package && left > 60)
    canvas.text(x + tile.width - padding, y + 18, 10, faint_ink,
                fitted(host.packages[tile.box->index].model, left, 10), R"(text-anchor="end")");
  for (const Tile& child : tile.tiles) draw(canvas, host, child, x + child.x, y + child.y);
}

// --- Links

constexpr std::array<const char*, 8> line_colours = {"#2f6fde", "#d9822b", "#5a9e32", "#c23b4a",
                                                     "#8e4ec6", "#2a8c95", "#a8791c", "#5b6577"};

Colour colour_of_end(const Host& host, const std::string& end) {
  for (const HostDevice& device : host.devices)
    if (device.name == end) return colour_of(device.kind);
  return {"#e9f5ec", "#83b892"};
}

bool is_switch(const Host& host, const std::string& end) {
  return std::any_of(host.devices.begin(), host.devices.end(), [&](const HostDevice& device) {
    return device.name == end && device.kind == DeviceKind::gpu_switch;
  });
}

// Devices in one row, the switches between them in a second; a line per link. Returns the height used.
double draw_bandwidths(Canvas& canvas, const Host& host, const LinkMatrix& matrix, double x, double y, double width) {
  constexpr double chip_height = 24, between = 150;
  const size_t n = matrix.ends.size();
  std::array<std::vector<size_t>, 2> rows;
  for (size_t i = 0; i < n; ++i) rows[is_switch(host, matrix.ends[i])].push_back(i);
  std::vector<double> middle(n);
  double chip_width = 0;
  for (const auto& row : rows)
    for (size_t k = 0; k < row.size(); ++k) middle[row[k]] = x + (double(k) + 0.5) * width / double(row.size());
  chip_width = std::min(92.0, width / double(std::max(rows[0].size(), rows[1].size())) - 4);
  const double top = y + (rows[1].empty() ? between : 0), bottom = y + between;
  for (size_t from = 0; from < n; ++from)
    for (size_t to = from + 1; to < n; ++to) {
      const uint64_t value = std::max(matrix.at(from, to), matrix.at(to, from));
      if (value == 0) continue;
      const bool up = is_switch(host, matrix.ends[from]), down = is_switch(host, matrix.ends[to]);
      const double y1 = up ? bottom : top + (rows[1].empty() ? 0 : chip_height);
      const double y2 = down ? bottom : top + (rows[1].empty() ? 0 : chip_height);
      const double arch = std::min(between, 20 + 0.3 * std::abs(middle[to] - middle[from]));
      const double bend1 = y1 == y2 ? y1 - arch : (y1 + y2) / 2, bend2 = y1 == y2 ? bend1 : (y1 + y2) / 2;
      canvas.curve(middle[from], y1, middle[to], y2, bend1, bend2, line_colours[from % line_colours.size()],
                   fmt::format("{} - {}: {} MB/s", matrix.ends[from], matrix.ends[to], value));
    }
  for (size_t i = 0; i < n; ++i) {
    const double at = is_switch(host, matrix.ends[i]) ? bottom : top;
    canvas.rectangle(middle[i] - chip_width / 2, at, chip_width, chip_height, colour_of_end(host, matrix.ends[i]), 4);
    canvas.text(middle[i], at + 16, 11, ink, fitted(matrix.ends[i], chip_width, 11), R"(text-anchor="middle")");
  }
  return between + chip_height;
}

// A table of numbers, darker where farther.
double draw_latencies(Canvas& canvas, const LinkMatrix& matrix, double x, double y) {
  constexpr double cell_width = 54, cell_height = 24;
  const uint64_t most = std::max<uint64_t>(1, *std::max_element(matrix.values.begin(), matrix.values.end()));
  for (size_t from = 0; from < matrix.ends.size(); ++from) {
    canvas.text(x + cell_width - 6, y + double(from + 1) * cell_height + 16, 11, ink, matrix.ends[from],
                R"(text-anchor="end")");
    canvas.text(x + (double(from) + 1.5) * cell_width, y + 16, 11, ink, matrix.ends[from], R"(text-anchor="middle")");
    for (size_t to = 0; to < matrix.ends.size(); ++to) {
      const int shade = 255 - int(110 * double(matrix.at(from, to)) / double(most));
      const std::string fill = fmt::format("#{0:02x}{1:02x}ff", shade, std::min(255, shade + 15));
      const double at_x = x + double(to + 1) * cell_width, at_y = y + double(from + 1) * cell_height;
      canvas.rectangle(at_x, at_y, cell_width, cell_height, {fill.c_str(), "#ffffff"}, 0);
      canvas.text(at_x + cell_width / 2, at_y + 16, 11, ink, std::to_string(matrix.at(from, to)),
                  R"(text-anchor="middle")");
    }
  }
  return double(matrix.ends.size() + 1) * cell_height;
}

std::string title_of(const LinkMatrix& matrix) {
  if (!matrix.bandwidth) return matrix.name;
  std::vector<uint64_t> values;
  for (uint64_t value : matrix.values)
    if (value > 0) values.push_back(value);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (values.empty()) return matrix.name + ": no links";
  return *least == *most ? fmt::format("{}: each line {:g} GB/s", matrix.name, double(*least) / 1000)
                         : fmt::format("{}: lines of {:g} to {:g} GB/s", matrix.name, double(*least) / 1000,
                                       double(*most) / 1000);
}

void draw_legend(Canvas& canvas, double right, double y) {
  constexpr std::array<const char*, 2> words = {"allowed core", "not allowed"};
  const std::array<Colour, 2> colours = {colour_of(BoxKind::core), Colour{"#e3e6eb", "#b3bac5"}};
  double x = right - 200;
  for (size_t i = 0; i < words.size(); ++i, x += 106) {
    canvas.rectangle(x, y - 10, 12, 12, colours[i], 2);
    canvas.text(x + 18, y, 11, faint_ink, words[i]);
  }
}

}  // namespace

std::string to_svg(const Host& host) {
  const Box machine = boxes(host);
  const Tile tile = measured(host, machine);
  Canvas canvas;
  const double width = std::max(tile.width + 2 * margin, 520.0);
  canvas.text(margin, 36, 18, ink, host.model.empty() ? host.name : host.name + " · " + host.model,
              R"(font-weight="bold")");
  std::string summary = summary_of(host);
  if (host.cpu_quota > 0) summary += fmt::format("; CPU time limited to {:g} CPUs", host.cpu_quota);
  canvas.text(margin, 56, 12, faint_ink, summary);
  draw_legend(canvas, width - margin, 74);
  double y = 84;
  draw(canvas, host, tile, margin, y);
  y += tile.height + 2 * margin;
  for (const LinkMatrix& matrix : host.links) {
    if (matrix.ends.empty()) continue;
    canvas.text(margin, y, 13, ink, title_of(matrix), R"(font-weight="bold")");
    y += 14;
    y += matrix.bandwidth ? draw_bandwidths(canvas, host, matrix, margin, y, width - 2 * margin)
                          : draw_latencies(canvas, matrix, margin, y);
    y += 2 * margin;
  }
  return canvas.document(width, y - margin);
}

}  // namespace tutti
