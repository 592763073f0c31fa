// The event simulator behind forecasts.
#include "simulation/forecast.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "schedule/chunks.h"
#include "simulation/arrivals.h"
#include "simulation/program.h"
#include "simulation/time_queue.h"
#include "simulation/traffic.h"

namespace tutti {
namespace {

constexpr uint32_t none = ~0u;

// How a buffer is cut.
struct Tiles {
  uint64_t bytes, tile_bytes, all, simulated;
  uint64_t calls;
  uint64_t in_all_calls() const { return simulated * calls; }
};

Tiles tiles_of(const Shape& shape, const ForecastOptions& options) {
  Tiles tiles{};
  const uint32_t chunks = std::max(1u, shape.output);
  const uint64_t tile_bytes_max =
      std::max<uint64_t>(1, tile_elements_max(chunks, std::max(1u, shape.message), 1, options.message_bytes_max));
  tiles.tile_bytes = even_tile_elements(options.bytes, chunks, 1, tile_bytes_max);
  tiles.all = std::max<uint64_t>(1, (options.bytes + tiles.tile_bytes - 1) / tiles.tile_bytes);
  tiles.simulated = std::min(tiles.all, std::max<uint64_t>(2, options.tiles_max));
  // What follows a call that goes on at one pace is known.
  tiles.calls = tiles.simulated < tiles.all ? 1 : std::max(1u, options.calls);
  tiles.bytes = std::min(options.bytes, tiles.simulated * tiles.tile_bytes);
  return tiles;
}

class Machine {
 public:
  Machine(Programs& programs, int n, const Fabric& fabric, const ForecastOptions& options)
      : programs_(programs),
        fabric_(fabric),
        costs_(fabric.costs()),
        options_(options),
        tiles_(tiles_of(programs.shape(), options)),
        chunks_(std::max(1u, programs.shape().output)),
        whole_(std::min(tiles_.tile_bytes, tiles_.bytes), chunks_, 1),
        rest_(tiles_.bytes - (tiles_.simulated - 1) * std::min(tiles_.tile_bytes, tiles_.bytes), chunks_, 1),
        ranks_(size_t(n)),
        arrivals_(size_t(n)),
        traffic_(fabric),
        done_ns_(tiles_.in_all_calls()),
        core_free_ns_(size_t(fabric.shared_cores())) {}

  void run() {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) queue_.push(0, rank);
    while (!queue_.empty()) {
      const uint32_t item = queue_.pop().item;
      item < ranks_.size() ? proceed(item) : fly_on(item - uint32_t(ranks_.size()));
    }
    if (done_ != ranks_.size())
      throw Error(Code::internal_error, fmt::format("{} of {} ranks wait for ever", ranks_.size() - done_, ranks_.size()));
  }

  Forecast result() {
    Forecast result;
    const double calls = double(tiles_.calls), last = done_ns_.back();
    const uint64_t before = tiles_.calls / 2;  // calls that do not count
    result.time_ns = last;
    if (before > 0) result.time_ns = (last - done_ns_[before * tiles_.simulated - 1]) / double(tiles_.calls - before);
    result.first_done_ns = first_done_ns_;
    result.messages = double(sends_) / calls;
    result.bytes = sent_bytes_ / calls;
    result.events = sends_ + receives_;
    result.loads = loads(last);
    result.trace = std::move(trace_);
    if (tiles_.simulated == tiles_.all) return result;
    const double rest = double(options_.bytes) / double(tiles_.tile_bytes) - double(tiles_.simulated);
    const uint64_t half = tiles_.simulated / 2;
    const double tile_ns = (last - done_ns_[half - 1]) / double(tiles_.simulated - half);
    result.time_ns += rest * tile_ns;
    if (options_.calls > 1) result.time_ns = double(options_.bytes) / double(tiles_.tile_bytes) * tile_ns;
    const double factor = 1 + rest / double(tiles_.simulated);
    result.messages *= factor;
    result.bytes *= factor;
    for (TierLoad& load : result.loads) load.bytes *= factor, load.busiest_bytes *= factor;
    return result;
  }

