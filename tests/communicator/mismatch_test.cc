// Calls that do not match, and of which no message of one need meet one of another's: they end on all ranks, soon, with both
// calls shown. And calls that do match, whatever lies between them and however late some rank is.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "communicator/ranks.h"
#include "sanitizer.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

// Of 250 or 2,000 usually, whatever else the machine does, and of 4,110 under ThreadSanitizer beside another test; the deadline is 20 s.
constexpr double told_ms_max = test::sanitized ? 8000 : 4000;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

std::string last_error(tuttiComm_t comm) { return tuttiGetLastError(comm); }

// A call of a rank, whose buffers are large enough for all of them.
struct Memory {
  std::vector<float> in = std::vector<float>(1000), out = std::vector<float>(1000);
};
using Call = std::function<tuttiResult_t(Memory&, tuttiComm_t)>;

Call broadcast_from(int root, size_t count = 8) {
  return [=](Memory& m, tuttiComm_t comm) { return tuttiBroadcast(m.in.data(), m.out.data(), count, tuttiFloat32, root, comm, nullptr); };
}
Call reduce_to(int root) {
  return [=](Memory& m, tuttiComm_t comm) { return tuttiReduce(m.in.data(), m.out.data(), 8, tuttiFloat32, tuttiSum, root, comm, nullptr); };
}
Call gather_to(int root) {
  return [=](Memory& m, tuttiComm_t comm) { return tuttiGather(m.in.data(), m.out.data(), 8, tuttiFloat32, root, comm, nullptr); };
}
Call scatter_from(int root) {
  return [=](Memory& m, tuttiComm_t comm) { return tuttiScatter(m.in.data(), m.out.data(), 8, tuttiFloat32, root, comm, nullptr); };
}
Call all_reduce_of(size_t count, const char* algorithm = nullptr) {
  return [=](Memory& m, tuttiComm_t comm) {
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    options.algorithm = algorithm;
    return tuttiAllReduceWith(m.in.data(), m.out.data(), count, tuttiFloat32, tuttiSum, comm, nullptr, &options);
  };
}
Call reduce_scatter_of(size_t count, const char* algorithm = nullptr) {
  return [=](Memory& m, tuttiComm_t comm) {
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    options.algorithm = algorithm;
    return tuttiReduceScatterWith(m.in.data(), m.out.data(), count, tuttiFloat32, tuttiSum, comm, nullptr, &options);
  };
}
Call barrier() {
  return [](Memory&, tuttiComm_t comm) { return tuttiBarrier(comm, nullptr); };
}

// Ranks make their calls one after the other, and then none, until the communicator fails: all with mismatch, with one
// sentence that shows two calls of two ranks.
class Mismatched : public ::testing::TestWithParam<const char*> {
 protected:
  using CallsOf = std::function<std::vector<Call>(int rank)>;

  // words: in any of the sentences.
  void expect_told(int n, const CallsOf& calls_of, const std::vector<std::string>& words) {
    std::mutex mutex;
    std::vector<std::string> sentences;
    test::RanksOptions options;
    options.transport = GetParam();
    test::run_threads(n, options, [&](int rank, tuttiComm_t comm) {
      Memory memory;
      const auto start = Clock::now();
      tuttiResult_t result = tuttiSuccess;
      for (const Call& call : calls_of(rank))
        if (result == tuttiSuccess) result = call(memory, comm);
      while (result == tuttiSuccess && ms_since(start) < 2 * told_ms_max) {
        ASSERT_EQ(tuttiCommGetAsyncError(comm, &result), tuttiSuccess);
        sleep_ms(1);
      }
      EXPECT_EQ(result, tuttiMismatch) << "rank " << rank << ": " << last_error(comm);
      EXPECT_LT(ms_since(start), told_ms_max);
      const std::lock_guard lock(mutex);
      sentences.push_back(last_error(comm));
    });
    ASSERT_EQ(sentences.size(), size_t(n));
    for (const std::string& sentence : sentences) EXPECT_EQ(sentence, sentences[0]);
    for (const std::string& word : words)
      EXPECT_NE(sentences[0].find(word), std::string::npos) << "no \"" << word << "\" in: " << sentences[0];
  }
};

