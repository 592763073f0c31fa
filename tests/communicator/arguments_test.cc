// Wrong input to each function of the C interface: a code, a sentence that names argument and value, and a
// communicator that works as before.
#include "communicator/arguments.h"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tutti/tutti.h"

namespace tutti {
namespace {

std::string last_error() { return tuttiGetLastError(nullptr); }

#define EXPECT_REFUSED(call, code, words)                                        \
  do {                                                                           \
    EXPECT_EQ(call, code);                                                       \
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();      \
  } while (0)

class Arguments : public ::testing::Test {
 protected:
  void SetUp() override {
    tuttiUniqueId id;
    ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << last_error();
    ASSERT_EQ(tuttiCommInitRank(&comm_, 1, id, 0), tuttiSuccess) << last_error();
  }
  // After every refusal the communicator still works.
  void TearDown() override {
    float value = 3;
    EXPECT_EQ(tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiSum, comm_, nullptr), tuttiSuccess) << last_error();
    EXPECT_EQ(value, 3);
    EXPECT_EQ(tuttiCommDestroy(comm_), tuttiSuccess);
  }
  tuttiComm_t comm_ = nullptr;
  float in_[8] = {}, out_[8] = {};
};

TEST_F(Arguments, ANullBufferIsNamedWithTheCount) {
  EXPECT_REFUSED(tuttiAllReduce(nullptr, out_, 4, tuttiFloat32, tuttiSum, comm_, nullptr), tuttiInvalidArgument,
                 "sendbuff is NULL with count 4");
  EXPECT_REFUSED(tuttiAllReduce(in_, nullptr, 4, tuttiFloat32, tuttiSum, comm_, nullptr), tuttiInvalidArgument,
                 "recvbuff is NULL with count 4");
  EXPECT_REFUSED(tuttiBroadcast(nullptr, out_, 4, tuttiFloat32, 0, comm_, nullptr), tuttiInvalidArgument,
                 "sendbuff is NULL with count 4");
  EXPECT_EQ(tuttiAllReduce(nullptr, nullptr, 0, tuttiFloat32, tuttiSum, comm_, nullptr), tuttiSuccess);
}

TEST_F(Arguments, AnUnknownTypeOrOperatorIsNamedWithItsValue) {
  EXPECT_REFUSED(tuttiAllReduce(in_, out_, 4, tuttiDataType_t(21), tuttiSum, comm_, nullptr), tuttiInvalidArgument,
                 "datatype is 21");
  EXPECT_REFUSED(tuttiAllReduce(in_, out_, 4, tuttiDataType_t(-1), tuttiSum, comm_, nullptr), tuttiInvalidArgument,
                 "datatype is -1");
  EXPECT_REFUSED(tuttiAllReduce(in_, out_, 4, tuttiFloat32, tuttiRedOp_t(12), comm_, nullptr), tuttiInvalidArgument,
                 "op is 12");
}

TEST_F(Arguments, AnOperatorThatTheTypeDoesNotHaveIsNamedWithThoseThatItHas) {
  const auto refused = [&](tuttiDataType_t type, tuttiRedOp_t op, const char* words) {
    alignas(16) char in[64] = {}, out[64];
    EXPECT_REFUSED(tuttiAllReduce(in, out, 2, type, op, comm_, nullptr), tuttiInvalidArgument, words);
    EXPECT_REFUSED(tuttiReduce(in, out, 2, type, op, 0, comm_, nullptr), tuttiInvalidArgument, words);
    EXPECT_REFUSED(tuttiReduceScatter(in, out, 2, type, op, comm_, nullptr), tuttiInvalidArgument, words);
  };
  refused(tuttiFloat32, tuttiBand,
          "op is band (5), which datatype float32 does not have: it has sum, prod, max, min, avg");
  refused(tuttiComplex64, tuttiMin, "op is min (3), which datatype complex64 does not have: it has sum, prod, avg");
  refused(tuttiBool, tuttiAvg, "op is avg (4), which datatype bool does not have");
  refused(tuttiInt32Int32, tuttiSum, "op is sum (0), which datatype int32_int32 does not have: it has minloc, maxloc");
  refused(tuttiInt32, tuttiMaxloc, "op is maxloc (11), which datatype int32 does not have");
  refused(tuttiFloat16, tuttiLor, "op is lor (9), which datatype float16 does not have");
  tuttiDataType_t opaque;
  ASSERT_EQ(tuttiTypeCreate(&opaque, 12), tuttiSuccess);
  refused(opaque, tuttiSum, "elements of 12 bytes does not have: it has only operators made by tuttiRedOpCreate");
}

TEST_F(Arguments, ARootOrPeerOutsideTheRanksIsNamed) {
  EXPECT_REFUSED(tuttiBroadcast(in_, out_, 4, tuttiFloat32, 1, comm_, nullptr), tuttiInvalidArgument, "root is 1");
  EXPECT_REFUSED(tuttiBroadcast(in_, out_, 4, tuttiFloat32, -1, comm_, nullptr), tuttiInvalidArgument, "root is -1");
  EXPECT_REFUSED(tuttiSend(in_, 4, tuttiFloat32, 2, comm_, nullptr), tuttiInvalidArgument, "peer is 2");
  EXPECT_REFUSED(tuttiRecv(out_, 4, tuttiFloat32, -3, comm_, nullptr), tuttiInvalidArgument, "peer is -3");
  EXPECT_REFUSED(tuttiSend(in_, 4, tuttiFloat32, 0, comm_, nullptr), tuttiInvalidArgument, "peer is 0");
}

TEST_F(Arguments, ACountBeyondTheAddressSpaceIsRefused) {
  EXPECT_REFUSED(
      tuttiAllReduce(in_, out_, std::numeric_limits<size_t>::max() / 2, tuttiFloat32, tuttiSum, comm_, nullptr),
      tuttiInvalidArgument, "count is");
}

TEST_F(Arguments, BuffersThatOverlapWithoutBeingEqualAreRefused) {
  EXPECT_REFUSED(tuttiAllReduce(in_, in_ + 2, 4, tuttiFloat32, tuttiSum, comm_, nullptr), tuttiInvalidArgument,
                 "overlap");
  EXPECT_REFUSED(tuttiBroadcast(in_ + 1, in_, 4, tuttiFloat32, 0, comm_, nullptr), tuttiInvalidArgument, "overlap");
  EXPECT_EQ(tuttiAllReduce(in_, in_ + 4, 4, tuttiFloat32, tuttiSum, comm_, nullptr), tuttiSuccess);
}

TEST_F(Arguments, OfEveryCollectiveAreChecked) {
  const size_t huge = std::numeric_limits<size_t>::max() / 2;
  const auto type = tuttiFloat32, none = tuttiDataType_t(77);
  const auto sum = tuttiSum;
  tuttiComm_t c = comm_;
  EXPECT_REFUSED(tuttiReduce(nullptr, out_, 4, type, sum, 0, c, nullptr), tuttiInvalidArgument, "sendbuff is NULL");
  EXPECT_REFUSED(tuttiReduce(in_, nullptr, 4, type, sum, 0, c, nullptr), tuttiInvalidArgument, "recvbuff is NULL");
  EXPECT_REFUSED(tuttiReduce(in_, out_, 4, type, sum, 1, c, nullptr), tuttiInvalidArgument, "root is 1");
  EXPECT_REFUSED(tuttiReduce(in_, out_, 4, type, tuttiRedOp_t(19), 0, c, nullptr), tuttiInvalidArgument, "op is 19");
  EXPECT_REFUSED(tuttiReduce(in_, out_, huge, type, sum, 0, c, nullptr), tuttiInvalidArgument, "count is");
  EXPECT_REFUSED(tuttiReduce(in_, in_ + 2, 4, type, sum, 0, c, nullptr), tuttiInvalidArgument, "equal or disjoint");
  EXPECT_REFUSED(tuttiAllGather(nullptr, out_, 4, type, c, nullptr), tuttiInvalidArgument, "sendbuff is NULL");
  EXPECT_REFUSED(tuttiAllGather(in_, nullptr, 4, type, c, nullptr), tuttiInvalidArgument, "recvbuff is NULL");
  EXPECT_REFUSED(tuttiAllGather(in_, out_, 4, none, c, nullptr), tuttiInvalidArgument, "datatype is 77");
  EXPECT_REFUSED(tuttiAllGather(in_, out_, huge, type, c, nullptr), tuttiInvalidArgument, "count is");
  EXPECT_REFUSED(tuttiAllGather(in_ + 1, in_, 4, type, c, nullptr), tuttiInvalidArgument, "own block of recvbuff");
  EXPECT_REFUSED(tuttiReduceScatter(nullptr, out_, 4, type, sum, c, nullptr), tuttiInvalidArgument, "sendbuff is NULL");
  EXPECT_REFUSED(tuttiReduceScatter(in_, nullptr, 4, type, sum, c, nullptr), tuttiInvalidArgument, "recvbuff is NULL");
  EXPECT_REFUSED(tuttiReduceScatter(in_, out_, huge, type, sum, c, nullptr), tuttiInvalidArgument, "count is");
  EXPECT_REFUSED(tuttiReduceScatter(in_, out_, 4, type, tuttiRedOp_t(12), c, nullptr), tuttiInvalidArgument,
                 "op is 12");
  EXPECT_REFUSED(tuttiReduceScatter(in_, in_ + 1, 4, type, sum, c, nullptr), tuttiInvalidArgument,
                 "own block of sendbuff");
  EXPECT_REFUSED(tuttiGather(in_, out_, 4, type, -1, c, nullptr), tuttiInvalidArgument, "root is -1");
  EXPECT_REFUSED(tuttiGather(nullptr, out_, 4, type, 0, c, nullptr), tuttiInvalidArgument, "sendbuff is NULL");
  EXPECT_REFUSED(tuttiGather(in_, nullptr, 4, type, 0, c, nullptr), tuttiInvalidArgument, "recvbuff is NULL");
  EXPECT_REFUSED(tuttiGather(in_, out_, huge, type, 0, c, nullptr), tuttiInvalidArgument, "count is");
  EXPECT_REFUSED(tuttiGather(in_ + 1, in_, 4, type, 0, c, nullptr), tuttiInvalidArgument, "own block of recvbuff");
  EXPECT_REFUSED(tuttiScatter(in_, out_, 4, type, 1, c, nullptr), tuttiInvalidArgument, "root is 1");
  EXPECT_REFUSED(tuttiScatter(nullptr, out_, 4, type, 0, c, nullptr), tuttiInvalidArgument, "sendbuff is NULL");
  EXPECT_REFUSED(tuttiScatter(in_, nullptr, 4, type, 0, c, nullptr), tuttiInvalidArgument, "recvbuff is NULL");
  EXPECT_REFUSED(tuttiScatter(in_, out_, huge, type, 0, c, nullptr), tuttiInvalidArgument, "count is");
  EXPECT_REFUSED(tuttiScatter(in_, in_ + 1, 4, type, 0, c, nullptr), tuttiInvalidArgument, "own block of sendbuff");
  EXPECT_REFUSED(tuttiAlltoAll(nullptr, out_, 4, type, c, nullptr), tuttiInvalidArgument, "sendbuff is NULL");
  EXPECT_REFUSED(tuttiAlltoAll(in_, nullptr, 4, type, c, nullptr), tuttiInvalidArgument, "recvbuff is NULL");
  EXPECT_REFUSED(tuttiAlltoAll(in_, out_, huge, type, c, nullptr), tuttiInvalidArgument, "count is");
  EXPECT_REFUSED(tuttiAlltoAll(in_, in_ + 3, 4, type, c, nullptr), tuttiInvalidArgument, "equal or disjoint");
  EXPECT_REFUSED(tuttiSendRecv(in_, 4, 1, out_, 4, 0, type, c, nullptr), tuttiInvalidArgument, "peer is 1");
  EXPECT_REFUSED(tuttiSendRecv(in_, 4, 0, out_, 4, -1, type, c, nullptr), tuttiInvalidArgument, "peer is -1");
  EXPECT_REFUSED(tuttiSendRecv(nullptr, 4, 0, out_, 4, 0, type, c, nullptr), tuttiInvalidArgument, "sendbuff is NULL");
  EXPECT_REFUSED(tuttiSendRecv(in_, 4, 0, nullptr, 4, 0, type, c, nullptr), tuttiInvalidArgument, "recvbuff is NULL");
  EXPECT_REFUSED(tuttiSendRecv(in_, 4, 0, in_, 4, 0, type, c, nullptr), tuttiInvalidArgument, "must be disjoint");
  EXPECT_REFUSED(tuttiSendRecv(in_, 4, 0, out_, 3, 0, type, c, nullptr), tuttiMismatch, "sends itself");
}

TEST(ArgumentsOfBlocks, CountTheBlocksOfAllRanks) {
  // Just below 2^63 bytes for one rank is too much for two.
  const size_t most = size_t(std::numeric_limits<int64_t>::max()) / 8;
  EXPECT_NO_THROW(check_count(most, DataType::int64));
  EXPECT_NO_THROW(check_count(most / 2, DataType::int64, 2));
  EXPECT_THROW(check_count(most / 2 + 1, DataType::int64, 2), Error);
}

TEST(ArgumentsOfBlocks, MayBeInPlaceAtTheOwnBlockOnly) {
  char memory[64];
  const Area whole = {memory + 16, 32};
  // The second of four blocks of 8 bytes.
  EXPECT_TRUE(check_overlap({memory + 24, 8}, whole, InPlace::send_is_block_of_recv, 8));
  EXPECT_TRUE(check_overlap(whole, {memory + 24, 8}, InPlace::recv_is_block_of_send, 8));
  EXPECT_FALSE(check_overlap({memory + 8, 8}, whole, InPlace::send_is_block_of_recv, 8));
  EXPECT_FALSE(check_overlap({memory + 48, 8}, whole, InPlace::send_is_block_of_recv, 8));
  for (const int at : {9, 16, 23, 25, 32, 47}) {
    EXPECT_THROW(check_overlap({memory + at, 8}, whole, InPlace::send_is_block_of_recv, 8), Error) << at;
    EXPECT_THROW(check_overlap(whole, {memory + at, 8}, InPlace::recv_is_block_of_send, 8), Error) << at;
  }
  EXPECT_TRUE(check_overlap(whole, whole, InPlace::same_start));
  EXPECT_THROW(check_overlap(whole, whole, InPlace::refused), Error);
}

TEST_F(Arguments, RanksAndSizesAreChecked) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t comm = nullptr;
  EXPECT_REFUSED(tuttiCommInitRank(&comm, 0, id, 0), tuttiInvalidArgument, "nranks is 0");
  EXPECT_REFUSED(tuttiCommInitRank(&comm, 2, id, 2), tuttiInvalidArgument, "rank is 2");
  EXPECT_REFUSED(tuttiCommInitRank(&comm, 2, id, -1), tuttiInvalidArgument, "rank is -1");
  EXPECT_REFUSED(tuttiCommInitRank(nullptr, 2, id, 0), tuttiInvalidArgument, "comm is NULL");
  EXPECT_EQ(comm, nullptr);
  EXPECT_REFUSED(tuttiGetUniqueId(nullptr), tuttiInvalidArgument, "id is NULL");
  tuttiUniqueId garbage = {};
  EXPECT_EQ(tuttiCommInitRank(&comm, 1, garbage, 0), tuttiInvalidArgument);
  EXPECT_FALSE(last_error().empty());
  // The meeting place that was opened above is used, so that it ends.
  ASSERT_EQ(tuttiCommInitRank(&comm, 1, id, 0), tuttiSuccess);
  tuttiCommDestroy(comm);
}

