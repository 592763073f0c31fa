// What a rank does from its communicator to its exit code.
#include "bench/perf/session.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <map>
#include <new>

#include <fmt/format.h>

#include "bench/perf/measure.h"
#include "bench/perf/rank.h"
#include "bench/perf/ranks.h"

namespace tutti::perf {
namespace {

// "0-3,8"
std::string cores_text() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return "?";
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &set)) continue;
    int last = core;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) ++last;
    if (!text.empty()) text += ',';
    text += last == core ? std::to_string(core) : fmt::format("{}-{}", core, last);
    core = last;
  }
  return text;
}

std::string transports_text(Rank& rank) {
  std::map<std::string, int> peers;
  for (int peer = 0; peer < rank.ranks(); ++peer) {
    if (peer == rank.rank()) continue;
    const char* transport = nullptr;
    check(tuttiCommTransport(rank.comm(), peer, &transport), "tuttiCommTransport");
    ++peers[transport];
  }
  std::string text;
  for (const auto& [transport, count] : peers)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", transport, count);
  return text.empty() ? "none" : text;
}

Heading make_heading(const Options& options, Rank& rank) {
  Heading heading;
  heading.line_exchange_ns = options.line_exchange_ns;
  heading.ranks = rank.ranks();
  check(tuttiGetVersion(&heading.library_version), "tuttiGetVersion");
  std::array<char, 65> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  constexpr char separator = '\n';
  const std::string mine = fmt::format("{}\n{}\n{}\n{}", transports_text(rank), host.data(), getpid(), cores_text());
  for (const std::string& text : rank.gather(mine)) {
    std::array<std::string, 4> parts;
    size_t part = 0;
    for (const char c : text) {
      if (c == separator && part + 1 < parts.size()) ++part;
      else parts[part] += c;
    }
    heading.places.push_back({parts[1], std::atoi(parts[2].c_str()), parts[3], parts[0]});
  }
  return heading;
}

void write_files(const Options& options, const Heading& heading, const std::vector<Row>& rows) {
  if (!options.json_file.empty()) write_file(options.json_file, json_text(options, heading, rows));
  if (!options.csv_file.empty()) write_file(options.csv_file, csv_text(options, rows));
  if (!options.plot_file.empty()) write_file(options.plot_file, plot_text(options, heading, rows));
}

int measure_all(const Options& options, Rank& rank) {
  const bool first = rank.rank() == 0;
  const std::vector<Case> cases = make_cases(options, rank.ranks());
  const Heading heading = make_heading(options, rank);
  Measurement measurement(options, rank);
  const auto show = [first](const std::string& text) {
    if (first) std::fputs(text.c_str(), stdout), std::fflush(stdout);
  };
  show(heading_text(options, heading));
  std::vector<Row> rows;
  // Algorithms take turns, so that each meets what else happens on the machine.
  for (size_t begin = 0; begin < cases.size(); begin += options.algorithms.size()) {
    const std::span alike = std::span(cases).subspan(begin, options.algorithms.size());
    for (const Case& what : alike) rows.push_back(measurement.measure(what));
    for (int turn = 1; turn < options.turns; ++turn)
      for (size_t i = 0; i < alike.size(); ++i) rows[begin + i].join(measurement.measure(alike[i]));
    for (size_t i = 0; i < alike.size(); ++i) show(row_text(options, rows[begin + i]));
  }
  show(summary_text(rows));
  if (first) write_files(options, heading, rows);
  return measurement.wrong_here() > 0 || total_wrong(rows) > 0 ? exit_wrong : 0;
}

}  // namespace

tuttiConfig_t settings_of(const Options& options, int device) {
  tuttiConfig_t settings = TUTTI_CONFIG_INITIALIZER;
  if (options.timeout_s > 0) settings.timeout_ms = options.timeout_s * 1000;
  settings.determinism = options.determinism;
  settings.device = device;
  return settings;
}

int run_session(const Options& options, tuttiComm_t comm) {
  Device* device = nullptr;
  int number = -1;
  if (options.device != "cpu") {
    check(tuttiCommDevice(comm, &number), "tuttiCommDevice", comm);
    device = &platform_of(options.device).device(number);
  }
  Rank rank(comm, options.stream, device, settings_of(options, number));
  try {
    return measure_all(options, rank);
  } catch (const LibraryError& error) {
    rank.abort();
    throw LibraryError(fmt::format("rank {}: {}", rank.rank(), error.what()));
  } catch (const std::bad_alloc&) {
    rank.abort();
    throw std::runtime_error(fmt::format("rank {}: no memory for two buffers of -e {} bytes", rank.rank(),
                                         options.max_bytes));
  } catch (...) {
    rank.abort();
    throw;
  }
}

}  // namespace tutti::perf
