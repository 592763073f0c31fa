// The cost model puts near before far, and says when ranks crowd a core.
#include "topology/cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"

namespace tutti {
namespace {

// n ranks over `hosts` hosts in blocks, each allowed `cores` cores.
std::vector<Place> places(int n, int hosts, int cores) {
  std::vector<Place> all(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) {
    all[size_t(r)].host = r * hosts / n;
    all[size_t(r)].last_cache = 0;
    for (int core = 0; core < cores; ++core) all[size_t(r)].cores_allowed.push_back(core);
  }
  return all;
}

std::vector<LinkKind> links(size_t n, LinkKind kind) { return std::vector<LinkKind>(n * n, kind); }

TEST(CostModel, SharedMemoryIsCheaperThanLoopbackIsCheaperThanTheNetwork) {
  auto where = places(3, 1, 8);
  where[2].host = 1;
  std::vector<LinkKind> kinds = links(3, LinkKind::tcp);
  const CostModel tcp = cost_model(where, kinds, {});
  kinds[0 * 3 + 1] = kinds[1 * 3 + 0] = LinkKind::shm;
  const CostModel mixed = cost_model(where, kinds, {});
  EXPECT_LT(mixed.link(0, 1).latency_ns, tcp.link(0, 1).latency_ns);
  EXPECT_LT(mixed.link(0, 1).message_ns, tcp.link(0, 1).message_ns);
  EXPECT_LT(mixed.link(0, 1).byte_ns, tcp.link(0, 1).byte_ns);
  EXPECT_LT(tcp.link(0, 1).latency_ns, tcp.link(0, 2).latency_ns);
  EXPECT_LE(tcp.link(0, 1).byte_ns, tcp.link(0, 2).byte_ns);
  EXPECT_EQ(mixed.link(0, 2).latency_ns, tcp.link(0, 2).latency_ns);
}

TEST(CostModel, WhatIsWrittenInARowIsCheaperOverTheLoopback) {
  auto where = places(3, 1, 8);
  where[2].host = 1;
  const CostModel tcp = cost_model(where, links(3, LinkKind::tcp), {});
  constexpr uint64_t bytes = 1 << 20;
  EXPECT_LT(tcp.link(0, 1).bytes_ns(bytes, true), tcp.link(0, 1).bytes_ns(bytes));
  EXPECT_EQ(tcp.link(0, 2).bytes_ns(bytes, true), tcp.link(0, 2).bytes_ns(bytes)) << "the network is what takes time";
}

TEST(CostModel, SmallMessagesStayInANearCache) {
  const LinkCost link = cost_model(places(2, 2, 8), links(2, LinkKind::shm), {}).link(0, 1);
  EXPECT_LT(link.bytes_ns(1024), 1024 * MachineCosts{}.copy_byte_ns);
  for (uint64_t bytes = 1; bytes < 1 << 20; bytes *= 2) EXPECT_LE(link.bytes_ns(bytes), link.bytes_ns(bytes + 1));
  MachineCosts odd;  // a measurement that was disturbed
  odd.near_copy_byte_ns = 2 * odd.copy_byte_ns;
  EXPECT_EQ(cost_model(places(2, 2, 8), links(2, LinkKind::shm), odd).link(0, 1).near_byte_ns, odd.copy_byte_ns);
}

TEST(CostModel, VerbsAreCheaperThanTcpBetweenHostsAndAsFastAsTheLink) {
  auto where = places(2, 2, 8);
  for (Place& place : where) place.nic_bits_per_s = 10'000'000'000;
  where[1].host = 1;
  const LinkCost verbs = cost_model(where, links(2, LinkKind::verbs), {}).link(0, 1);
  const LinkCost tcp = cost_model(where, links(2, LinkKind::tcp), {}).link(0, 1);
  EXPECT_LT(verbs.latency_ns, tcp.latency_ns);
  EXPECT_LT(verbs.message_ns, tcp.message_ns);
  EXPECT_LT(verbs.receive_ns, tcp.receive_ns);
  EXPECT_EQ(verbs.byte_ns, 0.8);
  for (Place& place : where) place.link_bits_per_s = 400'000'000'000;
  EXPECT_EQ(cost_model(where, links(2, LinkKind::verbs), {}).link(0, 1).byte_ns, MachineCosts{}.copy_byte_ns);
}

TEST(CostModel, ASharedCacheIsNearerThanAnotherSocket) {
  auto where = places(3, 1, 8);
  where[2].last_cache = 1;
  const CostModel model = cost_model(where, links(3, LinkKind::shm), {});
  EXPECT_LT(model.link(0, 1).receive_ns, model.link(0, 2).receive_ns);
  where[0].last_cache = where[1].last_cache = -1;  // not bound to a cache: not known to share one
  EXPECT_EQ(cost_model(where, links(3, LinkKind::shm), {}).link(0, 1).receive_ns, MachineCosts{}.far_hop_ns);
}

TEST(CostModel, TheSlowerOfTwoInterfacesSetsALinksSpeed) {
  auto where = places(2, 2, 8);
  where[0].nic_bits_per_s = 100'000'000'000;
  where[1].nic_bits_per_s = 1'000'000'000;
  EXPECT_EQ(cost_model(where, links(2, LinkKind::tcp), {}).link(0, 1).byte_ns, 8.0);
  where[1].nic_bits_per_s = 0;  // not known
  EXPECT_EQ(cost_model(where, links(2, LinkKind::tcp), {}).link(0, 1).byte_ns, MachineCosts{}.network_byte_ns);
}

TEST(CostModel, AMeasuredLinkIsBelieved) {
  auto where = places(2, 2, 8);
  for (Place& place : where) place.nic_bits_per_s = 100'000'000'000;
  where[0].link_bits_per_s = 2'000'000'000;
  EXPECT_LT(cost_model(where, links(2, LinkKind::tcp), {}).link(0, 1).byte_ns, 1.0) << "one end is not enough";
  where[1].link_bits_per_s = 1'000'000'000;
  EXPECT_EQ(cost_model(where, links(2, LinkKind::tcp), {}).link(0, 1).byte_ns, 8.0);
  // Between containers of one machine too, whose latency is small.
  where[1].host = 0;
  const CostModel one_machine = cost_model(where, links(2, LinkKind::tcp), {});
  EXPECT_EQ(one_machine.link(0, 1).byte_ns, 8.0);
  EXPECT_LT(one_machine.link(0, 1).latency_ns, MachineCosts{}.network_latency_ns);
  EXPECT_GT(one_machine.contention, 0);
}

TEST(CostModel, HasFewClassesForManyRanks) {
  const auto where = places(300, 3, 200);
  std::vector<LinkKind> kinds = links(300, LinkKind::tcp);
  const CostModel model = cost_model(where, kinds, {});
  EXPECT_LE(model.classes.size(), 4u);
  auto many = places(600, 600, 1);  // as many link speeds as ranks
  for (size_t r = 0; r < many.size(); ++r) many[r].nic_bits_per_s = 1'000'000'000 + r;
  EXPECT_LE(cost_model(many, links(600, LinkKind::tcp), {}).classes.size(), 256u);
}

TEST(CostModel, RefusesALinkTableOfAnotherSize) {
  EXPECT_THROW(cost_model(places(3, 1, 4), links(2, LinkKind::shm), {}), Error);
}

TEST(Contention, IsRanksPerAllowedCoreOfTheMostCrowdedHost) {
  EXPECT_EQ(contention_of(places(4, 1, 8)), 1);
  EXPECT_EQ(contention_of(places(8, 1, 2)), 4);
  EXPECT_EQ(contention_of(places(8, 4, 2)), 1);
  auto uneven = places(6, 1, 2);
  uneven[5].host = 1;
  EXPECT_EQ(contention_of(uneven), 2.5);
}

// Of a part of a job, and of a launcher's other ranks.
TEST(Contention, CountsRanksThatOnlyOthersKnowOf) {
  auto where = places(2, 1, 2);
  EXPECT_EQ(contention_of(where), 1);
  where[1].ranks_per_core = 2;
  EXPECT_EQ(contention_of(where), 2);
  EXPECT_EQ(cost_model(where, links(2, LinkKind::shm), {}).contention, 2);
}

TEST(Contention, SeesRanksBoundToTheSameCore) {
  auto where = places(4, 1, 0);
  for (int r = 0; r < 4; ++r) where[size_t(r)].cores_allowed = {r};
  EXPECT_EQ(contention_of(where), 1);
  where[3].cores_allowed = {0};
  EXPECT_EQ(contention_of(where), 2);
}

TEST(SharedCores, AreThoseThatSeveralRanksAreBoundTo) {
  auto where = places(6, 1, 0);
  for (int r = 0; r < 6; ++r) where[size_t(r)].cores_allowed = {r % 2};
  EXPECT_EQ(shared_cores_of(where), (std::vector{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(cost_model(where, links(6, LinkKind::shm), {}).core_of, shared_cores_of(where));
  where[2].cores_allowed = {0, 1};
  where[5].host = 1;
  EXPECT_EQ(shared_cores_of(where), (std::vector{0, 1, 2, 1, 0, 5})) << "who is bound to no core, or on another machine, shares none";
  EXPECT_TRUE(shared_cores_of(places(4, 1, 2)).empty()) << "nobody is bound";
  for (int r = 0; r < 6; ++r) where[size_t(r)].cores_allowed = {r};
  EXPECT_TRUE(shared_cores_of(where).empty()) << "each has one";
}

TEST(SharedCores, WhatOthersThereHaveWrittenIsNearerThanWhatOtherCoresHave) {
  auto where = places(4, 1, 0);
  for (int r = 0; r < 4; ++r) where[size_t(r)].cores_allowed = {r / 2};
  const CostModel bound = cost_model(where, links(4, LinkKind::shm), {}), free = cost_model(places(4, 1, 2), links(4, LinkKind::shm), {});
  for (const uint64_t bytes : {100, 10'000, 1'000'000}) {
    EXPECT_LE(bound.link(0, 1).bytes_ns(bytes), free.link(0, 1).bytes_ns(bytes));
    EXPECT_LT(free.link(1, 2).bytes_ns(bytes), bound.link(1, 2).bytes_ns(bytes));
  }
}

TEST(Contention, RanksMayMeetWhereTheyHaveACoreInCommon) {
  auto where = places(3, 1, 0);
  where[0].cores_allowed = {0, 1};
  where[1].cores_allowed = {1, 2};
  where[2].cores_allowed = {2};
  EXPECT_TRUE(may_meet(where[0], where[1]));
  EXPECT_TRUE(may_meet(where[2], where[1]));
  EXPECT_FALSE(may_meet(where[0], where[2]));
  where[1].host = 1;
  EXPECT_FALSE(may_meet(where[0], where[1]));
}

TEST(Contention, CountsTheQuotaOfTheCgroup) {
  auto where = places(4, 1, 8);
  for (Place& place : where) place.cpu_quota = 2;
  EXPECT_EQ(contention_of(where), 2);
}

TEST(Contention, MakesMessagesWaitForACore) {
  const CostModel roomy = cost_model(places(4, 1, 4), links(4, LinkKind::shm), {});
  const CostModel crowded = cost_model(places(4, 1, 2), links(4, LinkKind::shm), {});
  EXPECT_EQ(crowded.contention, 2);
  EXPECT_EQ(roomy.switch_ns, 0);
  EXPECT_GT(crowded.switch_ns, 0);
}

TEST(MachineCosts, TravelAsBytes) {
  MachineCosts costs;
  costs.hop_ns = 61.25;
  costs.network_byte_ns = 0;
  EXPECT_TRUE(decode_machine_costs(encode(costs)) == costs);
}

TEST(MachineCosts, BytesWithoutSenseAreRefused) {
  const auto good = encode(MachineCosts{});
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_THROW(decode_machine_costs(std::span(good).first(n)), Error) << n << " bytes";
  auto longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THROW(decode_machine_costs(longer), Error);
  for (double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e13}) {
    MachineCosts costs;
    costs.copy_byte_ns = bad;
    EXPECT_THROW(decode_machine_costs(encode(costs)), Error) << bad;
  }
}

}  // namespace
}  // namespace tutti
