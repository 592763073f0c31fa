// A world in virtual time: engines on simulated links, liveness on simulated control links, and one fault.
//
// Each rank runs the same calls in the same order. Its control side is that of a communicator: a fault of an endpoint
// ends nothing by itself but makes the rank wait for the verdict; mismatched calls and passed deadlines are verdicts of
// its own; the verdict ends the running call and all later ones.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/collective.h"
#include "simulation/control_plane.h"

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
    ControlPlane::Surroundings around;
    around.now = [this] { return network().now(); };
    around.after = [this](int rank, ControlPlane::Event event, uint32_t detail, TimeNs delay) {
      after(rank, EventKind::control, uint32_t(event) << 24 | detail, delay);
    };
    around.fate = [this](int rank) { return fate(rank); };
    around.told = [this](int rank) {
      simulation_.give_up(rank);
      ranks_[size_t(rank)].ended = true;
    };
    around.random = &network().random();
    plane_ = std::make_unique<ControlPlane>(n_, ControlTimes{silence_ns, control_latency_ns, pause_ns / 8}, std::move(around),
                                            SceneMistake::none, 0);
    for (int rank = 0; rank < n_; ++rank) next_call(rank);
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
  enum class EventKind : uint8_t { control, deadline, fault, resume };
  struct Rank {
    size_t calls_begun = 0;
    size_t calls_ok = 0;
    bool waits_for_verdict = false;
    bool ended = false;  // all calls are ok, or the verdict is there
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
    if (kind == EventKind::control)
      return plane_->handle(rank, ControlPlane::Event(detail >> 24), detail & 0xffffff);
    if (network().dead(rank)) return;
    if (network().stopped(rank)) return after(rank, kind, detail, pause_ns / 8);
    if (detail == ranks_[size_t(rank)].calls_begun && simulation_.status(rank) != Status::done && !ranks_[size_t(rank)].ended)
      fail(rank, {Code::timeout, -1, "the deadline has passed"});
  }
  Fate fate(int rank) {
    if (network().dead(rank)) return Fate::ended;
    return network().stopped(rank) ? Fate::stopped : Fate::lives;
  }
  const Verdict* verdict(int rank) const { return plane_->liveness(rank).verdict(); }
  void fail(int rank, Verdict verdict) {
    plane_->liveness(rank).fail(std::move(verdict), network().now());
    plane_->act(rank);
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
        plane_->end(rank);
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
      if (!state.ended || (permanent() && struck_ && verdict(rank) == nullptr)) return false;
    }
    return struck_ || !permanent();
  }
  std::string judge() const {
    const Verdict* first = nullptr;
    for (int rank = 0; rank < n_; ++rank) {
      if (!survivor(rank)) continue;
      const Rank& state = ranks_[size_t(rank)];
      const Verdict* verdict = this->verdict(rank);
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
  std::unique_ptr<ControlPlane> plane_;
  bool struck_ = false;
  std::string problem_;
};

}  // namespace tutti