// The odd rank, the last, has itself or another one as the root. Where all are through with that, as roots that only send, it is
// told in the next call, in which each rank takes a message from every other.
TEST_P(Mismatched, OtherRootsAreTold) {
  const std::pair<const char*, Call (*)(int)> kinds[] = {{"broadcast", [](int root) { return broadcast_from(root); }},
                                                         {"reduce", reduce_to}, {"gather", gather_to}, {"scatter", scatter_from}};
  for (const int n : {2, 3, 5})
    for (const auto& [kind, call_of] : kinds)
      for (const int odd_root : {n - 1, 1}) {
        SCOPED_TRACE(fmt::format("{} among {}, odd root {}", kind, n, odd_root));
        expect_told(n, [&, call_of = call_of](int rank) {
          return std::vector{call_of(rank == n - 1 ? odd_root : 0), all_reduce_of(8, "one_shot")};
        }, {fmt::format("{}(count 8, float32", kind), fmt::format("rank {} ", n - 1)});
      }
}

TEST_P(Mismatched, EachRankWithARootOfItsOwnIsTold) {
  for (const int n : {2, 3, 5})
    expect_told(n, [&](int rank) { return std::vector{reduce_to(rank)}; },
                {"called reduce(count 8, float32, sum, root ", "while", "collective call 1 of this communicator"});
}

// The root sends and goes on, to something that is no call.
TEST_P(Mismatched, ABroadcastAgainstABarrierIsTold) {
  for (const int n : {2, 3, 5})
    for (const int odd : {0, n - 1})
      expect_told(n, [&](int rank) { return std::vector{rank == odd ? broadcast_from(odd) : barrier()}; },
                  {"broadcast(count 8", "barrier()", fmt::format("rank {} ", odd)});
}

TEST_P(Mismatched, AnotherCollectiveByAnotherAlgorithmIsTold) {
  for (const int n : {2, 3, 5})
    expect_told(n, [&](int rank) {
      return std::vector{rank == 0 ? all_reduce_of(8, "tree") : reduce_scatter_of(8, "ring")};
    }, {"all_reduce(count 8, float32, sum, algorithm tree)", "reduce_scatter(count 8, float32, sum, algorithm ring)", "rank 0 "});
}

TEST_P(Mismatched, AnotherAlgorithmOfOneCollectiveIsTold) {
  for (const int n : {2, 3, 5})
    expect_told(n, [&](int rank) { return std::vector{all_reduce_of(8, rank == n - 1 ? "tree" : "ring")}; },
                {"algorithm tree", "algorithm ring"});
}

// Rank 0 makes a call more than the others, and then all make the same ones.
TEST_P(Mismatched, ARankThatIsACallAheadIsTold) {
  for (const int n : {2, 3, 5})
    expect_told(n, [&](int rank) {
      std::vector<Call> calls = {all_reduce_of(3), broadcast_from(0), all_reduce_of(9)};
      for (int i = 0; i < 3; ++i) calls.push_back(i % 2 == 0 ? reduce_to(n - 1) : barrier());
      if (rank == 0) calls.insert(calls.begin() + 2, gather_to(1));
      return calls;
    }, {"called", "while"});
}

// Of calls that progress together, the first that stands counts: the one after it, which may go on beside it, is the same on all.
TEST_P(Mismatched, TheFirstThatStandsOfAGroupIsTold) {
  for (const bool prepared : {false, true})
    expect_told(3, [&](int rank) {
      const auto group = [=](Memory& m, tuttiComm_t comm) {
        EXPECT_EQ(prepared ? tuttiPrepareStart() : tuttiGroupStart(), tuttiSuccess);
        EXPECT_EQ(broadcast_from((3 - rank) % 3)(m, comm), tuttiSuccess);
        EXPECT_EQ(tuttiBroadcast(m.in.data() + 100, m.out.data() + 100, 8, tuttiFloat32, 0, comm, nullptr), tuttiSuccess);
        if (!prepared) return tuttiGroupEnd();
        tuttiPrepared_t calls = nullptr;
        EXPECT_EQ(tuttiPrepareEnd(&calls), tuttiSuccess);
        const tuttiResult_t result = tuttiPreparedStart(calls, nullptr);
        EXPECT_EQ(tuttiPreparedDestroy(calls), tuttiSuccess);
        return result;
      };
      return std::vector<Call>{all_reduce_of(5), group};
    }, {"called broadcast(count 8, float32, root ", "both as collective call 2 of this communicator"});
}

TEST_P(Mismatched, CallsOnStreamsAreTold) {
  expect_told(3, [&](int rank) {
    return std::vector<Call>{[=](Memory& m, tuttiComm_t comm) {
      tuttiStream_t stream = nullptr;
      EXPECT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
      EXPECT_EQ(tuttiReduce(m.in.data(), m.out.data(), 8, tuttiFloat32, tuttiSum, rank, comm, stream), tuttiSuccess);
      const tuttiResult_t result = tuttiStreamSynchronize(stream);
      EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
      return result;
    }};
  }, {"called reduce(count 8, float32, sum, root "});
}

