// Forecasts: as the price says where links are not shared, and slower where they are.
#include "simulation/forecast.h"

#include <gtest/gtest.h>

#include "algorithms/catalog.h"
#include "base/error.h"
#include "schedule/price.h"
#include "simulation/arrivals.h"
#include "simulation/program.h"
#include "simulation/time_queue.h"
#include "simulation/traffic.h"
#include "transport/simulated/random.h"

namespace tutti {
namespace {

// Ranks of one host, each pair of which has a link of its own.
TEST(Forecast, IsThePriceWhereNothingIsShared) {
  const MachineCosts machine;
  for (const int n : {2, 5, 8}) {
    const Fabric fabric = parse_fabric("switch:1,ranks=8", n);
    const FabricEnds& ends = fabric.ends(0, 1);
    CostModel costs;
    costs.n = n;
    costs.classes = {{.latency_ns = ends.latency_ns, .message_ns = ends.message_ns, .byte_ns = ends.byte_ns,
                      .receive_ns = ends.receive_ns, .bulk_ns = ends.bulk_ns, .inline_bytes = ends.inline_bytes}};
    costs.link_class.assign(size_t(n * n), 0);
    costs.step_ns = machine.step_ns;
    costs.copy_byte_ns = machine.copy_byte_ns;
    costs.reduce_byte_ns = machine.reduce_byte_ns;
    for (const Algorithm& algorithm : catalog()) {
      for (const uint64_t bytes : {8, 5000, 1 << 20, 50 << 20}) {
        const Group group{0, n, 0, algorithm.pipelined ? 4 : 1, {}};
        const Price seen = price(plans_of(algorithm, group), costs, bytes, 256 * 1024);
        const Forecast cast = forecast(algorithm, group, fabric, {.bytes = bytes});
        // Where chunks are uneven, a message that becomes another chunk has two lengths.
        EXPECT_NEAR(cast.time_ns, seen.time_ns, (algorithm.name == "pairwise" ? 5e-3 : 1e-6) * seen.time_ns)
            << algorithm.name << " n=" << n << " bytes=" << bytes;
      }
    }
  }
}

double time_of(Collective collective, const char* name, int n, const char* fabric, uint64_t bytes) {
  const Fabric on = parse_fabric(fabric, n);
  std::vector<int> hosts;
  for (int rank = 0; rank < n; ++rank) hosts.push_back(on.host_of(rank));
  return forecast(*find_algorithm(collective, name), {0, n, 0, 1, hosts}, on, {.bytes = bytes}).time_ns;
}

// The root of a gather takes n - 1 blocks over one link, whatever the others could send.
TEST(Forecast, WaitsForTheLinkThatAllMessagesCross) {
  const double byte_ns = 0.8;  // 10 Gbit/s
  const double time = time_of(Collective::gather, "direct", 16, "switch,link=10G", 16 << 20);
  const double least = 15.0 / 16 * double(16 << 20) * byte_ns;
  EXPECT_GT(time, least);
  EXPECT_LT(time, 1.2 * least);
}

TEST(Forecast, IsSlowerThroughAnOversubscribedSwitch) {
  const auto all_to_all = [](const char* fabric) {
    return time_of(Collective::all_to_all, "pairwise", 64, fabric, 64 << 20);
  };
  const double full = all_to_all("fat-tree:8x8"), half = all_to_all("fat-tree:8x8,oversubscription=2"),
               quarter = all_to_all("fat-tree:8x8,oversubscription=4");
  EXPECT_GT(half, 1.3 * full);
  EXPECT_GT(quarter, 1.5 * half);
  // A ring has neighbours: only one message of a leaf goes up.
  const auto ring = [](const char* fabric) { return time_of(Collective::all_reduce, "ring", 64, fabric, 64 << 20); };
  EXPECT_NEAR(ring("fat-tree:8x8,oversubscription=4"), ring("fat-tree:8x8"), 0.02 * ring("fat-tree:8x8"));
}

// Who hands over more than its link can take at once lets others pass the links behind it: in two trees each rank passes
// on one half, and none waits for what is still to leave the root.
TEST(Forecast, TakesEachLinkInTheOrderInWhichMessagesReachIt) {
  const int n = 3;
  const Fabric fabric = parse_fabric("switch,link=500M,down=100G,hop=0,latency=0,buffer=2M,message=1us,receive=1us", n);
  const uint64_t bytes = 256 << 10;
  const double least = double(bytes) * 16;  // over the root's link, in ns
  for (const int pipeline : {2, 4, 16})
    for (const uint32_t calls : {1u, 3u, 24u}) {
      const Forecast seen = forecast(*find_algorithm(Collective::broadcast, "double_tree"), {0, n, 0, pipeline, {}}, fabric,
                                     {.bytes = bytes, .calls = calls});
      EXPECT_GT(seen.time_ns, 0.99 * least) << pipeline << " chunks, " << calls << " calls";
      EXPECT_LT(seen.time_ns, 1.8 * least) << pipeline << " chunks, " << calls << " calls";
    }
}

TEST(Traffic, HoldsALinkForWhatCrossesIt) {
  const Fabric fabric = parse_fabric("switch:4,link=8G,hop=100ns", 4);  // 1 ns a byte
  Traffic traffic(fabric);
  EXPECT_DOUBLE_EQ(traffic.cross_all(0, 1, {1000, 0, 0}), 1200);
  EXPECT_DOUBLE_EQ(traffic.cross_all(2, 3, {1000, 0, 0}), 1200);
  EXPECT_DOUBLE_EQ(traffic.cross_all(2, 1, {1000, 0, 0}), 2200);  // after the one before it, on both of its links
}

TEST(Forecast, UsesAllRails) {
  const auto all_to_all = [](const char* fabric) {
    return time_of(Collective::all_to_all, "pairwise", 32, fabric, 64 << 20);
  };
  EXPECT_GT(all_to_all("switch:4,ranks=8,rails=1"), 3 * all_to_all("switch:4,ranks=8,rails=8"));
}

TEST(Forecast, CountsWhatCrossesEachLink) {
  const int n = 12;
  const Fabric fabric = parse_fabric("fat-tree:4x3", n);
  const Forecast cast = forecast(*find_algorithm(Collective::all_reduce, "ring"), {0, n, 0, 1, {}}, fabric,
                                 {.bytes = 12 * 4096});
  const double sent = 22 * 4096.0;  // of each rank
  EXPECT_DOUBLE_EQ(cast.bytes, n * sent);
  EXPECT_EQ(cast.messages, n * 22);
  ASSERT_EQ(cast.loads.size(), 4u);
  EXPECT_DOUBLE_EQ(cast.loads[0].bytes, n * sent);
  EXPECT_DOUBLE_EQ(cast.loads[0].busiest_bytes, sent);
  EXPECT_DOUBLE_EQ(cast.loads[2].bytes, 3 * sent);  // one rank of each leaf sends to another leaf
  EXPECT_GT(cast.loads[0].busiest_busy, 0.0);
  EXPECT_LE(cast.loads[0].busiest_busy, 1.0);
}

// A rank's window of its program is small where ranks are many; what it does is the same.
TEST(Forecast, DoesNotDependOnHowMuchOfASchedulesIsKept) {
  const Group group{0, 1000, 0, 1, {}};
  const Algorithm& circulant = *find_algorithm(Collective::all_reduce, "circulant");
  Programs small(circulant, group, 0), large(circulant, group);
  for (uint32_t rank = 0; rank < 1000; rank += 37) {
    std::vector<Op> whole;
    large.record(rank, whole);
    for (uint32_t i = 0; i < whole.size(); ++i) {
      const Op *a = small.at(rank, i), *b = large.at(rank, i);
      ASSERT_TRUE(a != nullptr && b != nullptr);
      EXPECT_TRUE(a->kind == b->kind && a->peer == b->peer && a->first == b->first && a->count == b->count);
    }
    EXPECT_EQ(small.at(rank, uint32_t(whole.size())), nullptr);
    EXPECT_EQ(large.at(rank, uint32_t(whole.size())), nullptr);
  }
}

TEST(Forecast, HasABoundThatNoneIsBelow) {
  for (const char* text : {"switch", "switch:4,ranks=4", "torus:4x4"})
    for (const Algorithm& algorithm : catalog())
      for (const uint64_t bytes : {64, 1 << 22}) {
        const Fabric fabric = parse_fabric(text, 16);
        std::vector<int> hosts;
        for (int rank = 0; rank < 16; ++rank) hosts.push_back(fabric.host_of(rank));
        const Group group{0, 16, 0, algorithm.pipelined ? 4 : 1, hosts};
        const double bound = forecast_bound_ns(algorithm, group, fabric, bytes);
        EXPECT_LE(bound, 1.001 * forecast(algorithm, group, fabric, {.bytes = bytes}).time_ns)
            << algorithm.name << " of " << name(algorithm.collective) << " on " << text << ", " << bytes << " bytes";
      }
}

TEST(Forecast, TracesTheFirstRanks) {
  const Fabric fabric = parse_fabric("switch", 4);
  const Forecast cast = forecast(*find_algorithm(Collective::all_reduce, "ring"), {0, 4, 0, 1, {}}, fabric,
                                 {.bytes = 4096, .trace_events_max = 1000, .trace_ranks = 2});
  int sends = 0;
  for (const ForecastEvent& event : cast.trace) {
    EXPECT_LT(event.rank, 2u);
    EXPECT_LE(event.begin_ns, event.end_ns);
    EXPECT_LE(event.end_ns, cast.time_ns);
    sends += event.kind == ForecastEvent::Kind::send;
  }
  EXPECT_EQ(sends, 2 * 6);
}

TEST(Forecast, RefusesMoreRanksThanTheFabricHolds) {
  const Fabric fabric = parse_fabric("switch:2", 2);
  EXPECT_THROW(forecast(catalog()[0], {0, 3, 0, 1, {}}, fabric, {}), Error);
}

TEST(TimeQueue, GivesEventsInTheOrderOfTheirTimes) {
  TimeQueue queue;
  Random random(1);
  double last = 0;
  size_t popped = 0;
  for (uint32_t i = 0; i < 100'000; ++i) {
    queue.push(last + double(random.below(1000)), i);
    if (!random.chance(0.5)) continue;
    const TimeQueue::Event event = queue.pop();
    EXPECT_GE(event.time, last);
    last = event.time;
    ++popped;
  }
  for (; !queue.empty(); ++popped) {
    const double time = queue.pop().time;
    EXPECT_GE(time, last);
    last = time;
  }
  EXPECT_EQ(popped, 100'000u);
}

TEST(Arrivals, KeepTheOrderOfEachPair) {
  Arrivals arrivals(2);
  for (int i = 0; i < 40; ++i) arrivals.add(1, uint32_t(i % 4), i);
  for (const uint32_t from : {3u, 0u, 2u, 1u})
    for (int i = 0; i < 10; ++i) EXPECT_EQ(arrivals.take(1, from), double(4 * i + int(from)));
  EXPECT_EQ(arrivals.take(1, 0), std::nullopt);
  EXPECT_EQ(arrivals.take(0, 1), std::nullopt);
}

}  // namespace
}  // namespace tutti
