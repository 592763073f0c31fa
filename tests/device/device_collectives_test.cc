// Every collective, type and operator on memory of simulated devices against the naive reference: one to nine ranks,
// each with a device of its own or several on one, or some on the host; on streams of devices, of the host, and on
// none.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "communicator/c_api.h"
#include "communicator/every_collective.h"
#include "communicator/ranks.h"
#include "communicator/v_form_call.h"
#include "device/devices.h"
#include "sanitizer.h"

namespace tutti {
namespace {

using test::EveryCall;
using test::EveryCase;
using test::On;
using test::OnDevice;
using test::RanksOptions;

constexpr int ranks_max = test::sanitized ? 5 : 9;

// Which device a rank's buffers lie on; -1: on the host.
enum class Placement : uint8_t { spread, shared, mixed };
int device_of(Placement placement, int rank) {
  switch (placement) {
    case Placement::spread: return rank % 3;
    case Placement::shared: return 0;
    case Placement::mixed: return rank % 2 == 0 ? rank / 2 % 3 : -1;
  }
  return -1;
}

struct Setting {
  const char* name;
  Placement placement;
  On on;
  const char* transport;
  bool named = false;  // every rank names its device, so they reach each other's memory
  uint32_t sizes = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 7;  // bit n: n ranks; with TUTTI_TEST_EVERYTHING, all
};
constexpr uint32_t all_sizes = ~0u;
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

class DeviceCollectives : public ::testing::TestWithParam<Setting> {
 protected:
  static void SetUpTestSuite() { test::any_device(0); }
  using RankBody = std::function<void(int rank, tuttiComm_t comm, OnDevice* elsewhere)>;
  // direct: that the calls are of those that reach into peers' memory where they can.
  void run(int n, const RankBody& body, bool direct = true) const {
    RanksOptions options;
    options.transport = GetParam().transport;
    const Placement placement = GetParam().placement;
    if (GetParam().named) options.device = [placement](int rank) { return std::max(0, device_of(placement, rank)); };
    test::run_threads(n, options, [&](int rank, tuttiComm_t comm) {
      const int device = device_of(GetParam().placement, rank);
      std::unique_ptr<OnDevice> elsewhere;
      if (device >= 0) elsewhere = std::make_unique<OnDevice>(device, GetParam().on);
      body(rank, comm, elsewhere.get());
      // What lies on the device decides which it is.
      int bound = -2;
      EXPECT_EQ(tuttiCommDevice(comm, &bound), tuttiSuccess);
      EXPECT_EQ(bound, GetParam().named ? std::max(0, device) : device);
      // A call of which some rank's buffers are the host's goes by way of the host for all.
      const PeerPath* const peers = communicator_of(comm).peer_path();
      ASSERT_EQ(peers != nullptr, GetParam().named);
      if (peers == nullptr) return;
      const PeerPath::Counts& counts = peers->counts();
      EXPECT_EQ(counts.direct > 0, direct && (placement != Placement::mixed || n == 1));
      // Those of several ranks of one device are one launch, which the first of them makes; of several devices, one each.
      const bool several = direct && n >= 2 && n <= int(linked_ranks_max);
      EXPECT_EQ(counts.one_launch > 0, several && placement == Placement::shared);
      EXPECT_EQ(counts.packets > 0, several && placement == Placement::spread);
      EXPECT_EQ(counts.blocks > 0, several && placement == Placement::spread);
      EXPECT_EQ(counts.launched > 0, several && placement != Placement::mixed && rank < (placement == Placement::spread ? 3 : 1));
    });
  }
};

// What is tested in fewer settings: one of each path.
class DeviceCollectivesInDepth : public DeviceCollectives {};

TEST_P(DeviceCollectives, AgreeWithTheReferenceForOneToNineRanks) {
  for (int n = 1; n <= ranks_max && !HasFailure(); ++n) {
    if (std::getenv("TUTTI_TEST_EVERYTHING") == nullptr && (GetParam().sizes >> n & 1) == 0) continue;
    run(n, [n](int rank, tuttiComm_t comm, OnDevice* elsewhere) {
      const auto check = [&](const EveryCase& c) { EveryCall(n, rank, c).run(comm, elsewhere); };
      for (const Collective kind : planned_collectives)
        for (const size_t count : {size_t{0}, size_t{1}, size_t{1003}}) {
          if (count > 1) check({kind, DataType::float32, ReduceOp::sum, count, int(count) % n, n % 2 != 0});
          check({kind, DataType::float32, ReduceOp::sum, count, int(count) % n, n % 2 == 0});
        }
      for (const Collective kind : planned_collectives)
        check({kind, DataType::bfloat16, ReduceOp::avg, 40'003, n - 1, n % 2 == 0});
      ASSERT_EQ(tuttiBarrier(comm, elsewhere == nullptr ? nullptr : elsewhere->stream()), tuttiSuccess);
    });
  }
}

TEST_P(DeviceCollectivesInDepth, JoinEveryTypeByEveryOperator) {
  run(3, [](int rank, tuttiComm_t comm, OnDevice* elsewhere) {
    for (const DataTypeInfo& row : data_types)
      for (size_t op = 0; op < reduce_op_names.size(); ++op)
        if (defined(ReduceOp(op), row.type))
          for (const size_t count : {size_t{5}, size_t{700}})
            EveryCall(3, rank, {Collective::all_reduce, row.type, ReduceOp(op), count, 0, (count + op) % 2 == 0})
                .run(comm, elsewhere);
  });
}

TEST_P(DeviceCollectivesInDepth, MoveBuffersOfManyTiles) {
  constexpr size_t count = test::sanitized ? 300'007 : 2'000'003;
  run(3, [](int rank, tuttiComm_t comm, OnDevice* elsewhere) {
    for (const Collective kind : planned_collectives)
      EveryCall(3, rank, {kind, DataType::int32, ReduceOp::sum, count / (meaning(kind).blocks ? 3 : 1), 1, false})
          .run(comm, elsewhere);
  });
}

TEST_P(DeviceCollectivesInDepth, MoveBlocksOfUnevenSizes) {
  run(4, [](int rank, tuttiComm_t comm, OnDevice* elsewhere) {
    uint64_t seed = 7;
    for (const Collective kind : test::v_forms)
      for (const size_t size_max : {size_t{3}, size_t{1000}, size_t{120'001}})
        for (const bool in_place : {false, true}) {
          test::VFormCase c{kind, 4};
          c.root = meaning(kind).rooted ? int(++seed % 4) : 0;
          c.size_max = size_max;
          c.in_place = in_place;
          c.dense = ++seed % 3 == 0;
          c.seed = seed;
          test::VFormCall on(c, rank);
          std::byte* const there = elsewhere == nullptr ? nullptr : elsewhere->bring(on.all());
          ASSERT_EQ(test::call(c, on, comm, elsewhere == nullptr ? nullptr : elsewhere->stream(), there), tuttiSuccess)
              << tuttiGetLastError(comm);
          if (elsewhere != nullptr) elsewhere->fetch(there, on.all());
          ASSERT_EQ(on.wrong(), "");
        }
  }, false);
}

constexpr Setting settings[] = {
    {"spread_on_device_streams", Placement::spread, On::device_stream, "shm", false, all_sizes},
    {"shared_on_device_streams", Placement::shared, On::device_stream, "shm"},
    {"mixed_on_device_streams", Placement::mixed, On::device_stream, "shm", false, 1 << 3 | 1 << 5 | 1 << 6},
    {"peers_spread_on_device_streams", Placement::spread, On::device_stream, "shm", true, 1 << 2 | 1 << 4 | 1 << 7},
    {"peers_shared_on_device_streams", Placement::shared, On::device_stream, "shm", true, all_sizes},
    {"peers_shared_on_no_stream", Placement::shared, On::no_stream, "tcp", true, 1 << 3},
    {"mixed_where_all_name_their_device", Placement::mixed, On::device_stream, "shm", true, 1 << 1 | 1 << 8},
    {"spread_on_no_stream", Placement::spread, On::no_stream, "shm", false, 1 << 6},
    {"mixed_on_host_streams", Placement::mixed, On::host_stream, "shm", false, 1 << 9},
    {"shared_on_device_streams_over_tcp", Placement::shared, On::device_stream, "tcp", false, 1 << 5},
};
INSTANTIATE_TEST_SUITE_P(All, DeviceCollectives, ::testing::ValuesIn(settings),
                         [](const auto& p) { return std::string(p.param.name); });
INSTANTIATE_TEST_SUITE_P(Some, DeviceCollectivesInDepth,
                         ::testing::Values(settings[0], settings[2], settings[4], settings[9]),
                         [](const auto& p) { return std::string(p.param.name); });

}  // namespace
}  // namespace tutti
