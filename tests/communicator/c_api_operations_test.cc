// Sends, groups, streams: any order inside a group completes, streams keep their order, self-sends are copies.
#include "communicator/group.h"

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/ranks.h"
#include "communicator/stream.h"
#include "tutti/tutti.hpp"

namespace tutti {
namespace {

using test::RanksOptions;

#define ASSERT_OK(call) ASSERT_EQ(call, tuttiSuccess) << tuttiGetLastError(nullptr)

class Operations : public ::testing::TestWithParam<const char*> {
 protected:
  RanksOptions options() const {
    RanksOptions options;
    options.transport = GetParam();
    return options;
  }
};

TEST_P(Operations, SendsMeetReceivesInOrder) {
  test::run_threads(2, options(), [](int rank, tuttiComm_t comm) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{100}, size_t{1000003}}) {
      std::vector<int> data(count);
      if (rank == 0) {
        std::iota(data.begin(), data.end(), int(count));
        ASSERT_OK(tuttiSend(data.data(), count, tuttiInt32, 1, comm, nullptr));
      } else {
        ASSERT_OK(tuttiRecv(data.data(), count, tuttiInt32, 0, comm, nullptr));
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], int(count + i));
      }
    }
  });
}

// Everybody sends to everybody and itself, large, receives first: completes in a group, in any order.
TEST_P(Operations, AllToAllByGroupsOfSendsAndReceivesCompletesInAnyOrder) {
  constexpr size_t count = 200003;
  for (const int n : {1, 2, 3, 5})
    test::run_threads(n, options(), [n](int rank, tuttiComm_t comm) {
      std::vector<std::vector<int>> out(static_cast<size_t>(n), std::vector<int>(count)), in = out;
      for (int peer = 0; peer < n; ++peer)
        std::fill(out[size_t(peer)].begin(), out[size_t(peer)].end(), rank * 100 + peer);
      ASSERT_OK(tuttiGroupStart());
      for (int k = 0; k < n; ++k) {
        const int peer = (rank * 3 + k) % n;
        for (const bool sends : {rank % 2 == 1, rank % 2 == 0}) {
          const tuttiResult_t result =
              sends ? tuttiSend(out[size_t(peer)].data(), count, tuttiInt32, peer, comm, nullptr)
                    : tuttiRecv(in[size_t(peer)].data(), count, tuttiInt32, peer, comm, nullptr);
          ASSERT_EQ(result, tuttiSuccess);
        }
      }
      ASSERT_OK(tuttiGroupEnd());
      for (int peer = 0; peer < n; ++peer)
        for (const int value : in[size_t(peer)]) ASSERT_EQ(value, peer * 100 + rank);
    });
}

TEST_P(Operations, CollectivesAndSendsMixInOneGroup) {
  test::run_threads(3, options(), [](int rank, tuttiComm_t comm) {
    std::array<float, 50> a{}, b{};
    float ring_in = -1;
    const float ring_out = float(rank);
    a.fill(float(rank));
    b.fill(float(rank + 1));
    ASSERT_OK(tuttiGroupStart());
    ASSERT_OK(tuttiAllReduce(a.data(), a.data(), a.size(), tuttiFloat32, tuttiSum, comm, nullptr));
    ASSERT_OK(tuttiSend(&ring_out, 1, tuttiFloat32, (rank + 1) % 3, comm, nullptr));
    ASSERT_OK(tuttiBroadcast(b.data(), b.data(), b.size(), tuttiFloat32, 2, comm, nullptr));
    ASSERT_OK(tuttiRecv(&ring_in, 1, tuttiFloat32, (rank + 2) % 3, comm, nullptr));
    ASSERT_OK(tuttiGroupEnd());
    EXPECT_EQ(a[49], 3);
    EXPECT_EQ(b[49], 3);
    EXPECT_EQ(ring_in, float((rank + 2) % 3));
  });
}

