// Calls on streams of devices: they return at once, in order with what is before and after, and whoever gives a wrong
// stream or buffer is told which.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/c_api.h"
#include "communicator/device_calls.h"
#include "communicator/device_flags.h"
#include "communicator/device_side.h"
#include "communicator/peer_path.h"
#include "communicator/ranks.h"
#include "device/devices.h"
#include "engine/device_work.h"

namespace tutti {
namespace {

using test::DeviceBuffer;
using test::must;
using test::RanksOptions;
using test::simulated;
using test::UserStream;

std::string last_error() { return tuttiGetLastError(nullptr); }

// Every rank on device 0, which it names or not: both paths.
class DeviceStreams : public ::testing::TestWithParam<bool> {
 protected:
  static void SetUpTestSuite() { simulated("simulated:devices=3,delay_us=200,seed=5"); }
  RanksOptions options() const {
    RanksOptions options;
    if (GetParam()) options.device = [](int) { return 0; };
    return options;
  }
};

TEST_P(DeviceStreams, CallsReturnAtOnceAndComeAfterWhatIsOnTheStream) {
  void* pinned = nullptr;
  must(simulated().allocate_host(4096, &pinned));
  test::run_threads(2, options(), [&](int rank, tuttiComm_t comm) {
    uint32_t* const flag = static_cast<uint32_t*>(pinned) + rank;  // its own: nobody else may let its stream go on
    UserStream stream(0);
    const std::vector<float> late(1000, 2.0f);
    const DeviceBuffer buffer(0, std::vector<float>(1000, 1.0f));
    Device& device = simulated().device(0);
    must(device.wait_flag(stream.get(), flag, 1));
    must(device.copy(stream.get(), buffer.data(), late.data(), buffer.bytes()));
    must(tuttiAllReduce(buffer.data(), buffer.data(), 1000, tuttiFloat32, tuttiSum, comm, stream));
    std::vector<float> result(1000);
    must(device.copy(stream.get(), result.data(), buffer.data(), buffer.bytes()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(result[999], 0.0f) << "nothing may happen before the stream comes to it";
    std::atomic_ref<uint32_t>(*flag).store(1);
    stream.wait();
    EXPECT_EQ(result, std::vector<float>(1000, 4.0f));
  });
  must(simulated().free_host(pinned));
}

TEST_P(DeviceStreams, TwoStreamsAndTwoCommunicatorsUnderStress) {
  test::run_threads(3, options(), [](int rank, tuttiComm_t comm) {
    tuttiComm_t other = nullptr;
    must(tuttiCommSplit(comm, 0, rank, &other, nullptr));
    UserStream streams[2] = {UserStream(0), UserStream(0)};
    constexpr size_t count = 20'000;
    const DeviceBuffer a(0, std::vector<int>(count, 1)), b(0, std::vector<int>(count, 1));
    constexpr int rounds = 8;
    for (int i = 0; i < rounds; ++i) {
      must(tuttiAllReduce(a.data(), a.data(), count, tuttiInt32, tuttiSum, comm, streams[0]));
      must(tuttiAllReduce(b.data(), b.data(), count, tuttiInt32, tuttiSum, other, streams[1]));
    }
    int expected = 1;
    for (int i = 0; i < rounds; ++i) expected *= 3;
    for (UserStream& stream : streams) stream.wait();
    EXPECT_EQ(a.values<int>(), std::vector<int>(count, expected));
    EXPECT_EQ(b.values<int>(), std::vector<int>(count, expected));
    must(tuttiCommDestroy(other));
  });
}

TEST_P(DeviceStreams, GroupsExchangeInAnyOrderAlsoWithTheRankItself) {
  test::run_threads(3, options(), [](int rank, tuttiComm_t comm) {
    UserStream stream(0);
    constexpr size_t count = 5000;
    std::vector<int> mine(count, rank + 1);
    const DeviceBuffer send(0, mine);
    std::vector<std::unique_ptr<DeviceBuffer>> received;
    for (int r = 0; r < 3; ++r) received.push_back(std::make_unique<DeviceBuffer>(0, count * sizeof(int)));
    for (tuttiStream_t on : {tuttiStream_t(stream), tuttiStream_t(nullptr)}) {
      must(tuttiGroupStart());
      for (int r = 0; r < 3; ++r) must(tuttiRecv(received[size_t(r)]->data(), count, tuttiInt32, r, comm, on));
      for (int r = 2; r >= 0; --r) must(tuttiSend(send.data(), count, tuttiInt32, r, comm, on));
      must(tuttiGroupEnd());
      stream.wait();
      for (int r = 0; r < 3; ++r) EXPECT_EQ(received[size_t(r)]->values<int>(), std::vector<int>(count, r + 1));
    }
  });
}

TEST_P(DeviceStreams, PreparedCallsRunAgainOnTheContentsOfTheMoment) {
  test::run_threads(2, options(), [](int, tuttiComm_t comm) {
    UserStream stream(0);
    const DeviceBuffer buffer(0, std::vector<double>(3000, 1.0));
    tuttiPrepared_t prepared = nullptr;
    must(tuttiPrepareStart());
    must(tuttiAllReduce(buffer.data(), buffer.data(), 3000, tuttiFloat64, tuttiSum, comm, nullptr));
    must(tuttiPrepareEnd(&prepared));
    for (int i = 0; i < 4; ++i) {
      must(tuttiPreparedStart(prepared, i % 2 == 0 ? tuttiStream_t(stream) : nullptr));
      stream.wait();
    }
    EXPECT_EQ(buffer.values<double>(), std::vector<double>(3000, 16.0));
    must(tuttiPreparedDestroy(prepared));
  });
}

TEST_P(DeviceStreams, OperatorsOfTheCallersAndExactSumsAreJoinedByTheHost) {
  test::run_threads(3, options(), [](int rank, tuttiComm_t comm) {
    UserStream stream(0);
    const DeviceBuffer buffer(0, std::vector<float>(70'001, float(rank + 1)));
    tuttiRedOp_t op;
    const auto sum = [](const void* in, void* inout, size_t count, void*) {
      for (size_t i = 0; i < count; ++i) static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
    };
    must(tuttiRedOpCreate(&op, sum, tuttiFloat32, 1, nullptr, comm));
    must(tuttiAllReduce(buffer.data(), buffer.data(), 70'001, tuttiFloat32, op, comm, stream));
    stream.wait();
    EXPECT_EQ(buffer.values<float>(), std::vector<float>(70'001, 6.0f));
    tuttiOptions_t exact = TUTTI_OPTIONS_INITIALIZER;
    exact.determinism = tuttiDeterminismInvariant;
    must(tuttiAllReduceWith(buffer.data(), buffer.data(), 70'001, tuttiFloat32, tuttiAvg, comm, stream, &exact));
    // A multiple, its scalar on the device.
    const DeviceBuffer half(0, std::vector<float>{0.5f});
    tuttiRedOp_t multiple;
    must(tuttiRedOpCreatePreMulSum(&multiple, half.data(), tuttiFloat32, tuttiScalarHostMemory, comm));
    must(tuttiAllReduce(buffer.data(), buffer.data(), 70'001, tuttiFloat32, multiple, comm, stream));
    stream.wait();
    EXPECT_EQ(buffer.values<float>(), std::vector<float>(70'001, 9.0f));
    // Several vectors, which are joined before or exactly.
    const DeviceBuffer vectors(0, std::vector<float>(2 * 1000, 0.25f)), result(0, 1000 * sizeof(float));
    exact.inputs = 2;
    must(tuttiAllReduceWith(vectors.data(), result.data(), 1000, tuttiFloat32, tuttiSum, comm, stream, &exact));
    stream.wait();
    EXPECT_EQ(result.values<float>(), std::vector<float>(1000, 1.5f));
    const DeviceBuffer numbers(0, std::vector<int>(2 * 1000, 3)), sums(0, 1000 * sizeof(int));
    must(tuttiAllReduceWith(numbers.data(), sums.data(), 1000, tuttiInt32, tuttiSum, comm, stream, &exact));
    stream.wait();
    EXPECT_EQ(sums.values<int>(), std::vector<int>(1000, 18));
  });
}

TEST_P(DeviceStreams, HostBuffersFollowAStreamOfTheDeviceToo) {
  test::run_threads(2, options(), [](int rank, tuttiComm_t comm) {
    UserStream stream(0);
    const DeviceBuffer source(0, std::vector<int>(500, rank + 1));
    std::vector<int> host(500), sum(500);
    must(simulated().device(0).copy(stream.get(), host.data(), source.data(), source.bytes()));
    must(tuttiAllReduce(host.data(), sum.data(), 500, tuttiInt32, tuttiSum, comm, stream));
    stream.wait();
    EXPECT_EQ(sum, std::vector<int>(500, 3));
    // From the one kind of memory to the other.
    const DeviceBuffer target(0, 500 * sizeof(int));
    must(tuttiAllReduce(host.data(), target.data(), 500, tuttiInt32, tuttiSum, comm, stream));
    stream.wait();
    EXPECT_EQ(target.values<int>(), std::vector<int>(500, 3));
  });
}

TEST_P(DeviceStreams, ManagedAndRegisteredMemoryAreRecognised) {
  test::run_threads(2, options(), [](int rank, tuttiComm_t comm) {
    UserStream stream(0);
    auto* const managed = static_cast<int*>(simulated().allocate_managed(0, 4000));
    std::vector<int> registered(1000);
    must(simulated().register_host(registered.data(), 4000));
    std::fill_n(managed, 1000, rank + 1);
    must(tuttiAllReduce(managed, registered.data(), 1000, tuttiInt32, tuttiSum, comm, stream));
    stream.wait();
    EXPECT_EQ(registered, std::vector<int>(1000, 3));
    must(simulated().unregister_host(registered.data()));
    must(simulated().device(0).free(managed));
  });
}

TEST_P(DeviceStreams, WrongBuffersAndStreamsAreNamed) {
  test::run_threads(1, options(), [](int, tuttiComm_t comm) {
    const DeviceBuffer here(0, 64), there(1, 64);
    UserStream stream(0), elsewhere(1);
    const auto refused = [&](const void* send, void* recv, size_t count, tuttiStream_t on, const std::string& words,
                             tuttiResult_t result = tuttiInvalidArgument) {
      EXPECT_EQ(tuttiAllReduce(send, recv, count, tuttiFloat32, tuttiSum, comm, on), result);
      EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
    };
    must(tuttiAllReduce(here.data(), here.data(), 16, tuttiFloat32, tuttiSum, comm, stream));
    refused(there.data(), here.data(), 16, stream, "of device 1, but this communicator uses device 0");
    refused(here.data(), here.data(), 17, stream, "ends beyond its allocation");
    refused(here.data(), here.data(), 16, elsewhere, "but this communicator uses device 0");
    void* freed = nullptr;
    must(simulated().device(0).allocate(64, &freed));
    must(simulated().device(0).free(freed));
    refused(freed, here.data(), 16, stream, "that was freed");
    refused(here.data(), reinterpret_cast<void*>(uintptr_t{4096}), 16, stream, "recvbuff 0x1000");
    int no_stream = 0;
    refused(here.data(), here.data(), 16, reinterpret_cast<tuttiStream_t>(&no_stream), "not a live stream");
    simulated().set_capturing(stream.get(), true);
    refused(here.data(), here.data(), 16, stream, "captured", tuttiUnsupported);
    simulated().set_capturing(stream.get(), false);
    // Nothing of all this was final.
    must(tuttiAllReduce(here.data(), here.data(), 16, tuttiFloat32, tuttiSum, comm, stream));
    must(tuttiStreamSynchronize(stream));
  });
}

// Whatever takes a stream; and nothing is done with it before.
TEST_P(DeviceStreams, CapturedStreamsAreRefusedByAllCalls) {
  test::run_threads(1, options(), [](int, tuttiComm_t comm) {
    const DeviceBuffer in(0, 64), out(0, 64);
    UserStream stream(0);
    const void* const a = in.data();
    void* const b = out.data();
    const size_t counts[] = {16}, offsets[] = {0};
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    tuttiPrepared_t prepared = nullptr;
    must(tuttiPrepareStart());
    must(tuttiAllReduce(a, b, 16, tuttiFloat32, tuttiSum, comm, nullptr));
    must(tuttiPrepareEnd(&prepared));
    using CallOn = std::function<tuttiResult_t(tuttiStream_t)>;
    const std::vector<CallOn> calls = {
        [&](tuttiStream_t on) { return tuttiAllReduce(a, b, 16, tuttiFloat32, tuttiSum, comm, on); },
        [&](tuttiStream_t on) { return tuttiAllReduceWith(a, b, 16, tuttiFloat32, tuttiSum, comm, on, &options); },
        [&](tuttiStream_t on) { return tuttiBroadcast(a, b, 16, tuttiFloat32, 0, comm, on); },
        [&](tuttiStream_t on) { return tuttiReduce(a, b, 16, tuttiFloat32, tuttiSum, 0, comm, on); },
        [&](tuttiStream_t on) { return tuttiScan(a, b, 16, tuttiFloat32, tuttiSum, comm, on); },
        [&](tuttiStream_t on) { return tuttiExScan(a, b, 16, tuttiFloat32, tuttiSum, comm, on); },
        [&](tuttiStream_t on) { return tuttiAllGather(a, b, 16, tuttiFloat32, comm, on); },
        [&](tuttiStream_t on) { return tuttiReduceScatter(a, b, 16, tuttiFloat32, tuttiSum, comm, on); },
        [&](tuttiStream_t on) { return tuttiGather(a, b, 16, tuttiFloat32, 0, comm, on); },
        [&](tuttiStream_t on) { return tuttiScatter(a, b, 16, tuttiFloat32, 0, comm, on); },
        [&](tuttiStream_t on) { return tuttiAlltoAll(a, b, 16, tuttiFloat32, comm, on); },
        [&](tuttiStream_t on) { return tuttiBarrier(comm, on); },
        [&](tuttiStream_t on) { return tuttiAllGatherV(a, 16, b, counts, offsets, tuttiFloat32, comm, on); },
        [&](tuttiStream_t on) { return tuttiReduceScatterV(a, counts, offsets, b, 16, tuttiFloat32, tuttiSum, comm, on); },
        [&](tuttiStream_t on) { return tuttiGatherV(a, 16, b, counts, offsets, tuttiFloat32, 0, comm, on); },
        [&](tuttiStream_t on) { return tuttiScatterV(a, counts, offsets, b, 16, tuttiFloat32, 0, comm, on); },
        [&](tuttiStream_t on) { return tuttiAlltoAllV(a, counts, offsets, b, counts, offsets, tuttiFloat32, comm, on); },
        [&](tuttiStream_t on) { return tuttiSendRecv(a, 16, 0, b, 16, 0, tuttiFloat32, comm, on); },
        [&](tuttiStream_t on) {
          must(tuttiGroupStart());
          const tuttiResult_t sent = tuttiSend(a, 16, tuttiFloat32, 0, comm, on), received = tuttiRecv(b, 16, tuttiFloat32, 0, comm, on);
          EXPECT_EQ(sent, received);
          return tuttiGroupEnd();
        },
        [&](tuttiStream_t on) {  // captured only when the group ends
          simulated().set_capturing(stream.get(), false);
          must(tuttiGroupStart());
          must(tuttiAllReduce(a, b, 16, tuttiFloat32, tuttiSum, comm, on));
          simulated().set_capturing(stream.get(), true);
          return tuttiGroupEnd();
        },
        [&](tuttiStream_t on) { return tuttiPreparedStart(prepared, on); },
    };
    const uint64_t before = simulated().works_done(0);
    simulated().set_capturing(stream.get(), true);
    for (const CallOn& call : calls) {
      EXPECT_EQ(call(stream), tuttiUnsupported) << &call - calls.data();
      EXPECT_NE(last_error().find("is being captured into a graph, but the host takes part"), std::string::npos) << last_error();
    }
    simulated().set_capturing(stream.get(), false);
    // Without a stream a call comes after what is on the default stream, which a capture of another one may not allow.
    simulated().set_capturing(nullptr, true);
    EXPECT_EQ(tuttiAllReduce(a, b, 16, tuttiFloat32, tuttiSum, comm, nullptr), tuttiUnsupported);
    EXPECT_NE(last_error().find("the default stream would get into the capture"), std::string::npos) << last_error();
    EXPECT_EQ(tuttiPreparedStart(prepared, nullptr), tuttiUnsupported);
    simulated().set_capturing(nullptr, false);
    EXPECT_EQ(simulated().works_done(0), before);
    for (const CallOn& call : calls)
      if (&call != &calls[calls.size() - 2]) must(call(stream));
    stream.wait();
    must(tuttiPreparedDestroy(prepared));
  });
}

TEST(DeviceStreamQuery, TellsWhetherAStreamIsThroughOrCaptured) {
  void* pinned = nullptr;
  must(simulated().allocate_host(4096, &pinned));
  uint32_t* const flag = static_cast<uint32_t*>(pinned);
  const UserStream stream(0);
  EXPECT_EQ(tuttiStreamQuery(stream), tuttiSuccess);
  must(simulated().device(0).wait_flag(stream.get(), flag, 1));
  EXPECT_EQ(tuttiStreamQuery(stream), tuttiInProgress);
  std::atomic_ref<uint32_t>(*flag).store(1);
  must(simulated().device(0).wait_stream(stream.get()));
  EXPECT_EQ(tuttiStreamQuery(stream), tuttiSuccess);
  simulated().set_capturing(stream.get(), true);
  EXPECT_EQ(tuttiStreamQuery(stream), tuttiUnsupported);
  EXPECT_NE(last_error().find("is being captured into a graph"), std::string::npos) << last_error();
  simulated().set_capturing(stream.get(), false);
  must(simulated().free_host(pinned));
}

// All ranks have the same, be it that one alone names its device.
TEST(DeviceChannels, AreSeveralWhereARankNamesItsDevice) {
  const auto expect_channels = [](int ranks, int naming, int channels, int wanted) {
    RanksOptions options;
    options.channels = channels;
    options.device = [naming](int rank) { return rank < naming ? 0 : -1; };
    test::run_threads(ranks, options, [&](int, tuttiComm_t comm) {
      EXPECT_EQ(communicator_of(comm).channels(), wanted) << naming << " of " << ranks << " name a device";
    });
  };
  expect_channels(2, 0, -1, 1);
  expect_channels(2, 1, -1, 8);
  expect_channels(2, 2, -1, 8);
  expect_channels(5, 5, -1, 4);
  expect_channels(2, 2, 3, 3);
}

TEST_P(DeviceStreams, OwnBlocksOfUnevenFormsMayEndWithTheirAllocation) {
  test::run_threads(2, options(), [](int rank, tuttiComm_t comm) {
    const std::vector<size_t> counts{1, 5};
    const size_t mine = counts[size_t(rank)];
    UserStream stream(0);
    const DeviceBuffer own(0, std::vector<float>(mine, float(rank + 1))), all(0, 6 * sizeof(float));
    must(tuttiAllGatherV(own.data(), mine, all.data(), counts.data(), nullptr, tuttiFloat32, comm, stream));
    must(tuttiReduceScatterV(all.data(), counts.data(), nullptr, own.data(), mine, tuttiFloat32, tuttiSum, comm,
                             stream));
    stream.wait();
    EXPECT_EQ(all.values<float>(), (std::vector<float>{1, 2, 2, 2, 2, 2}));
    EXPECT_EQ(own.values<float>(), std::vector<float>(mine, 2.0f * float(rank + 1)));
  });
}

// What was looked up once is not looked up again where the buffers are the same.
TEST_P(DeviceStreams, SmallCallsOnTheSameHostBuffersAreLookedUpOnce) {
  test::run_threads(2, options(), [](int rank, tuttiComm_t comm) {
    float mine[4], other[4];
    const auto all_reduce = [&](float* values) {
      std::fill_n(values, 4, float(rank + 1));
      must(tuttiAllReduce(values, values, 4, tuttiFloat32, tuttiSum, comm, nullptr));
      EXPECT_EQ(values[3], 3.0f);
    };
    all_reduce(mine);
    must(tuttiBarrier(comm, nullptr));
    must(tuttiBarrier(comm, nullptr));
    const uint64_t before = simulated().times_located();
    must(tuttiBarrier(comm, nullptr));
    for (int i = 0; i < 50; ++i) all_reduce(mine);
    must(tuttiBarrier(comm, nullptr));
    // Where all name a device, every call asks all ranks where their buffers are.
    EXPECT_EQ(simulated().times_located() == before, !GetParam());
    must(tuttiBarrier(comm, nullptr));
    all_reduce(other);
    // A buffer of the device after one of the host, of the same call.
    const DeviceBuffer there(0, std::vector<float>(4, float(rank + 1)));
    must(tuttiAllReduce(there.data(), there.data(), 4, tuttiFloat32, tuttiSum, comm, nullptr));
    EXPECT_EQ(there.values<float>(), std::vector<float>(4, 3.0f));
    all_reduce(mine);
  });
}

// By way of the host, what goes to the device does not wait for what comes from it.
TEST(DeviceStaging, CopiesBothWaysAtOnce) {
  simulated("simulated:devices=3,delay_us=200,seed=5");
  RanksOptions options;
  options.channels = 4;
  test::run_threads(2, options, [](int rank, tuttiComm_t comm) {
    const int device = 1 + rank;
    constexpr size_t count = 1'000'000;
    const DeviceBuffer mine(device, std::vector<int>(count, rank + 1)), all(device, 2 * count * sizeof(int));
    must(tuttiBarrier(comm, nullptr));
    simulated().faults(device).slowness_ms = 2;
    const uint64_t before = simulated().copies_both_ways(device);
    // On a machine that is busy with other things, the two may just miss each other once.
    for (int i = 0; i < 20; ++i) must(tuttiAllGather(mine.data(), all.data(), count, tuttiInt32, comm, nullptr));
    simulated().faults(device).slowness_ms = 0;
    EXPECT_GT(simulated().copies_both_ways(device), before);
    std::vector<int> expected(2 * count, 1);
    std::fill(expected.begin() + count, expected.end(), 2);
    EXPECT_EQ(all.values<int>(), expected);
  });
}

// Turns of the caller's own thread and of its streams' end in their order, so that no stream is left waiting.
TEST_P(DeviceStreams, CallsOnAStreamAndOnNoneTakeTurns) {
  test::run_threads(2, options(), [](int, tuttiComm_t comm) {
    UserStream stream(0);
    const DeviceBuffer buffer(0, std::vector<int>(100, 1));
    int expected = 1;
    for (int i = 0; i < 12; ++i) {
      must(tuttiAllReduce(buffer.data(), buffer.data(), 100, tuttiInt32, tuttiSum, comm, stream));
      must(tuttiAllReduce(buffer.data(), buffer.data(), 100, tuttiInt32, tuttiSum, comm, nullptr));
      expected *= 4;
    }
    stream.wait();
    EXPECT_EQ(buffer.values<int>(), std::vector<int>(100, expected));
    // A communicator may go as soon as what is on a host's stream is done.
    tuttiStream_t host = nullptr;
    must(tuttiStreamCreate(&host));
    must(tuttiAllReduce(buffer.data(), buffer.data(), 100, tuttiInt32, tuttiMax, comm, host));
    must(tuttiCommFinalize(comm));
    must(tuttiStreamDestroy(host));
  });
}

TEST_P(DeviceStreams, NothingLeaks) {
  const auto round = [this] {
    test::run_threads(3, options(), [](int rank, tuttiComm_t comm) {
      UserStream stream(0);
      const DeviceBuffer buffer(0, std::vector<float>(100'000, float(rank)));
      must(tuttiAllReduce(buffer.data(), buffer.data(), 100'000, tuttiFloat32, tuttiSum, comm, stream));
      must(tuttiAllReduce(buffer.data(), buffer.data(), 10, tuttiFloat32, tuttiSum, comm, stream));
      stream.wait();
    });
  };
  round();  // what belongs to the process is made
  const SimulatedCounts before = simulated().counts();
  round();
  const SimulatedCounts after = simulated().counts();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.host_blocks, before.host_blocks);
  EXPECT_EQ(after.registrations, before.registrations);
  EXPECT_EQ(after.imports, before.imports);
}

INSTANTIATE_TEST_SUITE_P(All, DeviceStreams, ::testing::Values(false, true),
                         [](const auto& p) { return std::string(p.param ? "by_peers" : "by_the_host"); });

}  // namespace
}  // namespace tutti
