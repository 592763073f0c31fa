// Prefix sums by the C interface: what rank 0 keeps, operators of the caller's own, means, streams and prepared calls.
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/ranks.h"
#include "tutti/tutti.hpp"

namespace tutti {
namespace {

using test::RanksOptions;

std::string last_error() { return tuttiGetLastError(nullptr); }

const char* const algorithms[] = {nullptr, "direct", "recursive_doubling", "doubling_123", "chain"};

RanksOptions with(const char* algorithm) {
  RanksOptions options;
  options.algorithm = algorithm;
  return options;
}

// What rank 0 gives for its result of an exscan is as it was, in place too, and need not be there.
TEST(Scan, LeavesRankZeroOfAnExclusiveOneAlone) {
  for (const char* algorithm : algorithms)
    for (const int n : {1, 2, 5})
      test::run_threads(n, with(algorithm), [](int rank, tuttiComm_t comm) {
        for (const size_t count : {size_t{1}, size_t{7}, size_t{100'003}}) {
          std::vector<int64_t> in(count, rank + 1), out(count, -7);
          const int64_t below = int64_t(rank) * (rank + 1) / 2;
          for (int i = 0; i < 3; ++i) {  // small ones go the short way from the second time on
            int64_t* const result = rank == 0 ? nullptr : out.data();
            ASSERT_EQ(tuttiExScan(in.data(), result, count, tuttiInt64, tuttiSum, comm, nullptr), tuttiSuccess)
                << last_error();
            EXPECT_EQ(out, std::vector<int64_t>(count, rank == 0 ? -7 : below));
          }
          ASSERT_EQ(tuttiExScan(in.data(), in.data(), count, tuttiInt64, tuttiSum, comm, nullptr), tuttiSuccess);
          EXPECT_EQ(in, std::vector<int64_t>(count, rank == 0 ? 1 : below));
        }
      });
}

// x → ax + b, joined one after the other: which is not to be had in another order.
struct Map {
  uint32_t a, b;
  friend bool operator==(const Map&, const Map&) = default;
};
Map then(const Map& first, const Map& second) { return {first.a * second.a, first.a * second.b + first.b}; }

TEST(Scan, KeepsTheOrderOfRanks) {
  for (const char* algorithm : algorithms)
    for (const int n : {1, 2, 3, 6, 7})
      test::run_threads(n, with(algorithm), [](int rank, tuttiComm_t handle) {
        tuttiRedOp_t op = tuttiSum;
        tuttiDataType_t type = tuttiInt8;
        ASSERT_EQ(tuttiTypeCreate(&type, sizeof(Map)), tuttiSuccess);
        const tuttiReduceFunction_t each = [](const void* left, void* inout, size_t count, void*) {
          for (size_t i = 0; i < count; ++i)
            static_cast<Map*>(inout)[i] = then(static_cast<const Map*>(left)[i], static_cast<Map*>(inout)[i]);
        };
        ASSERT_EQ(tuttiRedOpCreate(&op, each, type, 0, nullptr, handle), tuttiSuccess);
        const auto of = [](int r, size_t i) { return Map{uint32_t(2 * r + 3), uint32_t(i) + uint32_t(r) * 5}; };
        for (const size_t count : {size_t{1}, size_t{40'000}}) {
          std::vector<Map> in(count), all(count), below(count);
          for (size_t i = 0; i < count; ++i) in[i] = of(rank, i);
          ASSERT_EQ(tuttiScan(in.data(), all.data(), count, type, op, handle, nullptr), tuttiSuccess) << last_error();
          ASSERT_EQ(tuttiExScan(in.data(), below.data(), count, type, op, handle, nullptr), tuttiSuccess);
          for (size_t i = 0; i < count; ++i) {
            Map sum = of(0, i);
            for (int r = 1; r < rank; ++r) sum = then(sum, of(r, i));
            if (rank > 0) {
              ASSERT_EQ(below[i], sum) << rank << " " << i;
              sum = then(sum, of(rank, i));
            }
            ASSERT_EQ(all[i], sum) << rank << " " << i;
          }
        }
      });
}

TEST(Scan, TakesMeansOfWhatItJoinsAndScalars) {
  for (const char* algorithm : algorithms)
    test::run_threads(5, with(algorithm), [](int rank, tuttiComm_t comm) {
      const double in = 2 * rank, scalar = rank + 1;
      double all = -1, below = -1;
      ASSERT_EQ(tuttiScan(&in, &all, 1, tuttiFloat64, tuttiAvg, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiExScan(&in, &below, 1, tuttiFloat64, tuttiAvg, comm, nullptr), tuttiSuccess);
      EXPECT_EQ(all, rank);
      EXPECT_EQ(below, rank == 0 ? -1 : rank - 1);
      tuttiRedOp_t op = tuttiSum;
      ASSERT_EQ(tuttiRedOpCreatePreMulSum(&op, &scalar, tuttiFloat64, tuttiScalarHostImmediate, comm), tuttiSuccess);
      const auto sum = [](int ranks) {  // of 2r (r + 1)
        double products = 0;
        for (int r = 0; r < ranks; ++r) products += 2.0 * r * (r + 1);
        return products;
      };
      below = -1;
      double own = in;
      ASSERT_EQ(tuttiScan(&own, &own, 1, tuttiFloat64, op, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiExScan(&in, &below, 1, tuttiFloat64, op, comm, nullptr), tuttiSuccess);
      EXPECT_EQ(own, sum(rank + 1));
      EXPECT_EQ(below, rank == 0 ? -1 : sum(rank));
    });
}

TEST(Scan, RunsOnStreamsInGroupsAndPrepared) {
  test::run_threads(3, {}, [](int rank, tuttiComm_t comm) {
    std::vector<float> in(5000, 1), all(5000), below(5000);
    tuttiStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
    const auto calls = [&](tuttiStream_t on) {
      EXPECT_EQ(tuttiScan(in.data(), all.data(), in.size(), tuttiFloat32, tuttiSum, comm, on), tuttiSuccess);
      EXPECT_EQ(tuttiExScan(in.data(), below.data(), in.size(), tuttiFloat32, tuttiSum, comm, on), tuttiSuccess);
    };
    const auto expect = [&](float value) {
      EXPECT_EQ(all[4999], value * float(rank + 1));
      EXPECT_EQ(below[4999], value * float(rank));
    };
    calls(stream);
    ASSERT_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
    expect(1);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    calls(nullptr);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
    expect(1);
    tuttiPrepared_t prepared = nullptr;
    ASSERT_EQ(tuttiPrepareStart(), tuttiSuccess);
    calls(nullptr);
    ASSERT_EQ(tuttiPrepareEnd(&prepared), tuttiSuccess);
    for (const float value : {2.0f, 3.0f, 4.0f}) {
      std::fill(in.begin(), in.end(), value);
      ASSERT_EQ(tuttiPreparedStart(prepared, nullptr), tuttiSuccess);
      expect(value);
    }
    ASSERT_EQ(tuttiPreparedDestroy(prepared), tuttiSuccess);
    ASSERT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
  });
}

TEST(Scan, AndAnExclusiveOneAreAMismatch) {
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    const std::array<int, 3> in = {1, 2, 3};
    std::array<int, 3> out{};
    tuttiResult_t result = (rank == 0 ? tuttiScan : tuttiExScan)(in.data(), out.data(), 3, tuttiInt32, tuttiMax, comm,
                                                                 nullptr);
    for (int i = 0; i < 2000 && result == tuttiSuccess; ++i) result = tuttiBarrier(comm, nullptr);
    EXPECT_EQ(result, tuttiMismatch);
    const std::string sentence = tuttiGetLastError(comm);
    EXPECT_NE(sentence.find("called scan(count 3, int32, max)"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("exscan(count 3, int32, max)"), std::string::npos) << sentence;
  });
}

TEST(Scan, TakesSpansInCpp) {
  std::vector<Communicator> ranks = Communicator::local(1);
  const std::vector<int> in = {4, 5};
  std::vector<int> out = {0, 0};
  ranks[0].exscan<int>(in, out, tuttiSum);
  EXPECT_EQ(out, (std::vector<int>{0, 0}));
  ranks[0].scan<int>(in, out, tuttiSum);
  EXPECT_EQ(out, in);
  EXPECT_THROW(ranks[0].scan<int>(in, std::span(out).first(1), tuttiSum), Failure);
}

TEST(Scan, RefusesWrongArguments) {
  std::vector<Communicator> ranks = Communicator::local(1);
  const tuttiComm_t comm = ranks[0].get();
  std::array<float, 4> data{};
  const auto refused = [](tuttiResult_t result, const char* words) {
    EXPECT_EQ(result, tuttiInvalidArgument);
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
  };
  float* const d = data.data();
  refused(tuttiScan(nullptr, d, 2, tuttiFloat32, tuttiSum, comm, nullptr), "sendbuff is NULL");
  refused(tuttiScan(d, nullptr, 2, tuttiFloat32, tuttiSum, comm, nullptr), "recvbuff is NULL");
  refused(tuttiScan(d, d + 1, 2, tuttiFloat32, tuttiSum, comm, nullptr), "equal or disjoint");
  refused(tuttiScan(d, d + 2, 2, tuttiFloat32, tuttiBand, comm, nullptr), "op is band");
  refused(tuttiExScan(nullptr, d, 2, tuttiFloat32, tuttiSum, comm, nullptr), "sendbuff is NULL");
  refused(tuttiExScan(d, d, 2, tuttiDataType_t(77), tuttiSum, comm, nullptr), "datatype is 77");
  refused(tuttiExScan(d, d, 2, tuttiFloat32, tuttiSum, nullptr, nullptr), "comm is NULL");
}

}  // namespace
}  // namespace tutti
