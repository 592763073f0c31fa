// The world: processes, their clocks and control links, the striking of faults, and the judgement.
#include "simulation/world.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "algorithms/catalog.h"
#include "bootstrap/liveness.h"
#include "communicator/communicator.h"
#include "simulation/allocation.h"
#include "simulation/fiber.h"
#include "simulation/memory_of_call.h"

namespace tutti {
namespace {

class World;

class RankClock final : public Clock {
 public:
  RankClock(World& world, int rank) : world_(world), rank_(rank) {}
  TimeNs now() noexcept override;
  void yield() noexcept override {}  // time passes when it is asked for
  void sleep(pollfd* fds, size_t n, int timeout_ms) noexcept override;

 private:
  World& world_;
  const int rank_;
};

class RankBootstrap final : public Bootstrap {
 public:
  RankBootstrap(World& world, int rank, int size) : world_(world), rank_(rank), size_(size) {}
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  const Key& key() const noexcept override { return key_; }
  const std::string& describe(int rank) const noexcept override;
  std::vector<Bytes> all_gather(std::span<const std::byte>) override { refuse(); }
  void barrier() override { refuse(); }
  std::vector<Fd> connect(std::span<const Wish>) override { refuse(); }
  const std::atomic<const Verdict*>& verdict_cell() const noexcept override { return verdict_; }
  void fail(Verdict verdict) noexcept override;
  void on_verdict(std::function<void()> wake) override { wake_ = std::move(wake); }
  void leave() noexcept override {}

  void publish(const Verdict* verdict, bool rings) {
    verdict_.store(verdict, std::memory_order_release);
    if (rings && wake_) wake_();
  }

 private:
  [[noreturn]] static void refuse() { throw Error(Code::internal_error, "not simulated"); }
  World& world_;
  const int rank_, size_;
  const Key key_{};
  std::atomic<const Verdict*> verdict_{nullptr};
  std::function<void()> wake_;
};

// Passes everything on to the network's transport, which outlives it.
class BorrowedTransport final : public Transport {
 public:
  explicit BorrowedTransport(Transport& transport) : transport_(transport) {}
  std::string_view name() const noexcept override { return transport_.name(); }
  Endpoint* endpoint(int peer, int channel) noexcept override { return transport_.endpoint(peer, channel); }
  size_t message_bytes_max() const noexcept override { return transport_.message_bytes_max(); }
  void progress() noexcept override { transport_.progress(); }
  void arm() noexcept override { transport_.arm(); }
  void disarm() noexcept override { transport_.disarm(); }
  size_t poll_fds(std::span<pollfd> space) noexcept override { return transport_.poll_fds(space); }

 private:
  Transport& transport_;
};

class World {
 public:
  explicit World(const Scene& scene)
      : scene_(scene), n_(scene.n), network_(options_of(scene)), struck_(scene.faults.size()), ranks_(size_t(n_)) {
    for (const SceneCall& call : scene.calls) memory_.push_back(std::make_unique<MemoryOfCall>(call, n_, scene.seed));
    for (int rank = 0; rank < n_; ++rank) names_.push_back(fmt::format("rank {}", rank));
    for (int rank = 0; rank < n_; ++rank) make_process(rank);
    for (int rank = 1; rank < n_; ++rank) open_link(rank, Liveness::parent_of(rank));
    for (int rank = 0; rank < n_; ++rank) {
      after(rank, EventKind::tick, 0, network_.random().between(0, state(rank).liveness->tick_interval_ns()));
      resume_after(rank, network_.random().between(0, 2000));
    }
    for (size_t i = 0; i < scene.faults.size(); ++i) struck_[i] = scene.faults[i].kind == SceneFaultKind::mismatch;
    for (size_t i = 0; i < scene.faults.size(); ++i)
      after(scene.faults[i].rank, EventKind::fault, uint32_t(i), scene.faults[i].at);
  }

  WorldResult run() {
    const TimeNs end = call_ns_max * TimeNs(scene_.calls.size() + 1);
    while (problem_.empty() && !finished()) {
      const std::optional<SimulatedEvent> event = network_.next();
      if (!event) {
        problem_ = "nothing happens any more, though not all calls have ended";
        break;
      }
      ++events_;
      if (event->time > end) problem_ = fmt::format("after {} ms of virtual time some call has not ended", end / ns_per_ms);
      else if (event->rank >= 0) arrive(event->rank);
      else handle(event->argument);
    }
    if (problem_.empty()) problem_ = judge();
    WorldResult result{problem_, 0, 0, "", network_.now(), events_};
    for (int rank = 0; rank < n_; ++rank) {
      if (!survivor(rank)) continue;
      ++result.survivors;
      result.all_ok += state(rank).calls_ok == scene_.calls.size();
      if (const Verdict* verdict = state(rank).liveness->verdict()) result.verdict = verdict->sentence;
    }
    return result;
  }

