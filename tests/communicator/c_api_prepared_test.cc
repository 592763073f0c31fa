// Prepared calls: run many times they give what the calls would give, in their turn, and refuse what cannot be.
#include "communicator/prepared.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/ranks.h"

namespace tutti {
namespace {

using test::run_threads;

std::string last_error() { return tuttiGetLastError(nullptr); }

void expect_refused(tuttiResult_t result, tuttiResult_t code, const char* words) {
  EXPECT_EQ(result, code);
  EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
}

// An all_reduce, a broadcast from each rank, and a shift round the ranks.
struct Calls {
  Calls(int n, int rank, tuttiComm_t comm, size_t count) : n(n), rank(rank), count(count) {
    for (std::vector<int64_t>* buffer : {&in, &sum, &from_left}) buffer->resize(count);
    shared.resize(size_t(n), std::vector<int64_t>(count));
    EXPECT_EQ(tuttiPrepareStart(), tuttiSuccess) << last_error();
    EXPECT_EQ(tuttiAllReduce(in.data(), sum.data(), count, tuttiInt64, tuttiSum, comm, nullptr), tuttiSuccess);
    for (int root = 0; root < n; ++root)
      EXPECT_EQ(tuttiBroadcast(in.data(), shared[size_t(root)].data(), count, tuttiInt64, root, comm, nullptr),
                tuttiSuccess);
    EXPECT_EQ(tuttiSendRecv(in.data(), count, (rank + 1) % n, from_left.data(), count, (rank + n - 1) % n, tuttiInt64,
                            comm, nullptr),
              tuttiSuccess);
    EXPECT_EQ(tuttiPrepareEnd(&prepared), tuttiSuccess) << last_error();
  }
  ~Calls() { EXPECT_EQ(tuttiPreparedDestroy(prepared), tuttiSuccess); }

  int64_t input(int of_rank, size_t i, int round) const { return int64_t(i) * (of_rank + 1) + round; }
  void fill(int round) {
    for (size_t i = 0; i < count; ++i) in[i] = input(rank, i, round);
  }
  void expect(int round) const {
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(sum[i], int64_t(i) * n * (n + 1) / 2 + int64_t(n) * round);
      for (int root = 0; root < n; ++root) ASSERT_EQ(shared[size_t(root)][i], input(root, i, round));
      ASSERT_EQ(from_left[i], input((rank + n - 1) % n, i, round));
    }
  }

  int n, rank;
  size_t count;
  std::vector<int64_t> in, sum, from_left;
  std::vector<std::vector<int64_t>> shared;
  tuttiPrepared_t prepared = nullptr;
};

TEST(Prepared, RunsGiveWhatTheCallsWouldGive) {
  for (const char* transport : {"shm", "tcp"})
    for (const int n : {1, 2, 3, 5}) {
      test::RanksOptions options;
      options.transport = transport;
      run_threads(n, options, [=](int rank, tuttiComm_t comm) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{70'000}}) {
          Calls calls(n, rank, comm, count);
          for (int round = 0; round < 5; ++round) {
            calls.fill(round);
            ASSERT_EQ(tuttiPreparedStart(calls.prepared, nullptr), tuttiSuccess) << last_error();
            calls.expect(round);
          }
        }
      });
    }
}

// Other calls in between move scratch memory and take their own turns.
TEST(Prepared, RunsAndCallsTakeTurns) {
  for (const char* algorithm : {"ring", "two_shot", "double_tree"}) {
    test::RanksOptions options;
    options.algorithm = algorithm;
    run_threads(3, options, [](int rank, tuttiComm_t comm) {
      Calls small(3, rank, comm, 5), large(3, rank, comm, 100'000);
      tuttiStream_t stream = nullptr;
      ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
      for (int round = 0; round < 10; ++round) {
        small.fill(round);
        large.fill(round);
        ASSERT_EQ(tuttiPreparedStart(small.prepared, round % 2 == 0 ? stream : nullptr), tuttiSuccess) << last_error();
        if (round > 4) {
          ASSERT_EQ(tuttiPreparedStart(large.prepared, stream), tuttiSuccess) << last_error();
        }
        int64_t one = 1, all = 0;
        ASSERT_EQ(tuttiAllReduce(&one, &all, 1, tuttiInt64, tuttiSum, comm, nullptr), tuttiSuccess);
        EXPECT_EQ(all, 3);
        ASSERT_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
        small.expect(round);
        if (round > 4) large.expect(round);
      }
      EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
    });
  }
}

class PreparedAlone : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(tuttiCommInitAll(&comm_, 1, nullptr), tuttiSuccess) << last_error(); }
  void TearDown() override { tuttiCommDestroy(comm_); }
  tuttiResult_t call(tuttiStream_t stream = nullptr) {
    return tuttiAllReduce(&in_, &out_, 1, tuttiInt64, tuttiSum, comm_, stream);
  }
  tuttiPrepared_t prepared() {
    tuttiPrepared_t made = nullptr;
    EXPECT_EQ(tuttiPrepareStart(), tuttiSuccess);
    EXPECT_EQ(call(), tuttiSuccess);
    EXPECT_EQ(tuttiPrepareEnd(&made), tuttiSuccess);
    return made;
  }
  tuttiComm_t comm_ = nullptr;
  int64_t in_ = 3, out_ = 0;
};

TEST_F(PreparedAlone, NothingRunsBeforeTheStart) {
  const tuttiPrepared_t calls = prepared();
  EXPECT_EQ(out_, 0);
  EXPECT_EQ(tuttiPreparedStart(calls, nullptr), tuttiSuccess);
  EXPECT_EQ(out_, 3);
  EXPECT_EQ(tuttiPreparedDestroy(calls), tuttiSuccess);
  expect_refused(tuttiPreparedStart(calls, nullptr), tuttiInvalidArgument, "is not live");
}