TEST_P(Operations, AStreamRunsItsCallsInOrderWhileTheCallerGoesOn) {
  test::run_threads(2, options(), [](int rank, tuttiComm_t comm) {
    tuttiStream_t stream = nullptr;
    ASSERT_OK(tuttiStreamCreate(&stream));
    std::vector<double> values(10000, rank + 1.0);
    for (int i = 0; i < 20; ++i)  // 3, 6, 12, … : each sum needs the one before
      ASSERT_OK(tuttiAllReduce(values.data(), values.data(), values.size(), tuttiFloat64, tuttiSum, comm, stream));
    ASSERT_OK(tuttiStreamSynchronize(stream));
    EXPECT_EQ(values[9999], 3.0 * (1 << 19));
    ASSERT_OK(tuttiStreamQuery(stream));
    // A call without a stream comes after what is enqueued.
    for (int i = 0; i < 3; ++i)
      ASSERT_OK(tuttiAllReduce(values.data(), values.data(), values.size(), tuttiFloat64, tuttiMax, comm, stream));
    double one = 1;
    ASSERT_OK(tuttiAllReduce(&one, &one, 1, tuttiFloat64, tuttiSum, comm, nullptr));
    EXPECT_EQ(one, 2);
    ASSERT_OK(tuttiStreamDestroy(stream));
  });
}

TEST_P(Operations, TwoStreamsOfOneCommunicatorKeepTheOrderOfTheCalls) {
  test::run_threads(3, options(), [](int, tuttiComm_t comm) {
    tuttiStream_t streams[2];
    for (tuttiStream_t& stream : streams) ASSERT_OK(tuttiStreamCreate(&stream));
    std::array<std::vector<int>, 2> values = {std::vector<int>(5000, 1), std::vector<int>(5000, 2)};
    for (int i = 0; i < 10; ++i)
      for (int s = 0; s < 2; ++s)
        ASSERT_OK(tuttiAllReduce(values[size_t(s)].data(), values[size_t(s)].data(), 5000, tuttiInt32, tuttiSum, comm,
                                 streams[s]));
    for (tuttiStream_t stream : streams) ASSERT_OK(tuttiStreamSynchronize(stream));
    EXPECT_EQ(values[0][0], 59049);
    EXPECT_EQ(values[1][4999], 2 * 59049);
    for (tuttiStream_t stream : streams) ASSERT_OK(tuttiStreamDestroy(stream));
  });
}

