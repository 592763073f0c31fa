// The world: processes, their clocks, their calls, and the striking of faults.
#include "simulation/world.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "algorithms/catalog.h"
#include "bootstrap/wire.h"
#include "communicator/communicator.h"
#include "simulation/allocation.h"
#include "simulation/control_plane.h"
#include "simulation/fiber.h"
#include "simulation/judgement.h"
#include "simulation/memory_of_call.h"
#include "simulation/session.h"
#include "simulation/traffic.h"

namespace tutti {
namespace {

class World final : public SessionWorld {
 public:
  explicit World(const Scene& scene)
      : scene_(scene),
        struck_(scene.faults.size()),
        fabric_(fabric_of(scene.fabric.empty() ? "switch" : scene.fabric, scene.n + stand_ins(scene))),
        traffic_(fabric_),
        network_(options_of(scene)),
        processes_(size_t(scene.n + stand_ins(scene))) {
    for (int p = 0; p < int(processes_.size()); ++p) make_process(p);
    for (int rank = 0; rank < scene.n; ++rank) names_.push_back(fmt::format("rank {}", rank));
    std::vector<int> everyone;
    for (int rank = 0; rank < scene.n; ++rank) everyone.push_back(rank);
    const int first = make_session(everyone, -1);
    begin(sessions_[size_t(first)]);
    for (const int p : everyone) {
      process(p).session = first;
      resume_after(p, network_.random().between(0, 2000));
    }
    for (size_t i = 0; i < scene.faults.size(); ++i) struck_[i] = scene.faults[i].kind == SceneFaultKind::mismatch;
    for (size_t i = 0; i < scene.faults.size(); ++i)
      network_.call(packed(EventKind::fault, 0, 0, uint32_t(i)), network_.now() + scene.faults[i].at);
  }

  WorldResult run() {
    const TimeNs end = call_ns_max * TimeNs(scene_.calls.size() + 1) * sessions_max;
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
    if (problem_.empty()) problem_ = judged();
    return result();
  }

  // --- What ranks' own code asks for, on their fibers.

  TimeNs now() const override { return network_.now(); }
  const std::string& name_of(int rank) const override { return names_[size_t(rank)]; }
  void elapse(int p, TimeNs ns) {
    if (current_ != p) return;  // on no fiber: while the world is made
    resume_after(p, ns);
    switch_away(p);
  }
  // Who asks for the time again and again is spinning: let it pass in ever larger steps.
  void spin(int p) override {
    TimeNs& step = process(p).spin_ns;
    elapse(p, step);
    step = std::min(2 * step, 100 * ns_per_us);
  }
  void sleep(int p, pollfd* fds, size_t n, int timeout_ms) override {
    Process& one = process(p);
    one.spin_ns = spin_ns_first;
    const bool ignores_deadline = scene_.mistake == SceneMistake::deadline_ignored && p == odd_one();
    const TimeNs until = now() + timeout_ms * ns_per_ms;
    elapse(p, network_.random().between(0, 500));
    while (!one.rung && ::poll(fds, nfds_t(n), 0) <= 0 && now() < until) {
      one.asleep = true;
      if (ignores_deadline) ++one.token;
      else resume_after(p, until - now());
      switch_away(p);
      one.asleep = false;
    }
    if (one.came && !one.rung && now() >= until) problem_ = fmt::format("rank {} slept on though something came", p);
    one.came = one.rung = false;
  }
  void interrupted(int p) {
    if (scene_.short_probability > 0 && network_.random().chance(0.2)) elapse(p, network_.random().between(1, 2000));
  }
  // As Control has them: who asks others to decide waits for them.
  void fail(int session, int rank, Verdict verdict) override {
    ControlPlane& plane = *sessions_[size_t(session)].plane;
    Liveness& liveness = plane.liveness(rank);
    liveness.fail(std::move(verdict), now());
    plane.act(rank);
    const TimeNs until = now() + WorldTimes::timeout_ns / 2;
    while (liveness.waits_for_decision() && now() < until) spin(sessions_[size_t(session)].members[size_t(rank)]);
    liveness.decide_alone();
    plane.act(rank);
  }
  void tell_waiting(int session, int rank, uint64_t number, uint64_t signature) override {
    if (scene_.mistake == SceneMistake::waits_not_told) return;
    ControlPlane& plane = *sessions_[size_t(session)].plane;
    plane.liveness(rank).wait_in(number, signature, now());
    plane.act(rank);
  }
  void tell_stuck(int session, int rank, StuckCall call, std::vector<uint32_t> sent) override {
    ControlPlane& plane = *sessions_[size_t(session)].plane;
    plane.liveness(rank).stick_in(std::move(call), std::move(sent), now());
    plane.act(rank);
  }
  Bytes agree(int session, int rank, uint32_t number, Bytes wish, TimeNs deadline,
              const std::function<Bytes(const Ballot&)>& make) override {
    ControlPlane& plane = *sessions_[size_t(session)].plane;
    Liveness& liveness = plane.liveness(rank);
    const int p = sessions_[size_t(session)].members[size_t(rank)];
    process(p).spin_ns = spin_ns_first;
    liveness.take_part(number, std::move(wish), now());
    plane.act(rank);
    for (; now() < deadline; spin(p)) {
      if (const Bytes* value = liveness.decided(number)) return *value;
      const std::optional<Ballot> ballot = liveness.ballot(number);
      if (!ballot) continue;
      Bytes value = make(*ballot);
      interrupted(p);
      const std::optional<Ballot> again = liveness.ballot(number);
      if (again && again->members == ballot->members) liveness.decide(number, std::move(value), now());
      plane.act(rank);
    }
    throw Error(Code::timeout, "the ranks that live did not agree in time");
  }

