// verbs-faults SEED COUNT: plays random faults, each to a job of two to four processes whose calls run over the devices
// rxe0 and rxe1 of the guest: a device is removed, a cable is cut, a queue pair goes into error, a process is killed.
// Every survivor must go on with right results, or all must end with one clear sentence; nobody may hang. One seed, one
// fault. Exit code: 0 all was so, 1 something was not (the lines say which seeds).
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/verbs_calls.h"

namespace tutti {
namespace {

constexpr int ranks_max = 4;
constexpr TimeNs patience_ns = 60 * ns_per_s;

enum class Kind { queue_pair, link_down, device_removed, killed };
constexpr std::array kind_names = {"a queue pair goes into error", "the cable is cut", "rxe1 is removed",
                                   "a process is killed"};

struct Case {
  uint64_t seed;
  Kind kind;
  int ranks;
  bool tcp;           // messages may go by TCP where no path is left
  bool both_devices;  // each rank uses both; else rank r uses rxe(r % 2)
  bool lends;         // buffers of tuttiMemAlloc
  int victim;         // rank
  int moment_ms;      // from when all are at work

  // Whether no survivor may end with an error.
  bool must_go_on() const { return kind != Kind::killed && (tcp || (both_devices && kind == Kind::queue_pair)); }
  std::string text() const {
    return fmt::format("seed {}: {} ranks, verbs{}, {}, {}: {} after {} ms (rank {})", seed, ranks, tcp ? " and TCP" : "",
                       both_devices ? "both devices" : "one device each", lends ? "memory lent" : "memory copied",
                       kind_names[size_t(kind)], moment_ms, victim);
  }
};

Case case_of(uint64_t seed) {
  std::mt19937_64 random(seed);
  Case made{};
  made.seed = seed;
  made.kind = Kind(seed % kind_names.size());
  made.ranks = 2 + int(random() % (ranks_max - 1));
  made.tcp = random() % 2 == 0;
  made.both_devices = random() % 2 == 0;
  made.lends = random() % 2 == 0;
  made.victim = int(random() % uint64_t(made.ranks));
  made.moment_ms = int(random() % 400);
  return made;
}

// What the processes and the player tell each other.
struct Seat {
  enum State : int { working, went_on, wrong, ended };
  std::atomic<int> state{working};
  std::atomic<int> rounds{0};
  std::atomic<bool> break_a_path{false};
  std::atomic<uint64_t> paths_failed{0}, direct{0};
  char sentence[512] = {};
};
struct Board {
  tuttiUniqueId id;
  std::atomic<bool> id_is_there{false}, enough{false};
  std::array<Seat, ranks_max> seats;
};

// --- A rank.

class Rank {
 public:
  Rank(const Case& played, int rank, Board& board)
      : case_(played), rank_(rank), seat_(board.seats[size_t(rank)]), board_(board) {
    while (!board.id_is_there.load(std::memory_order_acquire)) ::usleep(1000);
    if (!played.both_devices) ::setenv("TUTTI_IB_HCA", rank % 2 == 0 ? "rxe0" : "rxe1", 1);
    CommunicatorOptions options;
    options.timeout_ms = int(patience_ns / ns_per_ms / 2);
    options.transports = played.tcp ? "verbs,tcp" : "verbs";
    const Log log(fmt::format("rank {}", rank));
    auto bootstrap = Bootstrap::join(decode(std::span<const char, 128>(board.id.internal)), rank, played.ranks, {}, log);
    Communicator::Given given;
    given.links = make_links(*bootstrap, {options.transports, 2, patience_ns, &log}, doorbell_);
    verbs_ = given.links.transports[0].get();
    given.costs.n = played.ranks;
    given.costs.classes.resize(1);
    given.costs.link_class.assign(size_t(played.ranks) * size_t(played.ranks), 0);
    given.host_of.assign(size_t(played.ranks), 0);
    given.patience = patience_policy(true, 0);
    communicator_ = Communicator::over(std::move(bootstrap), std::move(given), options);
    breaker_ = std::jthread([this](std::stop_token stop) { break_when_told(stop); });
    in_ = memory();
    out_ = memory();
  }

  void work() {
    std::mt19937_64 random(case_.seed);
    for (int round = 0;; ++round) {
      const size_t count = size_t{1} << random() % 18;
      const bool all_to_all = random() % 3 == 0;
      const Code code = call(all_to_all, all_to_all ? count / size_t(case_.ranks) + 1 : count, round);
      if (code != Code::success) return end(communicator_->failure()->sentence);
      if (seat_.state != Seat::working) return;
      seat_.paths_failed = verbs_counters(*verbs_)->paths_failed;
      seat_.direct = verbs_counters(*verbs_)->direct;
      seat_.rounds.store(round + 1, std::memory_order_release);
      if (round % 4 == 3 && stop_together()) break;
    }
    communicator_->leave();
    seat_.state = Seat::went_on;
  }

 private:
  static constexpr size_t elements_max = (size_t{1} << 17) + ranks_max;

