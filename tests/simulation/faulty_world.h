// A world in virtual time: engines on simulated links, liveness on simulated control links, and one fault.
//
// Each rank runs the same calls in the same order. Its control side is that of a communicator: a fault of an endpoint
// ends nothing by itself but makes the rank wait for the verdict; mismatched calls and passed deadlines are verdicts of
// its own; the verdict ends the running call and all later ones.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/liveness.h"
#include "engine/collective.h"

namespace tutti {

struct WorldFault {
  enum class Kind : uint8_t {
    none,
    death,         // the process ends; its peers' links close
    silent_death,  // the process ends; only its control links close
    stop,          // it stops for good, its links stay open
    pause,         // it stops for a while that is no silence yet
    slow,          // it is driven late all the time
    mismatch       // it calls with another count
  };
  Kind kind = Kind::none;
  int rank = 0;
  TimeNs at = 0;
};
inline const char* name(WorldFault::Kind kind) {
  constexpr const char* names[] = {"none", "death", "silent_death", "stop", "pause", "slow", "mismatch"};
  return names[size_t(kind)];
}

class FaultyWorld {
 public:
  static constexpr TimeNs silence_ns = 10 * ns_per_ms;
  static constexpr TimeNs pause_ns = silence_ns / 4;
  static constexpr TimeNs deadline_ns = 50 * ns_per_ms;  // of each call
  static constexpr TimeNs control_latency_ns = 20 * ns_per_us;

  FaultyWorld(const std::vector<CollectiveCase>& calls, const WorldFault& fault, PlanStore& plans)
      : n_(calls[0].n), fault_(fault), simulation_(network_of(calls[0])), ranks_(size_t(n_)) {
    for (const CollectiveCase& call : calls) {
      channels_ = call.channels;
      calls_.push_back(std::make_unique<CollectiveBuffers>(call, plans));
      CollectiveCase other = call;
      ++other.count;
      if (fault.kind != WorldFault::Kind::mismatch) continue;
      odd_calls_.push_back(std::make_unique<CollectiveBuffers>(other, plans));
    }
    for (int rank = 0; rank < n_; ++rank) {
      ranks_[size_t(rank)].liveness = std::make_unique<Liveness>(rank, n_, silence_ns, 0);
    }
    for (int rank = 0; rank < n_; ++rank) {
      if (rank > 0) open_link(rank, Liveness::parent_of(rank));
      after(rank, EventKind::tick, 0, network().random().between(0, ranks_[0].liveness->tick_interval_ns()));
      next_call(rank);
    }
    after(fault.rank, EventKind::fault, 0, fault.at);
  }

  // Empty where everything was as it must be; else what was wrong.
  std::string run() {
    const TimeNs end = deadline_ns * TimeNs(calls_.size() + 2);
    while (!finished() && problem_.empty()) {
      const std::optional<SimulatedEvent> event = simulation_.step();
      if (!event) return "nothing happens any more, though not all calls have ended";
      if (event->time > end) return "some call has not ended by its deadline";
      if (event->rank >= 0) look_at(event->rank);
      else handle(event->argument);
    }
    return problem_.empty() ? judge() : problem_;
  }

  // Survivors that were ok with every call.
  int all_ok() const {
    int ranks = 0;
    for (int rank = 0; rank < n_; ++rank)
      ranks += survivor(rank) && ranks_[size_t(rank)].calls_ok == calls_.size();
    return ranks;
  }
  int survivors() const {
    int ranks = 0;
    for (int rank = 0; rank < n_; ++rank) ranks += survivor(rank);
    return ranks;
  }

 private:
  enum class EventKind : uint8_t { tick, control, deadline, fault, resume };
  struct Letter {
    bool closes = false;
    Bytes message;
  };
  struct Rank {
    std::unique_ptr<Liveness> liveness;
    size_t calls_begun = 0;
    size_t calls_ok = 0;
    bool waits_for_verdict = false;
    bool ended = false;                   // all calls are ok, or the verdict is there
    std::map<int, std::deque<Letter>> inbox;  // of each peer, in order
    std::map<int, TimeNs> last_letter_at;
  };

