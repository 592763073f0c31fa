// Forecasts of all candidates, and their telling.
#include "tools/sim/outlook.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "algorithms/catalog.h"
#include "base/clock.h"
#include "base/error.h"
#include "schedule/collective.h"
#include "tools/plot.h"

namespace tutti {
namespace {

constexpr std::array pipelines = {1, 4, 16, 64};

std::string time_text(double ns) {
  if (ns < 1e4) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e7) return fmt::format("{:.1f} us", ns / 1e3);
  if (ns < 1e10) return fmt::format("{:.2f} ms", ns / 1e6);
  return fmt::format("{:.2f} s", ns / 1e9);
}

std::string bytes_text(double bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, units[unit]);
}

std::string label(const OutlookRow& row) {
  return row.pipeline == 1 ? std::string(row.algorithm) : fmt::format("{}/{}", row.algorithm, row.pipeline);
}

struct Candidate {
  const Algorithm* algorithm;
  int pipeline;
};

std::vector<Candidate> candidates_of(const OutlookQuestion& question) {
  std::vector<Candidate> candidates;
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective != question.collective) continue;
    if (!question.algorithm.empty() && algorithm.name != question.algorithm) continue;
    for (const int pipeline : pipelines) {
      const bool own = algorithm.pipelined && question.pipeline > 0;
      candidates.push_back({&algorithm, own ? question.pipeline : pipeline});
      if (!algorithm.pipelined || own) break;
    }
  }
  if (candidates.empty())
    throw Error(Code::invalid_argument, fmt::format("algorithm \"{}\" is none of {}: there are {}", question.algorithm,
                                                    name(question.collective), algorithm_names(question.collective)));
  return candidates;
}

// The best one's is the one that is shown.
const OutlookRow* best_of(const Outlook& outlook) {
  return outlook.rows.empty() || !outlook.rows[0].simulated ? nullptr : &outlook.rows[0];
}

}  // namespace

double bus_gbps(Collective collective, int n, uint64_t bytes, double time_ns) {
  const double moved = collective == Collective::all_reduce ? 2.0 * (n - 1) / n
                       : meaning(collective).blocks         ? double(n - 1) / n
                                                            : 1.0;
  return time_ns > 0 ? moved * double(bytes) / time_ns : 0;
}

Outlook outlook(const OutlookQuestion& question, const Fabric& fabric) {
  std::vector<int> hosts;
  for (int rank = 0; rank < question.n; ++rank) hosts.push_back(fabric.host_of(rank));
  Group group{0, question.n, question.root, 1, hosts};
  ForecastOptions options;
  options.bytes = question.bytes;
  options.message_bytes_max = question.message_bytes_max;
  options.calls = question.calls;
  Outlook result;
  double best_ns = INFINITY;
  std::vector<std::pair<double, Candidate>> order;
  for (const Candidate& candidate : candidates_of(question)) {
    group.pipeline = candidate.pipeline;
    order.emplace_back(forecast_events(*candidate.algorithm, group, options), candidate);
  }
  // The quick ones first: what cannot be better than the best so far need not be simulated.
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [ignored, candidate] : order) {
    group.pipeline = candidate.pipeline;
    OutlookRow row{candidate.algorithm->name, candidate.pipeline};
    row.time_ns = forecast_bound_ns(*candidate.algorithm, group, fabric, question.bytes);
    const bool hopeless = question.algorithm.empty() && row.time_ns > best_ns;
    // A large message's tiles follow each other at one pace: where ranks are many, a few must do.
    options.tiles_max = ForecastOptions().tiles_max;
    while (options.tiles_max > 2 && forecast_events(*candidate.algorithm, group, options) > question.events_max)
      options.tiles_max /= 2;
    if (forecast_events(*candidate.algorithm, group, options) <= question.events_max && !hopeless) {
      if (question.begins) question.begins(label(row));
      const TimeNs start = now_ns();
      row.forecast = forecast(*candidate.algorithm, group, fabric, options);
      row.seconds = double(now_ns() - start) / 1e9;
      row.time_ns = row.forecast.time_ns;
      row.simulated = true;
      best_ns = std::min(best_ns, row.time_ns);
    }
    result.rows.push_back(std::move(row));
  }
  std::stable_sort(result.rows.begin(), result.rows.end(), [](const OutlookRow& a, const OutlookRow& b) {
    return a.simulated != b.simulated ? a.simulated : a.time_ns < b.time_ns;
  });
  if (const OutlookRow* best = best_of(result); best != nullptr && question.trace_events_max > 0) {
    group.pipeline = best->pipeline;
    options.trace_events_max = question.trace_events_max;
    result.traced = forecast(*find_algorithm(question.collective, best->algorithm), group, fabric, options);
  }
  return result;
}