 private:
  enum class EventKind : uint8_t { control, resume, fault, wake_up };
  struct Process {
    std::unique_ptr<ProcessClock> clock;
    std::vector<std::unique_ptr<Communicator>> communicators;  // of the sessions it was in, the last one at work
    RankBootstrap* bootstrap = nullptr;                        // of the last one
    std::unique_ptr<Fiber> fiber;
    int session = -1;  // -1: it stands by
    int rank = -1;     // there
    bool asleep = false;
    bool rung = false;
    bool came = false;          // something has, since it armed
    bool wants_to_run = false;  // but is stopped
    uint32_t token = 0;         // of the last resume that was asked for
    TimeNs spin_ns = spin_ns_first;
    bool slow = false;
    TimeNs told_at = -1;   // of its session's verdict
    size_t calls_ok = 0;   // of its session
    bool ended = false;
    bool gone_silently = false;
  };
  // One communicator, from joining on: the first, and those of survivors.
  struct Session {
    int number = 0;
    int parent = -1;
    std::vector<int> members;  // process of each rank; -1: a stand-in's place
    TimeNs made_at = 0;
    std::vector<char> arrived;
    bool failed = false;  // nobody joins it any more
    bool over = false;    // all have made all their calls
    std::unique_ptr<ControlPlane> plane;
    std::vector<std::unique_ptr<MemoryOfCall>> memory;
    std::unique_ptr<MemoryOfCall> odd_memory;  // of the first call, as the rank of a mismatch makes it; null: as all do
  };
  static constexpr TimeNs spin_ns_first = 1000;
  static constexpr int sessions_max = 12;
  static constexpr ControlTimes control_times = {WorldTimes::silence_ns, WorldTimes::control_latency_ns,
                                                 WorldTimes::pause_ns / 8};
  // A call's deadline, what a wait may be late (sleeps end at whole milliseconds, pauses), and waiting for the control
  // plane to say who died.
  static constexpr TimeNs call_ns_max = WorldTimes::timeout_ns * 3 / 2 + 10 * ns_per_ms + WorldTimes::pause_ns;
  // From the verdict to the end of the call that it ends.
  static constexpr TimeNs reaction_ns_max = ns_per_ms;

