// draw-curves: line plots from JSON on standard input, as SVG on standard output: [{"title", "x_label", "y_label",
// "series": [{"name", "points": [[x, y], …], "colour": number}, …]}, …], both axes logarithmic, x as sizes.
#include <cstdio>
#include <iostream>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/plot.h"

int main() {
  try {
    std::vector<tutti::plot::Plot> plots;
    for (const auto& json : nlohmann::json::parse(std::cin)) {
      tutti::plot::Plot& plot = plots.emplace_back();
      plot.options = {.title = json.at("title"), .x_label = json.at("x_label"), .y_label = json.at("y_label"), .log_x = true,
                      .log_y = true, .x_bytes = true, .height = 430};
      for (const auto& one : json.at("series")) {
        const size_t colour = one.at("colour");
        if (colour >= tutti::plot::colours)
          throw std::invalid_argument(fmt::format("colour: {} is not below {}, the number of colours", colour, tutti::plot::colours));
        plot.series.push_back({one.at("name"), one.at("points"), int(colour)});
      }
    }
    std::fputs(tutti::plot::plots_svg(plots).c_str(), stdout);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "draw-curves: {}\n", error.what());
    return 2;
  }
}