  // --- What ranks' own code asks for, on their fibers.

  TimeNs now() const { return network_.now(); }
  const std::string& name_of(int rank) const { return names_[size_t(rank)]; }
  void elapse(int rank, TimeNs ns) {
    if (current_ != rank) return;  // on no fiber: while the world is made
    resume_after(rank, ns);
    switch_away(rank);
  }
  // Who asks for the time again and again is spinning: let it pass in ever larger steps.
  void spin(int rank) {
    TimeNs& step = state(rank).spin_ns;
    elapse(rank, step);
    step = std::min(2 * step, 100 * ns_per_us);
  }
  void sleep(int rank, pollfd* fds, size_t n, int timeout_ms) {
    Process& process = state(rank);
    process.spin_ns = spin_ns_first;
    const bool ignores_deadline = scene_.mistake == SceneMistake::deadline_ignored && rank == odd_one();
    const TimeNs until = now() + timeout_ms * ns_per_ms;
    elapse(rank, network_.random().between(0, 500));
    while (!process.rung && ::poll(fds, nfds_t(n), 0) <= 0 && now() < until) {
      process.asleep = true;
      if (ignores_deadline) ++process.token;
      else resume_after(rank, until - now());
      switch_away(rank);
      process.asleep = false;
    }
    if (process.came && !process.rung && now() >= until) problem_ = fmt::format("rank {} slept on though something came", rank);
    process.came = process.rung = false;
  }
  void interrupted(int rank) {
    if (scene_.short_probability > 0 && network_.random().chance(0.2)) elapse(rank, network_.random().between(1, 2000));
  }
  // As Control has it: who asks others to decide waits for them.
  void fail(int rank, Verdict verdict) {
    Liveness& liveness = *state(rank).liveness;
    liveness.fail(std::move(verdict), now());
    act(rank);
    const TimeNs until = now() + WorldTimes::timeout_ns / 2;
    while (liveness.waits_for_decision() && now() < until) spin(rank);
    liveness.decide_alone();
    act(rank);
  }

 private:
  enum class EventKind : uint8_t { tick, control, resume, fault, wake_up };
  struct Letter {
    bool closes = false;
    Bytes message;
  };
  // One rank's process.
  struct Process {
    std::unique_ptr<RankClock> clock;
    std::unique_ptr<Liveness> liveness;
    RankBootstrap* bootstrap = nullptr;
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<Fiber> fiber;
    bool asleep = false;
    bool rung = false;
    bool came = false;          // something has, since it armed
    bool wants_to_run = false;  // but is stopped
    uint32_t token = 0;         // of the last resume that was asked for
    TimeNs spin_ns = spin_ns_first;
    bool slow = false;
    TimeNs told_at = -1;  // of the verdict
    size_t calls_ok = 0;
    bool ended = false;
    std::map<int, std::deque<Letter>> inbox;  // of each peer, in order
    std::map<int, TimeNs> last_letter_at;
  };
  static constexpr TimeNs spin_ns_first = 1000;
  // A call's deadline, what a wait may be late (sleeps end at whole milliseconds, pauses), and waiting for the control
  // plane to say who died.
  static constexpr TimeNs call_ns_max = WorldTimes::timeout_ns * 3 / 2 + 10 * ns_per_ms + WorldTimes::pause_ns;
  // From the verdict to the end of the call that it ends.
  static constexpr TimeNs reaction_ns_max = ns_per_ms;

  Process& state(int rank) { return ranks_[size_t(rank)]; }
  const Process& state(int rank) const { return ranks_[size_t(rank)]; }
  int odd_one() const { return int(scene_.seed % uint64_t(n_)); }