  Process& process(int p) { return processes_[size_t(p)]; }
  const Process& process(int p) const { return processes_[size_t(p)]; }
  Session& session_of(int p) { return sessions_[size_t(process(p).session)]; }
  int odd_one() const { return int(scene_.seed % uint64_t(scene_.n)); }
  static int stand_ins(const Scene& scene) {
    if (scene.then != SceneThen::replace) return 0;
    return int(std::ranges::count_if(scene.faults, [](const SceneFault& fault) { return ends_rank(fault.kind); }));
  }
  bool goes_on() const { return scene_.then != SceneThen::end; }

  SimulatedOptions options_of(const Scene& scene) {
    SimulatedOptions options;
    options.n = scene.n + stand_ins(scene);
    options.channels = (scene.channels + 1) * (goes_on() ? sessions_max : 1);
    options.slots = scene.slots;
    // An outbox knows its peers by their numbers, which survivors change.
    if (!goes_on()) options.outbox_messages = scene.outbox_messages;
    options.message_bytes_max = scene.message_bytes_max;
    options.seed = scene.seed;
    options.short_probability = scene.short_probability;
    options.delay_ns_max = scene.delay_ns_max;
    options.mistake = scene.transport_mistake;
    if (!scene.fabric.empty())
      options.cross = [this](int from, int to, size_t bytes, TimeNs begins, TimeNs left) {
        return TimeNs(traffic_.cross_all(from, to, {bytes, double(begins), double(left)}));
      };
    for (const SceneFault& fault : scene.faults) options.checksums |= fault.kind == SceneFaultKind::bit_flip;
    options.interrupted = [this](int p) { interrupted(p); };
    if (has_fault(scene, SceneFaultKind::allocation)) options.entered = [this](int p) { settle_allocation(p); };
    return options;
  }

  void make_process(int p) {
    process(p).clock = std::make_unique<ProcessClock>(*this, p);
    process(p).fiber = std::make_unique<Fiber>([this, p] { live(p); });
  }

  // --- Sessions.

  int make_session(std::vector<int> members, int parent) {
    Session& session = sessions_.emplace_back();
    session.number = int(sessions_.size()) - 1;
    session.parent = parent;
    session.members = std::move(members);
    session.made_at = now();
    session.arrived.assign(session.members.size(), 0);
    return session.number;
  }
  // All of its ranks are there.
  void begin(Session& session) {
    const int n = int(session.members.size()), number = session.number;
    for (SceneCall call : scene_.calls) {
      call.root %= n;
      session.memory.push_back(std::make_unique<MemoryOfCall>(call, n, scene_.seed + uint64_t(number)));
    }
    if (scene_.difference == SceneDifference::root || scene_.difference == SceneDifference::algorithm)
      session.odd_memory = std::make_unique<MemoryOfCall>(odd_call(scene_, n), n, scene_.seed + uint64_t(number));
    for (int rank = 0; rank < n; ++rank) make_communicator(session, rank);
    ControlPlane::Surroundings around;
    around.now = [this] { return now(); };
    around.after = [this, number](int rank, ControlPlane::Event event, uint32_t detail, TimeNs delay) {
      network_.call(packed(EventKind::control, number, rank, uint32_t(event) << 24 | detail), now() + delay);
    };
    around.fate = [this, number](int rank) { return fate(sessions_[size_t(number)].members[size_t(rank)]); };
    around.told = [this, number](int rank) { publish(sessions_[size_t(number)], rank); };
    around.random = &network_.random();
    session.plane = std::make_unique<ControlPlane>(n, control_times, std::move(around), scene_.mistake, odd_one() % n);
    for (int rank = 0; rank < n; ++rank)
      session.plane->liveness(rank).compare_calls(process(session.members[size_t(rank)]).bootstrap->own_calls(), now());
    // Who has ended since it came is seen by the others at once.
    for (int rank = 0; rank < n; ++rank)
      if (fate(session.members[size_t(rank)]) == Fate::ended) session.plane->end(rank);
  }
  void make_communicator(Session& session, int rank) {
    const int p = session.members[size_t(rank)], n = int(session.members.size());
    auto bootstrap = std::make_unique<RankBootstrap>(*this, session.number, rank, n);
    process(p).bootstrap = bootstrap.get();
    process(p).rank = rank;
    process(p).session = session.number;
    process(p).told_at = -1;
    process(p).calls_ok = 0;
    process(p).communicators.push_back(session_communicator(scene_, session.number, session.members,
                                                            network_.transport(p), *process(p).clock, std::move(bootstrap)));
  }

