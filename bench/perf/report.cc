// Results as text for people and for programs.
#include "bench/perf/report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedule/collective.h"
#include "tools/plot.h"

namespace tutti::perf {
namespace {

constexpr size_t listed_ranks_max = 64;

// "12.34", with about four digits whatever the size.
std::string short_number(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  if (value >= 100) return fmt::format("{:.1f}", value);
  if (value >= 10) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3f}", value);
}

std::string half_text(const Options& options, const Result& result) {
  const bool more = options.percentiles;
  if (!result.present)
    return fmt::format("{:>9}{:>9}{:>9}{:>8}", "N/A", "N/A", "N/A", "N/A") +
           (more ? fmt::format("{:>9}{:>9}{:>9}", "N/A", "N/A", "N/A") : "");
  const std::string wrong = result.wrong < 0 ? "N/A" : std::to_string(result.wrong);
  std::string text = fmt::format("{:>9}{:>9.2f}{:>9.2f}{:>8}", short_number(result.time_us), result.algorithm_gbps,
                                 result.bus_gbps, wrong);
  if (more)
    text += fmt::format("{:>9}{:>9}{:>9}", short_number(result.min_us), short_number(result.median_us),
                        short_number(result.p99_us));
  return text;
}

std::string half_heading(const Options& options, int line) {
  constexpr const char* names[2][2] = {{"time    algbw    busbw  #wrong", "      min   median      p99"},
                                       {"(us)   (GB/s)   (GB/s)        ", "     (us)     (us)     (us)"}};
  std::string text = fmt::format("{:>35}", names[line][0]);
  if (options.percentiles) text += names[line][1];
  return text;
}

std::string operator_text(const Case& what) { return what.op ? std::string(what.op->name) : "none"; }
std::string type_text(const Case& what) { return what.type.name.empty() ? "none" : std::string(what.type.name); }

nlohmann::ordered_json half_json(const Options& options, const Result& result) {
  if (!result.present) return nullptr;
  nlohmann::ordered_json json = {{"time_us", result.time_us},
                                 {"algbw_gbps", result.algorithm_gbps},
                                 {"busbw_gbps", result.bus_gbps},
                                 {"wrong", nullptr}};
  if (result.wrong >= 0) json["wrong"] = result.wrong;
  if (options.percentiles) {
    json["min_us"] = result.min_us;
    json["median_us"] = result.median_us;
    json["p99_us"] = result.p99_us;
  }
  if (!result.turns_us.empty()) json["turns_us"] = result.turns_us;
  return json;
}

std::string half_csv(const Options& options, const Result& result) {
  if (!result.present) return options.percentiles ? ",,,,,,," : ",,,,";
  const std::string wrong = result.wrong < 0 ? "" : std::to_string(result.wrong);
  std::string text = fmt::format(",{:.4f},{:.4f},{:.4f},{}", result.time_us, result.algorithm_gbps, result.bus_gbps,
                                 wrong);
  if (options.percentiles)
    text += fmt::format(",{:.4f},{:.4f},{:.4f}", result.min_us, result.median_us, result.p99_us);
  return text;
}

std::string iterations_text(const Options& options) {
  if (options.iterations > 0) return fmt::format("{} iterations", options.iterations);
  return "20 to 200000 iterations (about 20 ms)";
}

size_t host_count(const Heading& heading) {
  std::set<std::string> hosts;
  for (const RankPlace& place : heading.places) hosts.insert(place.host);
  return hosts.size();
}

}  // namespace

void Result::join(const Result& turn) {
  if (!turn.present) return;
  std::vector<double> times = turns_us.empty() && present ? std::vector{time_us} : std::move(turns_us);
  times.push_back(turn.time_us);
  const int64_t wrong_before = wrong;
  if (!present || turn.time_us < time_us) *this = turn;
  if (wrong_before >= 0) wrong = wrong_before + std::max<int64_t>(turn.wrong, 0);
  turns_us = std::move(times);
}

void Row::join(const Row& turn) {
  if (turn.out_of_place.present && turn.out_of_place.time_us < out_of_place.time_us) iterations = turn.iterations;
  out_of_place.join(turn.out_of_place);
  in_place.join(turn.in_place);
}

double bus_factor(Operation operation, int ranks) {
  if (operation == Operation::all_reduce) return 2.0 * (ranks - 1) / ranks;
  if (operation == Operation::pass_round) return ranks;
  return meaning(collective_of(operation)).blocks ? double(ranks - 1) / ranks : 1.0;
}

void rate(Result& result, Operation operation, size_t bytes, int ranks) {
  result.algorithm_gbps = result.time_us > 0 ? double(bytes) / result.time_us / 1e3 : 0;
  result.bus_gbps = result.algorithm_gbps * bus_factor(operation, ranks);
}

