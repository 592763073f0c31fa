// Whole programs, drawn from a seed: calls of every kind and size in any order, made again with the same buffers or with
// others, alone, in groups, on a stream or prepared, on a communicator and its parts, in memory of every kind that comes
// and goes. Whatever shorter ways the library takes for what it has met before, each buffer holds what it must afterwards,
// guards and all.
//
// TUTTI_TEST_PROGRAMS=N: so many programs of each case (usually 2); TUTTI_TEST_SEED=N: the first one's seed (usually 1).
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "communicator/memory_pool.h"
#include "communicator/played_call.h"
#include "communicator/ranks.h"
#include "sanitizer.h"

namespace tutti::test {
namespace {

unsigned asked_for(const char* name, unsigned usual) {
  const char* const text = std::getenv(name);
  return text == nullptr ? usual : unsigned(std::strtoul(text, nullptr, 10));
}

constexpr size_t steps = sanitized ? 25 : 60;         // of a program
constexpr size_t bytes_max = sanitized ? size_t{1} << 19 : size_t{12} << 20;  // of a buffer of all blocks
constexpr size_t communicators = 3;

// A step of a program: calls that go together, so many times.
struct Step {
  std::vector<Played> calls;
  unsigned times = 1;
};

Played draw_call(std::mt19937& random, int n) {
  constexpr std::array types = {tuttiUint8, tuttiInt32, tuttiInt32, tuttiInt64, tuttiFloat32, tuttiFloat32, tuttiFloat64};
  constexpr std::array ops = {tuttiSum, tuttiSum, tuttiMax, tuttiMin};
  Played call;
  call.kind = Kind(random() % kinds);
  call.type = types[random() % types.size()];
  call.op = ops[random() % ops.size()];
  call.salt = uint32_t(random());
  call.communicator = random() % 2 == 0 ? 0 : random() % communicators;
  const size_t count_max = bytes_max / tuttiTypeSize(call.type) / (call.kind <= Kind::broadcast ? 1 : size_t(n));
  // As many sizes of each magnitude; large ones seldom, since they take long; often round numbers.
  const unsigned magnitude = random() % 8 == 0 ? random() % 24 : random() % 18;
  const size_t power = (size_t{1} << magnitude) / 2;  // 0, 1, 2, 4, …
  call.count = std::min(count_max, power + (power == 0 || random() % 2 == 0 ? 0 : random() % power));
  return call;
}

Step draw_step(std::mt19937& random, int n) {
  Step step;
  const size_t calls = random() % 4 != 0 ? 1 : 2 + random() % 4;
  for (size_t i = 0; i < calls; ++i) step.calls.push_back(draw_call(random, n));
  if (random() % 2 == 0) step.times = 2 + unsigned(random() % 6);
  return step;
}

// What a program ends by before its end: an error that a call gave, or a buffer that is not as it must be.
struct Ended {
  tuttiResult_t result;
  std::string sentence;
};

// One rank's run of a program. `shared` draws what all ranks must agree on; `own`, what each decides for itself.
class Program {
 public:
  // alone: no other rank is a thread of this process.
  Program(unsigned seed, std::string setting, bool alone, int rank, tuttiComm_t comm)
      : seed_(seed),
        setting_(std::move(setting)),
        alone_(alone),
        shared_(seed),
        own_(seed * 100 + unsigned(rank)),
        pool_(own_()) {
    comms_[0] = comm;
  }
  Program(const Program&) = delete;
  ~Program() {
    EXPECT_EQ(tuttiStreamDestroy(stream_), tuttiSuccess);
    for (size_t i = 1; i < communicators; ++i) EXPECT_EQ(tuttiCommDestroy(comms_[i]), tuttiSuccess);
  }

  // From another thread, at any time: one of those that there are by then.
  void abort_one(unsigned which) {
    const std::lock_guard lock(mutex_);
    tuttiComm_t comm = comms_[which % communicators];
    if (comm == nullptr) comm = comms_[0];
    EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
  }

  // Once run() has ended by an error, the calls' memory is the program's again, and soon holds something else.
  void fill_anew() {
    for (PlayedCall& call : calls_) call.fill(~uint32_t{0});
    for (Calls& calls : pending_)
      for (PlayedCall& call : calls) call.fill(~uint32_t{0});
  }

