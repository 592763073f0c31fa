// The price: plans run on one virtual clock per rank.
#include "schedule/price.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/error.h"
#include "schedule/check.h"
#include "schedule/chunks.h"

namespace tutti {
namespace {

// After so many tiles a run is steady: the rest is a multiple of the last half's pace.
constexpr uint64_t tiles_simulated_max = 16;

// Of runs that are no longer than that: the first is a call's time, the second follows at its pace.
constexpr uint64_t calls_simulated = 2;

struct Arrival {
  double time_ns;
  uint64_t bytes;
};

// Messages on their way, of all pairs of ranks: queues that share one pool, since most are empty most of the time.
class Mail {
 public:
  explicit Mail(size_t ranks) : ranks_(ranks), queues_(ranks * ranks) {}

  bool empty(uint32_t from, uint32_t to) const { return queue(from, to).first == none; }
  void push(uint32_t from, uint32_t to, Arrival arrival) {
    uint32_t place = free_;
    if (place == none) {
      place = uint32_t(pool_.size());
      pool_.emplace_back();
    } else {
      free_ = pool_[place].next;
    }
    pool_[place] = {arrival, none};
    Queue& queue = queues_[from * ranks_ + to];
    (queue.first == none ? queue.first : pool_[queue.last].next) = place;
    queue.last = place;
  }
  Arrival pop(uint32_t from, uint32_t to) {
    Queue& queue = queues_[from * ranks_ + to];
    const uint32_t place = queue.first;
    queue.first = std::exchange(pool_[place].next, free_);
    free_ = place;
    return pool_[place].arrival;
  }

 private:
  static constexpr uint32_t none = ~0u;
  struct Queue {
    uint32_t first = none, last = none;  // in the pool
  };
  struct Place {
    Arrival arrival{};
    uint32_t next = none;
  };
  const Queue& queue(uint32_t from, uint32_t to) const { return queues_[from * ranks_ + to]; }

  const size_t ranks_;
  std::vector<Queue> queues_;  // [from * ranks + to]
  std::vector<Place> pool_;
  uint32_t free_ = none;  // the first of a list
};

class Clocks {
 public:
  // `calls` calls of `bytes` bytes each, cut into `tiles` tiles.
  Clocks(std::span<const Plan> plans, const CostModel& costs, uint64_t bytes, uint64_t tile_bytes, uint64_t tiles,
         uint64_t calls, uint64_t message_bytes_max)
      : plans_(plans),
        costs_(costs),
        chunks_(plans[0].shape.output),
        tiles_(tiles),
        message_bytes_max_(message_bytes_max),
        full_tile_(std::min(tile_bytes, bytes), chunks_, 1),
        last_tile_(std::min(tile_bytes, bytes - (tiles - 1) * tile_bytes), chunks_, 1),
        ranks_(plans.size()),
        mail_(plans.size()),
        done_ns_(tiles * calls) {}

  void run() {
    for (uint32_t r = 0; r < ranks_.size(); ++r) ready_.push_back(r);
    while (!ready_.empty()) {
      const uint32_t rank = ready_.front();
      ready_.pop_front();
      while (ranks_[rank].tile < done_ns_.size() && move(rank)) {
      }
    }
    for (const Rank& rank : ranks_)
      if (rank.tile < done_ns_.size()) throw Error(Code::internal_error, "a plan that waits for ever has no price");
  }

  // When the last rank was done with a tile, counted through all calls.
  double done_ns(uint64_t tile) const { return done_ns_[tile]; }
  // Of all calls.
  uint64_t messages() const { return messages_; }
  uint64_t sent_bytes() const { return sent_bytes_; }
  // How long the busiest core was, as far as that is known.
  double worked_ns() const {
    std::vector<double> of_core(ranks_.size());
    double most = 0, all = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      all += ranks_[rank].worked_ns;
      if (!costs_.core_of.empty()) most = std::max(most, of_core[size_t(costs_.core_of[rank])] += ranks_[rank].worked_ns);
    }
    return costs_.core_of.empty() ? costs_.contention * all / double(ranks_.size()) : most;
  }