// Else ranks would wait for each other that do not expect it: here one that has called tells the other one to come.
TEST_P(Operations, ACallOnAStreamDoesNotWaitForOtherRanks) {
  constexpr int rounds = 20;
  std::atomic<int> called{0};
  test::run_threads(2, options(), [&](int rank, tuttiComm_t comm) {
    tuttiStream_t stream = nullptr;
    ASSERT_OK(tuttiStreamCreate(&stream));
    int now = 0;
    for (int round = 0; round < rounds; ++round)
      for (const size_t count : {size_t{1}, size_t{500}, size_t{4000}, size_t{50'000}}) {
        std::vector<int> values(count, rank + 1), all(2 * count), root(count, rank), message(count, rank);
        const int first = round % 2;
        std::vector<int> together(2 * count, 1);
        for (int kind = 0; kind < 5; ++kind) {
          ++now;
          while (rank != first && called.load() < now) std::this_thread::yield();
          if (kind == 0) {
            ASSERT_OK(tuttiAllReduce(values.data(), values.data(), count, tuttiInt32, tuttiSum, comm, stream));
          }
          if (kind == 1) {
            ASSERT_OK(tuttiAllGather(root.data(), all.data(), count, tuttiInt32, comm, stream));
          }
          if (kind == 2) {
            ASSERT_OK(tuttiBroadcast(root.data(), root.data(), count, tuttiInt32, 1 - first, comm, stream));
          }
          if (kind == 3 && rank == 1 - first) {
            ASSERT_OK(tuttiSend(message.data(), count, tuttiInt32, first, comm, stream));
          }
          if (kind == 3 && rank == first) {
            ASSERT_OK(tuttiRecv(message.data(), count, tuttiInt32, 1 - first, comm, stream));
          }
          if (kind == 4) {
            ASSERT_OK(tuttiGroupStart());
            for (const size_t at : {size_t{0}, count})
              ASSERT_OK(tuttiAllReduce(&together[at], &together[at], count, tuttiInt32, tuttiSum, comm, stream));
            ASSERT_OK(tuttiGroupEnd());
          }
          if (rank == first) called.store(now);
        }
        ASSERT_OK(tuttiStreamSynchronize(stream));
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(values[i], 3);
          ASSERT_EQ(all[i], 0);
          ASSERT_EQ(all[count + i], 1);
          ASSERT_EQ(root[i], 1 - first);
          ASSERT_EQ(message[i], 1 - first);
          ASSERT_EQ(together[i] + together[count + i], 4);
        }
      }
    ASSERT_OK(tuttiStreamDestroy(stream));
  });
}

// It is then spared the way to the stream's thread and back, which takes a hundred times as long.
TEST(Streams, ASmallCallThatWaitsForNobodyIsOverWhenItReturns) {
  std::atomic<int> sent{0};
  RanksOptions options;
  options.transport = "shm";
  test::run_threads(2, options, [&](int rank, tuttiComm_t comm) {
    tuttiStream_t stream = nullptr;
    ASSERT_OK(tuttiStreamCreate(&stream));
    for (int call = 1; call <= 100; ++call) {
      std::array<int, 100> values;
      values.fill(rank == 0 ? call : 0);
      while (rank == 1 && sent.load() < call) std::this_thread::yield();
      ASSERT_OK(tuttiBroadcast(values.data(), values.data(), values.size(), tuttiInt32, 0, comm, stream));
      if (rank == 1) {
        ASSERT_OK(tuttiStreamQuery(stream)) << "call " << call;
        ASSERT_EQ(values[99], call);
      } else {
        ASSERT_OK(tuttiStreamSynchronize(stream));
        sent.store(call);
      }
    }
    ASSERT_OK(tuttiStreamDestroy(stream));
  });
}

// Calls of two communicators on two streams and on none, small and large, with pauses between: each sum exact, each in its turn,
// by whichever thread it ran.
TEST_P(Operations, CallsOnStreamsAndOnNoneKeepTheirOrder) {
  constexpr int calls = 300;
  for (const int n : {2, 3})
    test::run_threads(n, options(), [n](int rank, tuttiComm_t comm) {
      tuttiComm_t second = nullptr;
      ASSERT_OK(tuttiCommDup(comm, &second, nullptr));
      std::array<tuttiStream_t, 3> streams{};
      for (size_t s : {1, 2}) ASSERT_OK(tuttiStreamCreate(&streams[s]));
      std::mt19937 same(7), own(unsigned(rank) + 1);  // what all ranks draw alike, and what each draws for itself
      std::vector<std::vector<int>> buffers;
      std::vector<int> expected, ring_in(calls), ring_out(calls), ring_expected(calls);
      int64_t running = 1;  // each call adds the result of the one before it
      std::vector<int64_t> chain(1, 1);
      for (int call = 0; call < calls; ++call) {
        static constexpr std::array<size_t, 6> counts{1, 30, 1000, 4096, 5000, 30'000};
        const size_t count = counts[same() % counts.size()];
        const size_t s = same() % 3;
        const tuttiComm_t by = same() % 2 == 0 ? comm : second;
        buffers.emplace_back(count, call + rank);
        expected.push_back(n * call + n * (n - 1) / 2);
        ASSERT_OK(tuttiAllReduce(buffers.back().data(), buffers.back().data(), count, tuttiInt32, tuttiSum, by, streams[s]));
        if (call < 20) {  // of one communicator: in the order of the calls, whatever the stream
          running *= n;
          ASSERT_OK(tuttiAllReduce(chain.data(), chain.data(), 1, tuttiInt64, tuttiSum, comm, streams[same() % 3]));
        }
        if (same() % 5 == 0) {
          ring_out[size_t(call)] = call * 10 + rank;
          ASSERT_OK(tuttiGroupStart());
          ASSERT_OK(tuttiRecv(&ring_in[size_t(call)], 1, tuttiInt32, (rank + n - 1) % n, by, streams[s]));
          ASSERT_OK(tuttiSend(&ring_out[size_t(call)], 1, tuttiInt32, (rank + 1) % n, by, streams[s]));
          ASSERT_OK(tuttiGroupEnd());
          ring_expected[size_t(call)] = call * 10 + (rank + n - 1) % n;
        }
        if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 200));
        if (own() % 8 == 0) {
          ASSERT_OK(tuttiStreamSynchronize(streams[1 + own() % 2]));
        }
      }
      for (size_t s : {1, 2}) ASSERT_OK(tuttiStreamSynchronize(streams[s]));
      EXPECT_EQ(chain[0], running);
      EXPECT_EQ(ring_in, ring_expected);
      for (size_t i = 0; i < buffers.size(); ++i)
        for (const int value : buffers[i]) ASSERT_EQ(value, expected[i]) << "call " << i;
      for (size_t s : {1, 2}) ASSERT_OK(tuttiStreamDestroy(streams[s]));
      ASSERT_OK(tuttiCommDestroy(second));
    });
}

