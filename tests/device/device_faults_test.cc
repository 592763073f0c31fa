// What goes wrong on a device: the call says so on every rank, nobody hangs, and what is not lost is usable afterwards.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/ranks.h"
#include "device/devices.h"

namespace tutti {
namespace {

using test::DeviceBuffer;
using test::must;
using test::RanksOptions;
using test::simulated;
using test::UserStream;

constexpr size_t count = 200'000;

// Ranks 0 and 1 with a device each; all name theirs (the direct path), or none.
class DeviceFaults : public ::testing::TestWithParam<bool> {
 protected:
  static void SetUpTestSuite() { simulated("simulated:devices=8"); }
  // Other devices than those of the tests before: one of them may be lost.
  RanksOptions options() const {
    RanksOptions options;
    options.timeout_ms = 10'000;
    if (GetParam()) options.device = [this](int rank) { return first() + rank; };
    return options;
  }
  int first() const { return GetParam() ? 2 : 0; }
};

tuttiResult_t all_reduce(const DeviceBuffer& buffer, tuttiComm_t comm, UserStream& stream) {
  const tuttiResult_t result = tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiFloat32, tuttiMax, comm, stream);
  stream.wait();
  tuttiResult_t state = tuttiSuccess;
  must(tuttiCommGetAsyncError(comm, &state));
  return result != tuttiSuccess ? result : state;
}

void expect_usable(int device) {
  const std::vector<float> values(10, 3.0f);
  EXPECT_EQ(DeviceBuffer(device, values).values<float>(), values);
}

TEST_P(DeviceFaults, ARefusedLaunchFailsTheCallOnAllRanksAndLeavesTheDeviceUsable) {
  test::run_threads(2, options(), [this](int rank, tuttiComm_t comm) {
    UserStream stream(first() + rank);
    const DeviceBuffer buffer(first() + rank, std::vector<float>(count, 1.0f));
    must(all_reduce(buffer, comm, stream));
    must(tuttiBarrier(comm, nullptr));
    if (rank == 1) simulated().faults(first() + 1).launch = 0;
    EXPECT_EQ(all_reduce(buffer, comm, stream), tuttiDeviceError);
    const std::string sentence = tuttiGetLastError(comm);
    EXPECT_NE(sentence.find("rank 1"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("refuses to launch"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("all_reduce"), std::string::npos) << sentence;
    expect_usable(first() + rank);
  });
}

TEST_P(DeviceFaults, OutOfMemoryIsToldWithItsSizes) {
  test::run_threads(2, options(), [this](int rank, tuttiComm_t comm) {
    UserStream stream(first() + rank);
    const DeviceBuffer buffer(first() + rank, std::vector<float>(count, 1.0f));
    if (rank == 1) simulated().faults(first() + 1).allocation = 0;
    // In place: by peers a scan is made aside, by way of the host an all_reduce, of which both ranks hear.
    const auto call = GetParam() ? tuttiScan : tuttiAllReduce;
    const tuttiResult_t result = call(buffer.data(), buffer.data(), 100, tuttiFloat32, tuttiMax, comm, stream);
    stream.wait();
    tuttiResult_t state = tuttiSuccess;
    must(tuttiCommGetAsyncError(comm, &state));
    EXPECT_EQ(result == tuttiSuccess ? state : result, tuttiDeviceError);
    EXPECT_NE(std::string(tuttiGetLastError(comm)).find("out of memory"), std::string::npos) << tuttiGetLastError(comm);
    expect_usable(first() + rank);
  });
  simulated().faults(first() + 1).allocation = -1;
}

TEST_P(DeviceFaults, AnAbortEndsWhatRunsAndFreesTheStream) {
  test::run_threads(2, options(), [this](int rank, tuttiComm_t comm) {
    UserStream stream(first() + rank);
    const DeviceBuffer buffer(first() + rank, std::vector<float>(count, 1.0f));
    must(all_reduce(buffer, comm, stream));
    if (rank == 0) {
      // The other one never comes.
      must(tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiFloat32, tuttiSum, comm, stream));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      must(tuttiCommAbort(comm));
      stream.wait();
    } else {
      tuttiResult_t state = tuttiSuccess;
      for (int i = 0; i < 500 && state == tuttiSuccess; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        must(tuttiCommGetAsyncError(comm, &state));
      }
      EXPECT_EQ(state, tuttiAborted);
    }
    EXPECT_EQ(tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiFloat32, tuttiSum, comm, stream), tuttiAborted);
    stream.wait();
    expect_usable(first() + rank);
  });
}

// Whoever is told of a failure may free its buffers: nobody's device is at them any more.
TEST_P(DeviceFaults, AFailedCallReturnsWhenNoPeersDeviceReadsItsBuffers) {
  std::barrier<> both_returned(2);
  test::run_threads(2, options(), [this, &both_returned](int rank, tuttiComm_t comm) {
    const DeviceBuffer buffer(first() + rank, std::vector<float>(count, 1.0f));
    must(tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiFloat32, tuttiMax, comm, nullptr));
    must(tuttiBarrier(comm, nullptr));
    SimulatedFaults &slow = simulated().faults(first()), &failing = simulated().faults(first() + 1);
    if (rank == 0) slow.slowness_ms = 300;
    must(tuttiBarrier(comm, nullptr));
    must(tuttiBarrier(comm, nullptr));
    // By peers it makes no launch, while the other's is on its way; else its own part goes well, then it cannot go on.
    if (rank == 1) failing.launch = GetParam() ? 0 : 1;
    EXPECT_EQ(tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiFloat32, tuttiMax, comm, nullptr), tuttiDeviceError);
    // (Rank 0 may hear of it before it launches its own, and then has none.)
    const uint64_t done = simulated().works_done(first());
    both_returned.arrive_and_wait();
    if (GetParam() && rank == 1) {  // by the host, rank 0 copies its own on its own
      EXPECT_EQ(simulated().works_done(first()), done) << "rank 0's kernel still read";
    }
    slow.slowness_ms = 0;
    failing.launch = -1;
  });
}