 private:
  struct Rank {
    uint64_t tile = 0;
    uint64_t tile_of_call = 0;
    size_t step = 0;
    double clock_ns = 0;
    double worked_ns = 0;
    double reduced_bytes = 0;       // that it has read for reductions in this call
    uint32_t waits_for = none;  // the rank whose message is missing
    uint32_t sent_to = none;    // the last, unless a message came since
  };
  static constexpr uint32_t none = ~0u;

  uint64_t bytes_of(const Slice& slice, const Rank& rank) const {
    const Chunks& tile = rank.tile_of_call + 1 == tiles_ ? last_tile_ : full_tile_;
    return tile.size(slice.first < chunks_ ? slice.first : slice.first % chunks_, slice.count);
  }

  // One fold, or the end of a tile; false where a message is missing.
  bool move(uint32_t rank) {
    Rank& state = ranks_[rank];
    const Plan& plan = plans_[rank];
    if (state.step == plan.steps.size()) {
      done_ns_[state.tile] = std::max(done_ns_[state.tile], state.clock_ns);
      ++state.tile;
      state.step = 0;
      if (++state.tile_of_call == tiles_) {
        state.tile_of_call = 0;
        state.reduced_bytes = 0;
      }
      return true;
    }
    const Fold& fold = plan.steps[state.step];
    for (uint32_t peer : plan.from(fold))
      if (mail_.empty(peer, rank)) {
        state.waits_for = peer;
        return false;
      }
    const Slice& named = fold.dst.count > 0 ? fold.dst : fold.a;
    uint64_t bytes = named.count > 0 ? bytes_of(named, state) : 0;
    for (uint32_t peer : plan.from(fold)) {
      const Arrival arrival = mail_.pop(peer, rank);
      if (arrival.time_ns > state.clock_ns) {
        state.clock_ns = arrival.time_ns;
        state.worked_ns += costs_.switch_ns;
      }
      state.sent_to = none;
      const LinkCost& link = costs_.link(int(peer), int(rank));
      work(state, link.receive_ns + (arrival.bytes > link.inline_bytes ? link.bulk_ns : 0));
      bytes = std::max(bytes, arrival.bytes);
    }
    work(state, local_ns(state, fold, double(bytes)));
    const std::span<const uint32_t> to = plan.to(fold);
    const bool shared = std::all_of(to.begin(), to.end(), [&](uint32_t peer) {
      const uint64_t least = costs_.link(int(rank), int(peer)).shared_bytes;
      return least > 0 && bytes >= least;
    });
    const bool in_a_row =
        to.size() == 1 && bytes * tiles_ > message_bytes_max_ && plan.sends_in_a_row(uint32_t(state.step));
    for (size_t i = 0; i < to.size(); ++i) send(rank, to[i], bytes, shared && i > 0, in_a_row);
    ++state.step;
    return true;
  }

  // The pass itself: reading a message that is only passed on costs nothing beside its sending.
  double local_ns(Rank& rank, const Fold& fold, double bytes) const {
    double time = costs_.step_ns;
    if (fold.operands() > 1) {
      time += costs_.reduce_ns(fold.operands() * bytes, rank.reduced_bytes);
      rank.reduced_bytes += fold.operands() * bytes;
    } else if (fold.dst.count > 0 && !(fold.dst == fold.a)) {
      time += bytes * costs_.copy_byte_ns;
    }
    return time;
  }

  void work(Rank& rank, double ns) {
    rank.clock_ns += ns;
    rank.worked_ns += ns;
  }