  SimulatedNetwork& network() { return simulation_.network(); }
  bool permanent() const {
    return fault_.kind == WorldFault::Kind::death || fault_.kind == WorldFault::Kind::silent_death ||
           fault_.kind == WorldFault::Kind::stop;
  }
  bool survivor(int rank) const { return !(permanent() && struck_ && rank == fault_.rank); }

  // --- Events of the control side, in 64 bits.
  void after(int rank, EventKind kind, uint32_t detail, TimeNs delay) {
    network().call(uint64_t(kind) << 56 | uint64_t(rank) << 32 | detail, network().now() + delay);
  }
  void handle(uint64_t argument) {
    const auto kind = EventKind(argument >> 56);
    const int rank = int(argument >> 32 & 0xffffff);
    const auto detail = uint32_t(argument);
    if (kind == EventKind::fault) return strike();
    if (kind == EventKind::resume) return network().resume(rank);
    if (network().dead(rank)) return;
    // A stopped process finds everything in its sockets when it goes on, in the order of sending.
    if (network().stopped(rank)) return after(rank, kind, detail, pause_ns / 8);
    Rank& state = ranks_[size_t(rank)];
    if (kind == EventKind::tick) {
      state.liveness->tick(network().now());
      after(rank, EventKind::tick, 0, state.liveness->tick_interval_ns());
    } else if (kind == EventKind::control) {
      deliver(rank, int(detail));
    } else if (detail == state.calls_begun && simulation_.status(rank) != Status::done && !state.ended) {
      fail(rank, {Code::timeout, -1, "the deadline has passed"});
    }
    act(rank);
  }

  void open_link(int a, int b) {
    ranks_[size_t(a)].liveness->link_opened(b, network().now());
    ranks_[size_t(b)].liveness->link_opened(a, network().now());
  }
  void post(int from, int to, Letter letter) {
    Rank& receiver = ranks_[size_t(to)];
    TimeNs& last = receiver.last_letter_at[from];
    last = std::max(last + 1, network().now() + control_latency_ns + network().random().between(0, control_latency_ns));
    receiver.inbox[from].push_back(std::move(letter));
    after(to, EventKind::control, uint32_t(from), last - network().now());
  }
  void deliver(int rank, int from) {
    Rank& state = ranks_[size_t(rank)];
    const Letter letter = std::move(state.inbox[from].front());
    state.inbox[from].pop_front();
    if (letter.closes) state.liveness->link_closed(from, network().now());
    else state.liveness->message(from, letter.message, network().now());
  }
  void fail(int rank, Verdict verdict) {
    ranks_[size_t(rank)].liveness->fail(std::move(verdict), network().now());
    act(rank);
  }
  void act(int rank) {
    Rank& state = ranks_[size_t(rank)];
    for (const Liveness::Action& action : state.liveness->take_actions()) {
      switch (action.kind) {
        case Liveness::Action::Kind::send: post(rank, action.peer, {false, action.message}); break;
        case Liveness::Action::Kind::close: post(rank, action.peer, {true, {}}); break;
        case Liveness::Action::Kind::dial: problem_ = fmt::format("rank {} dials though nobody left", rank); break;
        case Liveness::Action::Kind::publish:
          simulation_.give_up(rank);
          state.ended = true;
          break;
      }
    }
  }

