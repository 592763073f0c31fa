// V-forms by the C interface: every kind against a reference, in groups, on streams and prepared; sizes that ranks
// disagree about; what is refused.
#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/ranks.h"
#include "communicator/v_form_call.h"
#include "sanitizer.h"
#include "tutti/tutti.hpp"

namespace tutti {
namespace {

using test::RanksOptions;
using test::VFormCall;
using test::VFormCase;

std::string last_error() { return tuttiGetLastError(nullptr); }
void must(tuttiResult_t result) { EXPECT_EQ(result, tuttiSuccess) << last_error(); }

using test::call;

// The largest are more than one message each.
constexpr size_t large_count = test::sanitized ? 70'001 : 120'001;

std::vector<VFormCase> cases(int n, uint64_t seed) {
  std::vector<VFormCase> all;
  for (const Collective kind : test::v_forms)
    for (const size_t size_max : {size_t{0}, size_t{3}, size_t{1000}, large_count})
      for (const bool in_place : {false, true}) {
        VFormCase c{kind, n};
        c.root = meaning(kind).rooted ? int(++seed % size_t(n)) : 0;
        c.type = size_max == 3 ? DataType::float64 : size_max == 1000 ? DataType::int8 : DataType::float32;
        c.op = seed % 2 == 0 ? ReduceOp::sum : ReduceOp::max;
        c.size_max = size_max;
        c.in_place = in_place;
        c.dense = ++seed % 3 == 0;
        c.seed = seed;
        all.push_back(c);
      }
  return all;
}

class VForms : public ::testing::TestWithParam<const char*> {
 protected:
  RanksOptions options(const char* algorithm = nullptr) const {
    RanksOptions options;
    options.transport = GetParam();
    options.algorithm = algorithm;
    return options;
  }
};

TEST_P(VForms, AgreeWithAReferenceForOneToSevenRanks) {
  for (int n = 1; n <= 7; n += test::sanitized ? 3 : 1)
    test::run_threads(n, options(), [n](int rank, tuttiComm_t comm) {
      for (const VFormCase& c : cases(n, uint64_t(n))) {
        VFormCall on(c, rank);
        ASSERT_EQ(call(c, on, comm), tuttiSuccess) << describe(c) << ": " << last_error();
        ASSERT_EQ(on.wrong(), "");
      }
    });
}

TEST_P(VForms, AgreeByEveryForcedAlgorithm) {
  const int n = test::sanitized ? 3 : 5;
  for (const char* algorithm : {"direct", "ring", "bruck", "circulant", "pairwise", "binomial"})
    test::run_threads(n, options(algorithm), [](int rank, tuttiComm_t comm) {
      for (const VFormCase& c : cases(n, 100)) {
        VFormCall on(c, rank);
        ASSERT_EQ(call(c, on, comm), tuttiSuccess) << describe(c) << ": " << last_error();
        ASSERT_EQ(on.wrong(), "");
      }
    });
}

TEST_P(VForms, RunInGroupsOnStreamsAndPreparedAndReadTheirArraysAtTheCallOnly) {
  test::run_threads(3, options(), [](int rank, tuttiComm_t comm) {
    tuttiStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
    for (const int way : {0, 1, 2}) {
      const std::vector<VFormCase> all = cases(3, 50 + uint64_t(way));
      std::vector<VFormCall> calls;
      for (const VFormCase& c : all) calls.emplace_back(c, rank);
      if (way == 0) must(tuttiGroupStart());
      if (way == 2) must(tuttiPrepareStart());
      for (size_t i = 0; i < all.size(); ++i) {
        // Arrays that are gone when the call runs.
        VFormCall* const on = &calls[i];
        const VFormCase& c = all[i];
        struct Arrays {
          std::vector<size_t> sendcounts, sdispls, recvcounts, rdispls;
        };
        auto arrays = std::make_unique<Arrays>(
            Arrays{on->send().counts, on->send().displacements, on->recv().counts, on->recv().displacements});
        tuttiResult_t result = tuttiSuccess;
        if (c.kind == Collective::all_to_all_v)
          result = tuttiAlltoAllV(on->send_data(), arrays->sendcounts.data(), arrays->sdispls.data(), on->recv_data(),
                                  arrays->recvcounts.data(), arrays->rdispls.data(), tuttiDataType_t(c.type), comm,
                                  way == 1 ? stream : nullptr);
        else result = call(c, *on, comm, way == 1 ? stream : nullptr);
        for (auto* array : {&arrays->sendcounts, &arrays->sdispls, &arrays->recvcounts, &arrays->rdispls})
          std::fill(array->begin(), array->end(), size_t{1} << 60);
        ASSERT_EQ(result, tuttiSuccess) << describe(c) << ": " << last_error();
      }
      if (way == 0) must(tuttiGroupEnd());
      if (way == 1) must(tuttiStreamSynchronize(stream));
      if (way == 2) {
        tuttiPrepared_t prepared = nullptr;
        ASSERT_EQ(tuttiPrepareEnd(&prepared), tuttiSuccess) << last_error();
        ASSERT_EQ(tuttiPreparedStart(prepared, nullptr), tuttiSuccess) << last_error();
        for (const VFormCall& on : calls) ASSERT_EQ(on.wrong(), "");
        // Once more, on the contents that the buffers had.
        for (size_t i = 0; i < all.size(); ++i) calls[i].refill();
        ASSERT_EQ(tuttiPreparedStart(prepared, nullptr), tuttiSuccess) << last_error();
        ASSERT_EQ(tuttiPreparedDestroy(prepared), tuttiSuccess);
      }
      for (const VFormCall& on : calls) ASSERT_EQ(on.wrong(), "") << "way " << way;
    }
    ASSERT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
  });
}

// Every kind of disagreement about one block is one error on both sides.
TEST_P(VForms, SizesThatRanksDisagreeAboutAreAMismatchOnAllSides) {
  struct Disagreement {
    Collective kind;
    size_t size[2];  // of the same block, as rank 0 and rank 1 see it
    const char* words;
  };
  const size_t large = 1 << 20;  // many tiles, of which the first ones are as long on both sides
  const Disagreement all[] = {{Collective::all_gather_v, {3, 4}, "all_gather_v(counts with checksum "},
                              {Collective::reduce_scatter_v, {0, 4}, "reduce_scatter_v(counts with checksum "},
                              {Collective::gather_v, {large, large - 1}, "gather_v(count 1048575, int32, root 0)"},
                              {Collective::scatter_v, {5, 0}, "scatter_v(count 0, int32, root 0)"},
                              {Collective::all_to_all_v, {0, 7}, "all_to_all_v(count 7, int32)"},
                              {Collective::all_to_all_v, {large, 2 * large}, "all_to_all_v(count 2097152, int32)"}};
  for (const Disagreement& one : all) {
    std::mutex mutex;
    std::vector<std::string> sentences;
    test::run_threads(2, options(), [&](int rank, tuttiComm_t comm) {
      const size_t size = one.size[rank], big = 3 << 20;
      std::vector<int> in(big), out(big);
      // Block 1 of the collectives that have one per rank; of the others what rank 1 gives rank 0, or gets from it.
      const std::array<size_t, 2> counts = {2, size};
      const std::array<size_t, 2> across = rank == 0 ? counts : std::array<size_t, 2>{size, 2};
      const size_t own = counts[size_t(rank)], other = rank == 0 ? 2 : size;
      tuttiResult_t result = tuttiSuccess;
      switch (one.kind) {
        case Collective::all_gather_v:
          result = tuttiAllGatherV(in.data(), own, out.data(), counts.data(), nullptr, tuttiInt32, comm, nullptr);
          break;
        case Collective::reduce_scatter_v:
          result = tuttiReduceScatterV(in.data(), counts.data(), nullptr, out.data(), own, tuttiInt32, tuttiSum, comm,
                                       nullptr);
          break;
        case Collective::gather_v:
          result = tuttiGatherV(in.data(), other, out.data(), counts.data(), nullptr, tuttiInt32, 0, comm, nullptr);
          break;
        case Collective::scatter_v:
          result = tuttiScatterV(in.data(), counts.data(), nullptr, out.data(), other, tuttiInt32, 0, comm, nullptr);
          break;
        default:
          result = tuttiAlltoAllV(in.data(), across.data(), nullptr, out.data(), across.data(), nullptr, tuttiInt32,
                                  comm, nullptr);
      }
      for (int i = 0; i < 2000 && result == tuttiSuccess; ++i) result = tuttiBarrier(comm, nullptr);
      EXPECT_EQ(result, tuttiMismatch) << name(one.kind) << ": " << tuttiGetLastError(comm);
      const std::lock_guard lock(mutex);
      sentences.emplace_back(tuttiGetLastError(comm));
    });
    ASSERT_EQ(sentences.size(), 2u);
    EXPECT_EQ(sentences[0], sentences[1]);
    EXPECT_NE(sentences[0].find(one.words), std::string::npos) << sentences[0];
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, VForms, ::testing::Values("shm", "tcp"),
                         [](const auto& p) { return std::string(p.param); });

TEST(VFormsAndTheirPlainForms, AreAMismatch) {
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    int in = rank;
    std::array<int, 2> out{};
    const std::array<size_t, 2> counts = {1, 1};
    const tuttiResult_t result =
        rank == 0 ? tuttiAllGather(&in, out.data(), 1, tuttiInt32, comm, nullptr)
                  : tuttiAllGatherV(&in, 1, out.data(), counts.data(), nullptr, tuttiInt32, comm, nullptr);
    EXPECT_EQ(result, tuttiMismatch);
  });
}

// A scalar per rank goes into blocks that lie apart.
TEST(VFormsAndTheirPlainForms, MultiplyBlocksByAScalar) {
  for (const bool in_place : {false, true})
    test::run_threads(3, {}, [in_place](int rank, tuttiComm_t comm) {
      const std::array<size_t, 3> counts = {2, 0, 4}, displacements = {6, 0, 1};
      std::vector<float> in(9, -1), out(4, -2);
      for (const size_t i : {1, 2, 3, 4, 6, 7}) in[i] = float(i);
      float* const result = in_place ? in.data() + displacements[size_t(rank)] : out.data();
      const float scalar = float(rank + 1);
      tuttiRedOp_t op = tuttiSum;
      ASSERT_EQ(tuttiRedOpCreatePreMulSum(&op, &scalar, tuttiFloat32, tuttiScalarHostMemory, comm), tuttiSuccess);
      ASSERT_EQ(tuttiReduceScatterV(in.data(), counts.data(), displacements.data(), result, counts[size_t(rank)],
                                    tuttiFloat32, op, comm, nullptr),
                tuttiSuccess)
          << last_error();
      for (size_t i = 0; i < counts[size_t(rank)]; ++i)
        EXPECT_EQ(result[i], 6 * float(displacements[size_t(rank)] + i)) << "rank " << rank;
      EXPECT_EQ(in[0], -1);
      EXPECT_EQ(in[5], -1);
      EXPECT_EQ(in[8], -1);
    });
}

TEST(VFormsInCpp, TakeSpans) {
  std::vector<Communicator> ranks = Communicator::local(1);
  Communicator& comm = ranks[0];
  const std::vector<size_t> counts = {3};
  const std::vector<int> in = {1, 2, 3};
  std::vector<int> out(5);
  comm.all_gather_v<int>(in, out, counts, {});
  EXPECT_EQ(out, (std::vector<int>{1, 2, 3, 0, 0}));
  const std::vector<size_t> displacements = {2};
  comm.all_to_all_v<int>(in, counts, {}, out, counts, displacements);
  EXPECT_EQ(out, (std::vector<int>{1, 2, 1, 2, 3}));
  comm.gather_v<int>(in, out, counts, displacements, 0);
  comm.scatter_v<int>(in, counts, {}, std::span(out).first(3), 0);
  EXPECT_EQ(out, (std::vector<int>{1, 2, 3, 2, 3}));
  comm.reduce_scatter_v<int>(in, counts, {}, std::span(out).last(3), tuttiSum);
  EXPECT_EQ(out, (std::vector<int>{1, 2, 1, 2, 3}));
  // A block must end within its span, and every rank has one.
  const std::vector<size_t> beyond = {3}, two = {1, 2};
  EXPECT_THROW(comm.all_gather_v<int>(in, out, counts, beyond), Failure);
  EXPECT_THROW(comm.all_gather_v<int>(in, out, two, {}), Failure);
}

class VFormArguments : public ::testing::Test {
 protected:
  VFormArguments() {
    tuttiUniqueId id;
    EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
    EXPECT_EQ(tuttiCommInitRank(&comm_, 1, id, 0), tuttiSuccess);
  }
  ~VFormArguments() override { EXPECT_EQ(tuttiCommDestroy(comm_), tuttiSuccess); }