  // From this step on the first call that can be is made another one, which the other ranks do not make.
  void slip_at(size_t step) { slips_at_ = step; }

  // Throws Ended.
  void run() {
    try {
      join();
      std::deque<Step> last;
      for (step_ = 0; step_ < steps; ++step_) {
        const bool is_known = last.size() > 2 && shared_() % 3 == 0;
        const Step step = is_known ? last[shared_() % last.size()] : draw_step(shared_, n_);
        run(step, uint32_t(shared_()));
        last.push_back(step);
        if (last.size() > 5) last.pop_front();
      }
      settle();
    } catch (const Ended&) {
      // Nothing is freed that may be in use.
      for (const tuttiComm_t comm : comms_)
        if (comm != nullptr) tuttiCommAbort(comm);
      tuttiStreamSynchronize(stream_);
      end_prepared();
      throw;
    }
  }

 private:
  using Calls = std::vector<PlayedCall>;

  std::string where(const std::string& what) const {
    return fmt::format("program {} ({}), step {}, time {}: {}", seed_, setting_, step_, time_, what);
  }
  void must_succeed(tuttiResult_t result, const std::string& what) const {
    if (result != tuttiSuccess) throw Ended{result, where(what + ": " + tuttiGetLastError(nullptr))};
  }

  void join() {
    must_succeed(tuttiCommCount(comms_[0], &n_), "count");
    must_succeed(tuttiStreamCreate(&stream_), "stream");
    int rank = 0;
    must_succeed(tuttiCommUserRank(comms_[0], &rank), "rank");
    split(0, -rank, comms_[1]);  // the other way round
    split(rank % 2, rank, comms_[2]);
  }

  void split(int color, int key, tuttiComm_t& place) {
    tuttiComm_t part = nullptr;
    must_succeed(tuttiCommSplit(comms_[0], color, key, &part, nullptr), "split");
    const std::lock_guard lock(mutex_);
    place = part;
  }

  Taste draw_taste() {
    Taste taste;
    taste.in_place = own_() % 3 == 0;
    taste.gap = own_() % 2 == 0 ? 0 : 1 + own_() % 5;
    taste.offset = own_() % 3 == 0 ? own_() % 64 : 0;
    taste.other_offset = own_() % 3 == 0 ? own_() % 64 : 0;
    taste.backwards = own_() % 2 == 0;
    return taste;
  }

  void make_calls(const Step& step) {
    calls_.clear();
    calls_.reserve(step.calls.size());
    for (Played played : step.calls) {
      if (step_ >= slips_at_ && !has_slipped_) has_slipped_ = make_another(played);
      calls_.emplace_back(played, draw_taste(), comms_[played.communicator], pool_);
    }
  }
  // False: it stays as it is, for nobody need see that it is another, or it has no operator that could be.
  bool make_another(Played& played) {
    if (played.kind > Kind::all_to_all || played.communicator == 2 || n_ < 2 || played.count == 0) return false;
    const bool reduces = played.kind <= Kind::exscan || played.kind == Kind::reduce_scatter;
    switch (own_() % 4) {
      case 0: played.count += 1 + own_() % 3; break;
      case 1: played.count = 1 + (played.count + 100) * 7 % 50000; break;
      case 2: played.type = played.type == tuttiInt32 ? tuttiFloat32 : tuttiInt32; break;
      default:
        if (!reduces) return false;
        played.op = played.op == tuttiSum ? tuttiMax : tuttiSum;
    }
    return true;
  }

  void run(const Step& step, uint32_t key) {
    const bool is_prepared = own_() % 4 == 0;
    make_calls(step);
    if (is_prepared) prepare();
    for (time_ = 1; time_ <= step.times; ++time_) {
      if (time_ > 1 && !is_prepared && own_() % 3 == 0) make_calls(step);
      fill(key + time_);
      dawdle();
      tuttiStream_t const stream = own_() % 4 == 0 ? stream_ : nullptr;
      if (is_prepared) must_succeed(tuttiPreparedStart(prepared_, stream), "prepared");
      else make(stream);
      if (stream != nullptr && !is_prepared && time_ == step.times && own_() % 2 == 0) {
        pending_.push_back(std::exchange(calls_, {}));
        if (pending_.size() > 3) settle();
      } else {
        if (stream != nullptr) settle();
        check(calls_);
      }
    }
    end_prepared();
  }