  void strike() {
    struck_ = true;
    const int rank = fault_.rank;
    switch (fault_.kind) {
      case WorldFault::Kind::none:
      case WorldFault::Kind::mismatch: break;
      case WorldFault::Kind::death:
      case WorldFault::Kind::silent_death:
        network().kill(rank, fault_.kind == WorldFault::Kind::death ? network().random().between(0, 50'000) : -1);
        for (int peer = 0; peer < n_; ++peer)
          if (peer != rank && ranks_[size_t(rank)].liveness->linked(peer)) post(rank, peer, {true, {}});
        break;
      case WorldFault::Kind::stop: network().stop(rank); break;
      case WorldFault::Kind::pause:
        network().stop(rank);
        after(rank, EventKind::resume, 0, pause_ns);
        break;
      case WorldFault::Kind::slow: network().slow(rank, 100 * ns_per_us); break;
    }
  }

  // --- The calls.
  void next_call(int rank) {
    Rank& state = ranks_[size_t(rank)];
    if (state.ended || state.calls_begun == calls_.size()) {
      state.ended = true;
      return;
    }
    const bool odd = fault_.kind == WorldFault::Kind::mismatch && rank == fault_.rank;
    CollectiveBuffers& call = *(odd ? odd_calls_ : calls_)[state.calls_begun];
    simulation_.start(rank, call.work(rank, simulation_.engine(rank)), 0, channels_);
    ++state.calls_begun;
    after(rank, EventKind::deadline, uint32_t(state.calls_begun), deadline_ns);
  }
  void look_at(int rank) {
    Rank& state = ranks_[size_t(rank)];
    if (state.ended || state.waits_for_verdict || simulation_.status(rank) == Status::again) return;
    if (simulation_.status(rank) == Status::done) {
      ++state.calls_ok;
      const std::string wrong = calls_[state.calls_ok - 1]->wrong(rank);
      if (!wrong.empty()) problem_ = fmt::format("call {} was ok but {}", state.calls_ok - 1, wrong);
      return next_call(rank);
    }
    state.waits_for_verdict = true;
    const WaitingOn waiting = simulation_.waiting_on(rank);
    if (waiting.endpoint->fault().kind == FaultKind::mismatch) {
      fail(rank, {Code::mismatch, -1, fmt::format("rank {} and rank {} differ", rank, waiting.peer)});
    }
  }
  bool finished() const {
    for (int rank = 0; rank < n_; ++rank) {
      const Rank& state = ranks_[size_t(rank)];
      if (!survivor(rank)) continue;
      // Whoever was ok learns of the fault as well.
      if (!state.ended || (permanent() && struck_ && state.liveness->verdict() == nullptr)) return false;
    }
    return struck_ || !permanent();
  }
  std::string judge() const {
    const Verdict* first = nullptr;
    for (int rank = 0; rank < n_; ++rank) {
      if (!survivor(rank)) continue;
      const Rank& state = ranks_[size_t(rank)];
      const Verdict* verdict = state.liveness->verdict();
      if (fault_.kind == WorldFault::Kind::mismatch) {
        if (state.calls_ok > 0) return fmt::format("rank {} was ok though calls differ", rank);
        if (verdict == nullptr || verdict->code != Code::mismatch) return fmt::format("rank {}: no mismatch", rank);
        continue;
      }
      if (permanent() != (verdict != nullptr)) {
        return verdict ? fmt::format("rank {} blames an innocent: {}", rank, verdict->sentence)
                       : fmt::format("rank {} has no verdict", rank);
      }
      if (verdict == nullptr) continue;
      if (verdict->rank != fault_.rank || verdict->code != Code::remote_error) {
        return fmt::format("rank {} blames rank {}: {}", rank, verdict->rank, verdict->sentence);
      }
      if (first == nullptr) first = verdict;
      if (verdict->sentence != first->sentence) {
        return fmt::format("rank {} says \"{}\", another \"{}\"", rank, verdict->sentence, first->sentence);
      }
    }
    return "";
  }

  const int n_;
  const WorldFault fault_;
  int channels_ = 1;
  Simulation simulation_;
  std::vector<std::unique_ptr<CollectiveBuffers>> calls_, odd_calls_;
  std::vector<Rank> ranks_;
  bool struck_ = false;
  std::string problem_;
};

}  // namespace tutti
