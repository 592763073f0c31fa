// The proof: runs all ranks' schedules or plans symbolically and says the first thing that is wrong.
//
// Channels are FIFOs with one writer and one reader, and a rank never looks before it receives, so one order of running
// stands for all (a Kahn network); what ends with `slots` places per FIFO ends with more.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schedule/algorithm.h"

namespace tutti {

struct Violation {
  int rank = -1;
  int step = -1;
  int chunk = -1;
  std::string sentence;  // names the three and what is wrong
};

struct CheckOptions {
  int slots = 1;          // messages per FIFO
  bool in_place = false;  // input and output are the same memory
  bool lowered = false;   // runs the plans (fused semantics) instead of the schedules; needs slots >= 2
  int repeat = 1;         // runs of the program back to back, as tiles are
};

// What was seen, beside the proof.
struct Proof {
  std::optional<Violation> violation;  // empty: proven
  int rounds = 0;                      // messages on the longest chain in which each carries what the last brought
  uint64_t chunks_sent_max = 0;        // by one rank, in one run
  uint64_t messages_sent_max = 0;      // by one rank, in one run
  uint64_t expression = 0;             // hash of all output chunks' expressions: equal for equivalent programs
  uint64_t passes = 0;  // the same with the places where a pass ends and 8- and 16-bit floats are rounded
};

// All ranks' schedules of one collective. Proven: messages received with the size sent; nobody waits for ever; each
// output chunk holds exactly the required inputs, each once, finished once; the same expression (order included) on all
// ranks; nothing uninitialised is read; no chunk changes its number; nothing is left in a FIFO. options.lowered
// checks them, then the plans that lower() makes of them, and that both have the same expression and messages.
Proof check(Collective collective, std::span<const Schedule> schedules, const Shape& shape, int root,
            const CheckOptions& options = {});

// The same for plans (fused semantics: a Fold acts when all its messages and all its output slots are there).
Proof check(Collective collective, std::span<const Plan> plans, int root, const CheckOptions& options = {});

// Records `algorithm` for every rank of `group` (group.rank is ignored) and checks it, its claim (exactly), and that
// its shape is the same on all ranks.
Proof check(const Algorithm& algorithm, const Group& group, const CheckOptions& options = {});

// One rank's schedule of the algorithm.
Schedule record(const Algorithm& algorithm, const Group& group);

}  // namespace tutti