TEST_F(Arguments, SettingsAreCheckedAndMayComeFromAnotherVersion) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t comm = nullptr;
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.timeout_ms = 0;
  EXPECT_REFUSED(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), tuttiInvalidArgument, "config->timeout_ms is 0");
  config = TUTTI_CONFIG_INITIALIZER;
  config.size = 3;
  EXPECT_REFUSED(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), tuttiInvalidArgument, "config->size is 3");
  config = TUTTI_CONFIG_INITIALIZER;
  config.channels = 99;
  EXPECT_REFUSED(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), tuttiInvalidArgument, "channels is 99");
  config = TUTTI_CONFIG_INITIALIZER;
  config.algorithm = "no_such";
  EXPECT_EQ(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), tuttiInvalidArgument);
  EXPECT_NE(last_error().find("no_such"), std::string::npos) << last_error();
  // A caller compiled against a later version has a longer struct; one against an earlier version a shorter.
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  struct {
    tuttiConfig_t known = TUTTI_CONFIG_INITIALIZER;
    char later[64] = {};
  } longer;
  longer.known.size = sizeof longer;
  ASSERT_EQ(tuttiCommInitRankConfig(&comm, 1, id, 0, &longer.known), tuttiSuccess) << last_error();
  tuttiCommDestroy(comm);
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiConfig_t shorter = TUTTI_CONFIG_INITIALIZER;
  shorter.size = offsetof(tuttiConfig_t, transport);
  shorter.transport = reinterpret_cast<const char*>(1);  // beyond what the caller knows: must not be read
  ASSERT_EQ(tuttiCommInitRankConfig(&comm, 1, id, 0, &shorter), tuttiSuccess) << last_error();
  tuttiCommDestroy(comm);
}

