// Whole programs, drawn from a seed: calls of every kind and size in any order, made again with the same buffers or with others,
// alone, in groups, on a stream or prepared, on a communicator and its parts, in memory of every kind that comes and goes.
// Whatever shorter ways the library takes for what it has met before, each buffer holds what it must afterwards, guards and all.
//
// TUTTI_TEST_PROGRAMS=N: so many programs of each case (usually 2); TUTTI_TEST_SEED=N: the first one's seed (usually 1).
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
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
  call.count = magnitude == 0 ? 0 : (size_t{1} << (magnitude - 1)) + (random() % 2 == 0 ? 0 : random() % (size_t{1} << (magnitude - 1)));
  call.count = std::min(call.count, count_max);
  return call;
}

Step draw_step(std::mt19937& random, int n) {
  Step step;
  const size_t calls = random() % 4 != 0 ? 1 : 2 + random() % 4;
  for (size_t i = 0; i < calls; ++i) step.calls.push_back(draw_call(random, n));
  if (random() % 2 == 0) step.times = 2 + unsigned(random() % 6);
  return step;
}

// One rank's run of a program. `shared` draws what all ranks must agree on; `own`, what each decides for itself.
class Program {
 public:
  Program(unsigned seed, std::string setting, bool alone, int rank, tuttiComm_t comm)
      : seed_(seed), setting_(std::move(setting)), alone_(alone), shared_(seed), own_(seed * 100 + unsigned(rank)), pool_(own_()) {
    tuttiCommCount(comm, &n_);
    comms_[0] = comm;
    EXPECT_EQ(tuttiCommSplit(comm, 0, -rank, &comms_[1], nullptr), tuttiSuccess) << tuttiGetLastError(comm);  // the other way round
    EXPECT_EQ(tuttiCommSplit(comm, rank % 2, rank, &comms_[2], nullptr), tuttiSuccess) << tuttiGetLastError(comm);
    EXPECT_EQ(tuttiStreamCreate(&stream_), tuttiSuccess);
  }
  ~Program() {
    EXPECT_EQ(tuttiStreamDestroy(stream_), tuttiSuccess);
    for (size_t i = 1; i < communicators; ++i) EXPECT_EQ(tuttiCommDestroy(comms_[i]), tuttiSuccess);
  }

  void run() {
    std::deque<Step> last;
    for (step_ = 0; step_ < steps && !::testing::Test::HasFailure(); ++step_) {
      const bool is_known = last.size() > 2 && shared_() % 3 == 0;
      const Step step = is_known ? last[shared_() % last.size()] : draw_step(shared_, n_);
      const uint32_t key = uint32_t(shared_());
      run(step, key);
      last.push_back(step);
      if (last.size() > 5) last.pop_front();
    }
    settle();
  }

 private:
  using Calls = std::vector<PlayedCall>;

  std::string where(unsigned time) const { return fmt::format("program {} ({}), step {}, time {}", seed_, setting_, step_, time); }

  Taste draw_taste() {
    Taste taste;
    taste.in_place = own_() % 3 == 0;
    taste.gap = own_() % 2 == 0 ? 0 : 1 + own_() % 5;
    taste.offset = own_() % 3 == 0 ? own_() % 64 : 0;
    taste.other_offset = own_() % 3 == 0 ? own_() % 64 : 0;
    taste.backwards = own_() % 2 == 0;
    return taste;
  }

  Calls make_calls(const Step& step) {
    Calls calls;
    calls.reserve(step.calls.size());
    for (const Played& played : step.calls) calls.emplace_back(played, draw_taste(), comms_[played.communicator], pool_);
    return calls;
  }

  void run(const Step& step, uint32_t key) {
    if (own_() % 4 == 0) return run_prepared(step, key);
    Calls calls = make_calls(step);
    for (unsigned time = 1; time <= step.times; ++time) {
      if (time > 1 && own_() % 3 == 0) calls = Calls(), calls = make_calls(step);
      fill(calls, key + time);
      dawdle();
      const bool on_stream = own_() % 4 == 0;
      enqueue(calls, on_stream ? stream_ : nullptr, time);
      if (!on_stream) {
        check(calls, time);
      } else if (time == step.times && own_() % 2 == 0) {
        pending_.push_back(std::move(calls));
        if (pending_.size() > 3) settle();
      } else {
        settle();
        check(calls, time);
      }
      if (::testing::Test::HasFailure()) return;
    }
  }

