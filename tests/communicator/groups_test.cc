// Groups of collectives: small ones go at once, and yet everything is as if they had come one after the other, also for who
// calls them so. What calls must do is played by a model of all ranks' memory.
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "communicator/c_api.h"
#include "communicator/call_set.h"
#include "communicator/group.h"
#include "communicator/ranks.h"
#include "sanitizer.h"
#include "transport/fake_bootstrap.h"
#include "transport/tcp/tcp.h"

namespace tutti {
namespace {

enum class Kind : uint8_t { all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, gather, scatter, barrier };
constexpr int kinds = 9;

// A call, whose buffers are parts of each rank's memory. Sizes are in elements.
struct Played {
  Kind kind{};
  size_t count = 0;
  size_t input = 0, output = 0;  // the first element; of the buffer of all blocks, where the other one is a block of it
  bool in_place = false;
  int root = 0;
};

using Memory = std::vector<int32_t>;

bool has_blocks(Kind kind) {
  return kind == Kind::all_gather || kind == Kind::reduce_scatter || kind == Kind::all_to_all || kind == Kind::gather ||
         kind == Kind::scatter;
}

// What one rank after the other would make of it, if all read before any writes.
void play(const Played& call, std::vector<Memory>& all) {
  const size_t n = all.size(), count = call.count;
  const std::vector<Memory> before = all;
  const auto input_of = [&](size_t rank, size_t i) { return before[rank][call.input + i]; };
  const auto sum_of = [&](size_t i) {
    uint32_t sum = 0;
    for (size_t rank = 0; rank < n; ++rank) sum += uint32_t(input_of(rank, i));
    return int32_t(sum);
  };
  // Where a rank's own block is its whole buffer.
  const auto own = [&](size_t rank) { return call.in_place ? rank * count : 0; };
  for (size_t rank = 0; rank < n; ++rank) {
    Memory& memory = all[rank];
    const bool is_root = int(rank) == call.root;
    for (size_t i = 0; i < count; ++i) {
      switch (call.kind) {
        case Kind::all_reduce: memory[call.output + i] = sum_of(i); break;
        case Kind::broadcast: memory[call.output + i] = input_of(size_t(call.root), i); break;
        case Kind::reduce:
          if (is_root) memory[call.output + i] = sum_of(i);
          break;
        case Kind::reduce_scatter: memory[call.output + own(rank) + i] = sum_of(rank * count + i); break;
        case Kind::scatter: memory[call.output + i] = input_of(size_t(call.root), rank * count + i); break;
        case Kind::barrier: break;
        default:
          if (call.kind == Kind::gather && !is_root) break;
          for (size_t from = 0; from < n; ++from) {
            const size_t there = call.kind == Kind::all_to_all ? rank * count : own(from);
            memory[call.output + from * count + i] = input_of(from, there + i);
          }
      }
    }
  }
}

tuttiResult_t make(const Played& call, int rank, Memory& memory, tuttiComm_t comm) {
  int32_t* const input = memory.data() + call.input;
  int32_t* const output = memory.data() + call.output;
  int32_t* const own_input = call.in_place ? input + size_t(rank) * call.count : input;
  int32_t* const own_output = call.in_place ? output + size_t(rank) * call.count : output;
  switch (call.kind) {
    case Kind::all_reduce: return tuttiAllReduce(input, output, call.count, tuttiInt32, tuttiSum, comm, nullptr);
    case Kind::broadcast: return tuttiBroadcast(input, output, call.count, tuttiInt32, call.root, comm, nullptr);
    case Kind::reduce: return tuttiReduce(input, output, call.count, tuttiInt32, tuttiSum, call.root, comm, nullptr);
    case Kind::all_gather: return tuttiAllGather(own_input, output, call.count, tuttiInt32, comm, nullptr);
    case Kind::reduce_scatter: return tuttiReduceScatter(input, own_output, call.count, tuttiInt32, tuttiSum, comm, nullptr);
    case Kind::all_to_all: return tuttiAlltoAll(input, output, call.count, tuttiInt32, comm, nullptr);
    case Kind::gather: return tuttiGather(input, output, call.count, tuttiInt32, call.root, comm, nullptr);
    case Kind::scatter: return tuttiScatter(input, output, call.count, tuttiInt32, call.root, comm, nullptr);
    case Kind::barrier: return tuttiBarrier(comm, nullptr);
  }
  return tuttiInternalError;
}

constexpr size_t places = 12;  // of a rank's memory; each buffer is one

// A group whose calls read what others of it write, as often as not.
std::vector<Played> draw_group(std::mt19937& random, int n, size_t memory) {
  const auto below = [&](size_t bound) { return size_t(random()) % bound; };
  std::vector<Played> calls(1 + below(below(3) == 0 ? 40 : 6));
  const size_t place = memory / places;
  for (Played& call : calls) {
    call.kind = Kind(below(kinds));
    const size_t counts[] = {0, 1, 2, 3, 17, 100, 256, 1000};
    call.count = std::min(counts[below(std::size(counts))], place / size_t(has_blocks(call.kind) ? n : 1));
    call.root = int(below(size_t(n)));
    call.input = below(places) * place;
    const bool may_be_in_place = call.kind != Kind::gather && call.kind != Kind::scatter;
    call.in_place = may_be_in_place && below(3) == 0;
    call.output = call.in_place ? call.input : (call.input + (1 + below(places - 1)) * place) % memory;
  }
  return calls;
}

// The same group but for one thing.
std::vector<Played> with_one_changed(std::vector<Played> calls, std::mt19937& random, int n, size_t memory) {
  Played& call = calls[random() % calls.size()];
  const size_t place = memory / places;
  switch (random() % 4) {
    case 0: call.count -= call.count / 2; break;
    case 1: call.root = (call.root + 1) % n; break;
    default:
      if (call.in_place) call.input = call.output = (call.input + place) % memory;
      else if (const size_t other = (call.output + place) % memory; other != call.input) call.output = other;
  }
  return calls;
}

struct Case {
  int ranks;
  const char* transport;
};
class Groups : public ::testing::TestWithParam<Case> {};

// Ranks make a group, or the same calls alone, as it happens; some groups many times, between others, and more of them than a
// thread keeps.
TEST_P(Groups, AreAsIfTheirCallsCameOneAfterTheOther) {
  const int n = GetParam().ranks;
  constexpr size_t memory = places * 1024, different = 12;
  const unsigned groups = test::sanitized ? 30 : 150;
  test::RanksOptions options;
  options.transport = GetParam().transport;
  test::run_threads(n, options, [&](int rank, tuttiComm_t comm) {
    std::mt19937 random{unsigned(n)}, own{unsigned(rank) + 1};
    std::vector<std::vector<Played>> drawn;
    for (size_t i = 0; i < different / 2; ++i) drawn.push_back(draw_group(random, n, memory));
    for (size_t i = 0; i < different / 2; ++i) drawn.push_back(with_one_changed(drawn[i], random, n, memory));
    std::vector<Memory> all(static_cast<size_t>(n), Memory(memory));
    for (size_t i = 0; i < all.size(); ++i) std::iota(all[i].begin(), all[i].end(), int32_t(1000000 * (i + 1)));
    Memory mine = all[size_t(rank)];
    for (unsigned group = 0; group < groups; ++group) {
      const size_t which = (random() % (group % 20 < 10 ? 2 : different / 2)) + different / 2 * (random() % 2);
      for (const Played& call : drawn[which]) play(call, all);
      const bool in_group = own() % 4 != 0;
      if (in_group) {
        ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      }
      for (const Played& call : drawn[which]) ASSERT_EQ(make(call, rank, mine, comm), tuttiSuccess) << tuttiGetLastError(comm);
      if (in_group) {
        ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
      }
      const auto differs = std::ranges::mismatch(mine, all[size_t(rank)]);
      ASSERT_EQ(differs.in1, mine.end())
          << "rank " << rank << ", group " << which << " of " << drawn[which].size() << " calls, the " << group
          << "th, element " << differs.in1 - mine.begin() << ": " << *differs.in1 << ", not " << *differs.in2;
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return fmt::format("{}_{}", info.param.ranks, info.param.transport);
}
INSTANTIATE_TEST_SUITE_P(Ranks, Groups,
                         ::testing::Values(Case{1, "shm"}, Case{2, "shm"}, Case{3, "shm"}, Case{4, "shm"}, Case{5, "shm"},
                                           Case{6, "shm"}, Case{7, "shm"}, Case{8, "shm"}, Case{2, "tcp"}, Case{3, "tcp"},
                                           Case{5, "tcp"}),
                         name_of);

// All ranks of one thread, whose calls are tried one after the other: the last one ends at once. What another one has begun and not
// ended goes on, on a thread of its own, where that began.
TEST(CallSets, WhatIsTriedInVainIsEndedByAnotherThread) {
  constexpr int n = 3, rounds = 20;
  std::array<tuttiComm_t, n> comms{};
  ASSERT_EQ(tuttiCommInitAll(comms.data(), n, nullptr), tuttiSuccess) << tuttiGetLastError(nullptr);
  for (int round = 0; round < rounds; ++round) {
    std::array<std::array<int32_t, 2>, n> values{};
    std::vector<CallSet> sets;
    for (size_t r = 0; r < n; ++r) {
      std::vector<GroupCall> calls;
      for (int32_t& value : values[r]) {
        value = int32_t(r) + round;
        Request request;
        request.call = {Collective::all_reduce, DataType::int32, ReduceOp::sum, 0, 1};
        request.output = reinterpret_cast<std::byte*>(&value);
        request.input = request.output;
        request.in_place = true;
        calls.push_back({&communicator_of(comms[r]), request, {}});
      }
      sets.emplace_back(std::move(calls));
    }
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < n; ++r) {
      EXPECT_TRUE(sets[r].may_run_at_once());
      const std::optional<Outcome> outcome = sets[r].try_run();
      EXPECT_FALSE(outcome.has_value() && r + 1 < n) << "the others have not called";
      EXPECT_EQ(outcome.value_or(Outcome{}).code, Code::success);
      if (!outcome) threads.emplace_back([&set = sets[r]] { EXPECT_EQ(set.run().code, Code::success); });
    }
    threads.clear();
    for (const auto& mine : values)
      for (const int32_t value : mine) EXPECT_EQ(value, 3 * round + 3);
  }
  for (const tuttiComm_t comm : comms) EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

// A group of sends and receives, large ones too, is kept: made once more it is but compared. Of large collectives ranks agree anew.
TEST(KeptGroups, KeepSendsAndReceivesOfAnySize) {
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    constexpr size_t large = size_t{1} << 18;
    Communicator& communicator = communicator_of(comm);
    KeptGroups kept;
    std::vector<int32_t> in(large), out(large);
    for (const bool is_collective : {false, true}) {
      for (const size_t count : {size_t{3}, large / 16, large}) {
        std::vector<GroupCall> calls;
        std::vector<KeptGroup::KnownCall> again;
        for (const bool sending : {true, false}) {
          Request request;
          request.call = {Collective::send_recv, DataType::int32, ReduceOp::sum, 0, count};
          request.peer = 1 - rank;
          request.sending = sending;
          if (is_collective) request.call.kind = Collective::all_reduce;
          if (sending || is_collective) request.input = reinterpret_cast<const std::byte*>(in.data());
          if (!sending || is_collective) request.output = reinterpret_cast<std::byte*>(out.data());
          calls.push_back({&communicator, request, {}});
          const Call key = communicator.key_of(request);
          again.push_back({&communicator, request.input, request.output, count, key.kind, key.type, key.op, key.root});
        }
        std::iota(in.begin(), in.end(), rank);
        ASSERT_EQ(run_group(calls, kept).code, Code::success);
        for (int time = 1; time <= 3; ++time) {
          const bool noted = kept.note(again[0]) && kept.note(again[1]);
          ASSERT_EQ(noted, !is_collective || count == 3) << count;
          if (!noted) break;
          ASSERT_TRUE(kept.has_noted_all());
          std::iota(in.begin(), in.end(), 10 * time + rank);
          ASSERT_EQ(kept.run_noted().code, Code::success);
          for (size_t i = 0; i < count; ++i) {
            const int32_t peers = 10 * time + 1 - rank + int32_t(i);
            ASSERT_EQ(out[i], is_collective ? in[i] + peers : peers) << i;
          }
        }
        kept.forget_noted();
      }
    }
  });
}

// Memory that was the library's, and its own process's when the group was made again, at the same place. What ranks said of it
// before does not count any more.
TEST(KeptGroups, LookWhereLargeBuffersLie) {
  test::run_processes(2, {}, [](int rank, tuttiComm_t comm) {
    constexpr size_t count = size_t{2} << 20, bytes = count * sizeof(int32_t);
    void* memory = nullptr;
    ASSERT_EQ(tuttiMemAlloc(&memory, bytes), tuttiSuccess) << tuttiGetLastError(nullptr);
    std::vector<int32_t> out(count);
    const auto exchange = [&](int32_t time) {
      int32_t* const in = static_cast<int32_t*>(memory);
      std::iota(in, in + count, 1000 * time + rank);
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(tuttiSend(in, count, tuttiInt32, 1 - rank, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiRecv(out.data(), count, tuttiInt32, 1 - rank, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], 1000 * time + 1 - rank + int32_t(i)) << "time " << time;
    };
    for (int32_t time = 1; time <= 3; ++time) exchange(time);
    ASSERT_EQ(tuttiMemFree(memory), tuttiSuccess);
    void* const own = ::mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    ASSERT_EQ(own, memory) << "a block of its own is unmapped when it is freed";
    for (int32_t time = 4; time <= 6; ++time) exchange(time);
    ::munmap(own, bytes);
  });
}

// The calls of a group are still told apart, one by one.
TEST(GroupsOfUnlikeCalls, AreAMismatchThatNamesTheCalls) {
  test::run_threads(3, {}, [](int rank, tuttiComm_t comm) {
    int32_t in[8] = {}, out[4][8] = {};
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    for (size_t i = 0; i < 4; ++i)
      ASSERT_EQ(tuttiAllReduce(in, out[i], rank == 1 && i == 2 ? 5 : 4, tuttiInt32, tuttiSum, comm, nullptr), tuttiSuccess);
    EXPECT_EQ(tuttiGroupEnd(), tuttiMismatch);
    const std::string sentence = tuttiGetLastError(comm);
    EXPECT_NE(sentence.find("all_reduce(count 4"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("all_reduce(count 5"), std::string::npos) << sentence;
  });
}

// Of a group whose first call nobody else makes, that one is told of, and not one which has sent ahead, although its own time
// is over.
TEST(GroupsThatWait, NameTheCallWhoseTurnItIs) {
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int32_t in[8] = {}, out[4][8] = {};
    tuttiResult_t result = tuttiSuccess;
    if (rank == 0) {
      tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
      options.deadline_ms = 300;
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      for (size_t i = 0; i < 4; ++i)
        ASSERT_EQ(tuttiAllReduceWith(in, out[i], i + 3, tuttiInt32, tuttiSum, comm, nullptr, i == 2 ? &options : nullptr),
                  tuttiSuccess);
      result = tuttiGroupEnd();
      const std::string sentence = tuttiGetLastError(comm);
      EXPECT_NE(sentence.find("all_reduce(count 3"), std::string::npos) << sentence;
    } else {
      while (result == tuttiSuccess) ASSERT_EQ(tuttiCommGetAsyncError(comm, &result), tuttiSuccess);
    }
    EXPECT_EQ(result, tuttiTimeout);
  });
}

// A group ends with the first error of any of its communicators. What its calls on another one have left undone, nobody there
// takes for done: not a block that is read where it lies, in memory that is its owner's again.
TEST(GroupsOfTwoCommunicators, ThatEndEarlyLeaveNothingToBeTakenForDone) {
  constexpr size_t count = size_t{1} << 18;
  test::RanksOptions options;
  options.transport = "shm";
  test::run_processes(2, options, [](int rank, tuttiComm_t comm) {
    tuttiComm_t other = nullptr;
    ASSERT_EQ(tuttiCommSplit(comm, 0, rank, &other, nullptr), tuttiSuccess);
    void* memory = nullptr;
    ASSERT_EQ(tuttiMemAlloc(&memory, 3 * count * sizeof(int32_t)), tuttiSuccess);
    int32_t *const mine = static_cast<int32_t*>(memory), *const all = mine + count;
    std::fill_n(mine, count, 1);
    const std::array<size_t, 2> counts = {count, count};
    const auto gather = [&] { return tuttiAllGatherV(mine, count, all, counts.data(), nullptr, tuttiInt32, other, nullptr); };
    int32_t value = 7;
    if (rank == 0) {
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(gather(), tuttiSuccess);
      ASSERT_EQ(tuttiRecv(&value, 1, tuttiInt32, 1, comm, nullptr), tuttiSuccess);
      EXPECT_EQ(tuttiGroupEnd(), tuttiAborted);
      EXPECT_NE(std::string(tuttiGetLastError(nullptr)).find("tuttiCommAbort"), std::string::npos) << tuttiGetLastError(nullptr);
      std::fill_n(mine, count, 2);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_EQ(tuttiBarrier(other, nullptr), tuttiAborted);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ASSERT_EQ(tuttiCommAbort(comm), tuttiSuccess);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      EXPECT_EQ(gather(), tuttiAborted) << "and rank 0's block is of " << all[0];
      const std::string sentence = tuttiGetLastError(other);
      for (const char* const part : {"rank 0", "all_gather_v", "tuttiCommAbort"})
        EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    }
    EXPECT_EQ(tuttiCommDestroy(other), tuttiSuccess);
    EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess);
  });
}

// Nor is what is called next taken for what a group has not even begun.
TEST(GroupsOfTwoCommunicators, ThatCannotBeginLeaveNothingToBeTakenForTheNextCall) {
  test::run_processes(2, {}, [](int rank, tuttiComm_t comm) {
    tuttiComm_t other = nullptr;
    ASSERT_EQ(tuttiCommSplit(comm, 0, rank, &other, nullptr), tuttiSuccess);
    int32_t first = rank, second = rank;
    if (rank == 1) {
      EXPECT_EQ(tuttiBroadcast(&first, &first, 1, tuttiInt32, 1, other, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiCommAbort(comm), tuttiSuccess);
    } else {
      tuttiResult_t state = tuttiSuccess;
      while (state == tuttiSuccess) ASSERT_EQ(tuttiCommGetAsyncError(comm, &state), tuttiSuccess);
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(tuttiRecv(&second, 1, tuttiInt32, 1, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiBroadcast(&first, &first, 1, tuttiInt32, 1, other, nullptr), tuttiSuccess);
      EXPECT_EQ(tuttiGroupEnd(), tuttiAborted);
      EXPECT_EQ(tuttiBroadcast(&second, &second, 1, tuttiInt32, 1, other, nullptr), tuttiAborted) << "and was given " << second;
    }
    EXPECT_EQ(tuttiCommDestroy(other), tuttiSuccess);
  });
}

// But a communicator on which the group's calls are over is as good as before.
TEST(GroupsOfTwoCommunicators, ThatEndEarlyLeaveThoseAloneWhoseCallsAreOver) {
  test::run_processes(2, {}, [](int rank, tuttiComm_t comm) {
    tuttiComm_t other = nullptr;
    ASSERT_EQ(tuttiCommSplit(comm, 0, rank, &other, nullptr), tuttiSuccess);
    int32_t value = 7, sum = 0;
    if (rank == 0) {
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(tuttiSend(&value, 1, tuttiInt32, 1, other, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiRecv(&sum, 1, tuttiInt32, 1, comm, nullptr), tuttiSuccess);
      EXPECT_EQ(tuttiGroupEnd(), tuttiAborted);
    } else {
      EXPECT_EQ(tuttiRecv(&sum, 1, tuttiInt32, 0, other, nullptr), tuttiSuccess);
      EXPECT_EQ(sum, 7);
      ASSERT_EQ(tuttiCommAbort(comm), tuttiSuccess);
    }
    EXPECT_EQ(tuttiAllReduce(&value, &sum, 1, tuttiInt32, tuttiSum, other, nullptr), tuttiSuccess);
    EXPECT_EQ(sum, 14);
    EXPECT_EQ(tuttiCommDestroy(other), tuttiSuccess);
  });
}

// A large call that goes through the memory of all ranks, in the place of a small one in the group before.
TEST(GroupsInSharedMemory, KeepTheirOrderAroundACallThatTheEngineDoesNotRun) {
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    constexpr size_t large = size_t{1} << 20;
    void* memory = nullptr;
    ASSERT_EQ(tuttiMemAlloc(&memory, 2 * large * sizeof(int32_t)), tuttiSuccess) << tuttiGetLastError(nullptr);
    int32_t* const in = static_cast<int32_t*>(memory);
    int32_t* const out = in + large;
    int32_t small_in[4][2] = {}, small_out[4][2] = {};
    for (int time = 1; time <= 40; ++time) {
      std::fill_n(in, large, time + rank);
      for (auto& one : small_in) one[0] = one[1] = time + rank;
      const bool is_large = time % 2 == 0;
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      for (int i = 0; i < 4; ++i) {
        const bool here = is_large && i == 1;
        ASSERT_EQ(tuttiAllReduce(here ? in : small_in[i], here ? out : small_out[i], here ? large : 2, tuttiInt32, tuttiSum,
                                 comm, nullptr),
                  tuttiSuccess);
      }
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
      const int32_t sum = 2 * time + 1;
      for (int i = 0; i < 4; ++i) {
        const bool good = is_large && i == 1 ? std::all_of(out, out + large, [&](int32_t one) { return one == sum; })
                                             : small_out[i][0] == sum && small_out[i][1] == sum;
        EXPECT_TRUE(good) << "call " << i << ", time " << time;
      }
    }
    ASSERT_EQ(tuttiMemFree(memory), tuttiSuccess);
  });
}

// What a rank's sum knows: on rank 1 it takes its time.
struct SlowSum {
  int rank = 0;
  std::atomic<int> done{0};  // how often
};
void add_slowly(const void* in, void* inout, size_t count, void* context) {
  auto& self = *static_cast<SlowSum*>(context);
  if (self.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (size_t i = 0; i < count; ++i) static_cast<int32_t*>(inout)[i] += static_cast<const int32_t*>(in)[i];
  ++self.done;
}

// Also in a group, a barrier's end says that all have what came before it.
TEST(GroupsWithABarrier, EndWhenAllHaveWhatComesBeforeIt) {
  constexpr int n = 2;
  std::array<SlowSum, n> sums;
  test::run_threads(n, {}, [&](int rank, tuttiComm_t comm) {
    sums[size_t(rank)].rank = rank;
    tuttiRedOp_t slow_sum{};
    ASSERT_EQ(tuttiRedOpCreate(&slow_sum, add_slowly, tuttiInt32, 1, &sums[size_t(rank)], comm), tuttiSuccess);
    for (int time = 1; time <= 5; ++time) {
      int32_t result = 0;
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(tuttiAllReduce(&time, &result, 1, tuttiInt32, slow_sum, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
      EXPECT_EQ(result, n * time);
      for (const SlowSum& one : sums) EXPECT_EQ(one.done.load(), time);
      ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);  // before the next sum
    }
    EXPECT_EQ(tuttiRedOpDestroy(slow_sum, comm), tuttiSuccess);
  });
}

// As with what others put into a window.
TEST(GroupsWithABarrier, ReadAfterItWhatOthersWroteBeforeIt) {
  void* const shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const inputs = static_cast<volatile int32_t*>(shared);  // of both ranks
  test::run_processes(2, {}, [&](int rank, tuttiComm_t comm) {
    for (int time = 1; time <= 3; ++time) {
      if (rank == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        inputs[0] = time;
      }
      int32_t sum = 0;
      const void* const own = const_cast<const int32_t*>(inputs + rank);
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiAllReduce(own, &sum, 1, tuttiInt32, tuttiSum, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
      EXPECT_EQ(sum, time);
    }
  });
  ::munmap(shared, 4096);
}

// Over sockets that take less than a message. Nobody may wait until all that it has sent ahead is gone, while others wait for
// it to read.
class GroupsOverNarrowLinks : public ::testing::TestWithParam<std::tuple<const char*, size_t>> {};

std::unique_ptr<Communicator> over_narrow_links(const std::shared_ptr<FakeBootstrap>& bootstrap, std::vector<Fd> sockets,
                                                const char* algorithm) {
  const int n = bootstrap->size();
  TcpOptions tcp;
  tcp.channels = 2;
  tcp.message_bytes_max = 64 << 10;
  tcp.send_buffer_bytes = tcp.receive_buffer_bytes = 1;  // as little as the kernel takes
  Communicator::Given given;
  given.links.transports.push_back(make_tcp_over(std::move(sockets), n, tcp));
  given.links.message_bytes_max = tcp.message_bytes_max;
  given.links.names.assign(size_t(n), "tcp");
  for (int channel = 0; channel < tcp.channels; ++channel)
    for (int peer = 0; peer < n; ++peer) given.links.endpoints.push_back(given.links.transports[0]->endpoint(peer, channel));
  given.costs.n = n;
  given.costs.classes.resize(1);
  given.costs.link_class.assign(size_t(n) * size_t(n), 0);
  given.host_of.assign(size_t(n), 0);
  given.patience = patience_policy(true, 0);
  CommunicatorOptions options;
  options.algorithm = algorithm;
  options.timeout_ms = 10000;
  return Communicator::over(std::make_unique<FakeBootstrap>(*bootstrap), std::move(given), options);
}

TEST_P(GroupsOverNarrowLinks, NeverStandStill) {
  constexpr int n = 4, channels = 2, calls = 40;
  const char* const algorithm = std::get<0>(GetParam());
  const size_t count = std::get<1>(GetParam());
  const auto bootstraps = fake_bootstraps(n);
  std::vector<std::vector<Fd>> sockets(n);
  for (auto& of_rank : sockets) of_rank.resize(size_t(channels * n));
  for (int channel = 0; channel < channels; ++channel)
    for (int a = 0; a < n; ++a)
      for (int b = a + 1; b < n; ++b) {
        int ends[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        sockets[size_t(a)][size_t(channel * n + b)] = Fd(ends[0]);
        sockets[size_t(b)][size_t(channel * n + a)] = Fd(ends[1]);
      }
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      const auto communicator = over_narrow_links(bootstraps[size_t(rank)], std::move(sockets[size_t(rank)]), algorithm);
      std::vector<Memory> inputs(calls, Memory(count, rank + 1)), outputs(calls, Memory(count));
      std::vector<GroupCall> group;
      for (size_t i = 0; i < calls; ++i) {
        Request request;
        request.call = {Collective::all_reduce, DataType::int32, ReduceOp::sum, 0, count};
        request.input = reinterpret_cast<const std::byte*>(inputs[i].data());
        request.output = reinterpret_cast<std::byte*>(outputs[i].data());
        group.push_back({communicator.get(), request, CallStream{}});
      }
      const Outcome outcome = CallSet(std::move(group)).run();
      EXPECT_TRUE(outcome.ok()) << outcome.sentence;
      for (const Memory& output : outputs) EXPECT_EQ(output, Memory(count, n * (n + 1) / 2));
      bootstraps[size_t(rank)]->barrier();
    });
}
INSTANTIATE_TEST_SUITE_P(Algorithms, GroupsOverNarrowLinks,
                         ::testing::Combine(::testing::Values("one_shot", "recursive_doubling", "ring", "two_shot"),
                                            ::testing::Values(256, 3000)),
                         [](const auto& one) { return fmt::format("{}_{}", std::get<0>(one.param), std::get<1>(one.param)); });

// In memory that peers read where it lies, until they have.
TEST(GroupsInSharedMemory, NeverStandStill) {
  for (const char* algorithm : {"one_shot", "recursive_doubling", "two_shot"}) {
    test::RanksOptions options;
    options.transport = "shm";
    options.algorithm = algorithm;
    test::run_threads(4, options, [](int rank, tuttiComm_t comm) {
      constexpr size_t calls = 24;
      for (const size_t count : {size_t{5000}, size_t{20000}, size_t{60000}}) {
        void* memory = nullptr;
        ASSERT_EQ(tuttiMemAlloc(&memory, 2 * calls * count * sizeof(int32_t)), tuttiSuccess) << tuttiGetLastError(nullptr);
        int32_t* const in = static_cast<int32_t*>(memory);
        int32_t* const out = in + calls * count;
        std::fill_n(in, calls * count, rank + 1);
        for (int time = 0; time < 3; ++time) {
          ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
          for (size_t i = 0; i < calls; ++i)
            ASSERT_EQ(tuttiAllReduce(in + i * count, out + i * count, count, tuttiInt32, tuttiSum, comm, nullptr), tuttiSuccess);
          ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
          EXPECT_TRUE(std::all_of(out, out + calls * count, [](int32_t sum) { return sum == 10; }));
          std::fill_n(out, calls * count, 0);
          ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
        }
        ASSERT_EQ(tuttiMemFree(memory), tuttiSuccess);
      }
    });
  }
}

}  // namespace
}  // namespace tutti