TEST_F(Arguments, AHandleIsToldFromADestroyedOne) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t comm = nullptr;
  ASSERT_EQ(tuttiCommInitRank(&comm, 1, id, 0), tuttiSuccess);
  ASSERT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
  int value = 0;
  EXPECT_REFUSED(tuttiCommCount(comm, &value), tuttiInvalidArgument, "not a live communicator");
  EXPECT_REFUSED(tuttiCommDestroy(comm), tuttiInvalidArgument, "not a live communicator");
  EXPECT_REFUSED(tuttiAllReduce(in_, out_, 1, tuttiFloat32, tuttiSum, comm, nullptr), tuttiInvalidArgument,
                 "not a live communicator");
  EXPECT_REFUSED(tuttiCommAbort(comm), tuttiInvalidArgument, "not a live communicator");
  EXPECT_REFUSED(tuttiBarrier(nullptr, nullptr), tuttiInvalidArgument, "comm is NULL");
  EXPECT_EQ(tuttiCommDestroy(nullptr), tuttiSuccess);
  tuttiStream_t stream = nullptr;
  ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
  ASSERT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
  EXPECT_REFUSED(tuttiStreamSynchronize(stream), tuttiInvalidArgument, "not a live stream");
}

TEST_F(Arguments, AfterFinalizeOnlyDestroyIsAllowed) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t comm = nullptr;
  ASSERT_EQ(tuttiCommInitRank(&comm, 1, id, 0), tuttiSuccess);
  ASSERT_EQ(tuttiCommFinalize(comm), tuttiSuccess);
  EXPECT_REFUSED(tuttiBarrier(comm, nullptr), tuttiInvalidUsage, "finalized");
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
}