  // --- A process's life, on its fiber.
  void live(int p) {
    for (;;) {
      const bool all_ok = make_calls(p);
      if (!goes_on() || !problem_.empty() || (all_ok && all_end_well(p)) || !regroup(p)) break;
    }
    process(p).ended = true;
  }

  bool differs(int p, SceneDifference how) const {
    return scene_.difference == how && has_fault(scene_, SceneFaultKind::mismatch, p);
  }
  MemoryOfCall& memory_of(int p, size_t call) {
    Session& session = session_of(p);
    const bool is_odd = call == 0 && session.odd_memory != nullptr && has_fault(scene_, SceneFaultKind::mismatch, p);
    return is_odd ? *session.odd_memory : *session.memory[call];
  }

  bool make_calls(int p) {
    Session& session = session_of(p);
    const int rank = process(p).rank;
    for (size_t i = differs(p, SceneDifference::left_out) ? 1 : 0; i < session.memory.size() && problem_.empty(); ++i) {
      MemoryOfCall& memory = memory_of(p, i);
      Communicator& communicator = *process(p).communicators.back();
      Request request = memory.request(rank, differs(p, SceneDifference::count));
      const Planner::Named named = communicator.named_algorithm(memory.call().algorithm, request);
      request.algorithm = named.algorithm;
      request.terms.algorithm = named.number;
      const TimeNs begun_at = now();
      process(p).spin_ns = spin_ns_first;
      if (has_fault(scene_, SceneFaultKind::allocation, p) && i + 1 == session.memory.size())
        fail_allocation(int(network_.random().below(12)));
      const Code code = communicator.run(request);
      settle_allocation(p);
      end_call(p, i, code, begun_at);
      if (code != Code::success) return false;
      // The caller uses its buffers again.
      memory.spoil(rank);
      elapse(p, network_.random().between(0, 3000));
    }
    return true;
  }

  void end_call(int p, size_t index, Code code, TimeNs begun_at) {
    Process& one = process(p);
    MemoryOfCall& memory = memory_of(p, index);
    const TimeNs took = now() - begun_at;
    if (took > call_ns_max) problem_ = fmt::format("rank {} was in call {} for {} ms", p, index, took / ns_per_ms);
    const bool kept_up = !one.slow && !has_fault(scene_, SceneFaultKind::pause, p);
    if (one.told_at >= 0 && kept_up && now() - std::max(one.told_at, begun_at) > reaction_ns_max)
      problem_ = fmt::format("rank {} came back {} us after it was told of the verdict", p, (now() - one.told_at) / ns_per_us);
    if (code == Code::success) {
      ++one.calls_ok;
      if (scene_.mistake == SceneMistake::result_not_finished && p == odd_one()) memory.mar(one.rank);
      const std::string wrong = memory.wrong(one.rank);
      if (!wrong.empty()) problem_ = fmt::format("rank {}: call {} was ok but {}", p, index, wrong);
      return;
    }
    const Verdict* const verdict = one.communicators.back()->failure();
    if (verdict == nullptr) problem_ = fmt::format("rank {} failed without a verdict", p);
    else if (verdict->code != code)
      problem_ = fmt::format("rank {}: call {} returned {}, its verdict is {}", p, index, int(code), verdict->sentence);
  }

  // Waits until all others have made all their calls too; false: one of them will not.
  bool all_end_well(int p) {
    Session& session = session_of(p);
    const auto done = [&](int member) {
      return fate(member) == Fate::lives && process(member).session == session.number &&
             process(member).calls_ok == session.memory.size();
    };
    while (!session.over && session.plane->liveness(process(p).rank).verdict() == nullptr && problem_.empty()) {
      session.over = std::ranges::all_of(session.members, done);
      if (!session.over) elapse(p, 100 * ns_per_us);
    }
    return session.over;
  }

  // --- Going on after a failure, as the communicator's regrouping does: agreeing on who lives is real, joining is not.

