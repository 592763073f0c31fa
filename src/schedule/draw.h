// Schedules as pictures: a lane per rank, time to the right, an arrow per message.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/plan.h"

namespace tutti {

// One message of a run in which every step and every flight takes one tick.
struct DrawnMessage {
  uint32_t from = 0, to = 0;
  int sent = 0, received = 0;  // ticks of the two steps
  Slice slice;
  bool finished = false;  // carries a result, not a part of a sum
};

// One step of such a run.
struct DrawnStep {
  uint32_t rank = 0;
  int tick = 0;
  size_t step = 0;
};

struct Drawing {
  int ticks = 0;
  std::vector<DrawnStep> steps;        // in the order of ticks, then ranks
  std::vector<DrawnMessage> messages;  // in the order of arrival
};

// Runs proven plans of all ranks.
Drawing drawing_of(std::span<const Plan> plans);

// A space-time diagram. Blue: parts of sums (or a broadcast's data on its way); green: results.
std::string to_svg(std::span<const Plan> plans, std::string_view title);

// The same as a table: a line per tick, a column per rank.
std::string to_table(std::span<const Plan> plans);

}  // namespace tutti