// A message to the rank itself needs nobody, but has its place in the order, too.
TEST_P(Operations, AMessageToTheRankItselfOnAnotherStreamComesAfterWhatStandsBeforeIt) {
  std::atomic<bool> sent{false};
  test::run_threads(2, options(), [&](int rank, tuttiComm_t comm) {
    std::array<tuttiStream_t, 2> streams{};
    for (tuttiStream_t& stream : streams) ASSERT_OK(tuttiStreamCreate(&stream));
    std::vector<int> sum(100'000, rank + 1), copy(sum.size());
    while (rank == 1 && !sent.load()) std::this_thread::yield();
    ASSERT_OK(tuttiAllReduce(sum.data(), sum.data(), sum.size(), tuttiInt32, tuttiSum, comm, streams[0]));
    ASSERT_OK(tuttiGroupStart());
    ASSERT_OK(tuttiSend(sum.data(), sum.size(), tuttiInt32, rank, comm, streams[1]));
    ASSERT_OK(tuttiRecv(copy.data(), copy.size(), tuttiInt32, rank, comm, streams[1]));
    ASSERT_OK(tuttiGroupEnd());
    sent.store(true);
    for (const tuttiStream_t stream : streams) ASSERT_OK(tuttiStreamSynchronize(stream));
    EXPECT_EQ(copy, std::vector<int>(copy.size(), 3));
    for (const tuttiStream_t stream : streams) ASSERT_OK(tuttiStreamDestroy(stream));
  });
}

// What is wrong with a group on a stream is told at its end, and none of its calls is made: no stream leaves some of them out later.
TEST_P(Operations, AGroupOnAStreamIsRefusedAtItsEnd) {
  test::run_threads(2, options(), [](int rank, tuttiComm_t comm) {
    tuttiStream_t stream = nullptr;
    ASSERT_OK(tuttiStreamCreate(&stream));
    int value = 1, other = 5, sum = 0;
    if (rank == 1) {
      ASSERT_OK(tuttiGroupStart());
      ASSERT_OK(tuttiAllReduce(&other, &other, 1, tuttiInt32, tuttiSum, comm, stream));
      ASSERT_OK(tuttiSend(&value, 1, tuttiInt32, rank, comm, stream));
      EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
      EXPECT_NE(std::string(tuttiGetLastError(nullptr)).find("without the receive"), std::string::npos);
    }
    ASSERT_OK(tuttiAllReduce(&value, &sum, 1, tuttiInt32, tuttiSum, comm, stream));
    ASSERT_OK(tuttiStreamSynchronize(stream));
    EXPECT_EQ(sum, 2);
    ASSERT_OK(tuttiStreamDestroy(stream));
  });
}

// Also where the call has run on the calling thread: an asynchronous call's error is told by its stream.
TEST_P(Operations, AMismatchOfSmallCallsIsToldByTheStream) {
  test::run_threads(2, options(), [](int rank, tuttiComm_t comm) {
    tuttiStream_t stream = nullptr;
    ASSERT_OK(tuttiStreamCreate(&stream));
    std::array<int, 8> values{};
    ASSERT_OK(tuttiAllReduce(values.data(), values.data(), 4, tuttiInt32, tuttiSum, comm, stream));
    ASSERT_OK(tuttiStreamSynchronize(stream));
    const size_t count = rank == 0 ? 4 : 5;
    const tuttiResult_t called = tuttiAllReduce(values.data(), values.data(), count, tuttiInt32, tuttiSum, comm, stream);
    // The other rank may have found out before this one called.
    EXPECT_EQ(called == tuttiSuccess ? tuttiStreamSynchronize(stream) : called, tuttiMismatch);
    EXPECT_NE(std::string(tuttiGetLastError(nullptr)).find("count 5"), std::string::npos) << tuttiGetLastError(nullptr);
    ASSERT_OK(tuttiStreamSynchronize(stream));  // told once
    ASSERT_OK(tuttiStreamDestroy(stream));
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Operations, ::testing::Values("shm", "tcp"));

// NCCL's pattern: one thread is all ranks.
TEST(OneThread, IsAllRanksInsideGroups) {
  constexpr int n = 4;
  tuttiUniqueId id;
  ASSERT_OK(tuttiGetUniqueId(&id));
  std::array<tuttiComm_t, n> comms{};
  ASSERT_OK(tuttiGroupStart());
  for (int r = 0; r < n; ++r) ASSERT_OK(tuttiCommInitRank(&comms[size_t(r)], n, id, r));
  ASSERT_OK(tuttiGroupEnd());
  std::array<std::array<int, 9>, n> values{};
  ASSERT_OK(tuttiGroupStart());
  for (int r = 0; r < n; ++r) {
    values[size_t(r)].fill(r + 1);
    ASSERT_OK(tuttiAllReduce(values[size_t(r)].data(), values[size_t(r)].data(), 9, tuttiInt32, tuttiSum,
                             comms[size_t(r)], nullptr));
  }
  ASSERT_OK(tuttiGroupEnd());
  for (const auto& v : values) EXPECT_EQ(v[8], 10);
  ASSERT_OK(tuttiGroupStart());
  ASSERT_OK(tuttiBarrier(comms[0], nullptr));
  ASSERT_OK(tuttiGroupStart());
  for (int r = 1; r < n; ++r) ASSERT_OK(tuttiBarrier(comms[size_t(r)], nullptr));
  ASSERT_OK(tuttiGroupEnd());
  ASSERT_OK(tuttiGroupEnd());
  for (const tuttiComm_t comm : comms) ASSERT_OK(tuttiCommDestroy(comm));
}

TEST(OneThread, ACommunicatorOnTwoStreamsInOneGroupIsRefused) {
  test::run_threads(1, {}, [](int, tuttiComm_t comm) {
    tuttiStream_t streams[2];
    for (tuttiStream_t& stream : streams) ASSERT_OK(tuttiStreamCreate(&stream));
    float value = 1;
    ASSERT_OK(tuttiGroupStart());
    for (tuttiStream_t stream : streams)
      ASSERT_OK(tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiSum, comm, stream));
    EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
    for (tuttiStream_t stream : streams) ASSERT_OK(tuttiStreamDestroy(stream));
  });
}

TEST_P(Operations, SendRecvShiftsRoundTheRanksAloneInAGroupAndOnAStream) {
  constexpr size_t count = 100003;
  for (const int n : {1, 2, 3, 5})
    test::run_threads(n, options(), [n](int rank, tuttiComm_t comm) {
      const int next = (rank + 1) % n, before = (rank + n - 1) % n;
      std::vector<int> out(count, rank), in(count, -1), back(count, -1);
      ASSERT_OK(tuttiSendRecv(out.data(), count, next, in.data(), count, before, tuttiInt32, comm, nullptr));
      EXPECT_EQ(in, std::vector<int>(count, before));
      ASSERT_OK(tuttiGroupStart());
      ASSERT_OK(tuttiSendRecv(out.data(), count, before, in.data(), count, next, tuttiInt32, comm, nullptr));
      ASSERT_OK(tuttiSendRecv(out.data(), 3, next, back.data(), 3, before, tuttiInt32, comm, nullptr));
      ASSERT_OK(tuttiGroupEnd());
      EXPECT_EQ(in, std::vector<int>(count, next));
      EXPECT_EQ(back[2], before);
      EXPECT_EQ(back[3], -1);
      tuttiStream_t stream = nullptr;
      ASSERT_OK(tuttiStreamCreate(&stream));
      ASSERT_OK(tuttiSendRecv(out.data(), count, next, in.data(), count, before, tuttiInt32, comm, stream));
      ASSERT_OK(tuttiAllGather(out.data(), back.data(), 1, tuttiInt32, comm, stream));
      ASSERT_OK(tuttiStreamSynchronize(stream));
      EXPECT_EQ(in, std::vector<int>(count, before));
      EXPECT_EQ(back[size_t(n) - 1], n - 1);
      ASSERT_OK(tuttiStreamDestroy(stream));
    });
}

TEST_P(Operations, CollectivesOfBlocksRunInAGroup) {
  test::run_threads(3, options(), [](int rank, tuttiComm_t comm) {
    std::vector<int> own(2, rank), all(6, -1), turned(6, -1), sums(2, -1);
    ASSERT_OK(tuttiGroupStart());
    ASSERT_OK(tuttiAllGather(own.data(), all.data(), 2, tuttiInt32, comm, nullptr));
    ASSERT_OK(tuttiAlltoAll(all.data(), turned.data(), 2, tuttiInt32, comm, nullptr));
    ASSERT_OK(tuttiReduceScatter(turned.data(), sums.data(), 2, tuttiInt32, tuttiSum, comm, nullptr));
    ASSERT_OK(tuttiGroupEnd());
    EXPECT_EQ(all, (std::vector<int>{0, 0, 1, 1, 2, 2}));
    EXPECT_EQ(turned, std::vector<int>(6, rank));
    EXPECT_EQ(sums, std::vector<int>(2, 3));
  });
}

TEST(Cpp, TheHeaderWrapsEveryCallAndThrowsTheSentence) {
  std::vector<v0::Communicator> ranks = v0::Communicator::local(2);
  std::vector<std::jthread> threads;
  for (v0::Communicator& comm : ranks)
    threads.emplace_back([&comm] {
      std::vector<float> data(100, float(comm.rank()));
      comm.all_reduce(std::span(data), tuttiAvg);
      EXPECT_EQ(data[99], 0.5f);
      comm.broadcast(std::span(data), 1);
      comm.barrier();
      const std::vector<int> out(5, comm.rank());
      std::vector<int> in(5);
      {
        v0::Group group;
        comm.send(std::span(out), 1 - comm.rank());
        comm.recv(std::span(in), 1 - comm.rank());
        group.run();
      }
      EXPECT_EQ(in[4], 1 - comm.rank());
      comm.send_recv(std::span(out), 1 - comm.rank(), std::span(in), 1 - comm.rank());
      EXPECT_EQ(in[0], 1 - comm.rank());
      std::vector<int> both(10);
      comm.all_gather(std::span(out), std::span(both));
      EXPECT_EQ(both[9], 1);
      comm.all_to_all(std::span<const int>(both), std::span(both));
      EXPECT_EQ(both[0], comm.rank());
      comm.reduce_scatter(std::span<const int>(both), std::span(in), tuttiSum);
      EXPECT_EQ(in[0], 1);
      comm.reduce(std::span(out), std::span(in), tuttiMax, 1);
      comm.gather(std::span(out), std::span(both), 0);
      EXPECT_EQ(both[9], 1);
      comm.scatter(std::span<const int>(both), std::span(in), 0);
      EXPECT_EQ(in[4], comm.rank());
      EXPECT_THROW(comm.all_gather(std::span(out), std::span(in)), v0::Failure);
      v0::Stream stream;
      comm.all_reduce(std::span(data), tuttiMax, &stream);
      stream.synchronize();
      EXPECT_EQ(comm.state(), tuttiSuccess);
      try {
        comm.broadcast(std::span(data), 7);
        ADD_FAILURE() << "root 7 was accepted";
      } catch (const v0::Failure& failure) {
        EXPECT_EQ(failure.result(), tuttiInvalidArgument);
        EXPECT_NE(std::string(failure.what()).find("root is 7"), std::string::npos);
      }
    });
}

}  // namespace
}  // namespace tutti