  void fill(uint32_t key) {
    const bool anew = own_() % 5 == 0;
    for (PlayedCall& call : calls_) {
      if (anew) call.lie_anew(alone_);
      call.fill(key);
    }
  }

  // Makes the calls, in a group or one by one.
  void make(tuttiStream_t stream) {
    const bool in_group = own_() % 2 == 0;
    if (in_group) must_succeed(tuttiGroupStart(), "group");
    tuttiResult_t result = tuttiSuccess;
    std::string what = "group";
    for (size_t i = 0; i < calls_.size() && result == tuttiSuccess; ++i) {
      result = calls_[i].make(stream);
      if (result != tuttiSuccess) what = calls_[i].describe();
    }
    if (in_group) result = tuttiGroupEnd();  // the error of a call that was refused, too
    must_succeed(result, what);
  }

  void prepare() {
    must_succeed(tuttiPrepareStart(), "prepare");
    for (const PlayedCall& call : calls_)
      if (call.make(nullptr) != tuttiSuccess) break;
    must_succeed(tuttiPrepareEnd(&prepared_), "prepare");
  }
  void end_prepared() { EXPECT_EQ(tuttiPreparedDestroy(std::exchange(prepared_, nullptr)), tuttiSuccess); }

  // Waits for what is on the stream, and looks at it.
  void settle() {
    must_succeed(tuttiStreamSynchronize(stream_), "stream");
    for (const Calls& calls : pending_) check(calls);
    pending_.clear();
  }
  void check(const Calls& calls) const {
    if (has_slipped_) return;  // of a call that nobody else makes nothing is known
    for (const PlayedCall& call : calls) {
      const std::string wrong = call.wrong();
      if (!wrong.empty()) throw Ended{tuttiSuccess, where(wrong)};
    }
  }
  // Ranks are late by themselves, seldom by much.
  void dawdle() {
    if (own_() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own_() % (own_() % 8 == 0 ? 4000 : 200)));
  }

