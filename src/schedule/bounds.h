// The least that a collective needs, whatever the algorithm, and how rounds are counted against it.
#pragma once

#include <cstdint>
#include <span>

#include "base/signature.h"
#include "schedule/step.h"

namespace tutti {

// Which bound an algorithm's rounds reach for every number of ranks.
enum class Rounds : uint8_t {
  none,        // none is claimed
  one,         // one, of ranks that send to and receive from all at once: no message waits for another
  one_partner  // ceil(log2 n), of ranks that send one message and receive one at a time
};

// The fewest bytes that the busiest rank must send, in units of the whole buffer: a chunk that a rank lacks must reach
// it, and a sum that leaves a rank has its input in it. 0 for one rank.
double bytes_bound(Collective collective, int n);

// The fewest rounds: what a rank knows at most doubles where everybody has one partner at a time.
int rounds_bound(Rounds kind, int n);

// Rounds that schedules take where every rank sends one message and receives one at a time, all as early as they can.
// Messages between the same two that follow each other without anything received in between are one (a run of blocks
// that passes rank n - 1). The schedules must be right: see check().
int one_partner_rounds(std::span<const Schedule> schedules);

}  // namespace tutti