// Whoever has gone on is asked what it called 1,000 calls ago, or has not called yet.
TEST_P(Mismatched, ARankThatIsFarAheadOrBehindIsTold) {
  for (const int after_ms : {0, 700})
    expect_told(3, [&](int rank) {
      std::vector<Call> calls;
      for (size_t i = 0; i < 1500; ++i) calls.push_back(all_reduce_of(1 + i % 700));
      if (rank == 0) calls.push_back([=](Memory&, tuttiComm_t) { return sleep_ms(after_ms), tuttiSuccess; });
      calls.push_back(rank == 0 ? broadcast_from(0) : broadcast_from(3 - rank));
      return calls;
    }, {"called broadcast(count 8, float32, root ", "collective call 1501 of this communicator"});
}

// The root has gone on, and computes in a process of its own.
TEST_P(Mismatched, ProcessesAreToldToo) {
  test::RanksOptions options;
  options.transport = GetParam();
  test::run_processes(3, options, [](int rank, tuttiComm_t comm) {
    Memory memory;
    const auto start = Clock::now();
    tuttiResult_t result = (rank == 0 ? broadcast_from(0) : reduce_to(rank))(memory, comm);
    while (result == tuttiSuccess && ms_since(start) < 2 * told_ms_max) ASSERT_EQ(tuttiCommGetAsyncError(comm, &result), tuttiSuccess);
    EXPECT_EQ(result, tuttiMismatch) << last_error(comm);
    EXPECT_LT(ms_since(start), told_ms_max);
    EXPECT_NE(last_error(comm).find("called reduce(count 8, float32, sum, root "), std::string::npos) << last_error(comm);
  });
}

Call send_to(int peer) {
  return [=](Memory& m, tuttiComm_t comm) { return tuttiSend(m.in.data(), 4, tuttiFloat32, peer, comm, nullptr); };
}
Call receive_from(int peer) {
  return [=](Memory& m, tuttiComm_t comm) { return tuttiRecv(m.out.data(), 4, tuttiFloat32, peer, comm, nullptr); };
}
// All receives of a group, after its sends.
Call group_of(std::vector<Call> calls) {
  return [=](Memory& m, tuttiComm_t comm) {
    EXPECT_EQ(tuttiGroupStart(), tuttiSuccess);
    for (const Call& call : calls) EXPECT_EQ(call(m, comm), tuttiSuccess);
    return tuttiGroupEnd();
  };
}

// Ranks that wait for each other in a circle: told after the two seconds for which a rank may be late.
TEST_P(Mismatched, ReceivesThatNobodyCanServeAreTold) {
  const struct {
    const char* what;
    int n;
    CallsOf calls_of;
    std::vector<std::string> words;
  } cases[] = {
      {"a collective against a receive", 2,
       [](int rank) { return std::vector{send_to(1 - rank), receive_from(1 - rank), rank == 0 ? all_reduce_of(8) : receive_from(0)}; },
       {"rank 0 ", " waits in all_reduce(count 8, float32, sum) for rank 1 ", " to call it, too, rank 1 ",
        " waits in send/recv(count 4, float32) for a message of rank 0 ", ": none of them can go on"}},
      {"receives in a ring", 10, [](int rank) { return std::vector{barrier(), receive_from((rank + 1) % 10), send_to((rank + 9) % 10)}; },
       {"rank 7 ", "for a message of rank 8 ", ", and so on through 10 ranks: none of them can go on"}},
      {"a ring through a root", 3,
       [](int rank) { return std::vector{rank == 0 ? gather_to(0) : receive_from(rank == 1 ? 2 : 0), gather_to(0)}; },
       {"waits in gather(count 8, float32, root 0) for rank ", "for a message of rank 0 "}},
      {"groups of receives", 3,
       [](int rank) {
         const int next = (rank + 1) % 3, before = (rank + 2) % 3;
         return std::vector{group_of({send_to(next), receive_from(before), receive_from(before)})};
       },
       {"rank 0 ", "rank 1 ", "rank 2 ", "for a message of rank "}},
      {"on a stream", 2,
       [](int rank) {
         return std::vector<Call>{[=](Memory& m, tuttiComm_t comm) {
           tuttiStream_t stream = nullptr;
           EXPECT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
           EXPECT_EQ(tuttiRecv(m.out.data(), 4, tuttiFloat32, 1 - rank, comm, stream), tuttiSuccess);
           EXPECT_EQ(tuttiSend(m.in.data(), 4, tuttiFloat32, 1 - rank, comm, stream), tuttiSuccess);
           const tuttiResult_t result = tuttiStreamSynchronize(stream);
           EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
           return result;
         }};
       },
       {"rank 0 ", "for a message of rank 1 ", "rank 1 ", "for a message of rank 0 "}},
  };
  std::vector<std::thread> threads;
  for (const auto& one : cases)
    threads.emplace_back([&] {
      SCOPED_TRACE(one.what);
      expect_told(one.n, one.calls_of, one.words);
    });
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Transports, Mismatched, ::testing::Values("shm", "tcp"));