  int64_t* memory() const {
    void* pointer = nullptr;
    if (!case_.lends) return static_cast<int64_t*>(std::calloc(elements_max, sizeof(int64_t)));
    if (tuttiMemAlloc(&pointer, elements_max * sizeof(int64_t)) != tuttiSuccess) std::abort();
    return static_cast<int64_t*>(pointer);
  }

  Code call(bool all_to_all, size_t count, int round) {
    std::string wrong;
    const Code code = call_and_check(*communicator_, all_to_all, count, round, in_, out_, wrong);
    if (!wrong.empty()) tell(Seat::wrong, wrong);
    return code;
  }

  // All stop after the same round, or none does.
  bool stop_together() {
    int64_t mine = board_.enough.load(std::memory_order_acquire), all = 0;
    Request request;
    request.call = {Collective::all_reduce, DataType::int64, ReduceOp::sum, 0, 1};
    request.input = reinterpret_cast<const std::byte*>(&mine);
    request.output = reinterpret_cast<std::byte*>(&all);
    if (communicator_->run(request) == Code::success) return all > 0;
    end(communicator_->failure()->sentence);
    return false;
  }

  void break_when_told(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      ::usleep(1000);
      if (!seat_.break_a_path.exchange(false)) continue;
      const int peer = (rank_ + 1) % case_.ranks;
      for (int path = int(case_.seed % 2), tries = 0; tries < 2; ++tries, path = 1 - path)
        if (break_verbs_path(*verbs_, peer, 0, path)) break;
    }
  }

  void tell(Seat::State state, const std::string& sentence) {
    std::strncpy(seat_.sentence, sentence.c_str(), sizeof seat_.sentence - 1);
    seat_.state = state;
  }
  void end(const std::string& sentence) { tell(Seat::ended, sentence); }

  const Case& case_;
  int rank_;
  Seat& seat_;
  Board& board_;
  Doorbell doorbell_;
  Transport* verbs_ = nullptr;
  std::unique_ptr<Communicator> communicator_;
  int64_t *in_ = nullptr, *out_ = nullptr;  // until the process ends
  std::jthread breaker_;  // ends first
};

[[noreturn]] void live(const Case& played, int rank, Board& board) {
  try {
    Rank(played, rank, board).work();
  } catch (const std::exception& error) {
    Seat& seat = board.seats[size_t(rank)];
    std::strncpy(seat.sentence, fmt::format("before the fault: {}", error.what()).c_str(), sizeof seat.sentence - 1);
    seat.state = Seat::wrong;
  }
  std::_Exit(0);
}

// --- The player.

class Player {
 public:
  explicit Player(const Case& played)
      : case_(played), board_(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (board_ == MAP_FAILED) std::abort();
    new (board_) Board;
  }
  ~Player() { ::munmap(board_, sizeof(Board)); }

  // What was wrong; "": nothing.
  std::string play() {
    start();
    std::string problem;
    if (!await([&] { return rounds() >= 2 || some_end(); })) problem = "they did not begin to work";
    ::usleep(useconds_t(case_.moment_ms) * 1000);
    if (problem.empty() && some_end()) problem = "somebody ended before the fault";
    if (problem.empty()) strike();
    if (problem.empty() && !await([&] { return is_felt(); })) problem = "the fault has no effect";
    const int before = rounds();
    if (problem.empty() && !await([&] { return rounds() >= before + 6 || all_over(); })) problem = "they hang";
    board().enough.store(true, std::memory_order_release);
    if (problem.empty() && !await([&] { return all_over(); })) problem = "they hang, and do not stop";
    if (problem.empty() && !await([&] { return all_gone(); })) problem = "they hang at the end";
    const std::string states = describe();  // before those that hang are killed
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
    mend();
    if (problem.empty()) problem = judge();
    return problem.empty() ? "" : problem + "\n" + states;
  }
  bool went_on() { return board().seats[size_t(survivor())].state == Seat::went_on; }
  uint64_t direct() {
    uint64_t sum = 0;
    for (const Seat& seat : board().seats) sum += seat.direct;
    return sum;
  }
  const char* sentence() { return board().seats[size_t(survivor())].sentence; }

 private:
  Board& board() { return *static_cast<Board*>(board_); }
  int survivor() const { return case_.kind == Kind::killed && case_.victim == 0 ? 1 : 0; }
  bool survives(int rank) const { return case_.kind != Kind::killed || rank != case_.victim; }

