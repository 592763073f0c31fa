// Ranks that are processes, on simulated devices: what they export to each other, on one device and on several; and
// what becomes of a call when one of them is killed. The parent never asks for a device, so that none is lost in a
// fork.
#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "communicator/c_api.h"
#include "communicator/every_collective.h"
#include "communicator/ranks.h"
#include "device/devices.h"

namespace tutti {
namespace {

using test::EveryCall;
using test::On;
using test::OnDevice;
using test::RanksOptions;

void check_collectives(int n, int rank, tuttiComm_t comm, OnDevice& elsewhere) {
  for (const Collective kind : planned_collectives)
    for (const size_t count : {size_t{1}, size_t{1003}, size_t{50'021}})
      for (const bool in_place : {false, true})
        EveryCall(n, rank, {kind, DataType::float32, ReduceOp::sum, count, n - 1, in_place}).run(comm, &elsewhere);
}

// Devices are found by each process, when it joins.
RanksOptions named(int devices, const char* platform) {
  ::setenv("TUTTI_DEVICE", platform, 1);
  RanksOptions options;
  options.device = [devices](int rank) { return rank % devices; };
  return options;
}

TEST(DeviceProcesses, ReachEachOthersMemoryOnOneDevice) {
  for (const int n : {2, 3, 5, 9})
    test::run_processes(n, named(1, "simulated:devices=3"), [n](int rank, tuttiComm_t comm) {
      OnDevice elsewhere(0, On::device_stream);
      check_collectives(n, rank, comm, elsewhere);
      ASSERT_NE(communicator_of(comm).peer_path(), nullptr);
      EXPECT_GE(communicator_of(comm).peer_path()->counts().direct, 60);
      EXPECT_EQ(communicator_of(comm).peer_path()->counts().launched, 0) << "a kernel may wait for another process";
    });
}

// Two ranks of each of two processes, on one device and on two. Kernels of ranks of one process could meet, but some of the
// ranks are another process's: so none does.
TEST(DeviceProcesses, OfSeveralRanksEachHaveNoKernelThatWaits) {
  for (const int devices : {1, 2})
    test::run_processes(2, named(devices, "simulated:devices=3"), [devices](int process, tuttiComm_t outer) {
      tuttiUniqueId id{};
      if (process == 0) test::must(tuttiGetUniqueId(&id));
      test::must(tuttiBroadcast(&id, &id, sizeof id, tuttiUint8, 0, outer, nullptr));
      const RanksOptions inner = named(devices, "simulated:devices=3");
      std::vector<std::jthread> ranks;
      for (int rank = 2 * process; rank < 2 * process + 2; ++rank)
        ranks.emplace_back([&, rank] {
          test::join_and_run(4, id, rank, inner, [devices](int mine, tuttiComm_t comm) {
            OnDevice elsewhere(mine % devices, On::device_stream);
            check_collectives(4, mine, comm, elsewhere);
            const PeerPath::Counts& counts = communicator_of(comm).peer_path()->counts();
            EXPECT_GE(counts.direct, 60);
            EXPECT_EQ(counts.launched + counts.one_launch + counts.blocks + counts.packets, 0);
          });
        });
    });
}

TEST(DeviceProcesses, ReachEachOthersMemoryOnDevicesOfTheirOwn) {
  test::run_processes(3, named(3, "simulated:devices=3,delay_us=100"), [](int rank, tuttiComm_t comm) {
    OnDevice elsewhere(rank, On::device_stream);
    check_collectives(3, rank, comm, elsewhere);
    EXPECT_GE(communicator_of(comm).peer_path()->counts().direct, 60);
  });
}

TEST(DeviceProcesses, GoByTheHostWhereNothingIsExported) {
  test::run_processes(3, named(3, "simulated:devices=3,exports=0"), [](int rank, tuttiComm_t comm) {
    OnDevice elsewhere(rank, On::device_stream);
    check_collectives(3, rank, comm, elsewhere);
    EXPECT_EQ(communicator_of(comm).peer_path(), nullptr);
  });
}

// As in containers of one host that keep processes apart.
TEST(DeviceProcesses, GoByTheHostWhereNothingCanBeOpened) {
  test::run_processes(3, named(1, "simulated:devices=1,imports=0"), [](int rank, tuttiComm_t comm) {
    OnDevice elsewhere(0, On::device_stream);
    check_collectives(3, rank, comm, elsewhere);
    EXPECT_EQ(communicator_of(comm).peer_path(), nullptr);
  });
}

TEST(DeviceProcesses, GoByTheHostWhereDevicesHaveNoAccessToEachOther) {
  test::run_processes(2, named(2, "simulated:devices=2,peers=0"), [](int rank, tuttiComm_t comm) {
    OnDevice elsewhere(rank, On::device_stream);
    check_collectives(2, rank, comm, elsewhere);
    EXPECT_EQ(communicator_of(comm).peer_path(), nullptr);
  });
}

TEST(DeviceProcesses, KeepOtherRanksMemoryMappedAndGiveItBack) {
  test::run_processes(2, named(1, "simulated:devices=1"), [](int, tuttiComm_t comm) {
    std::vector<float> values(100, 1.0f);
    for (int round = 0; round < 20; ++round) {
      test::DeviceBuffer buffer(0, values);
      test::must(tuttiAllReduce(buffer.data(), buffer.data(), 100, tuttiFloat32, tuttiSum, comm, nullptr));
      EXPECT_EQ(buffer.values<float>(), std::vector<float>(100, 2.0f));
      test::must(tuttiBarrier(comm, nullptr));
    }
    EXPECT_GT(test::simulated().counts().imports, 0u);
    tuttiComm_t copy = nullptr;
    test::must(tuttiCommSplit(comm, 0, 0, &copy, nullptr));
    test::must(tuttiCommDestroy(copy));
  });
}

// Always new memory, on a stream that waits for each call: letting go of old memory waits for all streams, and so must not be in
// the midst of one.
TEST(DeviceProcesses, LetGoOfOtherRanksOldMemoryBetweenCalls) {
  test::run_processes(2, named(1, "simulated:devices=1"), [](int, tuttiComm_t comm) {
    test::UserStream stream(0);
    const std::vector<int> ones(10, 1);
    for (int round = 0; round < 300; ++round) {
      test::DeviceBuffer buffer(0, ones);
      test::must(tuttiAllReduce(buffer.data(), buffer.data(), 10, tuttiInt32, tuttiSum, comm, stream));
      stream.wait();
      EXPECT_EQ(buffer.values<int>(), std::vector<int>(10, 2));
      test::must(tuttiBarrier(comm, nullptr));
    }
    EXPECT_LE(test::simulated().counts().imports, 258u);
  });
}

// A rank is killed in the midst of calls, on the direct path and by way of the host.
void survive_a_kill(const char* platform) {
  RanksOptions options = named(1, platform);
  options.timeout_ms = 10000;
  test::Processes processes(3, options, [](int rank, tuttiComm_t comm) {
    test::UserStream stream(0);
    const SimulatedCounts before = test::simulated().counts();
    {
      test::DeviceBuffer buffer(0, std::vector<float>(300'000, 1.0f));
      tuttiResult_t result = tuttiSuccess;
      for (int i = 0; result == tuttiSuccess && i < 1'000'000; ++i) {
        if (rank == 1 && i == 20) ::raise(SIGKILL);
        result = tuttiAllReduce(buffer.data(), buffer.data(), 300'000, tuttiFloat32, tuttiMax, comm, stream);
        stream.wait();
      }
      EXPECT_EQ(result, tuttiRemoteError);
      EXPECT_NE(std::string(tuttiGetLastError(comm)).find("rank 1"), std::string::npos) << tuttiGetLastError(comm);
      // The device is as good as before.
      const std::vector<float> values(10, 3.0f);
      EXPECT_EQ(test::DeviceBuffer(0, values).values<float>(), values);
    }
    EXPECT_EQ(test::simulated().counts().allocations >= before.allocations, true);
  });
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(2), 0);
  EXPECT_TRUE(WIFSIGNALED(processes.wait(1)));
}
TEST(DeviceProcesses, TellOfAKilledPeerWhoseMemoryTheyReach) { survive_a_kill("simulated:devices=1"); }
TEST(DeviceProcesses, TellOfAKilledPeerThatTheHostReaches) { survive_a_kill("simulated:devices=1,exports=0"); }

}  // namespace
}  // namespace tutti
