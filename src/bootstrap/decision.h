// One thing that all ranks which live decide alike, although whoever decides may die at any moment: a state machine
// without links, which Liveness feeds.
//
// The decider is the lowest rank that lives. Votes for it go up the tree: a rank's when those of its children have come,
// and each says whose votes it carries. Who has voted for a decider takes no value of an earlier one any more, and its
// vote tells the value that it has taken so far, if any. So a decider that has the votes of all who live knows every value
// that one of them has taken: if there is one, it decides the same, else what it likes. Rank 0 comes before all others, so
// where a decision is `prompt` it asks for no votes.
//
// This is Paxos (Lamport, "The Part-Time Parliament", TOCS 1998) with all who live as its quorum, and votes as its
// promises: safe as long as who is taken for dead takes no further part.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace tutti {

struct Vote {
  int decider = -1;
  std::vector<bool> voters;
  int taken_of = -1;  // the highest decider of whom one of the voters has taken a value; -1: none has
  Bytes taken;
  std::vector<Wish> wishes;  // of Ballot
};
Bytes encode(const Vote& vote);
// Throws Error(remote_error) where the bytes are no vote among `size` ranks.
Vote decode_vote(std::span<const std::byte> bytes, int size);

class Decision {
 public:
  Decision(int rank, int size, bool prompt) : rank_(rank), size_(size), prompt_(prompt), votes_(empty_vote()) {}

  // This rank takes part; the first call counts.
  void ask(Bytes wish);
  bool asked() const noexcept { return asked_; }
  // Who lives has changed, or nothing has: votes for another decider than this are void.
  void turn_to(int decider);
  // A neighbour's vote; one for another decider than this rank's own is void.
  void hear(const Vote& vote);
  // A value that `decider` has decided. True: it was taken, and is to be passed on.
  bool take(int decider, Bytes value);

  // Whether all of `ranks` have voted.
  bool have_voted(std::span<const int> ranks) const;
  // Whether this rank, the decider, may decide now. Then taken() is what it must decide, if that has a value.
  bool may_decide(const std::vector<bool>& lives) const;
  // The ranks among `lives` that have not voted.
  std::vector<int> missing(const std::vector<bool>& lives) const;
  // What goes up, or what the decider knows: its own vote and those it has heard.
  const Vote& votes() const noexcept { return votes_; }

  bool taken() const noexcept { return taken_of_ >= 0; }
  int taken_of() const noexcept { return taken_of_; }
  const Bytes& value() const noexcept { return value_; }  // the first that was taken, which never changes

 private:
  Vote empty_vote() const;
  void vote();

  const int rank_;
  const int size_;
  const bool prompt_;
  bool asked_ = false;
  Bytes wish_;
  Vote votes_;        // of the present decider
  int taken_of_ = -1;
  Bytes value_;
};

}  // namespace tutti