  // is_there: the peer reads what was copied for another one.
  void send(uint32_t rank, uint32_t peer, uint64_t bytes, bool is_there, bool in_a_row) {
    const LinkCost& link = costs_.link(int(rank), int(peer));
    Rank& state = ranks_[rank];
    const bool fans_out = state.sent_to != none && state.sent_to != peer;
    state.sent_to = peer;
    const double bytes_ns = is_there ? 0 : link.bytes_ns(bytes, in_a_row) + (fans_out ? link.fan_out_ns(bytes) : 0);
    state.clock_ns += link.message_ns + bytes_ns;
    state.worked_ns += link.message_ns + (bytes > 0 ? std::min(bytes_ns, double(bytes) * link.core_byte_ns) : 0);
    mail_.push(rank, peer, {state.clock_ns + link.latency_ns, bytes});
    ++messages_;
    sent_bytes_ += bytes;
    if (ranks_[peer].waits_for != rank) return;
    ranks_[peer].waits_for = none;
    ready_.push_back(peer);
  }

  std::span<const Plan> plans_;
  const CostModel& costs_;
  const uint32_t chunks_;
  const uint64_t tiles_;  // of a call
  const uint64_t message_bytes_max_;
  const Chunks full_tile_, last_tile_;
  std::vector<Rank> ranks_;
  Mail mail_;
  std::vector<double> done_ns_;  // of each tile
  std::deque<uint32_t> ready_;
  uint64_t messages_ = 0, sent_bytes_ = 0;
};

}  // namespace

Price price(std::span<const Plan> plans, const CostModel& costs, uint64_t bytes, uint64_t message_bytes_max) {
  TUTTI_ASSERT(!plans.empty() && size_t(costs.n) == plans.size());
  const uint32_t chunks = plans[0].shape.output;
  const uint64_t tile_bytes_max =
      std::max<uint64_t>(1, tile_elements_max(chunks, plans[0].message_chunks_max, 1, message_bytes_max));
  const uint64_t tile_bytes = even_tile_elements(bytes, chunks, 1, tile_bytes_max);
  const uint64_t tiles = std::max<uint64_t>(1, (bytes + tile_bytes - 1) / tile_bytes);
  const uint64_t simulated = std::min(tiles, tiles_simulated_max);
  const uint64_t calls = simulated < tiles ? 1 : calls_simulated;
  Clocks clocks(plans, costs, std::min(bytes, simulated * tile_bytes), tile_bytes, simulated, calls, message_bytes_max);
  clocks.run();
  Price result;
  result.time_ns = clocks.done_ns(simulated - 1);
  result.messages = clocks.messages() / calls;
  result.bytes = clocks.sent_bytes() / calls;
  double worked_ns = clocks.worked_ns() / double(calls);
  // Neither is faster than the cores can do all ranks' work.
  const auto on_shared_cores = [&](double time_ns) { return std::max(time_ns, worked_ns); };
  if (simulated == tiles) {
    result.pace_ns = on_shared_cores(clocks.done_ns(calls * tiles - 1) - result.time_ns);
    result.time_ns = on_shared_cores(result.time_ns);
    return result;
  }
  const double in_tiles = double(bytes) / double(tile_bytes);  // the last perhaps a part
  const double rest = in_tiles - double(simulated);
  const uint64_t half = simulated / 2;
  const double tile_ns = (clocks.done_ns(simulated - 1) - clocks.done_ns(half - 1)) / double(half);
  worked_ns *= in_tiles / double(simulated);
  result.time_ns = on_shared_cores(result.time_ns + rest * tile_ns);
  result.pace_ns = on_shared_cores(in_tiles * tile_ns);
  result.messages += (tiles - simulated) * (result.messages / simulated);
  result.bytes += uint64_t(rest * double(result.bytes) / double(simulated));
  return result;
}

std::vector<Plan> plans_of(const Algorithm& algorithm, const Group& group) {
  std::vector<Plan> plans;
  plans.reserve(size_t(group.n));
  const Shape shape = algorithm.shape(group);
  Group one = group;
  for (one.rank = 0; one.rank < group.n; ++one.rank)
    plans.push_back(lower(record(algorithm, one), shape, algorithm.name, false));
  return plans;
}

}  // namespace tutti