  bool regroup(int p) {
    const int old = process(p).session;
    for (uint32_t number = 1; problem_.empty(); ++number) {
      try {
        const Bytes agreed = process(p).bootstrap->agree(number, {}, now() + 2 * WorldTimes::timeout_ns, [&](const Ballot& ballot) {
          ByteWriter writer;
          writer.u32(uint32_t(make_session(next_members(sessions_[size_t(old)], ballot.members), old)));
          return writer.take();
        });
        if (join(p, sessions_[ByteReader(agreed).u32()])) return true;
      } catch (const Error& error) {
        problem_ = fmt::format("rank {} could not regroup: {}", p, error.what());
      }
      if (int(sessions_.size()) >= sessions_max) problem_ = fmt::format("rank {} has tried to regroup {} times", p, number);
    }
    return false;
  }
  // Survivors keep their numbers where stand-ins take the others'.
  std::vector<int> next_members(const Session& old, const std::vector<int>& living) const {
    std::vector<int> members;
    for (const int rank : living) members.push_back(old.members[size_t(rank)]);
    if (stand_ins_left() < int(old.members.size() - living.size())) return members;
    members.assign(old.members.size(), -1);
    for (const int rank : living) members[size_t(rank)] = old.members[size_t(rank)];
    return members;
  }
  int stand_ins_left() const {
    int left = 0;
    for (int p = scene_.n; p < int(processes_.size()); ++p) left += process(p).session == -1;
    return left;
  }
  // Returns when all are there; false: one of them will not come.
  bool join(int p, Session& session) {
    const auto place = std::ranges::find(session.members, p);
    if (place == session.members.end()) {
      problem_ = fmt::format("rank {} lives and was left behind", p);
      return false;
    }
    session.arrived[size_t(place - session.members.begin())] = 1;
    call_stand_ins(session);
    return wait_for_all(p, session);
  }
  bool wait_for_all(int p, Session& session) {
    for (process(p).spin_ns = spin_ns_first; !session.failed && session.plane == nullptr && problem_.empty(); spin(p)) {
      if (std::ranges::all_of(session.arrived, [](char came) { return came != 0; })) begin(session);
      else if (now() - session.made_at > 2 * WorldTimes::silence_ns) session.failed = true;
    }
    return session.plane != nullptr;
  }
  void call_stand_ins(Session& session) {
    for (size_t rank = 0; rank < session.members.size(); ++rank) {
      if (session.members[rank] >= 0) continue;
      int p = scene_.n;
      while (process(p).session != -1) ++p;
      session.members[rank] = p;
      process(p).session = session.number;
      process(p).rank = int(rank);
      process(p).ended = false;
      process(p).fiber = std::make_unique<Fiber>([this, p] { stand_in(p); });
      resume_after(p, network_.random().between(0, 500 * ns_per_us));
    }
  }
  void stand_in(int p) {
    Session& session = session_of(p);
    session.arrived[size_t(process(p).rank)] = 1;
    if (wait_for_all(p, session)) live(p);
    else process(p).session = -1;  // it stands by again
    process(p).ended = true;
  }

  // --- Fibers.
  void resume_after(int p, TimeNs ns) {
    const bool late = process(p).slow && network_.random().chance(0.3);
    const TimeNs delay = ns + (late ? network_.random().between(0, 100 * ns_per_us) : 0);
    network_.call(packed(EventKind::resume, 0, p, ++process(p).token), now() + delay);
  }
  void switch_away(int p) {
    settle_allocation(p);
    current_ = -1;
    process(p).fiber->wait();
    current_ = p;
  }
  void proceed(int p) {
    Process& one = process(p);
    if (one.fiber->ended() || network_.dead(p)) return;
    if (network_.stopped(p)) {
      one.wants_to_run = true;
      return;
    }
    current_ = p;
    one.fiber->run();
    current_ = -1;
  }
  // Something has arrived for a rank, or a link has news for it.
  void arrive(int p) {
    Process& one = process(p);
    if (!network_.armed(p)) return;
    one.came = true;
    if (scene_.transport_mistake == SimulatedMistake::ring_lost && !one.asleep) return;
    one.rung = true;
    if (one.asleep) proceed(p);
  }