// Ranks are late, by more than what others wait until they tell of it.
class Matching : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int late_ms = 600;
  void run(int n, const std::function<void(int rank, tuttiComm_t comm)>& body) {
    test::RanksOptions options;
    options.transport = GetParam();
    test::run_threads(n, options, [&](int rank, tuttiComm_t comm) {
      body(rank, comm);
      ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess) << last_error(comm);
    });
  }
};

TEST_P(Matching, ARankMayBeLate) {
  run(3, [](int rank, tuttiComm_t comm) {
    Memory memory;
    const Call calls[] = {all_reduce_of(8), broadcast_from(1), gather_to(2), barrier(), all_reduce_of(8)};
    for (size_t i = 0; i < std::size(calls); ++i) {
      if (rank == int(i) % 3) sleep_ms(i == 0 ? 2000 : late_ms);
      ASSERT_EQ(calls[i](memory, comm), tuttiSuccess) << last_error(comm);
    }
  });
}

// A root may be many calls ahead, where the messages have room.
TEST_P(Matching, RanksMayBeAheadOfEachOther) {
  run(3, [](int rank, tuttiComm_t comm) {
    Memory memory;
    for (size_t i = 0; i < 40; ++i) {
      if (i % 20 == 10 && rank == 2) sleep_ms(late_ms);
      ASSERT_EQ(broadcast_from(0, 1 + i)(memory, comm), tuttiSuccess) << last_error(comm);
      if (i % 20 == 15 && rank == 1) sleep_ms(late_ms);
    }
  });
}

TEST_P(Matching, BlocksMayHaveSizesThatOnlyPairsKnow) {
  run(3, [](int rank, tuttiComm_t comm) {
    Memory m;
    for (int round = 0; round < 3; ++round) {
      if (rank == round) sleep_ms(late_ms);
      // Rank r sends r + 1 elements to each, or to the root, or gets so many.
      const std::array<size_t, 3> mine = {size_t(rank) + 1, size_t(rank) + 1, size_t(rank) + 1}, each = {1, 2, 3};
      ASSERT_EQ(tuttiAlltoAllV(m.in.data(), mine.data(), nullptr, m.out.data(), each.data(), nullptr, tuttiFloat32, comm, nullptr),
                tuttiSuccess) << last_error(comm);
      if (rank == (round + 1) % 3) sleep_ms(late_ms);
      ASSERT_EQ(tuttiGatherV(m.in.data(), mine[0], m.out.data(), each.data(), nullptr, tuttiFloat32, round, comm, nullptr), tuttiSuccess)
          << last_error(comm);
      if (rank == (round + 2) % 3) sleep_ms(late_ms);
      ASSERT_EQ(tuttiScatterV(m.in.data(), each.data(), nullptr, m.out.data(), mine[0], tuttiFloat32, round, comm, nullptr), tuttiSuccess)
          << last_error(comm);
      ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess) << last_error(comm);
    }
  });
}

// Sends and receives, of which each rank makes others, and in other places.
TEST_P(Matching, WhatIsSentBetweenCallsDoesNotCount) {
  run(3, [](int rank, tuttiComm_t comm) {
    Memory m;
    const auto reduce = [&] { ASSERT_EQ(all_reduce_of(8)(m, comm), tuttiSuccess) << last_error(comm); };
    for (int round = 0; round < 2; ++round) {
      if (rank == 0) {
        for (int i = 0; i < 3; ++i) ASSERT_EQ(tuttiSend(m.in.data(), 4, tuttiFloat32, 1, comm, nullptr), tuttiSuccess);
        reduce();
        ASSERT_EQ(broadcast_from(2)(m, comm), tuttiSuccess) << last_error(comm);
      } else if (rank == 1) {
        reduce();
        sleep_ms(late_ms);
        for (int i = 0; i < 3; ++i) ASSERT_EQ(tuttiRecv(m.out.data(), 4, tuttiFloat32, 0, comm, nullptr), tuttiSuccess);
        ASSERT_EQ(broadcast_from(2)(m, comm), tuttiSuccess) << last_error(comm);
      } else {
        sleep_ms(round * late_ms);
        reduce();
        ASSERT_EQ(broadcast_from(2)(m, comm), tuttiSuccess) << last_error(comm);
      }
    }
  });
}

