// A forecast: how long an algorithm would take on a fabric, by running its schedule in virtual time with every message on
// every link it crosses. The cost model is that of schedule/price.h, with links that messages share.
//
// A rank works through its steps as there. A message crosses its links without being stored on the way: its head goes on
// after each link's latency, each link is held for the message's bytes, and who finds it held waits for its turn, first
// come, first served. What a sender hands over leaves it free again when its first link has taken all but
// `buffer` bytes of it. Where the fabric's cores are shared, ranks take turns on them as well.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedule/algorithm.h"
#include "simulation/fabric.h"

namespace tutti {

struct ForecastOptions {
  uint64_t bytes = 0;                  // of the whole buffer
  uint64_t message_bytes_max = 256 * 1024;
  uint64_t tiles_max = 16;             // what follows goes on at the pace of the last half
  uint32_t calls = 1;                  // that follow each other; the time is that of one among the last half
  size_t trace_events_max = 0;         // 0: no trace
  uint32_t trace_ranks = 64;           // of the first ranks
};

struct TierLoad {
  std::string_view name;
  uint32_t links = 0;
  double bytes = 0;          // over all links
  double busiest_bytes = 0;  // over one
  double busiest_busy = 0;   // part of the time that it was held; 1: always
  double mean_busy = 0;
};

struct ForecastEvent {
  enum class Kind : uint8_t { wait, receive, work, send };
  Kind kind;
  uint32_t rank, peer;
  double begin_ns, end_ns;
  uint64_t bytes;
};

struct Forecast {
  double time_ns = 0;        // when the last rank is done with one call
  double first_done_ns = 0;  // and the first
  double messages = 0;       // over all ranks
  double bytes = 0;
  uint64_t events = 0;       // sends and receives that were simulated
  std::vector<TierLoad> loads;
  std::vector<ForecastEvent> trace;
};

// group.n <= fabric.ranks(); group.rank is ignored. Throws Error(internal_error) where the schedule waits for ever.
Forecast forecast(const Algorithm& algorithm, const Group& group, const Fabric& fabric, const ForecastOptions& options);

// Sends and receives that forecast() would simulate, roughly; for who has no time for so many.
double forecast_events(const Algorithm& algorithm, const Group& group, const ForecastOptions& options);

// No forecast is below: rounds and bytes that the algorithm claims, at the best that the fabric offers.
double forecast_bound_ns(const Algorithm& algorithm, const Group& group, const Fabric& fabric, uint64_t bytes);

}  // namespace tutti