  // --- Events of the driver, in 64 bits.
  static uint64_t packed(EventKind kind, int session, int rank, uint32_t detail) {
    return uint64_t(kind) << 56 | uint64_t(session) << 48 | uint64_t(rank) << 32 | detail;
  }
  void handle(uint64_t argument) {
    const auto kind = EventKind(argument >> 56);
    const int session = int(argument >> 48 & 0xff), rank = int(argument >> 32 & 0xffff);
    const auto detail = uint32_t(argument);
    switch (kind) {
      case EventKind::fault: return strike(detail);
      case EventKind::control:
        return sessions_[size_t(session)].plane->handle(rank, ControlPlane::Event(detail >> 24), detail & 0xffffff);
      case EventKind::wake_up:
        network_.resume(rank);
        if (std::exchange(process(rank).wants_to_run, false)) proceed(rank);
        return;
      case EventKind::resume:
        if (detail == process(rank).token) proceed(rank);
        return;
    }
  }
  void publish(Session& session, int rank) {
    const int p = session.members[size_t(rank)];
    Process& one = process(p);
    if (one.session != session.number) return;  // it has gone on
    const bool rings = scene_.mistake != SceneMistake::doorbell_not_rung || p != odd_one();
    one.told_at = now();
    one.bootstrap->publish(session.plane->liveness(rank).verdict(), rings);
    // Its doorbell is a descriptor that sleep() looks at.
    if (one.asleep && rings) resume_after(p, 0);
  }

