// Small calls that are made again take a shorter way: it must refuse, defer and fail just as the long one does.
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "communicator/ranks.h"
#include "sanitizer.h"

namespace tutti {
namespace {

using test::run_threads;

std::string last_error() { return tuttiGetLastError(nullptr); }

// A communicator of one, with a call that has been made before.
class Repeated : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(tuttiCommInitAll(&comm_, 1, nullptr), tuttiSuccess) << last_error();
    ASSERT_EQ(call(in_.data(), out_.data()), tuttiSuccess);
    ASSERT_EQ(call(in_.data(), out_.data()), tuttiSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(tuttiCommDestroy(comm_), tuttiSuccess);
  }
  tuttiResult_t call(const void* send, void* recv, tuttiDataType_t type = tuttiFloat32, tuttiRedOp_t op = tuttiSum) {
    return tuttiAllReduce(send, recv, 4, type, op, comm_, nullptr);
  }
  void expect_refused(tuttiResult_t result, const char* words) {
    EXPECT_EQ(result, tuttiInvalidArgument);
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
  }
  tuttiComm_t comm_ = nullptr;
  std::array<float, 16> in_{1, 2, 3, 4, 5}, out_{};
};

TEST_F(Repeated, ANullBufferIsStillRefused) {
  expect_refused(call(nullptr, out_.data()), "sendbuff is NULL with count 4");
  expect_refused(call(in_.data(), nullptr), "recvbuff is NULL with count 4");
  expect_refused(call(nullptr, nullptr), "sendbuff is NULL with count 4");
}

TEST_F(Repeated, OverlappingBuffersAreStillRefusedOnEitherSide) {
  for (size_t shift = 1; shift < 4; ++shift) {
    expect_refused(call(in_.data(), in_.data() + shift), "overlap");
    expect_refused(call(in_.data() + shift, in_.data()), "overlap");
  }
  EXPECT_EQ(in_[1], 2);
  EXPECT_EQ(call(in_.data(), in_.data() + 4), tuttiSuccess);  // side by side
  EXPECT_EQ(in_[5], 2);
}

TEST_F(Repeated, ATypeOrOperatorThatIsTheSameInItsLowBitsIsAnother) {
  expect_refused(call(in_.data(), out_.data(), tuttiDataType_t(256 + int(tuttiFloat32))), "datatype is");
  expect_refused(call(in_.data(), out_.data(), tuttiFloat32, tuttiRedOp_t(256 + int(tuttiSum))), "op is");
}

TEST_F(Repeated, InPlaceAndNotMayAlternate) {
  for (int i = 0; i < 5; ++i) {
    in_ = {1, 2, 3, 4};
    out_ = {};
    ASSERT_EQ(call(in_.data(), in_.data()), tuttiSuccess);
    ASSERT_EQ(call(in_.data(), out_.data()), tuttiSuccess);
    EXPECT_EQ(out_, in_);
  }
}

TEST_F(Repeated, InAGroupItWaitsForTheEnd) {
  out_ = {};
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  ASSERT_EQ(call(in_.data(), out_.data()), tuttiSuccess);
  EXPECT_EQ(out_[0], 0) << "ran before the group's end";
  ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
  EXPECT_EQ(out_[0], 1);
}

TEST_F(Repeated, AfterACallOnAStreamItKeepsItsTurn) {
  tuttiStream_t stream = nullptr;
  ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
  for (int i = 0; i < 200; ++i) {
    std::array<float, 4> first{}, second{};
    ASSERT_EQ(tuttiAllReduce(in_.data(), first.data(), 4, tuttiFloat32, tuttiSum, comm_, stream), tuttiSuccess);
    ASSERT_EQ(call(in_.data(), second.data()), tuttiSuccess);
    EXPECT_EQ(first[3], 4) << "a later call came first";
    EXPECT_EQ(second[3], 4);
  }
  EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
}

TEST_F(Repeated, AfterFinalizeItIsRefused) {
  ASSERT_EQ(tuttiCommFinalize(comm_), tuttiSuccess);
  EXPECT_EQ(call(in_.data(), out_.data()), tuttiInvalidUsage);
  EXPECT_NE(last_error().find("finalized"), std::string::npos) << last_error();
}

TEST_F(Repeated, AfterAnAbortItGivesTheVerdict) {
  ASSERT_EQ(tuttiCommAbort(comm_), tuttiSuccess);
  EXPECT_NE(call(in_.data(), out_.data()), tuttiSuccess);
}

// Calls of all sizes, kinds and roots in turn, so that they drive each other out of the memory of recent ones, and
// large ones so that scratch memory moves under the small ones.
void many_calls(int n, int rank, tuttiComm_t comm) {
  std::vector<int64_t> in(400'000), out(in.size());
  for (int round = 0; round < (test::sanitized ? 9 : 20); ++round) {
    for (const size_t count :
         {size_t{1}, size_t{3}, size_t{0}, size_t{40}, size_t{512}, size_t{513}, size_t{400'000}}) {
      if (count == 400'000 && round != 7) continue;
      for (size_t i = 0; i < count; ++i) in[i] = int64_t(i) + rank + round;
      ASSERT_EQ(tuttiAllReduce(in.data(), out.data(), count, tuttiInt64, tuttiSum, comm, nullptr), tuttiSuccess);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], n * (int64_t(i) + round) + n * (n - 1) / 2);
      ASSERT_EQ(tuttiAllReduce(in.data(), in.data(), count, tuttiInt64, tuttiMax, comm, nullptr), tuttiSuccess);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(in[i], int64_t(i) + n - 1 + round);
      const int root = round % n;
      for (size_t i = 0; i < count; ++i) in[i] = int64_t(i) * (rank + 1);
      ASSERT_EQ(tuttiBroadcast(in.data(), out.data(), count, tuttiInt64, root, comm, nullptr), tuttiSuccess);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], int64_t(i) * (root + 1));
      ASSERT_EQ(tuttiReduce(in.data(), out.data(), count, tuttiInt64, tuttiMin, root, comm, nullptr), tuttiSuccess);
      for (size_t i = 0; rank == root && i < count; ++i) ASSERT_EQ(out[i], int64_t(i));
      ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
    }
  }
}

TEST(Repeats, CallsOfAllSizesInTurnAreRight) {
  for (const char* transport : {"shm", "tcp"})
    for (int n = 1; n <= 5; ++n) {
      test::RanksOptions options;
      options.transport = transport;
      run_threads(n, options, [n](int rank, tuttiComm_t comm) { many_calls(n, rank, comm); });
    }
}

// Every algorithm, as some need scratch memory.
TEST(Repeats, CallsByEveryAlgorithmAreRight) {
  for (const char* algorithm : {"ring", "double_tree", "recursive_doubling", "two_shot", "tree", "hierarchical"}) {
    test::RanksOptions options;
    options.algorithm = algorithm;
    run_threads(3, options, [](int rank, tuttiComm_t comm) { many_calls(3, rank, comm); });
  }
}

TEST(Repeats, AMismatchIsToldByBothSides) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int64_t in = 1, out = 0;
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(tuttiAllReduce(&in, &out, 1, tuttiInt64, tuttiSum, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiAllReduce(&in, &out, 1, tuttiInt64, tuttiMax, comm, nullptr), tuttiSuccess);
    }
    const tuttiRedOp_t op = rank == 0 ? tuttiSum : tuttiMax;
    EXPECT_EQ(tuttiAllReduce(&in, &out, 1, tuttiInt64, op, comm, nullptr), tuttiMismatch);
    EXPECT_NE(last_error().find("sum"), std::string::npos) << last_error();
    EXPECT_NE(last_error().find("max"), std::string::npos) << last_error();
  });
}

}  // namespace
}  // namespace tutti
