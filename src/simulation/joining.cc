// The world of a joining scene: its processes' programs, its strangers, its judge.
#include "simulation/joining.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/handshake.h"
#include "simulation/joining_judge.h"

namespace tutti {
namespace {

constexpr uint16_t agreed_port = 29500;
// A host of its own for each rank, from 1; newcomers, second callers and strangers come after them.
constexpr int host_of_rank(int rank) { return rank + 1; }
constexpr int host_of_launcher = 1 << 20;
// Of larger jobs, only that all are there is looked at: each rank has every rank's part.
constexpr int exchanging_max = 256;

Bytes part_of(int rank, int round) { return Bytes(size_t(rank % 7 + 1), std::byte(rank * 31 + round)); }

class JoiningWorld {
 public:
  explicit JoiningWorld(const JoiningScene& scene)
      : scene_(scene), random_(scene.seed * 2 + 1), processes_(surroundings(), options_of(scene)) {
    id_.key.fill(static_cast<unsigned char>(scene.seed % 251 + 1));
    processes_.make_mistake(scene.mistake);
    for (int rank = 0; rank < scene.n + scene.newcomers; ++rank) add_caller(rank);
    for (const JoiningFault& fault : scene.faults) prepare(fault);
    if (scene.place_apart && !scene.agreed_port) {
      SimulatedProcess& launcher = processes_.start(host_of_launcher);
      launcher.start([this, &launcher] {
        open_first_place(launcher);
        while (!over_) launcher.sleep_until(launcher.now() + 20 * ns_per_ms);
      });
    }
    for (size_t caller = 0; caller < callers_.size(); ++caller) {
      Caller& one = callers_[caller];
      one.process->start([this, caller] { live(callers_[caller]); });
    }
  }

  ~JoiningWorld() {
    // What was not given back has threads that run no more.
    for (Caller& caller : callers_) (void)caller.grown.release(), (void)caller.bootstrap.release();
  }

  JoiningResult run() {
    // Looking costs as much as there are callers.
    while (!events_.empty() && problem_.empty() && (count_ % callers_.size() != 0 || !finished())) step();
    const TimeNs ended_at = now_;
    if (problem_.empty() && !finished()) problem_ = "nothing happens any more, though not all have come to an end";
    JoiningResult result = judged(ended_at);
    give_back(result);
    result.events = count_;
    return result;
  }

 private:
  struct Event {
    TimeNs time;
    uint64_t order;
    size_t action;
    bool operator>(const Event& other) const { return std::pair(time, order) > std::pair(other.time, other.order); }
  };
  // Somebody who joins.
  struct Caller {
    JoiningCaller seen;
    SimulatedProcess* process = nullptr;
    int size = 0;
    uint32_t version = protocol_version;
    Key key{};
    TimeNs comes_at = 0;
    bool over = false;
    std::unique_ptr<Bootstrap> bootstrap, grown;
  };

  // --- Time.

  Processes::Surroundings surroundings() {
    Processes::Surroundings around;
    around.now = [this] { return now_; };
    around.after = [this](TimeNs delay, std::function<void()> action) { after(delay, std::move(action)); };
    around.random = &random_;
    return around;
  }
  static ProcessesOptions options_of(const JoiningScene& scene) {
    ProcessesOptions options;
    if (scene.n > exchanging_max) options.buffer_bytes = 16 << 20;
    return options;
  }
  void after(TimeNs delay, std::function<void()> action) {
    size_t place = actions_.size();
    if (free_.empty()) actions_.emplace_back();
    else place = free_.back(), free_.pop_back();
    actions_[place] = std::move(action);
    events_.push({now_ + delay, random_.next(), place});
  }
  void step() {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    ++count_;
    const std::function<void()> action = std::exchange(actions_[event.action], nullptr);
    free_.push_back(event.action);
    action();
    if (now_ > JoiningTimes::timeout_ns * 6) problem_ = fmt::format("after {} s of virtual time some call has not ended", now_ / ns_per_s);
  }

  // --- Who takes part.

