// Ranks of one process on one device: a call is one launch, which the first of them makes for all.
#include "communicator/linked_plans.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/peer_events.h"
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
  const auto events = std::make_shared<PeerEvents>(simulated("simulated:devices=2").device(0));
  EXPECT_EQ(PeerEvents::numbered(PeerEvents::publish(events)), events);
  EXPECT_TRUE(events->enter());
  EXPECT_FALSE(events->close(now_ns() + ns_per_ms)) << "somebody is inside";
  EXPECT_FALSE(events->enter());
  events->leave();
  EXPECT_TRUE(events->close(now_ns()));
}

class DeviceLinked : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { simulated("simulated:devices=2"); }
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

}  // namespace
}  // namespace tutti