TEST_F(PreparedAlone, ARefusedCallMakesTheWholeRefused) {
  tuttiPrepared_t made = nullptr;
  ASSERT_EQ(tuttiPrepareStart(), tuttiSuccess);
  ASSERT_EQ(call(), tuttiSuccess);
  expect_refused(tuttiAllReduce(nullptr, &out_, 1, tuttiInt64, tuttiSum, comm_, nullptr), tuttiInvalidArgument,
                 "sendbuff is NULL");
  expect_refused(tuttiPrepareEnd(&made), tuttiInvalidArgument, "sendbuff is NULL");
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(call(), tuttiSuccess);
  EXPECT_EQ(out_, 3);
}

TEST_F(PreparedAlone, WrongOrdersOfCallsAreRefused) {
  tuttiPrepared_t made = nullptr;
  tuttiStream_t stream = nullptr;
  tuttiComm_t copy = nullptr;
  ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
  expect_refused(tuttiPrepareEnd(&made), tuttiInvalidUsage, "without tuttiPrepareStart");
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  expect_refused(tuttiPrepareStart(), tuttiInvalidUsage, "inside a group");
  tuttiGroupEnd();
  ASSERT_EQ(tuttiPrepareStart(), tuttiSuccess);
  expect_refused(tuttiPrepareStart(), tuttiInvalidUsage, "inside tuttiPrepareStart");
  expect_refused(tuttiGroupEnd(), tuttiInvalidUsage, "tuttiPrepareEnd ends");
  expect_refused(call(stream), tuttiInvalidUsage, "takes no stream");
  expect_refused(tuttiCommDup(comm_, &copy, nullptr), tuttiInvalidUsage, "between tuttiPrepareStart and End");
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  expect_refused(tuttiPrepareEnd(&made), tuttiInvalidUsage, "still open");
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
  EXPECT_EQ(tuttiPrepareEnd(&made), tuttiInvalidUsage) << "the first refusal";
  expect_refused(tuttiPreparedStart(nullptr, nullptr), tuttiInvalidArgument, "prepared is NULL");
  EXPECT_EQ(tuttiPreparedDestroy(nullptr), tuttiSuccess);
  ASSERT_EQ(tuttiPrepareStart(), tuttiSuccess);
  expect_refused(tuttiPrepareEnd(nullptr), tuttiInvalidArgument, "prepared is NULL");
  EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

TEST_F(PreparedAlone, AfterItsCommunicatorsEndItIsRefused) {
  const tuttiPrepared_t calls = prepared();
  ASSERT_EQ(tuttiCommFinalize(comm_), tuttiSuccess);
  expect_refused(tuttiPreparedStart(calls, nullptr), tuttiInvalidUsage, "finalized");
  ASSERT_EQ(tuttiCommDestroy(comm_), tuttiSuccess);
  comm_ = nullptr;
  expect_refused(tuttiPreparedStart(calls, nullptr), tuttiInvalidUsage, "destroyed");
  EXPECT_EQ(tuttiPreparedDestroy(calls), tuttiSuccess);
}

TEST_F(PreparedAlone, NothingPreparedIsNothingDone) {
  tuttiPrepared_t empty = nullptr;
  ASSERT_EQ(tuttiPrepareStart(), tuttiSuccess);
  ASSERT_EQ(tuttiPrepareEnd(&empty), tuttiSuccess);
  EXPECT_EQ(tuttiPreparedStart(empty, nullptr), tuttiSuccess);
  EXPECT_EQ(tuttiPreparedDestroy(empty), tuttiSuccess);
}

// Also behind what is on its stream: such a run is over at once, and never still running.
TEST(Prepared, NothingPreparedRunsAgainWhileItsStreamIsBusy) {
  std::atomic<bool> started{false};
  run_threads(2, {}, [&](int rank, tuttiComm_t comm) {
    tuttiStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
    if (rank == 1) started.wait(false);
    EXPECT_EQ(tuttiBarrier(comm, stream), tuttiSuccess);
    if (rank == 0) {
      tuttiPrepared_t empty = nullptr;
      EXPECT_EQ(tuttiPrepareStart(), tuttiSuccess);
      EXPECT_EQ(tuttiPrepareEnd(&empty), tuttiSuccess);
      for (tuttiStream_t const on : {stream, stream, tuttiStream_t{}})
        EXPECT_EQ(tuttiPreparedStart(empty, on), tuttiSuccess) << last_error();
      EXPECT_EQ(tuttiPreparedDestroy(empty), tuttiSuccess);
      started = true;
      started.notify_all();
    }
    EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
  });
}

TEST(Prepared, AMismatchIsToldAndTheCommunicatorFails) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int64_t in = 1, out = 0;
    tuttiPrepared_t calls = nullptr;
    ASSERT_EQ(tuttiPrepareStart(), tuttiSuccess);
    ASSERT_EQ(tuttiAllReduce(&in, &out, 1, tuttiInt64, rank == 0 ? tuttiSum : tuttiMax, comm, nullptr), tuttiSuccess);
    ASSERT_EQ(tuttiPrepareEnd(&calls), tuttiSuccess);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(tuttiPreparedStart(calls, nullptr), tuttiMismatch) << last_error();
    EXPECT_EQ(tuttiPreparedDestroy(calls), tuttiSuccess);
  });
}

}  // namespace
}  // namespace tutti