  void add_caller(int rank) {
    Caller& caller = callers_.emplace_back();
    caller.seen.rank = rank;
    caller.seen.newcomer = rank >= scene_.n;
    caller.size = scene_.n;
    caller.key = id_.key;
    caller.comes_at = TimeNs(random_.below(uint64_t(scene_.spread_ns) + 1));
    caller.process = &processes_.start(host_of_rank(rank));
  }

  void prepare(const JoiningFault& fault) {
    Caller& caller = callers_[size_t(fault.rank)];
    caller.seen.faults.push_back(fault.kind);
    const auto at_its_time = [&](auto action) {
      after(fault.at, [this, action] {
        if (!over_) action();
      });
    };
    SimulatedProcess* const process = caller.process;
    using Kind = JoiningFaultKind;
    switch (fault.kind) {
      case Kind::death: return at_its_time([process] { process->end(); });
      case Kind::silent_death: return at_its_time([process] { process->lose_host(); });
      case Kind::stop: return at_its_time([process] { process->stop(); });
      case Kind::pause:
        at_its_time([process] { process->stop(); });
        return after(fault.at + JoiningTimes::silence_ns / 3, [process] { process->go_on(); });
      case Kind::late:  // twice would be too late
        if (std::ranges::count(caller.seen.faults, Kind::late) == 1) caller.comes_at += JoiningTimes::timeout_ns / 2;
        return;
      case Kind::absent: caller.seen.comes = false; return;
      case Kind::other_size: ++caller.size; return;
      case Kind::other_version: ++caller.version; return;
      case Kind::other_key: caller.key[0] ^= 0xff; return;
      case Kind::descriptors: process->limit_descriptors(size_t(fault.at % 12)); return;
      case Kind::twice: return add_second(fault.rank);
      case Kind::cut:
        return at_its_time([this, fault] { processes_.cut(host_of_rank(fault.rank), host_of_rank(fault.peer)); });
      default: return invite_strangers(fault);
    }
  }

  // Another process on the same host, with the same number.
  void add_second(int rank) {
    Caller second;
    second.seen = {.rank = rank, .newcomer = rank >= scene_.n, .second = true};
    second.seen.faults = {JoiningFaultKind::twice};
    second.size = scene_.n;
    second.key = id_.key;
    second.comes_at = TimeNs(random_.below(uint64_t(scene_.spread_ns) + 1));
    second.process = &processes_.start(host_of_rank(rank));
    callers_.push_back(std::move(second));
  }

  // --- Strangers.

  void invite_strangers(const JoiningFault& fault) {
    SimulatedProcess& stranger = processes_.start(host_of_rank(scene_.n + scene_.newcomers) + int(strangers_.size()));
    strangers_.push_back(&stranger);
    if (fault.kind == JoiningFaultKind::port_held) {
      // On the host of the meeting place, before it.
      strangers_.back() = &processes_.start(host_of_rank(0));
      SimulatedProcess* const holder = strangers_.back();
      holder->start([this, holder] { hold_port(*holder); });
      return;
    }
    const int times = fault.kind == JoiningFaultKind::crowd ? 100 : 3;
    stranger.start([this, fault, times, &stranger] {
      stranger.sleep_until(fault.at);
      std::vector<Fd> held;
      for (int i = 0; i < times && !over_; ++i) knock(stranger, fault, held);
      while (!over_ && stranger.state() == SimulatedProcess::State::runs) stranger.sleep_until(stranger.now() + 50 * ns_per_ms);
    });
  }

  // Accepts whoever comes, and says nothing.
  void hold_port(SimulatedProcess& holder) {
    const Fd listener(holder.listen(agreed_port), &holder);
    std::vector<Fd> guests;
    while (!over_ && listener.valid()) {
      pollfd wait{listener.get(), POLLIN, 0};
      holder.poll({&wait, 1}, holder.now() + 50 * ns_per_ms);
      if (Fd guest(holder.accept(listener.get()), &holder); guest.valid()) guests.push_back(std::move(guest));
    }
  }