  const unsigned seed_;
  const std::string setting_;
  const bool alone_;
  std::mt19937 shared_, own_;
  MemoryPool pool_;
  int n_ = 1;
  std::mutex mutex_;  // of comms_, which abort_one() reads
  std::array<tuttiComm_t, communicators> comms_{};
  tuttiStream_t stream_ = nullptr;
  Calls calls_;                 // of this step
  std::vector<Calls> pending_;  // of steps before, on the stream
  tuttiPrepared_t prepared_ = nullptr;
  size_t step_ = 0;
  unsigned time_ = 0;
  size_t slips_at_ = ~size_t{0};
  bool has_slipped_ = false;
};

// The library's settings for a program, which differ with its seed; what they are in words.
std::string set_up(unsigned seed, RanksOptions& options) {
  std::mt19937 random(seed);
  const auto one_of = [&](const auto&... values) { return std::array{values...}[random() % sizeof...(values)]; };
  std::string words;
  const auto set = [&](const char* name, const char* value) {
    if (value == nullptr) ::unsetenv(name);
    else ::setenv(name, value, 1), words += fmt::format("{}={} ", name, value);
  };
  const char* const usual = nullptr;
  set("TUTTI_SHM_SLOT_BYTES", one_of(usual, usual, "4096", "64K"));
  set("TUTTI_IN_PLACE_BYTES", one_of(usual, usual, "0", "4K"));
  set("TUTTI_LEND", one_of(usual, usual, "1", "0"));
  options.channels = one_of(-1, -1, 1, 3);
  options.determinism = one_of(-1, -1, 1, 2);
  words += fmt::format("channels {}, determinism {}", options.channels, options.determinism);
  // Which of two cores each rank has to itself or shares, if that is said at all.
  struct Places {
    const char* words;
    int (*core_of)(int rank);
  };
  constexpr auto anywhere = Places{"", nullptr};
  const Places places = one_of(anywhere, anywhere, Places{", dealt to two cores", [](int rank) { return rank % 2; }},
                               Places{", in pairs on two cores", [](int rank) { return rank / 2 % 2; }},
                               Places{", rank 0 on a core alone", [](int rank) { return int(rank > 0); }},
                               Places{", on one core", [](int) { return 0; }});
  options.before_join = {};
  if (places.core_of != nullptr)
    options.before_join = [core_of = places.core_of](int rank) { stay_on_one_core_of_two(core_of(rank)); };
  return words + places.words;
}

struct Case {
  int ranks;
  const char* transport;
  bool as_processes;
};
class Programs : public ::testing::TestWithParam<Case> {};

TEST_P(Programs, GiveWhatTheyMust) {
  const Case& c = GetParam();
  RanksOptions options;
  options.transport = c.transport;
  options.timeout_ms = 60000;
  const unsigned first = asked_for("TUTTI_TEST_SEED", 1), programs = asked_for("TUTTI_TEST_PROGRAMS", 2);
  for (unsigned seed = first; seed < first + programs && !HasFailure(); ++seed) {
    const std::string setting = set_up(seed, options);
    const Body body = [&](int rank, tuttiComm_t comm) {
      try {
        Program(seed, setting, c.as_processes, rank, comm).run();
      } catch (const Ended& ended) {
        ADD_FAILURE() << ended.sentence << " (" << tuttiGetErrorString(ended.result) << ")";
      }
    };
    if (c.as_processes) run_processes(c.ranks, options, body);
    else run_threads(c.ranks, options, body);
  }
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return fmt::format("{}_{}_{}", info.param.ranks, info.param.transport,
                     info.param.as_processes ? "AsProcesses" : "AsThreads");
}
INSTANTIATE_TEST_SUITE_P(Ranks, Programs,
                         ::testing::Values(Case{1, "shm", false}, Case{2, "shm", false}, Case{2, "shm", true},
                                           Case{3, "shm", true}, Case{4, "shm", true}, Case{5, "shm", false},
                                           Case{7, "shm", true}, Case{2, "tcp", true}, Case{3, "tcp", false}),
                         name_of);

// Somewhere in its program one rank dies, or aborts one of its communicators from another thread. All others' programs end, by an
// error that says why and long before any deadline, or because they were through; and until then each buffer was as it must be.
TEST(MortalPrograms, EndForAllWhenARankDiesOrAborts) {
  using Clock = std::chrono::steady_clock;
  struct Seen {
    std::atomic<Clock::rep> ended{0};
  };
  void* const memory = ::mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto seconds_since = [](Clock::rep then) {
    return std::chrono::duration<double>(Clock::now().time_since_epoch() - Clock::duration(then)).count();
  };
  constexpr double verdict_s_max = sanitized ? 10 : 4;
  const unsigned first = asked_for("TUTTI_TEST_SEED", 1), programs = 6 * asked_for("TUTTI_TEST_PROGRAMS", 2);
  for (unsigned seed = first; seed < first + programs && !HasFailure(); ++seed) {
    std::mt19937 random(seed);
    Seen& seen = *new (memory) Seen;
    RanksOptions options;
    options.transport = random() % 3 == 0 ? "tcp" : "shm";
    options.timeout_ms = 60000;
    const std::string setting = set_up(seed, options) + ", " + options.transport;
    const int n = 2 + int(random() % 4), victim = int(random() % unsigned(n));
    const bool aborts = random() % 3 == 0;
    const auto which = unsigned(random());
    const std::chrono::microseconds delay(random() % (1u << (8 + random() % 10)));
    Processes processes(n, options, [&](int rank, tuttiComm_t comm) {
      Program program(seed, setting, true, rank, comm);
      std::jthread end;
      if (rank == victim)
        end = std::jthread([&] {
          std::this_thread::sleep_for(delay);
          seen.ended = Clock::now().time_since_epoch().count();
          if (aborts) program.abort_one(which);
          else ::kill(::getpid(), SIGKILL);
        });
      try {
        program.run();
      } catch (const Ended& ended) {
        EXPECT_TRUE(ended.result == tuttiRemoteError || ended.result == tuttiAborted)
            << ended.sentence << " (" << tuttiGetErrorString(ended.result) << ")";
        EXPECT_LT(seconds_since(seen.ended), verdict_s_max) << ended.sentence;
      }
    });
    for (int rank = 0; rank < n; ++rank) {
      const int status = processes.wait(rank);
      if (rank == victim && !aborts) EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
      else EXPECT_EQ(status, 0) << "rank " << rank << " of " << n << ", program " << seed << " (" << setting << ")";
    }
  }
  ::munmap(memory, sizeof(Seen));
}

// Somewhere in its program one rank stands still, past the deadline, and then goes on, when others have taken back the memory that it
// was reading, and have filled it anew. Whatever each rank was told to be over is right, also on the one that had stood still.
TEST(HaltedPrograms, TakeNothingThatHasChangedMeanwhile) {
  struct Seen {
    std::atomic<bool> begun{false}, goes_on{false};
  };
  void* const memory = ::mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto wait_for = [](const std::atomic<bool>& flag) {
    for (int ms = 0; !flag && ms < 20000; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const unsigned first = asked_for("TUTTI_TEST_SEED", 1), programs = 3 * asked_for("TUTTI_TEST_PROGRAMS", 2);
  for (unsigned seed = first; seed < first + programs && !HasFailure(); ++seed) {
    std::mt19937 random(seed);
    Seen& seen = *new (memory) Seen;
    RanksOptions options;
    options.transport = random() % 4 == 0 ? "tcp" : "shm";
    options.timeout_ms = sanitized ? 2000 : 500;
    const std::string setting = set_up(seed, options) + ", " + options.transport;
    const int n = 2 + int(random() % 4), victim = int(random() % unsigned(n));
    const std::chrono::microseconds delay(random() % (1u << (8 + random() % 9)));
    Processes processes(n, options, [&](int rank, tuttiComm_t comm) {
      if (rank == victim) seen.begun = true;
      Program program(seed, setting, true, rank, comm);
      try {
        program.run();
      } catch (const Ended& ended) {
        const std::array expected = {tuttiTimeout, tuttiRemoteError, tuttiAborted};
        EXPECT_TRUE(std::ranges::find(expected, ended.result) != expected.end())
            << ended.sentence << " (" << tuttiGetErrorString(ended.result) << ")";
        if (rank == victim) return;
        program.fill_anew();
        wait_for(seen.goes_on);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    });
    wait_for(seen.begun);
    std::this_thread::sleep_for(delay);
    ::kill(processes.pid(victim), SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * options.timeout_ms));
    ::kill(processes.pid(victim), SIGCONT);
    seen.goes_on = true;
    for (int rank = 0; rank < n; ++rank)
      EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank << " of " << n << ", program " << seed << " (" << setting << ")";
  }
  ::munmap(memory, sizeof(Seen));
}

// Somewhere in its program one rank makes another call than all others. All end by an error or were through before they
// could hear of it, and nobody takes what it has not asked for. Where the two calls go by different algorithms no message of
// one need meet the other: then it is the deadline that ends them.
TEST(MistakenPrograms, EndForAllAndCorruptNothing) {
  void* const memory = ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::atomic<int>& mismatches = *new (memory) std::atomic<int>(0);  // that ranks were told of
  const unsigned first = asked_for("TUTTI_TEST_SEED", 1), programs = 6 * asked_for("TUTTI_TEST_PROGRAMS", 2);
  for (unsigned seed = first; seed < first + programs && !HasFailure(); ++seed) {
    std::mt19937 random(seed);
    RanksOptions options;
    options.transport = random() % 3 == 0 ? "tcp" : "shm";
    options.timeout_ms = 3000;
    const std::string setting = set_up(seed, options) + ", " + options.transport;
    const int n = 2 + int(random() % 4), victim = int(random() % unsigned(n));
    const size_t step = random() % steps;
    run_processes(n, options, [&](int rank, tuttiComm_t comm) {
      Program program(seed, setting, true, rank, comm);
      if (rank == victim) program.slip_at(step);
      try {
        program.run();
      } catch (const Ended& ended) {
        if (ended.result == tuttiMismatch) ++mismatches;
        const std::array expected = {tuttiMismatch, tuttiRemoteError, tuttiAborted, tuttiTimeout};
        EXPECT_TRUE(std::ranges::find(expected, ended.result) != expected.end())
            << "rank " << victim << " slips from step " << step << " on; " << ended.sentence << " ("
            << tuttiGetErrorString(ended.result) << ")";
        EXPECT_NE(ended.sentence.find("rank "), std::string::npos) << ended.sentence;
      }
    });
  }
  EXPECT_GT(mismatches, int(programs) / 2) << "of " << programs << " programs";
  ::munmap(memory, sizeof(int));
}

}  // namespace
}  // namespace tutti::test