  SimulatedOptions options_of(const Scene& scene) {
    SimulatedOptions options;
    options.n = scene.n;
    options.channels = scene.channels + 1;
    options.slots = scene.slots;
    options.message_bytes_max = scene.message_bytes_max;
    options.seed = scene.seed;
    options.short_probability = scene.short_probability;
    options.delay_ns_max = scene.delay_ns_max;
    options.mistake = scene.transport_mistake;
    for (const SceneFault& fault : scene.faults) options.checksums |= fault.kind == SceneFaultKind::bit_flip;
    options.interrupted = [this](int rank) { interrupted(rank); };
    if (has_fault(SceneFaultKind::allocation)) options.entered = [this](int rank) { settle_allocation(rank); };
    return options;
  }

  void make_process(int rank) {
    Process& process = state(rank);
    process.clock = std::make_unique<RankClock>(*this, rank);
    process.liveness = std::make_unique<Liveness>(rank, n_, WorldTimes::silence_ns, 0);
    auto bootstrap = std::make_unique<RankBootstrap>(*this, rank, n_);
    process.bootstrap = bootstrap.get();
    Communicator::Given given;
    given.channels = scene_.channels;
    given.patience = patience_policy(scene_.crowded, 20 * ns_per_us);
    given.patience.clock = process.clock.get();
    given.patience.yield_ns = 20 * ns_per_us;
    given.point_to_point = n_ <= 64;
    given.links.clock = process.clock.get();
    given.links.grace_ns = std::min(given.links.grace_ns, WorldTimes::timeout_ns / 2);
    given.links.message_bytes_max = scene_.message_bytes_max;
    given.links.names.assign(size_t(n_), "simulated");
    given.links.transports.push_back(std::make_unique<BorrowedTransport>(network_.transport(rank)));
    for (int channel = 0; channel <= scene_.channels; ++channel)
      for (int peer = 0; peer < n_; ++peer)
        given.links.endpoints.push_back(network_.transport(rank).endpoint(peer, channel));
    for (int peer = 0; peer < n_; ++peer) given.host_of.push_back(peer / 3);
    given.costs.n = n_;
    given.costs.classes.resize(1);
    given.costs.link_class.assign(size_t(n_) * size_t(n_), 0);
    CommunicatorOptions options;
    options.timeout_ms = WorldTimes::timeout_ms;
    process.communicator = Communicator::over(std::move(bootstrap), std::move(given), options);
    process.fiber = std::make_unique<Fiber>([this, rank] { live(rank); });
  }

  // --- A rank's life, on its fiber.
  void live(int rank) {
    Process& process = state(rank);
    for (size_t i = 0; i < memory_.size() && problem_.empty(); ++i) {
      MemoryOfCall& memory = *memory_[i];
      Request request = memory.request(rank, has_fault(SceneFaultKind::mismatch, rank));
      const Planner::Named named = process.communicator->named_algorithm(memory.call().algorithm, request);
      request.algorithm = named.algorithm;
      request.terms.algorithm = named.number;
      const TimeNs begun_at = now();
      process.spin_ns = spin_ns_first;
      if (has_fault(SceneFaultKind::allocation, rank) && i + 1 == memory_.size())
        fail_allocation(int(network_.random().below(12)));
      const Code code = process.communicator->run(request);
      settle_allocation(rank);
      end_call(rank, i, code, begun_at);
      if (code != Code::success) break;
      // The caller uses its buffers again.
      memory.spoil(rank);
      elapse(rank, network_.random().between(0, 3000));
    }
    process.ended = true;
  }

  void end_call(int rank, size_t index, Code code, TimeNs begun_at) {
    Process& process = state(rank);
    const TimeNs took = now() - begun_at;
    if (took > call_ns_max) problem_ = fmt::format("rank {} was in call {} for {} ms", rank, index, took / ns_per_ms);
    const bool kept_up = !process.slow && !has_fault(SceneFaultKind::pause, rank);
    if (process.told_at >= 0 && kept_up && now() - std::max(process.told_at, begun_at) > reaction_ns_max)
      problem_ = fmt::format("rank {} came back {} us after it was told of the verdict", rank,
                             (now() - process.told_at) / ns_per_us);
    if (code == Code::success) {
      ++process.calls_ok;
      if (scene_.mistake == SceneMistake::result_not_finished && rank == odd_one()) memory_[index]->mar(rank);
      const std::string wrong = memory_[index]->wrong(rank);
      if (!wrong.empty()) problem_ = fmt::format("rank {}: call {} was ok but {}", rank, index, wrong);
      return;
    }
    const Verdict* const verdict = process.communicator->failure();
    if (verdict == nullptr) problem_ = fmt::format("rank {} failed without a verdict", rank);
    else if (verdict->code != code)
      problem_ = fmt::format("rank {}: call {} returned {}, its verdict is {}", rank, index, int(code), verdict->sentence);
  }