  // Connects to some listener of the ranks' hosts and says what strangers say.
  void knock(SimulatedProcess& stranger, const JoiningFault& fault, std::vector<Fd>& held) {
    const auto doors = stranger.listeners_of(host_of_rank(fault.rank));
    if (doors.empty()) return stranger.sleep_until(stranger.now() + 200 * ns_per_us);
    Fd fd(stranger.connect(doors[random_.below(doors.size())]), &stranger);
    if (!fd.valid()) return;
    pollfd wait{fd.get(), POLLOUT, 0};
    stranger.poll({&wait, 1}, stranger.now() + 10 * ns_per_ms);
    if (fault.kind == JoiningFaultKind::lying_stranger || scene_.key_leaked) return lie(stranger, fault, std::move(fd), held);
    if (fault.kind == JoiningFaultKind::babbling_stranger) {
      Bytes noise(random_.below(300) + 1);
      for (std::byte& byte : noise) byte = std::byte(random_.next());
      const std::string_view magic = "TUTI";
      if (random_.chance(0.5) && noise.size() > 4)
        std::ranges::transform(magic, noise.begin(), [](char c) { return std::byte(c); });
      stranger.send(fd.get(), noise.data(), noise.size());
    }
    if (fault.kind != JoiningFaultKind::crowd) stranger.sleep_until(stranger.now() + TimeNs(random_.below(300)) * ns_per_us);
    if (random_.chance(0.7)) held.push_back(std::move(fd));
  }

  // As a rank's process would, but with a key of its own; where the key leaked, with the ranks'.
  void lie(SimulatedProcess& stranger, const JoiningFault& fault, Fd fd, std::vector<Fd>& held) {
    Secret secret{id_.key, 0, protocol_version};
    if (!scene_.key_leaked) secret.key[3] ^= 1;
    Handshake handshake(std::move(fd), Handshake::Side::connecting, secret, stranger.now());
    for (int turn = 0; turn < 20 && handshake.step() == Handshake::State::working; ++turn) {
      pollfd wait{handshake.fd().get(), handshake.events(), 0};
      stranger.poll({&wait, 1}, stranger.now() + ns_per_ms);
    }
    // Whatever it was told: a proof that is none, and a hello.
    handshake.finish({random_.chance(0.5) ? Purpose::join : Purpose::tree, uint32_t(fault.peer), uint32_t(scene_.n), 0});
    if (scene_.key_leaked) stranger_was_believed_ |= handshake.state() == Handshake::State::done;
    held.push_back(handshake.take_fd());
  }

  // --- A caller's program.

  BootstrapOptions options_of(Caller& caller) const {
    BootstrapOptions options;
    options.timeout_ns = JoiningTimes::timeout_ns;
    options.silence_ns = JoiningTimes::silence_ns;
    options.protocol_version = caller.version;
    options.system = caller.process;
    return options;
  }

  void live(Caller& caller) {
    SimulatedProcess& process = *caller.process;
    process.sleep_until(caller.comes_at);
    try {
      if (caller.seen.comes) take_part(caller);
      caller.seen.ok = caller.seen.comes;
    } catch (const Error& error) {
      caller.seen.code = error.code();
      caller.seen.sentence = error.what();
    }
    caller.seen.ended_at = process.now();
    caller.over = true;
    // It stays until all have come to an end, and then leaves.
    while (!over_ && process.state() != SimulatedProcess::State::ended && process.state() != SimulatedProcess::State::lost)
      process.sleep_until(process.now() + 20 * ns_per_ms);
    for (std::unique_ptr<Bootstrap>* bootstrap : {&caller.grown, &caller.bootstrap}) {
      if (*bootstrap != nullptr) (*bootstrap)->leave();
      bootstrap->reset();
    }
  }

  void take_part(Caller& caller) {
    const int rank = caller.seen.rank;
    const Log log(fmt::format("rank {}", rank));
    const BootstrapOptions options = options_of(caller);
    caller.seen.begun_at = caller.process->now();
    if (!caller.seen.newcomer) {
      const JobId id = meeting_place(caller);
      caller.bootstrap = Bootstrap::join(id, rank, caller.size, options, log);
      caller.seen.joined_last = true;
      exchange(caller, *caller.bootstrap, scene_.n);
      if (scene_.newcomers == 0) return;
      grow(caller);
    } else {
      // The id of the next job is told by other ways than this; the wait for it is no part of joining.
      while (!next_id_ && !over_ && survives(caller) && some_may_grow()) caller.process->sleep_until(caller.process->now() + ns_per_ms);
      if (!next_id_) throw Error(Code::remote_error, "nobody grew");
    }
    caller.seen.begun_at = caller.process->now();
    caller.seen.joined_last = false;
    JobId id = *next_id_;
    id.key = caller.seen.newcomer ? mixed_up(id.key, caller) : id.key;
    const int size = scene_.n + scene_.newcomers + (caller.seen.newcomer ? caller.size - scene_.n : 0);
    caller.grown = Bootstrap::join(id, rank, size, options, log);
    caller.seen.joined_last = true;
    exchange(caller, *caller.grown, scene_.n + scene_.newcomers);
  }