 private:
  struct Rank {
    double clock_ns = 0;
    uint32_t op = 0;
    uint32_t tile = 0;
    uint32_t waits_for = none;  // the rank whose message is missing
    uint32_t sent_to = none;    // the last, unless a message came since
    bool took = false;          // the message that it waits for lies before it
  };
  // A message on its way: the first links of its path have taken it.
  struct Flight {
    uint32_t from, to;
    uint32_t hop;  // the next
    Passage passage;
  };

  uint64_t bytes_of(const Op& op, uint32_t tile) const {
    return ((tile + 1) % tiles_.simulated == 0 ? rest_ : whole_).size(op.first, op.count);
  }

  // Runs a rank until it must wait for a message, or until its next send lies ahead of the present: links are taken in
  // the order of time. (Receives and work touch nothing that others share, so they may run ahead.)
  void proceed(uint32_t number) {
    Rank& rank = ranks_[number];
    for (;;) {
      const Op* const op = programs_.at(number, rank.op);
      if (op == nullptr) {
        done_ns_[rank.tile] = std::max(done_ns_[rank.tile], rank.clock_ns);
        if (++rank.tile == tiles_.in_all_calls()) {
          first_done_ns_ = done_++ == 0 ? rank.clock_ns : std::min(first_done_ns_, rank.clock_ns);
          return;
        }
        rank.op = 0;
        continue;
      }
      const bool in_turn = op->kind == Op::Kind::send || !core_free_ns_.empty();
      if (in_turn && rank.clock_ns > queue_.now()) return queue_.push(rank.clock_ns, number);
      if (op->kind == Op::Kind::wait) {
        if (!std::exchange(rank.took, false)) {
          const std::optional<double> arrival = arrivals_.take(number, op->peer);
          if (!arrival) {
            rank.waits_for = op->peer;
            return;
          }
          if (*arrival > rank.clock_ns) {
            note(ForecastEvent::Kind::wait, number, op->peer, rank.clock_ns, *arrival, bytes_of_next_step(number, rank));
            rank.clock_ns = *arrival;
          }
          // A core that others want too is taken when the message is there, not before.
          rank.took = in_turn && rank.clock_ns > queue_.now();
          if (rank.took) return queue_.push(rank.clock_ns, number);
        }
        receive(number, op->peer, bytes_of_next_step(number, rank));
      } else if (op->kind == Op::Kind::send) {
        send(number, *op, bytes_of(*op, rank.tile));
      } else {
        work(number, local_ns(*op, double(bytes_of(*op, rank.tile))), bytes_of(*op, rank.tile));
      }
      ++rank.op;
    }
  }

  // A message has the size of its step's slice.
  uint64_t bytes_of_next_step(uint32_t number, const Rank& rank) {
    for (uint32_t index = rank.op + 1;; ++index) {
      const Op* const op = programs_.at(number, index);
      TUTTI_ASSERT(op != nullptr);
      if (op->kind != Op::Kind::wait) return bytes_of(*op, rank.tile);
    }
  }

  // Keeps the rank busy, on a core of its own or on one of those that all share.
  void keep_busy(Rank& rank, double ns) {
    if (!core_free_ns_.empty()) {
      double& core = *std::min_element(core_free_ns_.begin(), core_free_ns_.end());
      rank.clock_ns = std::max(rank.clock_ns, core);
      core = rank.clock_ns + ns;
    }
    rank.clock_ns += ns;
  }

  void receive(uint32_t number, uint32_t peer, uint64_t bytes) {
    Rank& rank = ranks_[number];
    const FabricEnds& ends = fabric_.ends(int(peer), int(number));
    const double begin_ns = rank.clock_ns;
    rank.sent_to = none;
    keep_busy(rank, ends.receive_ns + (bytes > ends.inline_bytes ? ends.bulk_ns : 0));
    note(ForecastEvent::Kind::receive, number, peer, begin_ns, rank.clock_ns, bytes);
    ++receives_;
  }