  void fill(Calls& calls, uint32_t key) {
    const bool anew = own_() % 5 == 0;
    for (PlayedCall& call : calls) {
      if (anew) call.lie_anew(alone_);
      call.fill(key);
    }
  }

  void enqueue(const Calls& calls, tuttiStream_t stream, unsigned time) {
    const bool in_group = own_() % 2 == 0;
    if (in_group) {
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    }
    for (const PlayedCall& call : calls)
      ASSERT_EQ(call.make(stream), tuttiSuccess) << where(time) << ": " << call.describe() << ": " << tuttiGetLastError(nullptr);
    if (in_group) {
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << where(time) << ": " << tuttiGetLastError(nullptr);
    }
  }

  void run_prepared(const Step& step, uint32_t key) {
    Calls calls = make_calls(step);
    tuttiPrepared_t prepared = nullptr;
    ASSERT_EQ(tuttiPrepareStart(), tuttiSuccess);
    for (const PlayedCall& call : calls) ASSERT_EQ(call.make(nullptr), tuttiSuccess) << call.describe() << ": " << tuttiGetLastError(nullptr);
    ASSERT_EQ(tuttiPrepareEnd(&prepared), tuttiSuccess) << where(0) << ": " << tuttiGetLastError(nullptr);
    for (unsigned time = 1; time <= step.times; ++time) {
      fill(calls, key + time);
      dawdle();
      tuttiStream_t const stream = own_() % 3 == 0 ? stream_ : nullptr;
      ASSERT_EQ(tuttiPreparedStart(prepared, stream), tuttiSuccess) << where(time) << ", prepared: " << tuttiGetLastError(nullptr);
      if (stream != nullptr) settle();
      check(calls, time);
      if (::testing::Test::HasFailure()) break;
    }
    EXPECT_EQ(tuttiPreparedDestroy(prepared), tuttiSuccess);
  }

  // Waits for what is on the stream, and looks at it.
  void settle() {
    EXPECT_EQ(tuttiStreamSynchronize(stream_), tuttiSuccess) << where(0) << ": " << tuttiGetLastError(nullptr);
    for (const Calls& calls : pending_) check(calls, 0);
    pending_.clear();
  }
  void check(const Calls& calls, unsigned time) {
    for (const PlayedCall& call : calls) {
      const std::string wrong = call.wrong();
      ASSERT_TRUE(wrong.empty()) << where(time) << ": " << wrong;
    }
  }
  // Ranks are late by themselves, seldom by much.
  void dawdle() {
    if (own_() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own_() % (own_() % 8 == 0 ? 4000 : 200)));
  }

  unsigned seed_;
  std::string setting_;
  bool alone_;  // no other rank is a thread of this process
  std::mt19937 shared_, own_;
  MemoryPool pool_;
  int n_ = 1;
  std::array<tuttiComm_t, communicators> comms_{};
  tuttiStream_t stream_ = nullptr;
  std::vector<Calls> pending_;
  size_t step_ = 0;
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
  set("TUTTI_LEND", one_of(usual, usual, usual, "0"));
  options.channels = one_of(-1, -1, 1, 3);
  options.determinism = one_of(-1, -1, 1, 2);
  return words + fmt::format("channels {}, determinism {}", options.channels, options.determinism);
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
    const Body body = [&](int rank, tuttiComm_t comm) { Program(seed, setting, c.as_processes, rank, comm).run(); };
    if (c.as_processes) run_processes(c.ranks, options, body);
    else run_threads(c.ranks, options, body);
  }
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return fmt::format("{}_{}_{}", info.param.ranks, info.param.transport, info.param.as_processes ? "AsProcesses" : "AsThreads");
}
INSTANTIATE_TEST_SUITE_P(Ranks, Programs,
                         ::testing::Values(Case{1, "shm", false}, Case{2, "shm", false}, Case{2, "shm", true}, Case{3, "shm", true},
                                           Case{4, "shm", true}, Case{5, "shm", false}, Case{7, "shm", true}, Case{2, "tcp", true},
                                           Case{3, "tcp", false}),
                         name_of);

}  // namespace
}  // namespace tutti::test