  void start() {
    std::fflush(stdout);
    for (int rank = 0; rank < case_.ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) live(case_, rank, board());
      pids_.push_back(pid);
    }
    // The meeting place has a thread, which would be lost in a fork; a process of its own has it.
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (tuttiGetUniqueId(&board().id) == tuttiSuccess) board().id_is_there.store(true, std::memory_order_release);
      for (;;) ::pause();
    }
    pids_.push_back(pid);
  }

  template <class Condition>
  bool await(Condition condition) {
    const TimeNs deadline = now_ns() + patience_ns;
    while (!condition()) {
      if (now_ns() > deadline) return false;
      ::usleep(5000);
    }
    return true;
  }

  int rounds() {
    int least = 1 << 30;
    for (int r = 0; r < case_.ranks; ++r)
      if (survives(r)) least = std::min(least, board().seats[size_t(r)].rounds.load(std::memory_order_acquire));
    return least;
  }
  bool some_end() {
    for (int r = 0; r < case_.ranks; ++r)
      if (board().seats[size_t(r)].state != Seat::working) return true;
    return false;
  }
  bool all_over() {
    for (int r = 0; r < case_.ranks; ++r)
      if (survives(r) && board().seats[size_t(r)].state == Seat::working) return false;
    return true;
  }
  bool all_gone() {
    for (int r = 0; r < case_.ranks; ++r)
      if (::waitpid(pids_[size_t(r)], nullptr, WNOHANG) == 0) return false;
    return true;
  }

  bool is_felt() {
    return some_end() || std::any_of(board().seats.begin(), board().seats.end(),
                                     [](const Seat& seat) { return seat.paths_failed > 0; });
  }

  static void shell(const char* command) {
    if (std::system(command) != 0) std::printf("(`%s` failed)\n", command);
  }
  void strike() {
    switch (case_.kind) {
      case Kind::queue_pair: board().seats[size_t(case_.victim)].break_a_path = true; break;
      case Kind::link_down: shell(case_.seed % 8 < 4 ? "ip link set veth1 down" : "ip link set veth0 down"); break;
      // Soft-RoCE lets those who use a device go on, and removes it when the last one has gone; its cable goes at once.
      case Kind::device_removed: shell("rdma link delete rxe1 & sleep 0.2; ip link set veth1 down"); break;
      case Kind::killed: ::kill(pids_[size_t(case_.victim)], SIGKILL); break;
    }
  }
  void mend() const {
    if (case_.kind != Kind::link_down && case_.kind != Kind::device_removed) return;
    if (case_.kind == Kind::device_removed)
      shell("for i in $(seq 50); do rdma link show | grep -q rxe1 || break; sleep 0.1; done");
    shell("ip link set veth0 up; ip link set veth1 up");
    if (case_.kind == Kind::device_removed) shell("rdma link add rxe1 type rxe netdev veth1");
    shell("for i in $(seq 50); do [ $(rdma link show | grep -c 'state ACTIVE') = 2 ] && break; sleep 0.1; done");
  }

  std::string judge() {
    const Seat& first = board().seats[size_t(survivor())];
    for (int r = 0; r < case_.ranks; ++r) {
      if (!survives(r)) continue;
      const Seat& seat = board().seats[size_t(r)];
      if (seat.state == Seat::wrong) return "a result is wrong";
      if (seat.state == Seat::ended && case_.must_go_on()) return "an error, though there is another way";
      if (seat.state != first.state) return "some went on and some did not";
      if (std::strcmp(seat.sentence, first.sentence) != 0) return "survivors tell different things";
    }
    if (first.state != Seat::ended) return case_.kind == Kind::killed ? "a result without its input" : "";
    const std::string_view told = first.sentence;
    const bool clear = case_.kind == Kind::killed
                           ? told.find(fmt::format("rank {} ", case_.victim)) != std::string_view::npos
                           : told.find("rxe") != std::string_view::npos && told.find("likely") != std::string_view::npos;
    return clear ? "" : "the sentence does not say what happened";
  }

  std::string describe() {
    std::string text;
    for (int r = 0; r < case_.ranks; ++r) {
      const Seat& seat = board().seats[size_t(r)];
      constexpr std::array names = {"works", "went on", "is wrong", "ended"};
      text += fmt::format("    rank {} {} after {} rounds: {}\n", r, names[size_t(seat.state.load())], seat.rounds.load(),
                          seat.sentence);
    }
    return text;
  }

  const Case& case_;
  void* board_;
  std::vector<pid_t> pids_;
};

int run(uint64_t seed, uint64_t count) {
  int went_on = 0, ended = 0, failed = 0;
  uint64_t direct = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const Case played = case_of(seed + i);
    const TimeNs start = now_ns();
    Player player(played);
    const std::string problem = player.play();
    direct += player.direct();
    const double s = double(now_ns() - start) / double(ns_per_s);
    if (!problem.empty()) ++failed;
    else ++(player.went_on() ? went_on : ended);
    std::printf("%s; %.1f s; %s\n", played.text().c_str(), s,
                !problem.empty() ? ("FAILED: " + problem).c_str() : player.went_on() ? "went on" : player.sentence());
    std::fflush(stdout);
  }
  std::printf("%lu faults: %d went on with right results, %d ended with one sentence, %d failed; %lu messages had been "
              "written straight to their places\n", count, went_on, ended, failed, direct);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: verbs-faults SEED COUNT\n");
    return 2;
  }
  return tutti::run(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10));
}