  // For good, that is.
  static bool has_stopped(const Caller& caller) {
    return caller.process->state() == SimulatedProcess::State::stopped && caller.seen.has(JoiningFaultKind::stop);
  }
  bool some_may_grow() const {
    return std::ranges::any_of(callers_, [](const Caller& caller) {
      return !caller.seen.newcomer && !caller.over && !has_stopped(caller);
    });
  }

  // As tuttiCommGrow: the newcomers' id is told to all.
  void grow(Caller& caller) {
    const bool leads = caller.seen.rank == 0;
    std::array<char, 128> bytes{};
    if (leads) encode(open_meeting_place("", caller.process->now() + JoiningTimes::timeout_ns, caller.process), bytes);
    const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
    const std::vector<Bytes> all = caller.bootstrap->all_gather(leads ? std::span(data, bytes.size()) : std::span<const std::byte>());
    if (all[0].size() != bytes.size()) return note(fmt::format("rank {} was told no id of the grown job", caller.seen.rank));
    if (leads) next_id_ = decode(std::span<const char, 128>(bytes));
  }
  Key mixed_up(Key key, const Caller& caller) const {
    if (caller.seen.has(JoiningFaultKind::other_key)) key[0] ^= 0xff;
    return key;
  }

  // Where this rank finds the others; rank 0 opens it.
  JobId meeting_place(Caller& caller) {
    SimulatedProcess& process = *caller.process;
    const bool opens = caller.seen.rank == 0;
    const TimeNs deadline = process.now() + JoiningTimes::timeout_ns;
    if (scene_.agreed_port) {
      if (opens) open_meeting_place_at("h1", agreed_port, caller.key, deadline, &process);
      JobId id;
      id.key = caller.key;
      id.port_count = meeting_ports;
      id.addresses = {address_of_first()};
      return id;
    }
    if (opens && !first_id_ && !scene_.place_apart) open_first_place(process);
    while (!first_id_ && !over_ && survives(caller) && process.now() < deadline) process.sleep_until(process.now() + ns_per_ms);
    if (!first_id_) throw Error(Code::timeout, "rank 0 did not tell where to meet");
    JobId id = *first_id_;
    if (caller.seen.has(JoiningFaultKind::other_key)) id.key[0] ^= 0xff;
    return id;
  }
  void open_first_place(SimulatedProcess& process) {
    first_id_ = open_meeting_place("", process.now() + JoiningTimes::timeout_ns, &process);
    id_.key = first_id_->key;
  }
  JobId::Address address_of_first() {
    JobId::Address address = callers_[0].process->addresses()[0];
    address.port = agreed_port;
    return address;
  }

  void exchange(Caller& caller, Bootstrap& bootstrap, int n) {
    if (bootstrap.size() != n) return note(fmt::format("rank {} joined as one of {}, not {}", caller.seen.rank, bootstrap.size(), n));
    if (n > exchanging_max) return bootstrap.barrier();
    for (int round = 0; round < 2; ++round) {
      const std::vector<Bytes> all = bootstrap.all_gather(part_of(caller.seen.rank, round));
      bool right = all.size() == size_t(n);
      for (int rank = 0; right && rank < n; ++rank) right = all[size_t(rank)] == part_of(rank, round);
      if (!right) note(fmt::format("rank {} gathered something else than was given", caller.seen.rank));
    }
    for (int rank = 0; rank < n && n <= 64; ++rank) {
      const std::string name = fmt::format("rank {} (host h{}, pid ", rank, host_of_rank(rank));
      if (!bootstrap.describe(rank).starts_with(name))
        note(fmt::format("rank {} takes rank {} for {}", caller.seen.rank, rank, bootstrap.describe(rank)));
    }
  }

