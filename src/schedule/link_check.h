// The proof of what a linked plan leaves that its ranks do in any order, and share out as they please.
#pragma once

#include <span>
#include <string>

#include "base/signature.h"
#include "schedule/algorithm.h"
#include "schedule/link.h"

namespace tutti {

struct LinkedProof {
  std::string violation;     // names rank and chunk; "": proven
  bool in_rank_order = true;  // every sum joins its operands in the order of ranks, from the left, in one step
};

// Proven: the plan is free of order (see link.h); it reads what ranks give, and nothing else; each output chunk that a rank
// has (see Meaning) is written once with exactly the required inputs, each once, finished where the collective reduces, or
// has them already; no other chunk is written; and no chunk changes its length. in_place as for link().
LinkedProof check_linked(Collective collective, const LinkedPlan& linked, int root, std::span<const bool> in_place);

// The same of a plan of packets, which ends whoever is fast: every message is read once, no rank touches another's buffers,
// the sums are right, and whoever sends to a rank has heard, before the call ends for it, that the other had begun it. So
// two sets of slots that calls use in turn will do: nobody writes into one that the call before last still reads.
LinkedProof check_packets(Collective collective, const LinkedPlan& linked, int root, std::span<const bool> in_place);

// How many linked plans of an algorithm are free of order, all of which are proven: with every rank in place, none, each
// one alone, all but each one, and with up to 4 ranks every choice of them; those that write where a result is wanted and
// those that read. 0: too many ranks for linking, or it needs an order. Throws Error(internal_error) where a proof fails, or
// where sums join their inputs in another order than the algorithm that claims to fold from the left.
int prove_linked(const Algorithm& algorithm, const Group& group);

}  // namespace tutti