  // --- Fibers.
  void resume_after(int rank, TimeNs ns) {
    const bool late = state(rank).slow && network_.random().chance(0.3);
    after(rank, EventKind::resume, ++state(rank).token, ns + (late ? network_.random().between(0, 100 * ns_per_us) : 0));
  }
  void switch_away(int rank) {
    settle_allocation(rank);
    current_ = -1;
    state(rank).fiber->wait();
    current_ = rank;
  }
  void proceed(int rank) {
    Process& process = state(rank);
    if (process.fiber->ended() || network_.dead(rank)) return;
    if (network_.stopped(rank)) {
      process.wants_to_run = true;
      return;
    }
    current_ = rank;
    process.fiber->run();
    current_ = -1;
  }
  // Something has arrived for a rank, or a link has news for it.
  void arrive(int rank) {
    Process& process = state(rank);
    if (!network_.armed(rank)) return;
    process.came = true;
    if (scene_.transport_mistake == SimulatedMistake::ring_lost && !process.asleep) return;
    process.rung = true;
    if (process.asleep) proceed(rank);
  }

  // --- Events of the driver, in 64 bits.
  void after(int rank, EventKind kind, uint32_t detail, TimeNs delay) {
    network_.call(uint64_t(kind) << 56 | uint64_t(rank) << 32 | detail, network_.now() + delay);
  }
  void handle(uint64_t argument) {
    const auto kind = EventKind(argument >> 56);
    const int rank = int(argument >> 32 & 0xffffff);
    const auto detail = uint32_t(argument);
    Process& process = state(rank);
    if (kind == EventKind::fault) return strike(detail);
    if (kind == EventKind::wake_up) {
      network_.resume(rank);
      if (std::exchange(process.wants_to_run, false)) proceed(rank);
      return;
    }
    if (network_.dead(rank)) return;
    if (kind == EventKind::resume) {
      if (detail == process.token) proceed(rank);
      return;
    }
    // A stopped process finds everything in its sockets when it goes on, in the order of sending.
    const bool unaware = scene_.mistake == SceneMistake::pause_not_noticed && kind == EventKind::tick;
    if (network_.stopped(rank) && !unaware) return after(rank, kind, detail, WorldTimes::pause_ns / 8);
    if (kind == EventKind::tick) {
      process.liveness->tick(now());
      after(rank, EventKind::tick, 0, process.liveness->tick_interval_ns());
    } else {
      deliver(rank, int(detail));
    }
    act(rank);
  }

  // --- Control links.
  void open_link(int a, int b) {
    state(a).liveness->link_opened(b, now());
    state(b).liveness->link_opened(a, now());
    act(a);
    act(b);
  }
  void post(int from, int to, Letter letter) {
    const bool sign_of_life = !letter.closes && Liveness::is_alive(letter.message);
    if (from == odd_one() && scene_.mistake == SceneMistake::heartbeat_forgotten && sign_of_life) return;
    if (from == odd_one() && scene_.mistake == SceneMistake::verdict_not_flooded && !letter.closes && !sign_of_life) return;
    TimeNs& last = state(to).last_letter_at[from];
    const TimeNs latency = WorldTimes::control_latency_ns;
    last = std::max(last + 1, now() + latency + network_.random().between(0, latency));
    state(to).inbox[from].push_back(std::move(letter));
    after(to, EventKind::control, uint32_t(from), last - now());
  }
  void deliver(int rank, int from) {
    Process& process = state(rank);
    const Letter letter = std::move(process.inbox[from].front());
    process.inbox[from].pop_front();
    if (letter.closes) process.liveness->link_closed(mistaken_for(rank, from), now());
    else process.liveness->message(from, letter.message, now());
  }
  int mistaken_for(int rank, int peer) const {
    if (scene_.mistake != SceneMistake::wrong_verdict) return peer;
    for (int other = 0; other < n_; ++other)
      if (other != peer && state(rank).liveness->linked(other)) return other;
    return peer;
  }
  void act(int rank) {
    Process& process = state(rank);
    for (const Liveness::Action& action : process.liveness->take_actions()) {
      switch (action.kind) {
        case Liveness::Action::Kind::send: post(rank, action.peer, {false, action.message}); break;
        case Liveness::Action::Kind::close: post(rank, action.peer, {true, {}}); break;
        case Liveness::Action::Kind::dial: problem_ = fmt::format("rank {} dials though nobody left", rank); break;
        case Liveness::Action::Kind::publish: publish(rank); break;
      }
    }
  }
  void publish(int rank) {
    Process& process = state(rank);
    const bool rings = scene_.mistake != SceneMistake::doorbell_not_rung || rank != odd_one();
    process.told_at = now();
    process.bootstrap->publish(process.liveness->verdict(), rings);
    // Its doorbell is a descriptor that sleep() looks at.
    if (process.asleep && rings) resume_after(rank, 0);
  }

