// What an algorithm is: a row of the catalog.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/signature.h"
#include "schedule/plan.h"
#include "schedule/verbs.h"

namespace tutti {

// For whom a schedule is recorded.
struct Group {
  int rank = 0;
  int n = 1;
  int root = 0;                    // rooted collectives only
  int pipeline = 1;                // chunks that a pipelined algorithm keeps in flight; others ignore it
  std::span<const int> host_of{};  // host number of every rank, for hierarchical algorithms; empty: one host

  int host(int r) const { return host_of.empty() ? 0 : host_of[size_t(r)]; }
};

// What an algorithm claims of itself, proven by the checker to be exact; per rank, the largest.
struct Claim {
  int rounds = 0;         // messages on the longest chain of dependent messages
  double bytes_sent = 0;  // in units of the whole buffer (count × element bytes)
  int slots = 1;          // messages per FIFO with which the schedule ends; plans need at least 2
};

struct Algorithm {
  std::string_view name;  // "ring": what TUTTI_ALGO takes
  Collective collective;
  bool pipelined;  // uses Group::pipeline
  void (*record)(Recorder&, const Group&);
  Shape (*shape)(const Group&);
  Claim (*claim)(const Group&);
  std::string_view sentence;  // what it does and when it is best
  std::string_view source;    // the paper or origin
};

}  // namespace tutti
