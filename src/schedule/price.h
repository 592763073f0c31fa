// The price of a schedule: a prediction of its time from link and memory costs, by running it on virtual clocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/algorithm.h"

namespace tutti {

// Costs of one message between two ranks (an extended Hockney / LogGP model): the sender is busy for message_ns +
// bytes × byte_ns, the message is readable latency_ns after that, and taking it keeps the receiver busy for receive_ns,
// and bulk_ns more if it has more than inline_bytes. The first near_bytes of each message cost near_byte_ns each instead:
// the buffers that they go through stay in a near cache. A sender that sends to another rank than last, without having
// heard from anyone in between, needs fan_out_byte_ns more for each byte beyond queued_bytes: its messages share a queue
// that holds so much. A message of at least shared_bytes (0: none) that goes to several ranks at once is copied once, for the
// first of them, where the links to all are such. What is written in a row (Plan::sends_in_a_row) to one rank, and is more
// than one message could be, costs row_byte_ns a byte. Where a network card sends, the core is busy for core_byte_ns a byte
// only, and free for other ranks.
struct LinkCost {
  double latency_ns = 0;
  double message_ns = 0;
  double byte_ns = 0;
  double receive_ns = 0;
  double bulk_ns = 0;
  double fan_out_byte_ns = 0;
  uint64_t inline_bytes = 0;
  uint64_t near_bytes = 0;
  double near_byte_ns = 0;
  uint64_t queued_bytes = 0;
  uint64_t shared_bytes = 0;
  double row_byte_ns = INFINITY;   // at most byte_ns
  double core_byte_ns = INFINITY;  // at most what all the bytes cost

  double bytes_ns(uint64_t bytes, bool in_a_row = false) const {
    const double near = double(std::min(bytes, near_bytes));
    return near * near_byte_ns + (double(bytes) - near) * (in_a_row ? std::min(byte_ns, row_byte_ns) : byte_ns);
  }
  double fan_out_ns(uint64_t bytes) const {
    return bytes > queued_bytes ? double(bytes - queued_bytes) * fan_out_byte_ns : 0;
  }
};

// Everything that a price depends on; the same on all ranks of a communicator.
struct CostModel {
  int n = 1;
  std::vector<LinkCost> classes;    // kinds of links
  std::vector<uint8_t> link_class;  // n × n, [from * n + to]
  double step_ns = 0;               // interpreting one step
  double copy_byte_ns = 0;          // local copy
  double reduce_byte_ns = 0;        // per input byte of a reduction, beyond
  uint64_t near_reduce_bytes = 0;   // the first that a rank reads in a call, which cost
  double near_reduce_byte_ns = 0;   // so much each: what little a call moves stays in a near cache, in pieces or not
  double contention = 1;            // ranks that share one core
  std::vector<int> core_of;         // of every rank, the lowest one that is bound to its core; empty where no two share one
  double switch_ns = 0;             // what a rank that must wait costs its core: another one runs meanwhile

  // Of a rank that has read so much in this call.
  double reduce_ns(double bytes, double read_before) const {
    const double near = std::clamp(double(near_reduce_bytes) - read_before, 0.0, bytes);
    return near * near_reduce_byte_ns + (bytes - near) * reduce_byte_ns;
  }
  const LinkCost& link(int from, int to) const { return classes[link_class[size_t(from) * size_t(n) + size_t(to)]]; }
};

struct Price {
  double time_ns = 0;     // when the last rank is done
  double pace_ns = 0;     // how much later it is done with the next call, of many that follow each other
  uint64_t messages = 0;  // over all ranks
  uint64_t bytes = 0;     // over all ranks
};

// Runs the plans of all ranks over `bytes` bytes on virtual clocks. message_bytes_max cuts it into tiles, as the engine
// does. A fold costs its rank: step_ns; taking each message; the reduction of all operands, or the copy of a single one
// that is stored; and sending each message in turn. FIFOs are taken as long enough. After 16 tiles the pace is taken as
// steady. Where ranks share cores, a call takes at least as long as the ranks of some core work; where it is not known which
// share one, contention times what a rank works in the mean. What is longer, the longest chain of dependent steps or that, is what
// lasts (the span and the work of Brent, "The parallel evaluation of general arithmetic expressions", 1974, whose bound is
// their sum).
Price price(std::span<const Plan> plans, const CostModel& costs, uint64_t bytes, uint64_t message_bytes_max);

// Plans of all ranks of a group (group.rank is ignored), lowered out of place.
std::vector<Plan> plans_of(const Algorithm& algorithm, const Group& group);

}  // namespace tutti