  void refused(tuttiResult_t result, const char* words) {
    EXPECT_EQ(result, tuttiInvalidArgument);
    EXPECT_NE(last_error().find(words), std::string::npos) << "no \"" << words << "\" in: " << last_error();
  }

  tuttiComm_t comm_ = nullptr;
  float in_[8] = {}, out_[8] = {};
};

TEST_F(VFormArguments, AreChecked) {
  const auto type = tuttiFloat32, none = tuttiDataType_t(77);
  const size_t four = 4, five = 5, huge = std::numeric_limits<size_t>::max() / 2, one = 1;
  tuttiComm_t c = comm_;
  refused(tuttiAllGatherV(nullptr, 4, out_, &four, nullptr, type, c, nullptr), "sendbuff is NULL with sendcount of 4");
  refused(tuttiAllGatherV(in_, 4, nullptr, &four, nullptr, type, c, nullptr), "recvbuff is NULL with recvcounts");
  refused(tuttiAllGatherV(in_, 4, out_, nullptr, nullptr, type, c, nullptr), "recvcounts is NULL");
  refused(tuttiAllGatherV(in_, 4, out_, &five, nullptr, type, c, nullptr), "sendcount is 4, but recvcounts[0] is 5");
  refused(tuttiAllGatherV(in_, huge, out_, &huge, nullptr, type, c, nullptr), "count is");
  refused(tuttiAllGatherV(in_, 4, out_, &four, &huge, type, c, nullptr), "recvcounts[0] is 4, which from element");
  refused(tuttiAllGatherV(in_, 4, out_, &four, nullptr, none, c, nullptr), "datatype is 77");
  refused(tuttiAllGatherV(out_ + 1, 4, out_, &four, nullptr, type, c, nullptr), "overlap");
  refused(tuttiAllGatherV(in_, 4, out_, &four, nullptr, type, nullptr, nullptr), "comm is NULL");
  refused(tuttiReduceScatterV(in_, nullptr, nullptr, out_, 4, type, tuttiSum, c, nullptr), "sendcounts is NULL");
  refused(tuttiReduceScatterV(in_, &four, nullptr, out_, 5, type, tuttiSum, c, nullptr),
          "sendcounts[0] is 4, but recvcount is 5");
  refused(tuttiReduceScatterV(in_, &four, nullptr, out_, 4, type, tuttiRedOp_t(19), c, nullptr), "op is 19");
  refused(tuttiReduceScatterV(in_, &four, nullptr, in_ + 1, 4, type, tuttiSum, c, nullptr), "overlap");
  refused(tuttiGatherV(in_, 4, out_, &four, nullptr, type, 1, c, nullptr), "root is 1");
  refused(tuttiGatherV(in_, 4, out_, nullptr, nullptr, type, 0, c, nullptr), "recvcounts is NULL");
  refused(tuttiScatterV(in_, &four, nullptr, out_, 4, type, -1, c, nullptr), "root is -1");
  refused(tuttiScatterV(in_, &four, nullptr, nullptr, 4, type, 0, c, nullptr), "recvbuff is NULL with recvcount of 4");
  refused(tuttiAlltoAllV(in_, nullptr, nullptr, out_, &four, nullptr, type, c, nullptr), "sendcounts is NULL");
  refused(tuttiAlltoAllV(in_, &four, nullptr, out_, nullptr, nullptr, type, c, nullptr), "recvcounts is NULL");
  refused(tuttiAlltoAllV(in_, &four, nullptr, out_, &five, nullptr, type, c, nullptr),
          "sendcounts[0] is 4, but recvcounts[0] is 5");
  refused(tuttiAlltoAllV(in_, &four, nullptr, in_, &four, &one, type, c, nullptr),
          "one buffer with the same counts and displacements");
  EXPECT_EQ(tuttiAlltoAllV(in_, &four, nullptr, in_, &four, nullptr, type, c, nullptr), tuttiSuccess);
  EXPECT_EQ(tuttiAlltoAllV(in_, &four, nullptr, in_, &four, &four, type, c, nullptr), tuttiSuccess) << last_error();
}

// With more than one rank, since one block alone overlaps nothing.
TEST(VFormArgumentsOfSeveralRanks, OverlapIsRefusedWhereItIsReceivedOrInPlace) {
  test::run_threads(3, {}, [](int rank, tuttiComm_t comm) {
    std::vector<int> in(20), out(20);
    const std::array<size_t, 3> counts = {3, 0, 2}, overlapping = {4, 5, 6}, apart = {4, 5, 1};
    const size_t own = counts[size_t(rank)];
    const auto says = [](const char* words) { return last_error().find(words) != std::string::npos; };
    EXPECT_EQ(tuttiAllGatherV(in.data(), own, out.data(), counts.data(), overlapping.data(), tuttiInt32, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_TRUE(says("block 0 (elements 4 to 6) and block 2 (elements 6 to 7) of recvbuff overlap")) << last_error();
    EXPECT_EQ(tuttiAllGatherV(in.data(), own, out.data(), counts.data(), apart.data(), tuttiInt32, comm, nullptr),
              tuttiSuccess)
        << last_error();
    // What is only sent may overlap; what is sent in place may not.
    EXPECT_EQ(tuttiReduceScatterV(in.data(), counts.data(), overlapping.data(), out.data(), own, tuttiInt32, tuttiSum,
                                  comm, nullptr),
              tuttiSuccess)
        << last_error();
    if (rank != 0) return;
    EXPECT_EQ(tuttiReduceScatterV(in.data(), counts.data(), overlapping.data(), in.data() + 4, own, tuttiInt32,
                                  tuttiSum, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_TRUE(says("of sendbuff overlap")) << last_error();
  });
}

}  // namespace
}  // namespace tutti