  // --- Faults.
  Fate fate(int p) const {
    if (network_.dead(p)) return process(p).gone_silently ? Fate::lost : Fate::ended;
    return network_.stopped(p) ? Fate::stopped : Fate::lives;
  }
  // Memory is there again; the fault has struck if some was missing.
  void settle_allocation(int p) {
    if (!allow_allocations()) return;
    for (size_t i = 0; i < scene_.faults.size(); ++i)
      if (scene_.faults[i].kind == SceneFaultKind::allocation && scene_.faults[i].rank == p) struck_[i] = true;
  }
  void strike(size_t index) {
    const SceneFault& fault = scene_.faults[index];
    const int p = fault.rank;
    if (fault.kind != SceneFaultKind::allocation) struck_[index] = true;
    switch (fault.kind) {
      case SceneFaultKind::mismatch:
      case SceneFaultKind::allocation: break;
      case SceneFaultKind::death:
      case SceneFaultKind::silent_death: kill(p, fault.kind == SceneFaultKind::silent_death); break;
      case SceneFaultKind::stop: network_.stop(p); break;
      case SceneFaultKind::pause:
        if (network_.stopped(p)) break;
        network_.stop(p);
        network_.call(packed(EventKind::wake_up, 0, p, 0), now() + WorldTimes::pause_ns);
        break;
      case SceneFaultKind::slow: process(p).slow = true; break;
      case SceneFaultKind::link_cut: network_.cut(p, fault.peer, true, network_.random().between(0, 50'000)); break;
      case SceneFaultKind::link_lost: network_.cut(p, fault.peer, true, -1); break;
      case SceneFaultKind::one_way_loss: network_.cut(p, fault.peer, false, -1); break;
      case SceneFaultKind::delay: network_.disturb(p, fault.peer, {.delay_ns_max = 300 * ns_per_us}); break;
      case SceneFaultKind::duplicate: network_.disturb(p, fault.peer, {.duplicate = 0.3}); break;
      case SceneFaultKind::reorder: network_.disturb(p, fault.peer, {.reorder = 0.3, .delay_ns_max = 5000}); break;
      case SceneFaultKind::bit_flip: network_.disturb(p, fault.peer, {.flip = 0.1}); break;
    }
  }
  void kill(int p, bool silently) {
    process(p).gone_silently = silently;
    network_.kill(p, silently ? -1 : network_.random().between(0, 50'000));
    const bool in_the_middle = network_.random().chance(0.5);
    for (Session& session : sessions_) {
      const auto place = std::ranges::find(session.members, p);
      if (session.plane == nullptr || place == session.members.end()) continue;
      const int rank = int(place - session.members.begin());
      if (in_the_middle) session.plane->lose_last_words(rank);
      if (!silently) session.plane->end(rank);
    }
  }

  // --- The end.
  bool survives(int p) const {
    for (size_t i = 0; i < scene_.faults.size(); ++i)
      if (struck_[i] && ends_rank(scene_.faults[i].kind) && scene_.faults[i].rank == p) return false;
    return true;
  }
  // Ranks that count at the end: survivors, and stand-ins that were called.
  bool counts(int p) const { return survives(p) && process(p).session >= 0; }
  bool finished() const {
    bool some_verdict = false;
    for (int p = 0; p < int(processes_.size()); ++p) some_verdict |= !survives(p) || (counts(p) && verdict_of(p) != nullptr);
    for (int p = 0; p < int(processes_.size()); ++p) {
      if (!counts(p)) continue;
      // Whoever was ok learns of the fault as well.
      if (!process(p).ended || (!goes_on() && some_verdict && verdict_of(p) == nullptr)) return false;
    }
    return true;
  }
  const Verdict* verdict_of(int p) const {
    const Session& session = sessions_[size_t(process(p).session)];
    return session.plane == nullptr ? nullptr : session.plane->liveness(process(p).rank).verdict();
  }

  std::string judged() const {
    for (const Session& session : sessions_)
      if (std::string wrong = judge(scene_, struck_, ending_of(session)); !wrong.empty()) return wrong;
    const SessionEnding last = ending_of(sessions_[size_t(last_session())]);
    bool all_ok = true;
    for (const SessionRank& rank : last.ranks) all_ok &= rank.all_ok;
    if (goes_on()) {
      for (int p = 0; p < int(processes_.size()); ++p)
        if (counts(p) && (process(p).session != last_session() || process(p).calls_ok != scene_.calls.size()))
          return fmt::format("rank {} lives, but did not go on with the others to the end", p);
    }
    const bool lossy = has_fault(scene_, SceneFaultKind::link_lost) || has_fault(scene_, SceneFaultKind::one_way_loss);
    if (sessions_.size() == 1 && all_ok && last.verdicts == 0 && !lossy && network_.messages_left() > 0)
      return fmt::format("{} messages are left that nobody took", network_.messages_left());
    return "";
  }
  int last_session() const {
    int last = 0;
    for (const Session& session : sessions_)
      if (session.plane != nullptr) last = session.number;
    return last;
  }
  SessionEnding ending_of(const Session& session) const {
    SessionEnding ending;
    if (session.plane == nullptr) return ending;
    ending.over = session.over;
    for (size_t rank = 0; rank < session.members.size(); ++rank) {
      const int p = session.members[rank];
      const bool is_last = process(p).session == session.number;
      const Verdict* verdict = session.plane->liveness(int(rank)).verdict();
      ending.verdicts += verdict != nullptr;
      ending.ranks.push_back({p, survives(p), is_last && process(p).calls_ok == session.memory.size(), !is_last, verdict});
    }
    return ending;
  }
  WorldResult result() const {
    WorldResult result{problem_, 0, 0, "", network_.now(), events_, last_session()};
    for (int p = 0; p < int(processes_.size()); ++p) {
      if (!counts(p)) continue;
      ++result.survivors;
      result.all_ok += process(p).calls_ok == scene_.calls.size();
    }
    for (const Session& session : sessions_)
      for (const SessionRank& rank : ending_of(session).ranks)
        if (rank.survives && rank.verdict != nullptr) result.verdict = rank.verdict->sentence;
    return result;
  }

  const Scene& scene_;
  std::vector<std::string> names_;  // of ranks
  std::vector<char> struck_;
  const Fabric fabric_;
  Traffic traffic_;
  SimulatedNetwork network_;
  std::deque<Session> sessions_;  // they stay where they are
  std::vector<Process> processes_;
  int current_ = -1;
  size_t events_ = 0;
  std::string problem_;
};

}  // namespace

WorldResult play(const Scene& scene) { return World(scene).run(); }

}  // namespace tutti