  double local_ns(const Op& op, double bytes) const {
    if (op.kind == Op::Kind::copy) return costs_.step_ns + bytes * costs_.copy_byte_ns;
    return costs_.step_ns + op.peer * bytes * costs_.reduce_byte_ns;
  }

  void work(uint32_t number, double ns, uint64_t bytes) {
    const double begin_ns = ranks_[number].clock_ns;
    keep_busy(ranks_[number], ns);
    if (ns > costs_.step_ns) note(ForecastEvent::Kind::work, number, number, begin_ns, ranks_[number].clock_ns, bytes);
  }

  void send(uint32_t number, const Op& op, uint64_t bytes) {
    Rank& rank = ranks_[number];
    const FabricEnds& ends = fabric_.ends(int(number), int(op.peer));
    const double begin_ns = rank.clock_ns;
    fabric_.route(int(number), int(op.peer), path_);
    const bool fans_out = rank.sent_to != none && rank.sent_to != op.peer;
    rank.sent_to = op.peer;
    keep_busy(rank, ends.message_ns);
    const double work_ns = double(bytes) * ends.byte_ns;
    // The head leaves when the sender has begun on the bytes, the tail not before it has ended.
    Flight flight{number, op.peer, 0, {bytes, rank.clock_ns, rank.clock_ns + work_ns}};
    keep_busy(rank, work_ns);
    bool held = false;
    if (path_.count > 0) {
      const FabricTier& tier = fabric_.tiers()[path_.hops[flight.hop].tier];
      const double ready_ns = flight.passage.head_ns + tier.latency_ns;
      // A token bucket: what the link saved while it rested passes at once.
      const double left_ns = traffic_.cross(path_.hops[flight.hop++], flight.passage, fans_out ? 1 + ends.fan_out : 1,
                                            double(fabric_.burst_bytes()) * tier.byte_ns);
      rank.clock_ns = std::max(rank.clock_ns, left_ns - double(fabric_.buffer_bytes()) * tier.byte_ns);
      held = flight.passage.head_ns > ready_ns;
    }
    note(ForecastEvent::Kind::send, number, op.peer, begin_ns, rank.clock_ns, bytes);
    ++sends_;
    sent_bytes_ += double(bytes);
    fly(flight, held);
  }

  // Over the rest of its links, and where it was held, when it reaches them: meanwhile others cross those before it.
  void fly(Flight flight, bool held) {
    while (flight.hop < path_.count) {
      if (held) return postpone(flight);
      const FabricPath::Hop hop = path_.hops[flight.hop++];
      const double ready_ns = flight.passage.head_ns + fabric_.tiers()[hop.tier].latency_ns;
      traffic_.cross(hop, flight.passage);
      held = flight.passage.head_ns > ready_ns;
    }
    const FabricEnds& ends = fabric_.ends(int(flight.from), int(flight.to));
    deliver(flight.from, flight.to, flight.passage.tail_ns + ends.latency_ns);
  }

  void postpone(const Flight& flight) {
    uint32_t place = uint32_t(flights_.size());
    if (free_flights_.empty()) {
      flights_.push_back(flight);
    } else {
      place = free_flights_.back();
      free_flights_.pop_back();
      flights_[place] = flight;
    }
    queue_.push(std::max(queue_.now(), flight.passage.head_ns), uint32_t(ranks_.size()) + place);
  }

  void fly_on(uint32_t place) {
    const Flight flight = flights_[place];
    free_flights_.push_back(place);
    fabric_.route(int(flight.from), int(flight.to), path_);
    fly(flight, false);
  }

  void deliver(uint32_t from, uint32_t to, double time_ns) {
    arrivals_.add(to, from, time_ns);
    Rank& receiver = ranks_[to];
    if (receiver.waits_for != from) return;
    receiver.waits_for = none;
    // At its own time: what it does next may be a send.
    if (core_free_ns_.empty()) return woken_.push_back(to), settle();
    queue_.push(std::max({queue_.now(), time_ns, receiver.clock_ns}), to);
  }

  // Receivers that may go on, one after the other rather than one inside the other.
  void settle() {
    if (settling_) return;
    settling_ = true;
    while (!woken_.empty()) {
      const uint32_t rank = woken_.back();
      woken_.pop_back();
      proceed(rank);
    }
    settling_ = false;
  }

