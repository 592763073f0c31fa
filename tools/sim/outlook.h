// What tutti-sim says of a collective on a fabric: every algorithm's forecast, the links' loads, curves and a trace.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "simulation/forecast.h"

namespace tutti {

struct OutlookQuestion {
  Collective collective = Collective::all_reduce;
  int n = 8;
  int root = 0;
  uint64_t bytes = 1 << 20;           // of the whole buffer, all ranks' blocks together
  uint64_t message_bytes_max = 256 * 1024;
  std::string algorithm;              // "": all
  uint32_t calls = 1;                 // that follow each other
  int pipeline = 0;                   // 0: the best of a few
  double events_max = 2e8;            // of one forecast; what would take more is only bounded
  size_t trace_events_max = 0;        // of the best one
  std::function<void(std::string_view)> begins;  // called with each algorithm that is simulated next; may be empty
};

struct OutlookRow {
  std::string_view algorithm;
  int pipeline = 1;
  bool simulated = false;  // else only bounded
  double time_ns = 0;      // or the bound
  double seconds = 0;      // that simulating took
  Forecast forecast;
};

struct Outlook {
  std::vector<OutlookRow> rows;  // those simulated first, the fastest first
  Forecast traced;               // of the best, where a trace was asked for
};

// Throws Error(invalid_argument) where no algorithm has that name.
Outlook outlook(const OutlookQuestion& question, const Fabric& fabric);

// Bytes per second per rank as nccl-tests define them, in GB/s.
double bus_gbps(Collective collective, int n, uint64_t bytes, double time_ns);

std::string to_text(const Outlook& outlook, const OutlookQuestion& question, const Fabric& fabric);
std::string to_json(const Outlook& outlook, const OutlookQuestion& question, const Fabric& fabric);

// Of the best row's trace, for Perfetto (https://ui.perfetto.dev) and Chrome: one track a rank.
std::string perfetto_json(const Forecast& traced);

// Times of all algorithms over sizes, one plot for each number of ranks. `text`: what was simulated, a line each.
std::string sweep_svg(const OutlookQuestion& question, const std::vector<int>& ranks,
                      const std::vector<uint64_t>& sizes, std::string_view fabric_text, std::string& text);

}  // namespace tutti