  // --- The end.

  void note(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  bool survives(const Caller& caller) const {
    return caller.process->state() == SimulatedProcess::State::runs && caller.seen.comes;
  }
  // All have come to an end, and those who are in one job know of its end.
  bool finished() {
    const bool all_over = std::ranges::all_of(callers_, [](const Caller& caller) {
      return caller.over || has_stopped(caller);
    });
    if (!all_over) return false;
    if (over_since_ == 0) over_since_ = now_;
    int ended = 0, going_on = 0;
    for (const Caller& caller : callers_)
      if (survives(caller) && caller.seen.joined_last) (verdict_of(caller) != nullptr ? ended : going_on) += 1;
    return ended == 0 || going_on == 0 || now_ - over_since_ > JoiningTimes::timeout_ns;
  }
  static const Verdict* verdict_of(const Caller& caller) {
    const Bootstrap* const last = caller.grown != nullptr ? caller.grown.get() : caller.bootstrap.get();
    return last == nullptr ? nullptr : last->verdict();
  }

  JoiningResult judged(TimeNs ended_at) {
    JoiningResult result;
    JoiningEnding ending{scene_, {}, 0};
    double messages = 0;
    for (Caller& caller : callers_) {
      caller.seen.survives = survives(caller);
      if (const Verdict* const verdict = verdict_of(caller); verdict != nullptr && caller.seen.joined_last)
        caller.seen.verdict = *verdict;
      ending.callers.push_back(caller.seen);
      result.survivors += caller.seen.survives;
      result.joined += caller.seen.survives && caller.seen.ok;
      if (caller.seen.survives && !caller.seen.ok) result.sentence = caller.seen.sentence;
      const size_t sent_and_received = caller.process->messages_sent() + caller.process->messages_received();
      result.messages_max = std::max(result.messages_max, sent_and_received);
      messages += double(sent_and_received) / double(callers_.size());
    }
    result.messages_mean = messages;
    result.ended_at = ended_at;
    for (const SimulatedProcess* stranger : strangers_)
      ending.read_of_strangers_max = std::max(ending.read_of_strangers_max, stranger->most_bytes_read_by_others());
    if (stranger_was_believed_) note("a stranger was believed");
    result.problem = !problem_.empty() ? problem_ : judge(ending);
    return result;
  }

  // All leave; nothing must be left of anybody.
  void give_back(JoiningResult& result) {
    over_ = true;
    const size_t most = count_ + 20'000'000;
    const auto busy = [&] {
      for (size_t i = 0; i < processes_.size(); ++i)
        if (processes_.at(i).threads() > 0) return true;
      return false;
    };
    for (size_t i = 0; i < processes_.size(); ++i) processes_.at(i).go_on();
    for (size_t steps = 0; !events_.empty() && count_ < most; ++steps) {
      if (steps % 1024 == 0 && !busy()) break;
      // Meeting places linger for those who come late.
      if (steps == 4096)
        for (size_t i = 0; i < processes_.size(); ++i) processes_.at(i).end();
      step_after_the_end();
    }
    for (size_t i = 0; i < processes_.size() && result.problem.empty(); ++i)
      if (processes_.at(i).threads() > 0 || processes_.at(i).open_descriptors() > 0)
        result.problem = fmt::format("process {} ended with {} threads and {} descriptors", i, processes_.at(i).threads(),
                                     processes_.at(i).open_descriptors());
  }
  void step_after_the_end() {
    const std::string before = problem_;
    step();
    problem_ = before;
  }

  const JoiningScene& scene_;
  Random random_;
  TimeNs now_ = 0;
  size_t count_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::function<void()>> actions_;
  std::vector<size_t> free_;
  Processes processes_;
  std::deque<Caller> callers_;  // they stay where they are
  std::vector<SimulatedProcess*> strangers_;
  JobId id_;
  std::optional<JobId> first_id_, next_id_;
  bool over_ = false;
  TimeNs over_since_ = 0;
  bool stranger_was_believed_ = false;
  std::string problem_;
};

}  // namespace

JoiningResult play(const JoiningScene& scene) { return JoiningWorld(scene).run(); }

}  // namespace tutti
