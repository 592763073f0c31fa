// Ranks of one process: on one device a call is one launch, which the first of them makes for all; on several one launch of
// each, which meet.
#include "communicator/linked_plans.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/c_api.h"
#include "communicator/peer_events.h"
#include "communicator/peer_group.h"
#include "communicator/ranks.h"
#include "device/devices.h"

namespace tutti {
namespace {

using test::DeviceBuffer;
using test::must;
using test::RanksOptions;
using test::simulated;
using test::UserStream;

LinkedPlans::InPlace all(bool in_place) {
  LinkedPlans::InPlace flags{};
  flags.fill(in_place);
  return flags;
}

TEST(LinkedPlans, AreThereForTwoToEightRanksWhereNobodyWaits) {
  for (int n = 1; n <= 10; ++n) {
    LinkedPlans plans(n);
    const bool possible = n >= 2 && n <= int(linked_ranks_max);
    for (const Collective kind : {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::all_gather,
                                  Collective::reduce_scatter, Collective::gather, Collective::scatter, Collective::all_to_all})
      for (const int root : {0, n - 1}) {
        const LinkedPlan* const plan = plans.find(kind, root, all(false));
        ASSERT_EQ(plan != nullptr, possible) << name(kind) << " of " << n;
        if (plan == nullptr) continue;
        EXPECT_FALSE(plan->waits);
        EXPECT_EQ(plan->ranks, uint32_t(n));
        EXPECT_EQ(plans.find(kind, root, all(false)), plan) << "it is made once";
      }
    EXPECT_EQ(plans.find(Collective::all_reduce, 0, all(true)) != nullptr, possible) << n;
    LinkedPlans::InPlace some = all(false);
    some[0] = true;
    EXPECT_EQ(plans.find(Collective::all_reduce, 0, some) != nullptr, possible) << n;
    // In place, what a rank receives lies where others still read.
    EXPECT_EQ(plans.find(Collective::all_to_all, 0, all(true)), nullptr) << n;
    EXPECT_EQ(plans.find(Collective::scan, 0, all(true)), nullptr) << n;
  }
}

TEST(PeerEvents, LetNobodyEnterOnceTheyAreClosed) {
  const auto events = std::make_shared<PeerEvents>(simulated("simulated:devices=3").device(0));
  EXPECT_EQ(PeerEvents::numbered(PeerEvents::publish(events)), events);
  EXPECT_TRUE(events->enter());
  EXPECT_FALSE(events->close(now_ns() + ns_per_ms)) << "somebody is inside";
  EXPECT_FALSE(events->enter());
  events->leave();
  EXPECT_TRUE(events->close(now_ns()));
}

class DeviceLinked : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { simulated("simulated:devices=3"); }
  static RanksOptions options() {
    RanksOptions options;
    options.timeout_ms = 10'000;
    options.device = [](int) { return 0; };
    return options;
  }
};

TEST_F(DeviceLinked, AnAllReduceIsOneLaunchForAllRanks) {
  for (const int n : {2, 5, 8})
    for (const size_t count : {size_t{100}, size_t{100'000}})
      test::run_threads(n, options(), [&](int rank, tuttiComm_t comm) {
        const DeviceBuffer in(0, std::vector<float>(count, float(rank + 1))), out(0, count * sizeof(float));
        const auto all_reduce = [&](std::byte* to) {
          must(tuttiAllReduce(in.data(), to, count, tuttiFloat32, tuttiAvg, comm, nullptr));
        };
        all_reduce(out.data());
        must(tuttiBarrier(comm, nullptr));
        const uint64_t before = simulated().works_done(0);
        must(tuttiBarrier(comm, nullptr));
        for (int i = 0; i < 3; ++i) all_reduce(out.data());
        must(tuttiBarrier(comm, nullptr));
        EXPECT_EQ(simulated().works_done(0), before + 3);
        must(tuttiBarrier(comm, nullptr));
        EXPECT_EQ(out.values<float>(), std::vector<float>(count, float(n + 1) / 2));
        // Some in place, some not.
        all_reduce(rank % 2 == 0 ? in.data() : out.data());
        EXPECT_EQ((rank % 2 == 0 ? in : out).values<float>(), std::vector<float>(count, float(n + 1) / 2));
      });
}

TEST_F(DeviceLinked, ItComesAfterWhatIsOnEveryRanksStream) {
  test::run_threads(4, options(), [](int rank, tuttiComm_t comm) {
    UserStream stream(0);
    const DeviceBuffer buffer(0, std::vector<int>(50'000, 0));
    const std::vector<int> late(50'000, rank + 1);
    for (int i = 0; i < 5; ++i) {
      must(simulated().device(0).copy(stream.get(), buffer.data(), late.data(), buffer.bytes()));
      must(tuttiAllReduce(buffer.data(), buffer.data(), 50'000, tuttiInt32, tuttiSum, comm, stream));
      std::vector<int> result(50'000);
      must(simulated().device(0).copy(stream.get(), result.data(), buffer.data(), buffer.bytes()));
      stream.wait();
      EXPECT_EQ(result, std::vector<int>(50'000, 10));
    }
  });
}

TEST_F(DeviceLinked, ARefusedLaunchFailsTheCallOnAllRanks) {
  test::run_threads(4, options(), [](int rank, tuttiComm_t comm) {
    const DeviceBuffer buffer(0, std::vector<float>(1000, 1.0f));
    must(tuttiAllReduce(buffer.data(), buffer.data(), 1000, tuttiFloat32, tuttiMax, comm, nullptr));
    if (rank == 2) simulated().faults(0).launch = 0;
    must(tuttiBarrier(comm, nullptr));
    EXPECT_EQ(tuttiAllReduce(buffer.data(), buffer.data(), 1000, tuttiFloat32, tuttiMax, comm, nullptr), tuttiDeviceError);
    const std::string sentence = tuttiGetLastError(comm);
    EXPECT_NE(sentence.find("refuses to launch a run_linked"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("rank 0"), std::string::npos) << sentence;
  });
  simulated().faults(0).launch = -1;
}

TEST(LinkedPlans, OfPacketsAreThereWhereEveryoneHearsOfThoseItSendsTo) {
  for (int n = 2; n <= int(linked_ranks_max); ++n) {
    LinkedPlans plans(n);
    for (const Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all})
      for (const bool in_place : {false, true}) {
        const LinkedPlan* const plan = plans.find_packets(kind, 0, all(in_place));
        ASSERT_NE(plan, nullptr) << name(kind) << " of " << n;
        EXPECT_TRUE(plan->packets);
        EXPECT_NE(plan, plans.find(kind, 0, all(in_place)));
      }
    for (const Collective kind : {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter})
      EXPECT_EQ(plans.find_packets(kind, 0, all(false)), nullptr) << name(kind) << " of " << n;
  }
}

TEST(PeerGroup, OpensItsGateWithTheLastLaunchAndForGoodWhenItEnds) {
  const auto group = std::make_shared<PeerGroup>(simulated("simulated:devices=3"), (uint64_t{1} << 32) - 2);
  const uint64_t call = (uint64_t{1} << 32) - 1;
  const auto is_open = [&](uint64_t of) { return int32_t(*group->gate() - uint32_t(of)) >= 0; };  // as streams wait
  EXPECT_EQ(PeerGroup::numbered(PeerGroup::publish(group)), group);
  group->launched(2, call);
  EXPECT_FALSE(group->all_launched(2));
  EXPECT_FALSE(is_open(call));
  group->launched(2, call);
  EXPECT_TRUE(group->all_launched(2));
  EXPECT_TRUE(is_open(call));
  EXPECT_FALSE(is_open(call + 1));
  EXPECT_FALSE(group->has_ended());
  group->end(call + 1);
  EXPECT_TRUE(group->has_ended());
  EXPECT_EQ(*group->ended(), 1u);
  EXPECT_TRUE(is_open(call + 1));
}

TEST(MeetingRoom, IsForSoManyCallsAsADeviceHasBlocksFor) {
  SimulatedPlatform& platform = simulated("simulated:devices=3");
  const uint32_t most = platform.device(0).info().blocks_at_once / meeting_channels_max;
  const int both[] = {0, 1, 0}, second[] = {1}, third[] = {2};
  std::vector<std::unique_ptr<MeetingRoom>> rooms;
  for (uint32_t i = 0; i < most; ++i) {
    rooms.push_back(MeetingRoom::reserve(platform, both));
    ASSERT_NE(rooms.back(), nullptr) << i;
  }
  EXPECT_EQ(MeetingRoom::reserve(platform, second), nullptr);
  EXPECT_NE(MeetingRoom::reserve(platform, third), nullptr) << "another device";
  rooms.pop_back();
  EXPECT_NE(MeetingRoom::reserve(platform, second), nullptr) << "room was given back";
}

class DeviceMeeting : public DeviceLinked {
 protected:
  static RanksOptions spread() {
    RanksOptions options;
    options.timeout_ms = 20'000;
    options.device = [](int rank) { return rank % 3; };
    return options;
  }
};

TEST_F(DeviceMeeting, AnAllReduceIsOneLaunchOfEachDevice) {
  for (const int n : {3, 5})
    for (const size_t count : {size_t{100}, size_t{100'000}})
      test::run_threads(n, spread(), [&](int rank, tuttiComm_t comm) {
        const DeviceBuffer in(rank % 3, std::vector<float>(count, float(rank + 1))), out(rank % 3, count * sizeof(float));
        must(tuttiBarrier(comm, nullptr));
        const uint64_t before = simulated().works_done(rank % 3);
        must(tuttiBarrier(comm, nullptr));
        for (int i = 0; i < 4; ++i) must(tuttiAllReduce(in.data(), out.data(), count, tuttiFloat32, tuttiAvg, comm, nullptr));
        must(tuttiBarrier(comm, nullptr));
        EXPECT_EQ(simulated().works_done(rank % 3), before + 4);
        const PeerPath::Counts& counts = communicator_of(comm).peer_path()->counts();
        EXPECT_EQ(counts.packets, count == 100 ? 4u : 0u);
        EXPECT_EQ(counts.blocks, count == 100 ? 0u : 4u);
        EXPECT_EQ(counts.launched, rank < 3 ? 4u : 0u);
        must(tuttiBarrier(comm, nullptr));
        EXPECT_EQ(out.values<float>(), std::vector<float>(count, float(n + 1) / 2));
      });
}

// What no peer may touch goes by way of the host, be it one rank's alone; the next call goes directly again.
TEST_F(DeviceMeeting, MemoryThatIsNotForPeersGoesByTheHost) {
  for (const bool of_one : {true, false})
    test::run_threads(3, spread(), [&](int rank, tuttiComm_t comm) {
      UserStream stream(rank);
      Device& device = simulated().device(rank);
      const std::vector<float> ones(50'000, 1.0f);
      const DeviceBuffer plain(rank, ones);
      auto* const apart = static_cast<std::byte*>(simulated().allocate_apart(rank, plain.bytes()));
      must(device.copy(stream.get(), apart, ones.data(), plain.bytes()));
      for (int i = 0; i < 2; ++i) {
        std::byte* const buffer = i == 0 && (rank == 1 || !of_one) ? apart : plain.data();
        must(tuttiAllReduce(buffer, buffer, 50'000, tuttiFloat32, tuttiSum, comm, stream));
        std::vector<float> sums(50'000);
        must(device.copy(stream.get(), sums.data(), buffer, plain.bytes()));
        stream.wait();
        EXPECT_EQ(sums, std::vector<float>(50'000, i == 1 && of_one ? 7.0f : 3.0f));  // two ranks add what they have, in place
      }
      EXPECT_EQ(communicator_of(comm).peer_path()->counts().direct, 1u);
      must(device.free(apart));
    });
}

// Where the marks of packets begin anew, one call does without them.
TEST_F(DeviceMeeting, PacketsGoOnBeyondTheLastMark) {
  test::run_threads(3, spread(), [](int rank, tuttiComm_t comm) {
    UserStream stream(rank % 3);
    const DeviceBuffer buffer(rank % 3, std::vector<uint32_t>(10, 1));
    uint32_t expected = 1;
    for (int i = 0; i < 1100; ++i, expected *= 3)
      must(tuttiAllReduce(buffer.data(), buffer.data(), 10, tuttiUint32, tuttiSum, comm, stream));
    stream.wait();
    EXPECT_EQ(buffer.values<uint32_t>(), std::vector<uint32_t>(10, expected));
    const PeerPath::Counts& counts = communicator_of(comm).peer_path()->counts();
    EXPECT_EQ(counts.packets, 1099u);
    EXPECT_EQ(counts.blocks, 1u);
  });
}

}  // namespace
}  // namespace tutti