TEST_F(Arguments, GroupsThatAreNotOpenOrHoldARefusedCallSaySo) {
  EXPECT_REFUSED(tuttiGroupEnd(), tuttiInvalidUsage, "without tuttiGroupStart");
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  EXPECT_EQ(tuttiAllReduce(in_, out_, 4, tuttiDataType_t(21), tuttiSum, comm_, nullptr), tuttiInvalidArgument);
  EXPECT_REFUSED(tuttiGroupEnd(), tuttiInvalidArgument, "datatype is 21");
  ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
  ASSERT_EQ(tuttiSend(in_, 4, tuttiFloat32, 0, comm_, nullptr), tuttiSuccess);
  EXPECT_REFUSED(tuttiGroupEnd(), tuttiInvalidUsage, "without the receive");
}

TEST_F(Arguments, QuestionsAreAnsweredOrRefusedByName) {
  const char* text = nullptr;
  EXPECT_EQ(tuttiCommTransport(comm_, 0, &text), tuttiSuccess);
  EXPECT_STREQ(text, "self");
  EXPECT_REFUSED(tuttiCommTransport(comm_, 1, &text), tuttiInvalidArgument, "peer is 1");
  EXPECT_EQ(tuttiCommAlgorithm(comm_, "all_reduce", 1024, &text), tuttiSuccess);
  EXPECT_REFUSED(tuttiCommAlgorithm(comm_, "all_redcue", 1024, &text), tuttiInvalidArgument, "all_redcue");
  int device = 0;
  EXPECT_EQ(tuttiCommDevice(comm_, &device), tuttiSuccess);
  EXPECT_EQ(device, -1);
  const int gpus[] = {0};
  tuttiComm_t comm = nullptr;
  EXPECT_REFUSED(tuttiCommInitAll(&comm, 1, gpus), tuttiUnsupported, "devices[0] is 0");
  EXPECT_REFUSED(tuttiCommInitAll(&comm, 0, nullptr), tuttiInvalidArgument, "ndev is 0");
  EXPECT_STREQ(tuttiGetErrorString(tuttiResult_t(99)), "unknown result code");
  EXPECT_EQ(tuttiTypeSize(tuttiBfloat16), 2u);
  EXPECT_EQ(tuttiTypeSize(tuttiComplex128), 16u);
  EXPECT_EQ(tuttiTypeSize(tuttiDataType_t(44)), 0u);
}

}  // namespace
}  // namespace tutti