  // --- Faults.
  bool has_fault(SceneFaultKind kind, int rank) const {
    return std::any_of(scene_.faults.begin(), scene_.faults.end(),
                       [&](const SceneFault& fault) { return fault.kind == kind && fault.rank == rank; });
  }
  bool has_fault(SceneFaultKind kind) const {
    return std::any_of(scene_.faults.begin(), scene_.faults.end(),
                       [&](const SceneFault& fault) { return fault.kind == kind; });
  }
  static bool ends_rank(SceneFaultKind kind) {
    return kind == SceneFaultKind::death || kind == SceneFaultKind::silent_death || kind == SceneFaultKind::stop;
  }
  // Memory is there again; the fault has struck if some was missing.
  void settle_allocation(int rank) {
    if (!allow_allocations()) return;
    for (size_t i = 0; i < scene_.faults.size(); ++i)
      if (scene_.faults[i].kind == SceneFaultKind::allocation && scene_.faults[i].rank == rank) struck_[i] = true;
  }
  void strike(size_t index) {
    const SceneFault& fault = scene_.faults[index];
    const int rank = fault.rank;
    if (fault.kind != SceneFaultKind::allocation) struck_[index] = true;
    switch (fault.kind) {
      case SceneFaultKind::mismatch:
      case SceneFaultKind::allocation: break;
      case SceneFaultKind::death:
        network_.kill(rank, network_.random().between(0, 50'000));
        for (int peer = 0; peer < n_; ++peer)
          if (peer != rank && state(rank).liveness->linked(peer)) post(rank, peer, {true, {}});
        break;
      case SceneFaultKind::silent_death: network_.kill(rank, -1); break;
      case SceneFaultKind::stop: network_.stop(rank); break;
      case SceneFaultKind::pause:
        network_.stop(rank);
        after(rank, EventKind::wake_up, 0, WorldTimes::pause_ns);
        break;
      case SceneFaultKind::slow: state(rank).slow = true; break;
      case SceneFaultKind::link_cut: network_.cut(rank, fault.peer, true, network_.random().between(0, 50'000)); break;
      case SceneFaultKind::link_lost: network_.cut(rank, fault.peer, true, -1); break;
      case SceneFaultKind::one_way_loss: network_.cut(rank, fault.peer, false, -1); break;
      case SceneFaultKind::delay: network_.disturb(rank, fault.peer, {.delay_ns_max = 300 * ns_per_us}); break;
      case SceneFaultKind::duplicate: network_.disturb(rank, fault.peer, {.duplicate = 0.3}); break;
      case SceneFaultKind::reorder: network_.disturb(rank, fault.peer, {.reorder = 0.3, .delay_ns_max = 5000}); break;
      case SceneFaultKind::bit_flip: network_.disturb(rank, fault.peer, {.flip = 0.1}); break;
    }
  }

  // --- The end.
  bool ends_somebody(int rank) const {
    for (size_t i = 0; i < scene_.faults.size(); ++i)
      if (struck_[i] && ends_rank(scene_.faults[i].kind) && scene_.faults[i].rank == rank) return true;
    return false;
  }
  bool survivor(int rank) const { return !ends_somebody(rank); }
  bool somebody_ended() const {
    for (int rank = 0; rank < n_; ++rank)
      if (!survivor(rank)) return true;
    return false;
  }
  bool finished() const {
    const bool some_death = somebody_ended();
    bool some_verdict = some_death;
    for (int rank = 0; rank < n_; ++rank) some_verdict |= survivor(rank) && state(rank).liveness->verdict() != nullptr;
    for (int rank = 0; rank < n_; ++rank) {
      if (!survivor(rank)) continue;
      // Whoever was ok learns of the fault as well.
      if (!state(rank).ended || (some_verdict && state(rank).liveness->verdict() == nullptr)) return false;
    }
    return true;
  }

  // Whether a fault may end a call at all.
  static bool ends_calls(SceneFaultKind kind) {
    return ends_rank(kind) || kind == SceneFaultKind::mismatch || kind == SceneFaultKind::link_cut ||
           kind == SceneFaultKind::link_lost || kind == SceneFaultKind::one_way_loss ||
           kind == SceneFaultKind::bit_flip || kind == SceneFaultKind::allocation;
  }
  // Whether the verdict is true of some fault that has struck.
  bool is_true(const Verdict& verdict) const {
    for (size_t i = 0; i < scene_.faults.size(); ++i) {
      const SceneFault& fault = scene_.faults[i];
      if (!struck_[i] || !ends_calls(fault.kind)) continue;
      const auto says = [&](int rank) { return names(verdict.sentence, rank); };
      if (ends_rank(fault.kind) && verdict.code == Code::remote_error && verdict.rank == fault.rank) return true;
      if (fault.kind == SceneFaultKind::mismatch && verdict.code == Code::mismatch && verdict.rank == -1) return true;
      if (fault.kind == SceneFaultKind::allocation && verdict.rank == -1 && says(fault.rank)) return true;
      const bool of_link = fault.kind == SceneFaultKind::link_cut || fault.kind == SceneFaultKind::bit_flip;
      if (of_link && verdict.rank == -1 && says(fault.rank) && says(fault.peer)) return true;
      // Where messages get lost without a word, only the deadline tells, and it blames nobody.
      const bool lossy = fault.kind == SceneFaultKind::link_lost || fault.kind == SceneFaultKind::one_way_loss;
      if (lossy && verdict.code == Code::timeout && verdict.rank == -1) return true;
    }
    return false;
  }
  // "rank 1", not as the beginning of "rank 12".
  static bool names(const std::string& sentence, int rank) {
    const std::string name = fmt::format("rank {}", rank);
    for (size_t at = sentence.find(name); at != std::string::npos; at = sentence.find(name, at + 1)) {
      const size_t next = at + name.size();
      if (next == sentence.size() || sentence[next] < '0' || sentence[next] > '9') return true;
    }
    return false;
  }

  std::string judge() const {
    const Verdict* first = nullptr;
    bool all_ok = true;
    for (int rank = 0; rank < n_; ++rank) {
      const Process& process = state(rank);
      all_ok &= process.calls_ok == memory_.size();
      if (!survivor(rank)) continue;
      const Verdict* verdict = process.liveness->verdict();
      if (verdict == nullptr) {
        if (somebody_ended()) return fmt::format("rank {} has no verdict", rank);
        if (process.calls_ok < memory_.size()) return fmt::format("rank {} was neither ok nor told why", rank);
        continue;
      }
      if (!is_true(*verdict)) return fmt::format("rank {} blames wrongly: {}", rank, verdict->sentence);
      if (first == nullptr) first = verdict;
      if (verdict->sentence != first->sentence)
        return fmt::format("rank {} says \"{}\", another \"{}\"", rank, verdict->sentence, first->sentence);
    }
    for (const SceneFault& fault : scene_.faults)
      if (fault.kind == SceneFaultKind::mismatch && first == nullptr) return "calls differ, and all were ok";
    const bool lossy = has_fault(SceneFaultKind::link_lost) || has_fault(SceneFaultKind::one_way_loss);
    if (first == nullptr && all_ok && !lossy && network_.messages_left() > 0)
      return fmt::format("{} messages are left that nobody took", network_.messages_left());
    return "";
  }

  const Scene& scene_;
  const int n_;
  SimulatedNetwork network_;
  std::vector<std::unique_ptr<MemoryOfCall>> memory_;
  std::vector<std::string> names_;
  std::vector<char> struck_;
  std::vector<Process> ranks_;
  int current_ = -1;
  size_t events_ = 0;
  std::string problem_;
};

TimeNs RankClock::now() noexcept {
  world_.spin(rank_);
  return world_.now();
}

void RankClock::sleep(pollfd* fds, size_t n, int timeout_ms) noexcept { world_.sleep(rank_, fds, n, timeout_ms); }

const std::string& RankBootstrap::describe(int rank) const noexcept { return world_.name_of(rank); }

void RankBootstrap::fail(Verdict verdict) noexcept { world_.fail(rank_, std::move(verdict)); }

}  // namespace

WorldResult play(const Scene& scene) { return World(scene).run(); }

}  // namespace tutti