// Each waits for one that waits, and the last of them is late by more than the time after which a rank says what it waits for.
TEST_P(Matching, ManyMayWaitForOneThatIsLate) {
  run(4, [](int rank, tuttiComm_t comm) {
    Memory m;
    const auto pass = [&](const Call& call) { ASSERT_EQ(call(m, comm), tuttiSuccess) << last_error(comm); };
    if (rank == 3) sleep_ms(2600);
    if (rank < 3) pass(receive_from(rank + 1));
    if (rank > 0) pass(send_to(rank - 1));
    pass(all_reduce_of(8));
    if (rank == 0) pass(send_to(3));
    pass(broadcast_from(3));
    if (rank == 3) pass(receive_from(0));
  });
}

// A group's sends and receives in any order among its collectives; others make the collectives one by one.
TEST_P(Matching, GroupsAreCallsOneAfterTheOther) {
  run(3, [](int rank, tuttiComm_t comm) {
    Memory m, other;
    for (int round = 0; round < 4; ++round) {
      if (rank == round % 3) sleep_ms(late_ms);
      const bool grouped = rank != 2 || round % 2 == 0;
      if (grouped) {
        ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      }
      const auto point_to_point = [&] {
        if (rank == 0) {
          ASSERT_EQ(tuttiSend(m.in.data() + 500, 4, tuttiFloat32, 1, comm, nullptr), tuttiSuccess);
        }
        if (rank == 1) {
          ASSERT_EQ(tuttiRecv(m.out.data() + 500, 4, tuttiFloat32, 0, comm, nullptr), tuttiSuccess);
        }
      };
      if (rank == 0) point_to_point();
      ASSERT_EQ(all_reduce_of(8)(m, comm), tuttiSuccess);
      ASSERT_EQ(broadcast_from(1)(other, comm), tuttiSuccess);
      if (rank == 1) point_to_point();
      if (rank == 2 && !grouped) sleep_ms(late_ms);
      ASSERT_EQ(reduce_to(2)(m, comm), tuttiSuccess);
      if (grouped) {
        ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << last_error(comm);
      }
    }
  });
}

// Calls of which more are made than are kept; then a rank is late; some calls are made with errors, which are none.
TEST_P(Matching, ThousandsOfOtherCallsMayBeMadeBefore) {
  run(3, [](int rank, tuttiComm_t comm) {
    Memory m;
    for (size_t i = 0; i < 4000; ++i) {
      ASSERT_EQ(all_reduce_of(1 + i % 7)(m, comm), tuttiSuccess) << last_error(comm);
      if (i % 500 == 499) {
        ASSERT_EQ(broadcast_from(7)(m, comm), tuttiInvalidArgument);
      }
      if (i == 1000 || i == 3999) sleep_ms(rank == 1 ? late_ms : 0);
    }
    ASSERT_EQ(gather_to(1)(m, comm), tuttiSuccess) << last_error(comm);
  });
}

// Each has numbers of its own.
TEST_P(Matching, CommunicatorsOfCommunicatorsBeginAnew) {
  run(4, [](int rank, tuttiComm_t comm) {
    Memory m;
    for (int i = 0; i < 3; ++i) ASSERT_EQ(all_reduce_of(size_t(i) + 1)(m, comm), tuttiSuccess) << last_error(comm);
    tuttiComm_t half = nullptr;
    ASSERT_EQ(tuttiCommSplit(comm, rank % 2, rank, &half, nullptr), tuttiSuccess) << last_error(comm);
    for (int i = 0; i < 3; ++i) {
      if (rank == i) sleep_ms(late_ms);
      ASSERT_EQ(rank % 2 == 0 ? barrier()(m, half) : all_reduce_of(5)(m, half), tuttiSuccess) << last_error(half);
    }
    ASSERT_EQ(tuttiCommDestroy(half), tuttiSuccess);
    ASSERT_EQ(all_reduce_of(8)(m, comm), tuttiSuccess) << last_error(comm);
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Matching, ::testing::Values("shm", "tcp"));

}  // namespace
}  // namespace tutti
