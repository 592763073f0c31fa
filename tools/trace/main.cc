// tutti-trace: merges the traces of a job's ranks, and says who was late, by how much and how often.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/plot.h"
#include "tools/trace/trace.h"

namespace tutti::trace {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string output, plot;
  double threshold_us = 50;
  bool json = false;
};

void write(const std::string& file, const std::string& text) {
  std::ofstream out(file);
  out << text;
  out.close();
  if (!out) throw std::runtime_error(file + ": cannot be written");
}

void print_json(const std::vector<RankSummary>& ranks, size_t calls) {
  nlohmann::json list = nlohmann::json::array();
  for (const RankSummary& r : ranks)
    list.push_back({{"rank", r.rank},
                    {"times_last", r.times_last},
                    {"late_us", r.late_us},
                    {"late_max_us", r.late_max_us},
                    {"waited_us", r.waited_us},
                    {"waited_for_us", r.waited_for_us}});
  fmt::print("{}\n", nlohmann::json{{"calls", calls}, {"ranks", std::move(list)}}.dump(2));
}

void print_table(const std::vector<RankSummary>& ranks, size_t calls, double threshold_us) {
  fmt::print("{} calls that all {} ranks made; late: begun more than {:g} us after the median of the others\n\n", calls,
             ranks.size(), threshold_us);
  fmt::print("{:>5} {:>10} {:>12} {:>12} {:>12} {:>15}\n", "rank", "late", "in all (ms)", "most (ms)", "waits (ms)",
             "others wait (ms)");
  for (const RankSummary& r : ranks)
    fmt::print("{:>5} {:>10} {:>12.3f} {:>12.3f} {:>12.3f} {:>15.3f}\n", r.rank, r.times_last, r.late_us / 1e3,
               r.late_max_us / 1e3, r.waited_us / 1e3, r.waited_for_us / 1e3);
}

// One curve a rank: how late it was, where it was the last.
std::string plot_of(const std::vector<Lateness>& calls) {
  std::map<int, plot::Series> by_rank;
  for (const Lateness& call : calls) {
    plot::Series& series = by_rank[call.last_rank];
    series.name = fmt::format("rank {} last", call.last_rank);
    series.points.emplace_back(double(call.sequence), call.late_us / 1e3);
  }
  std::vector<plot::Series> series;
  for (auto& [rank, curve] : by_rank) series.push_back(std::move(curve));
  plot::PlotOptions options;
  options.title = "How long the others waited for the last rank to begin";
  options.x_label = "call";
  options.y_label = "ms after the median of the others";
  return plot::plot_svg(series, options);
}

void run(const Options& options) {
  std::vector<RankTrace> ranks;
  for (const std::string& file : options.files) ranks.push_back(read_trace(file));
  align(ranks);
  if (!options.output.empty()) write(options.output, merged_json(ranks));
  const std::vector<Lateness> calls = lateness(ranks);
  if (!options.plot.empty()) write(options.plot, plot_of(calls));
  const std::vector<RankSummary> totals = summary(ranks, options.threshold_us);
  if (options.json) print_json(totals, calls.size());
  else print_table(totals, calls.size(), options.threshold_us);
}

}  // namespace
}  // namespace tutti::trace

int main(int argc, char** argv) {
  tutti::trace::Options options;
  CLI::App app("Merges the traces that TUTTI_TRACE=NAME makes every rank write, and says who was late.", "tutti-trace");
  app.add_option("files", options.files, "NAME.0.json, NAME.1.json, ...")->required();
  app.add_option("-o,--output", options.output, "Write all ranks' events on one clock, for Perfetto (ui.perfetto.dev)");
  app.add_option("--plot", options.plot, "Draw the lateness of every call as SVG");
  app.add_option("--threshold", options.threshold_us, "Microseconds from which a rank counts as late (50)")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--json", options.json, "Print the summary as JSON");
  app.set_version_flag("--version", "0.1.0");
  CLI11_PARSE(app, argc, argv);
  try {
    tutti::trace::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti-trace: %s\n", error.what());
    return 1;
  }
  return 0;
}
