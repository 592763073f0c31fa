// Lower bounds of collectives, and rounds of one partner.
#include "schedule/bounds.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <vector>

#include "base/error.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

// Rounds run as data: a rank's ports, and the rounds of the messages that are under way.
class RoundCounter {
 public:
  explicit RoundCounter(std::span<const Schedule> schedules)
      : schedules_(schedules), ranks_(schedules.size()), fifos_(schedules.size() * schedules.size()) {}

  int count() {
    std::deque<uint32_t> ready;
    for (uint32_t r = 0; r < ranks_.size(); ++r) ready.push_back(r);
    while (!ready.empty()) {
      const uint32_t rank = ready.front();
      ready.pop_front();
      run(rank, ready);
    }
    for (size_t r = 0; r < ranks_.size(); ++r) TUTTI_ASSERT(ranks_[r].step == schedules_[r].size());
    return last_;
  }

 private:
  struct Port {
    uint32_t peer = ~0u;
    int round = 0;  // of its last message
    int sent = 0;   // when that was sent
  };
  struct Rank {
    size_t step = 0;
    Port out, in;
    int received = 0;       // the latest round in which something came
    int received_then = 0;  // what that was at the last send
  };

  std::deque<int>& fifo(uint32_t from, uint32_t to) { return fifos_[size_t(from) * ranks_.size() + to]; }

  void run(uint32_t rank, std::deque<uint32_t>& ready) {
    Rank& state = ranks_[rank];
    for (const Schedule& steps = schedules_[rank]; state.step < steps.size(); ++state.step) {
      const Step& step = steps[state.step];
      if (step.verb == Verb::send) {
        send(state, rank, step.peer);
        ready.push_back(step.peer);
      } else if (step.verb == Verb::recv || step.verb == Verb::recv_reduce) {
        if (fifo(step.peer, rank).empty()) return;
        receive(state, rank, step.peer);
      }
    }
  }

  void send(Rank& state, uint32_t rank, uint32_t peer) {
    const bool goes_on = state.out.peer == peer && state.received == state.received_then;
    if (!goes_on) state.out = {peer, std::max(state.out.round, state.received) + 1, 0};
    state.received_then = state.received;
    fifo(rank, peer).push_back(state.out.round);
    last_ = std::max(last_, state.out.round);
  }

  void receive(Rank& state, uint32_t rank, uint32_t peer) {
    const int sent = fifo(peer, rank).front();
    fifo(peer, rank).pop_front();
    const bool goes_on = state.in.peer == peer && state.in.sent == sent;
    if (!goes_on) state.in = {peer, std::max(state.in.round + 1, sent), sent};
    state.received = std::max(state.received, state.in.round);
    last_ = std::max(last_, state.in.round);
  }

  std::span<const Schedule> schedules_;
  std::vector<Rank> ranks_;
  std::vector<std::deque<int>> fifos_;  // [from * n + to]
  int last_ = 0;
};

}  // namespace

double bytes_bound(Collective collective, int n) {
  if (n == 1) return 0;
  const double others = double(n - 1) / n;
  switch (served_as(collective)) {
    case Collective::all_reduce: return 2 * others;
    // Everybody lacks all blocks but its own, or has to be given to all; of a scatter, the root has them all.
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::scatter:
    case Collective::all_to_all: return others;
    case Collective::gather: return 1.0 / n;
    // All that the root has, or that each of the others has, must leave it; of a scan, all that rank 0 has.
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::scan:
    case Collective::exscan: return 1;
    default: return 0;
  }
}

int rounds_bound(Rounds kind, int n) {
  if (n == 1 || kind == Rounds::none) return 0;
  return kind == Rounds::one ? 1 : int(std::bit_width(unsigned(n - 1)));
}

int one_partner_rounds(std::span<const Schedule> schedules) { return RoundCounter(schedules).count(); }

}  // namespace tutti