double percentile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  const double at = std::ceil(part * double(sorted.size())) - 1;
  return sorted[size_t(std::clamp(at, 0.0, double(sorted.size() - 1)))];
}

std::string heading_text(const Options& options, const Heading& heading) {
  const int v = heading.library_version;
  const bool on_device = options.device != "cpu";
  std::string text = fmt::format("# tutti-perf {} (libtutti {}.{}.{}): {} ranks on {} host{}, {}\n",
                                 name(options.operation), v / 10000, v / 100 % 100, v % 100, heading.ranks,
                                 host_count(heading), host_count(heading) == 1 ? "" : "s",
                                 on_device ? fmt::format("memory of {} devices", options.device) : "host memory");
  for (size_t i = 0; i < std::min(heading.places.size(), listed_ranks_max); ++i) {
    const RankPlace& place = heading.places[i];
    text += fmt::format("#   rank {:>3}: {}, pid {}, cores {}, peers by transport: {}\n", i, place.host, place.pid,
                        place.cores, place.transports);
  }
  if (heading.places.size() > listed_ranks_max)
    text += fmt::format("#   and {} more ranks\n", heading.places.size() - listed_ranks_max);
  if (heading.line_exchange_ns > 0)
    text += fmt::format("# exchange of a flag line between two cores here: {:.0f} ns\n", heading.line_exchange_ns);
  constexpr const char* averages[] = {"rank 0's", "the ranks' mean", "the shortest of the ranks'",
                                      "the longest of the ranks'"};
  text += fmt::format("# {} of warm-up, {} on {}; time is {} mean{}; {}\n#\n", options.warmup,
                      iterations_text(options), on_device ? "a stream of the device" : options.stream ? "a host stream" : "the caller's thread",
                      averages[size_t(options.average)],
                      options.turns > 1 ? fmt::format(", the least of {} turns", options.turns) : "",
                      options.checks > 0 ? "results are checked" : "results are not checked");
  const size_t half = half_heading(options, 0).size();
  text += fmt::format("#{:>46}{:^{}}{:>{}}\n", "", "out-of-place", half, "in-place", half / 2 + 4);
  text += fmt::format("#{:>11}{:>12}{:>10}{:>7}{:>6}{}{}  algorithm\n", "size", "count", "type", "redop", "root",
                      half_heading(options, 0), half_heading(options, 0));
  std::string units = fmt::format("#{:>11}{:>12}{:>10}{:>7}{:>6}{}{}", "(B)", "(elements)", "", "", "",
                                  half_heading(options, 1), half_heading(options, 1));
  units.resize(units.find_last_not_of(' ') + 1);
  return text + units + "\n";
}

std::string row_text(const Options& options, const Row& row) {
  return fmt::format("{:>12}{:>12}{:>10}{:>7}{:>6}{}{}  {}\n", row.what.bytes, row.what.count, type_text(row.what),
                     operator_text(row.what), row.what.root, half_text(options, row.out_of_place),
                     half_text(options, row.in_place), row.algorithm);
}

int64_t total_wrong(const std::vector<Row>& rows) {
  int64_t wrong = 0;
  for (const Row& row : rows)
    for (const Result* result : {&row.out_of_place, &row.in_place})
      if (result->present) wrong += std::max<int64_t>(result->wrong, 0);
  return wrong;
}

double mean_bus_gbps(const std::vector<Row>& rows) {
  double sum = 0;
  int n = 0;
  for (const Row& row : rows)
    for (const Result* result : {&row.out_of_place, &row.in_place})
      if (result->present) sum += result->bus_gbps, ++n;
  return n > 0 ? sum / n : 0;
}

std::string summary_text(const std::vector<Row>& rows) {
  const int64_t wrong = total_wrong(rows);
  const bool checked = std::any_of(rows.begin(), rows.end(), [](const Row& row) {
    return row.out_of_place.wrong >= 0 || row.in_place.wrong >= 0;
  });
  const std::string verdict = !checked ? "N/A" : fmt::format("{} {}", wrong, wrong == 0 ? "OK" : "FAILED");
  return fmt::format("# Out of bounds values : {}\n# Avg bus bandwidth    : {:.4f}\n", verdict, mean_bus_gbps(rows));
}

