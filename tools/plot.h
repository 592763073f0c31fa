// Line plots as SVG text, without dependencies: linear and logarithmic axes, a legend, ticks at round numbers.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::plot {

inline constexpr size_t colours = 9;

// One curve. Points are drawn in the order given. A point that is not finite, or not above 0 on a logarithmic axis,
// is left out and breaks the line.
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
  // The number of its colour, for what is to have the same one in several drawings; below 0: its place among the series. From
  // `colours` on they repeat.
  int colour = -1;
};

struct PlotOptions {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;
  bool log_y = false;
  // Ticks of x as sizes (1 KiB, 64 KiB, 1 MiB); powers of two on a logarithmic axis.
  bool x_bytes = false;
  // A linear y axis starts at 0 unless this is false or a value is negative.
  bool y_from_zero = true;
  // Limits of y; where both are equal they come from the points. Points outside are clipped.
  double y_min = 0;
  double y_max = 0;
  // Size of the drawing in pixels.
  int width = 900;
  int height = 520;
};

struct Plot {
  PlotOptions options;
  std::vector<Series> series;
};

// A whole SVG document, UTF-8. Texts may hold any characters. Never fails: without points it says "no data".
std::string plot_svg(std::span<const Series> series, const PlotOptions& options);

// Several plots one below the other in one document, as wide as the widest.
std::string plots_svg(std::span<const Plot> plots);

}  // namespace tutti::plot
