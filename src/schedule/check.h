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
#include "schedule/collective.h"

namespace tutti {

struct Violation {
  int rank = -1;
  int step = -1;  // of the schedule, from 0, or its length: at the end. Sentences count from 1
  int chunk = -1;
  std::string sentence;  // names the place and what is wrong
  std::string why{};     // what is wrong, without the place; "" where there is no place
};

struct CheckOptions {
  int slots = 1;          // messages per FIFO
  bool in_place = false;  // input and output are the same memory
  bool lowered = false;   // then also runs the plans (fused semantics), which need at least two slots and get them
  int repeat = 1;         // runs of the program back to back, as tiles are
};

// What was seen, beside the proof.
struct Proof {
  std::optional<Violation> violation;  // empty: proven
  int rounds = 0;                      // messages on the longest chain in which each carries what the last brought
  bool in_rank_order = true;           // every sum has its operands in the order of ranks
  bool left_fold = true;               // and from the left, as Claim says; schedules: steps that lowering may join
  uint64_t chunks_sent_max = 0;        // by one rank, in one run
  uint64_t messages_sent_max = 0;      // by one rank, in one run
  // Hash of all output chunks' expressions (of every rank's, where ranks join different inputs): equal for equivalent
  // programs.
  uint64_t expression = 0;
  uint64_t passes = 0;  // the same with the places where a pass ends and 8- and 16-bit floats are rounded
};

// All ranks' schedules of one collective. Proven: messages received with the size sent; nobody waits for ever; each
// output chunk that a rank has (see Meaning) holds exactly the required inputs, each once (of a scan in the order of
// ranks), finished once; the same
// expression (order included) on all ranks that join the same inputs; no other output chunk, and no input, is ever
// written; nothing uninitialised is read; no chunk changes its number but in an all_to_all; nothing is left in a FIFO.
// options.lowered checks them, then the plans that lower() makes of them, and that both have the same expression and
// messages.
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