std::string json_text(const Options& options, const Heading& heading, const std::vector<Row>& rows) {
  nlohmann::ordered_json json;
  json["program"] = "tutti-perf";
  json["collective"] = name(options.operation);
  json["library_version"] = heading.library_version;
  json["ranks"] = heading.ranks;
  json["line_exchange_ns"] = heading.line_exchange_ns;
  json["options"] = {{"warmup", options.warmup},   {"grouped", options.grouped},   {"checks", options.checks},
                     {"threads", options.threads}, {"stream", options.stream},     {"blocking", options.blocking},
                     {"average", int(options.average)},
                     {"turns", options.turns}};
  for (const RankPlace& place : heading.places)
    json["places"].push_back(
        {{"host", place.host}, {"pid", place.pid}, {"cores", place.cores}, {"transports", place.transports}});
  json["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json line = {{"size_bytes", row.what.bytes},
                                   {"count", row.what.count},
                                   {"type", type_text(row.what)},
                                   {"redop", operator_text(row.what)},
                                   {"root", row.what.root},
                                   {"algorithm", row.algorithm},
                                   {"iterations", row.iterations}};
    line["out_of_place"] = half_json(options, row.out_of_place);
    line["in_place"] = half_json(options, row.in_place);
    json["rows"].push_back(line);
  }
  json["wrong"] = nullptr;
  if (options.checks > 0) json["wrong"] = total_wrong(rows);
  json["avg_busbw_gbps"] = mean_bus_gbps(rows);
  return json.dump(2) + "\n";
}

std::string csv_text(const Options& options, const std::vector<Row>& rows) {
  std::string text = "collective,size_bytes,count,type,redop,root,algorithm,iterations";
  for (const char* half : {"out_of_place", "in_place"}) {
    for (const char* column : {"time_us", "algbw_gbps", "busbw_gbps", "wrong"})
      text += fmt::format(",{}_{}", half, column);
    if (options.percentiles)
      for (const char* column : {"min_us", "median_us", "p99_us"}) text += fmt::format(",{}_{}", half, column);
  }
  text += "\n";
  for (const Row& row : rows)
    text += fmt::format("{},{},{},{},{},{},{},{}{}{}\n", name(options.operation), row.what.bytes, row.what.count,
                        type_text(row.what), operator_text(row.what), row.what.root, row.algorithm, row.iterations,
                        half_csv(options, row.out_of_place), half_csv(options, row.in_place));
  return text;
}

std::string plot_text(const Options& options, const Heading& heading, const std::vector<Row>& rows) {
  const bool several = options.types.size() > 1 || options.operators.size() > 1 || options.root < 0;
  const bool by_name = options.algorithms.size() > 1;
  std::vector<std::string> order;
  std::map<std::string, std::pair<plot::Series, plot::Series>> curves;  // bandwidth, time
  for (const Row& row : rows)
    for (const Result* result : {&row.out_of_place, &row.in_place}) {
      if (!result->present) continue;
      std::string curve = result == &row.out_of_place ? "out of place" : "in place";
      if (several) curve = fmt::format("{} {}, {}", type_text(row.what), operator_text(row.what), curve);
      if (several && row.what.root >= 0) curve += fmt::format(", root {}", row.what.root);
      if (by_name) curve = fmt::format("{}, {}", row.what.algorithm, curve);
      if (!curves.contains(curve)) order.push_back(curve);
      auto& [bandwidth, time] = curves[curve];
      bandwidth.points.emplace_back(double(row.what.bytes), result->bus_gbps);
      time.points.emplace_back(double(row.what.bytes), result->time_us);
    }
  const std::string title = fmt::format("{}, {} ranks", name(options.operation), heading.ranks);
  std::vector<plot::Plot> plots = {
      {{.title = title + ": bus bandwidth", .x_label = "size", .y_label = "bus bandwidth (GB/s)", .log_x = true,
        .x_bytes = true, .height = 430}, {}},
      {{.title = title + ": time", .x_label = "size", .y_label = "time (µs)", .log_x = true, .log_y = true,
        .x_bytes = true, .height = 430}, {}}};
  for (const std::string& curve : order) {
    auto& [bandwidth, time] = curves[curve];
    bandwidth.name = time.name = curve;
    plots[0].series.push_back(bandwidth);
    plots[1].series.push_back(time);
  }
  return plot::plots_svg(plots);
}

void look_at_files(const Options& options) {
  for (const auto& [option, name] : {std::pair{"--json", options.json_file}, {"--csv", options.csv_file},
                                     {"--plot", options.plot_file}}) {
    if (name.empty()) continue;
    const std::filesystem::path folder = std::filesystem::absolute(name).parent_path();
    if (std::filesystem::is_directory(name)) throw UsageError(fmt::format("{} {}: is a directory", option, name));
    if (access(folder.c_str(), W_OK) != 0)
      throw UsageError(fmt::format("{} {}: no file can be written in {}", option, name, folder.string()));
  }
}

void write_file(const std::string& name, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}.tmp", name, getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  bool good = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) good = (std::fclose(file) == 0) && good;
  if (good && std::rename(temporary.c_str(), name.c_str()) == 0) return;
  const int error_number = errno;
  std::remove(temporary.c_str());
  throw std::runtime_error(fmt::format("cannot write {}: {}", name, std::strerror(error_number)));
}

}  // namespace tutti::perf