  void note(ForecastEvent::Kind kind, uint32_t rank, uint32_t peer, double begin_ns, double end_ns, uint64_t bytes) {
    if (trace_.size() >= options_.trace_events_max || rank >= options_.trace_ranks) [[likely]] return;
    trace_.push_back({kind, rank, peer, begin_ns, end_ns, bytes});
  }

  std::vector<TierLoad> loads(double time_ns) const {
    std::vector<TierLoad> loads;
    for (const FabricTier& tier : fabric_.tiers()) {
      TierLoad load{tier.name, tier.count};
      for (uint32_t link = tier.first; link < tier.first + tier.count; ++link) {
        load.bytes += traffic_.busy_bytes(link);
        load.busiest_bytes = std::max(load.busiest_bytes, traffic_.busy_bytes(link));
      }
      if (time_ns > 0) {
        load.busiest_busy = load.busiest_bytes * tier.byte_ns / time_ns;
        load.mean_busy = load.bytes / std::max(1u, tier.count) * tier.byte_ns / time_ns;
      }
      loads.push_back(load);
    }
    return loads;
  }

  Programs& programs_;
  const Fabric& fabric_;
  const MachineCosts& costs_;
  const ForecastOptions& options_;
  const Tiles tiles_;
  const uint32_t chunks_;
  const Chunks whole_, rest_;
  std::vector<Rank> ranks_;
  Arrivals arrivals_;
  TimeQueue queue_;
  FabricPath path_;
  std::vector<Flight> flights_;     // those that were held
  std::vector<uint32_t> free_flights_;
  Traffic traffic_;
  std::vector<double> done_ns_;     // of each tile
  std::vector<double> core_free_ns_;
  std::vector<uint32_t> woken_;
  bool settling_ = false;
  size_t done_ = 0;
  double first_done_ns_ = 0;
  uint64_t sends_ = 0, receives_ = 0;
  double sent_bytes_ = 0;
  std::vector<ForecastEvent> trace_;
};

}  // namespace

Forecast forecast(const Algorithm& algorithm, const Group& group, const Fabric& fabric,
                  const ForecastOptions& options) {
  if (group.n > fabric.ranks())
    throw Error(Code::invalid_argument, fmt::format("{} ranks do not fit on a fabric of {}", group.n, fabric.ranks()));
  Programs programs(algorithm, group);
  Machine machine(programs, group.n, fabric, options);
  machine.run();
  return machine.result();
}

double forecast_events(const Algorithm& algorithm, const Group& group, const ForecastOptions& options) {
  Group one = group;
  double sends = 0;
  Schedule schedule;
  const int sample[] = {0, 1 % group.n, group.n / 3, group.n / 2, group.n - 1};
  for (const int rank : sample) {
    one.rank = rank;
    schedule.clear();
    Recorder recorder(schedule);
    algorithm.record(recorder, one);
    sends += double(std::count_if(schedule.begin(), schedule.end(), [](const Step& s) { return s.verb == Verb::send; }));
  }
  const Tiles tiles = tiles_of(algorithm.shape(group), options);
  return 2 * sends / double(std::size(sample)) * group.n * double(tiles.simulated);
}

double forecast_bound_ns(const Algorithm& algorithm, const Group& group, const Fabric& fabric, uint64_t bytes) {
  const Claim claim = algorithm.claim(group);
  double round_ns = 0, byte_ns = 0;
  // Ranks of different hosts, where there are such, decide: some message crosses between hosts in every algorithm, but
  // not in every round.
  const bool one_host = fabric.ranks_per_host() > 1;
  const FabricEnds& ends = one_host ? fabric.ends(0, 1) : fabric.ends(0, std::min(1, group.n - 1));
  round_ns = ends.latency_ns + ends.message_ns + ends.receive_ns;
  byte_ns = ends.byte_ns;
  return claim.rounds * round_ns + claim.bytes_sent * double(bytes) * byte_ns;
}

}  // namespace tutti