std::string to_text(const Outlook& outlook, const OutlookQuestion& question, const Fabric& fabric) {
  std::string text = fmt::format("{} of {} among {} ranks on {}: {} hosts, {} links\n\n",
                                 name(question.collective), bytes_text(double(question.bytes)), question.n,
                                 fabric.text(), fabric.hosts(), fabric.links());
  text += fmt::format("{:<24}{:>12}{:>14}{:>14}{:>12}\n", "algorithm", "time", "busbw GB/s", "messages", "Mevents/s");
  for (const OutlookRow& row : outlook.rows) {
    if (!row.simulated) {
      text += fmt::format("{:<24}{:>12}  not simulated: no less than that\n", label(row), time_text(row.time_ns));
      continue;
    }
    text += fmt::format("{:<24}{:>12}{:>14.3f}{:>14.0f}{:>12.2f}\n", label(row), time_text(row.time_ns),
                        bus_gbps(question.collective, question.n, question.bytes, row.time_ns), row.forecast.messages,
                        double(row.forecast.events) / 1e6 / std::max(row.seconds, 1e-9));
  }
  const OutlookRow* const best = best_of(outlook);
  if (best == nullptr) return text + "\nnothing was simulated: all would take more events than --events-max\n";
  text += fmt::format("\nbest: {}, {}; the first rank is done after {}\n\n", label(*best), time_text(best->time_ns),
                      time_text(best->forecast.first_done_ns));
  text += fmt::format("{:<16}{:>10}{:>14}{:>16}{:>14}{:>12}\n", "links", "number", "bytes", "on the busiest",
                      "busiest busy", "mean busy");
  for (const TierLoad& load : best->forecast.loads)
    text += fmt::format("{:<16}{:>10}{:>14}{:>16}{:>13.1f}%{:>11.1f}%\n", load.name, load.links, bytes_text(load.bytes),
                        bytes_text(load.busiest_bytes), 100 * load.busiest_busy, 100 * load.mean_busy);
  return text;
}

std::string to_json(const Outlook& outlook, const OutlookQuestion& question, const Fabric& fabric) {
  nlohmann::ordered_json json;
  json["collective"] = name(question.collective);
  json["bytes"] = question.bytes;
  json["ranks"] = question.n;
  json["fabric"] = fabric.text();
  json["algorithms"] = nlohmann::ordered_json::array();
  for (const OutlookRow& row : outlook.rows) {
    nlohmann::ordered_json one;
    one["algorithm"] = row.algorithm;
    one["pipeline"] = row.pipeline;
    one[row.simulated ? "time_ns" : "at_least_ns"] = row.time_ns;
    if (row.simulated) {
      one["busbw_gbps"] = bus_gbps(question.collective, question.n, question.bytes, row.time_ns);
      one["messages"] = row.forecast.messages;
      one["events"] = row.forecast.events;
      one["seconds"] = row.seconds;
      for (const TierLoad& load : row.forecast.loads)
        one["links"].push_back({{"name", load.name}, {"number", load.links}, {"bytes", load.bytes},
                                {"busiest_busy", load.busiest_busy}, {"mean_busy", load.mean_busy}});
    }
    json["algorithms"].push_back(std::move(one));
  }
  return json.dump(1) + "\n";
}

std::string perfetto_json(const Forecast& traced) {
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  std::map<uint32_t, bool> named;
  const char* separator = "";
  for (const ForecastEvent& event : traced.trace) {
    if (!std::exchange(named[event.rank], true)) {
      text += fmt::format(R"({}{{"ph":"M","pid":{},"tid":0,"name":"process_name","args":{{"name":"rank {}"}}}})",
                          separator, event.rank, event.rank);
      separator = ",\n";
    }
    constexpr std::array kinds = {"wait for", "receive from", "work", "send to"};
    const bool alone = event.kind == ForecastEvent::Kind::work;
    const std::string what = fmt::format("{}{}", kinds[size_t(event.kind)], alone ? "" : fmt::format(" {}", event.peer));
    text += fmt::format(
        R"({}{{"ph":"X","pid":{},"tid":0,"ts":{:.3f},"dur":{:.3f},"name":"{}","args":{{"bytes":{}}}}})", separator,
        event.rank, event.begin_ns / 1e3, (event.end_ns - event.begin_ns) / 1e3, what, event.bytes);
  }
  return text + "\n]}\n";
}

std::string sweep_svg(const OutlookQuestion& question, const std::vector<int>& ranks,
                      const std::vector<uint64_t>& sizes, std::string_view fabric_text, std::string& text) {
  std::vector<plot::Plot> plots;
  for (const int n : ranks) {
    const Fabric fabric = parse_fabric(fabric_text, n);
    std::map<std::string, plot::Series> curves;  // by algorithm: the best of its pipelines
    for (const uint64_t bytes : sizes) {
      OutlookQuestion one = question;
      one.n = n;
      one.bytes = bytes;
      one.trace_events_max = 0;
      const Outlook seen = outlook(one, fabric);
      for (const OutlookRow& row : seen.rows) {
        plot::Series& curve = curves[std::string(row.algorithm)];
        curve.name = row.algorithm;
        const bool repeated = !curve.points.empty() && curve.points.back().first == double(bytes);
        if (row.simulated && !repeated) curve.points.emplace_back(double(bytes), row.time_ns / 1e3);
      }
      if (const OutlookRow* best = best_of(seen))
        text += fmt::format("{} ranks, {}: {} in {}\n", n, bytes_text(double(bytes)), label(*best),
                            time_text(best->time_ns));
    }
    plot::Plot picture;
    picture.options.title = fmt::format("{} among {} ranks on {}", name(question.collective), n, fabric_text);
    picture.options.x_label = "bytes";
    picture.options.y_label = "us";
    picture.options.log_x = picture.options.log_y = picture.options.x_bytes = true;
    for (auto& [algorithm, curve] : curves) picture.series.push_back(std::move(curve));
    plots.push_back(std::move(picture));
  }
  return plot::plots_svg(plots);
}

}  // namespace tutti