TEST_P(DeviceFaults, AMissingPeerEndsAtTheDeadline) {
  RanksOptions shorter = options();
  shorter.timeout_ms = 1500;
  test::run_threads(2, shorter, [this](int rank, tuttiComm_t comm) {
    UserStream stream(first() + rank);
    const DeviceBuffer buffer(first() + rank, std::vector<float>(count, 1.0f));
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      return;
    }
    EXPECT_EQ(all_reduce(buffer, comm, stream), tuttiTimeout);
    EXPECT_NE(std::string(tuttiGetLastError(comm)).find("rank 1"), std::string::npos) << tuttiGetLastError(comm);
    expect_usable(first() + rank);
  });
}

TEST_P(DeviceFaults, DifferentCallsAreToldApartOnBothSides) {
  test::run_threads(2, options(), [this](int rank, tuttiComm_t comm) {
    UserStream stream(first() + rank);
    const DeviceBuffer buffer(first() + rank, std::vector<float>(count, 1.0f));
    const tuttiResult_t result = tuttiAllReduce(buffer.data(), buffer.data(), rank == 0 ? 100 : 101, tuttiFloat32, tuttiSum,
                                                comm, stream);
    stream.wait();
    tuttiResult_t state = tuttiSuccess;
    must(tuttiCommGetAsyncError(comm, &state));
    EXPECT_EQ(result == tuttiSuccess ? state : result, tuttiMismatch);
    const std::string sentence = tuttiGetLastError(comm);
    EXPECT_NE(sentence.find("count 100"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("count 101"), std::string::npos) << sentence;
  });
}

// On devices of its own: the lost one stays so.
TEST_P(DeviceFaults, ALostDeviceFailsItsRankAndTheOthersKeepTheirs) {
  RanksOptions others;
  others.timeout_ms = 10'000;
  const int base = GetParam() ? 6 : 4;
  if (GetParam()) others.device = [base](int rank) { return base + rank; };
  std::barrier<> both_know(2);
  test::run_threads(2, others, [base, &both_know](int rank, tuttiComm_t comm) {
    Device& device = simulated().device(base + rank);
    void* memory = nullptr;
    must(device.allocate(count * sizeof(float), &memory));
    DeviceStream stream = nullptr;
    must(device.create_stream(&stream));
    if (rank == 1) simulated().faults(base + 1).loss = 3;
    const auto on = reinterpret_cast<tuttiStream_t>(stream);
    tuttiResult_t state = tuttiSuccess;
    // (The lost rank waits for nobody here: on a busy machine it makes many calls before the third kernel runs.)
    for (int i = 0; i < 20'000 && state == tuttiSuccess; ++i) {
      const tuttiResult_t result = tuttiAllReduce(memory, memory, count, tuttiFloat32, tuttiMax, comm, on);
      if (rank == 0) must(device.wait_stream(stream));
      must(tuttiCommGetAsyncError(comm, &state));
      if (state == tuttiSuccess) state = result;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(state, tuttiDeviceError) << tuttiGetLastError(comm);
    EXPECT_EQ(device.is_lost(), rank == 1);
    if (rank == 0) expect_usable(base);
    both_know.arrive_and_wait();  // until then, the other's device may still read what lies here
    device.destroy_stream(stream);
    device.free(memory);
  });
}

INSTANTIATE_TEST_SUITE_P(All, DeviceFaults, ::testing::Values(false, true),
                         [](const auto& p) { return std::string(p.param ? "by_peers" : "by_the_host"); });

}  // namespace
}  // namespace tutti
