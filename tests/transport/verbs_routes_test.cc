// What of the verbs transport needs no device: which ports are tried with which, options, sentences, ranks without
// verbs.
#include "transport/verbs/verbs_routes.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include "transport/fake_bootstrap.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs/verbs_cause.h"
#include "transport/verbs/verbs_library.h"

namespace tutti {
namespace {

VerbsGid ipv4(uint8_t index, uint8_t c, uint8_t d, GidKind kind = GidKind::roce_v2_ipv4) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, c, d}, index, kind};
}

VerbsPort ethernet(std::vector<VerbsGid> gids, uint8_t mtu = 5) {
  VerbsPort port{};
  port.number = 1;
  port.mtu = mtu;
  port.gid_count = uint8_t(gids.size());
  std::copy(gids.begin(), gids.end(), port.gids.begin());
  return port;
}

VerbsPort infiniband(uint64_t subnet) {
  VerbsPort port{};
  port.number = 1;
  port.mtu = 5;
  port.infiniband = 1;
  port.subnet = subnet;
  port.gid_count = 1;
  return port;
}

bool same(const VerbsRoute& a, const VerbsRoute& b) {
  return a.my_port == b.my_port && a.my_gid == b.my_gid && a.their_port == b.their_port && a.their_gid == b.their_gid &&
         a.mtu == b.mtu;
}

TEST(VerbsRoutes, PortsOfOneNetworkAreTriedFirst) {
  const std::vector<VerbsPort> mine = {ethernet({ipv4(1, 0, 1)}), ethernet({ipv4(1, 9, 1)})};
  const std::vector<VerbsPort> theirs = {ethernet({ipv4(3, 9, 2)}), ethernet({ipv4(3, 0, 2)})};
  const auto routes = verbs_routes(mine, theirs, true);
  ASSERT_GE(routes.size(), 4u);
  EXPECT_TRUE(same(routes[0], {0, 0, 1, 0, 5}));
  EXPECT_TRUE(same(routes[1], {1, 0, 0, 0, 5}));
}

TEST(VerbsRoutes, BothSidesHaveTheSameListSeenFromEach) {
  const std::vector<VerbsPort> a = {ethernet({ipv4(1, 0, 1), ipv4(0, 0, 1, GidKind::roce_v1)}),
                                    ethernet({ipv4(1, 1, 1)})};
  const std::vector<VerbsPort> b = {ethernet({ipv4(2, 0, 7)}, 4),
                                    ethernet({ipv4(3, 1, 7), ipv4(5, 1, 7, GidKind::roce_v1)})};
  const auto one = verbs_routes(a, b, true), other = verbs_routes(b, a, false);
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    const VerbsRoute& r = other[i];
    EXPECT_TRUE(same(one[i], {r.their_port, r.their_gid, r.my_port, r.my_gid, r.mtu})) << i;
  }
}

TEST(VerbsRoutes, GidsOfOneKindOnlyAndTheBetterKindFirst) {
  const std::vector<VerbsPort> mine = {ethernet({ipv4(1, 0, 1), ipv4(0, 0, 1, GidKind::roce_v1)})};
  const auto routes = verbs_routes(mine, mine, true);
  ASSERT_EQ(routes.size(), 4u) << "two kinds, with the ports' packets and with small ones";
  EXPECT_TRUE(same(routes[0], {0, 0, 0, 0, 5}));
  EXPECT_TRUE(same(routes[1], {0, 1, 0, 1, 5}));
  EXPECT_TRUE(same(routes[2], {0, 0, 0, 0, 3})) << "where large packets do not pass";
}

TEST(VerbsRoutes, ALargePacketMustFitBothPorts) {
  const auto routes = verbs_routes({ethernet({ipv4(1, 0, 1)}, 5)}, {ethernet({ipv4(1, 0, 2)}, 2)}, false);
  ASSERT_EQ(routes.size(), 1u);
  EXPECT_EQ(routes[0].mtu, 2);
}

TEST(VerbsRoutes, AreOfTheFirstPortsOfBothRanksWhereAddressesTellNoDifference) {
  std::vector<VerbsPort> mine(3, infiniband(1)), theirs(2, infiniband(1));
  uint8_t byte = 0;
  for (auto* const ports : {&mine, &theirs})
    for (VerbsPort& port : *ports) port.gids[0].address[15] = byte += 37;
  const auto routes = verbs_routes(mine, theirs, true);
  EXPECT_TRUE(same(routes[0], {0, 0, 0, 0, 5})) << "though the GUIDs of others have more bits in common";
  const auto apart = std::find_if(routes.begin(), routes.end(), [](const VerbsRoute& r) { return r.my_port != 0 && r.their_port != 0; });
  EXPECT_TRUE(same(*apart, {1, 0, 1, 0, 5})) << "the second path";
}

TEST(VerbsPreference, TheFastestPortsFirstAndOfTheseTheNearest) {
  using Order = std::vector<size_t>;
  const std::vector<VerbsMerit> merits = {{10'000, true}, {100'000, false}, {100'000, true}, {0, true}};
  EXPECT_EQ(verbs_preference(merits, 0), (Order{2, 1, 0, 3}));
  EXPECT_EQ(verbs_preference(merits, 5), (Order{2, 1, 0, 3}));
  EXPECT_EQ(verbs_preference({}, 1), Order{});
}

TEST(VerbsPreference, RanksOfAHostBeginWithOtherPortsThatAreAlike) {
  using Order = std::vector<size_t>;
  const VerbsMerit near{200'000, true}, far{200'000, false};
  const std::vector<VerbsMerit> merits = {far, near, far, near};
  EXPECT_EQ(verbs_preference(merits, 0), (Order{1, 3, 0, 2}));
  EXPECT_EQ(verbs_preference(merits, 1), (Order{3, 1, 2, 0}));
  EXPECT_EQ(verbs_preference(merits, 2), (Order{1, 3, 0, 2}));
}

TEST(VerbsRoutes, OtherSubnetsAndOtherLinkLayersAreNotTried) {
  EXPECT_TRUE(verbs_routes({infiniband(1)}, {infiniband(2)}, true).empty());
  EXPECT_TRUE(verbs_routes({infiniband(1)}, {ethernet({ipv4(1, 0, 1)})}, true).empty());
  EXPECT_FALSE(verbs_routes({infiniband(1)}, {infiniband(1)}, true).empty());
}

TEST(VerbsOptions, WhatIsOutOfRangeIsRefusedWithItsValue) {
  const auto sentence = [](auto change) {
    VerbsOptions options;
    change(options);
    try {
      check_verbs_options(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(sentence([](VerbsOptions&) {}), "taken");
  EXPECT_NE(sentence([](VerbsOptions& o) { o.channels = 0; }).find("0 channels"), std::string::npos);
  EXPECT_NE(sentence([](VerbsOptions& o) { o.message_bytes_max = 5000; }).find("5000"), std::string::npos);
  EXPECT_NE(sentence([](VerbsOptions& o) { o.paths_max = 9; }).find("9 paths"), std::string::npos);
  ::setenv("TUTTI_IB_GID_INDEX", "128", 1);
  try {
    verbs_options_from_environment();
    ADD_FAILURE() << "128 was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_usage);
    EXPECT_NE(std::string(error.what()).find("TUTTI_IB_GID_INDEX=128"), std::string::npos) << error.what();
  }
  ::setenv("TUTTI_IB_GID_INDEX", "3", 1);
  ::setenv("TUTTI_IB_HCA", "mlx5_0:1", 1);
  EXPECT_EQ(verbs_options_from_environment().gid_index, 3);
  EXPECT_EQ(verbs_options_from_environment().devices, "mlx5_0:1");
  ::unsetenv("TUTTI_IB_GID_INDEX");
  ::unsetenv("TUTTI_IB_HCA");
}

TEST(VerbsCause, EveryStatusAndEventHasWordsOfItsOwn) {
  std::set<std::string_view> statuses;
  for (int i = 0; i <= IBV_WC_GENERAL_ERR; ++i) statuses.insert(cause_of(ibv_wc_status(i)).what);
  EXPECT_GE(statuses.size(), 18u);
  EXPECT_NE(cause_of(IBV_WC_RETRY_EXC_ERR).what, cause_of(IBV_WC_RNR_RETRY_EXC_ERR).what);
  EXPECT_NE(cause_of(IBV_WC_RETRY_EXC_ERR).likely.find("TUTTI_IB_GID_INDEX"), std::string_view::npos);
  EXPECT_NE(cause_of(IBV_WC_RNR_RETRY_EXC_ERR).likely.find("stopped"), std::string_view::npos);
  std::set<std::string_view> events;
  for (int i = 0; i <= IBV_EVENT_WQ_FATAL; ++i) events.insert(cause_of(ibv_event_type(i)).what);
  EXPECT_EQ(events.size(), size_t(IBV_EVENT_WQ_FATAL) + 1);
}

TEST(VerbsCause, AnEventFailsWhatItIsOfAndNothingElse) {
  EXPECT_EQ(scope_of(IBV_EVENT_PORT_ERR), VerbsScope::port);
  EXPECT_EQ(scope_of(IBV_EVENT_QP_FATAL), VerbsScope::queue_pair);
  EXPECT_EQ(scope_of(IBV_EVENT_DEVICE_FATAL), VerbsScope::device);
  for (const auto event : {IBV_EVENT_PORT_ACTIVE, IBV_EVENT_COMM_EST, IBV_EVENT_SM_CHANGE, IBV_EVENT_GID_CHANGE})
    EXPECT_EQ(scope_of(event), VerbsScope::nothing);
}

TEST(VerbsLibrary, LoadsOrSaysWhatIsMissing) {
  std::string why_not;
  const VerbsLibrary* const library = VerbsLibrary::load(why_not);
  EXPECT_EQ(library == nullptr, !why_not.empty()) << why_not;
  EXPECT_EQ(VerbsLibrary::load(why_not), library);
}

TEST(Verbs, WhereNoDeviceIsThereNobodyIsReachedAndNothingFails) {
  const auto bootstraps = fake_bootstraps(3);
  const auto transports = on_each_rank(bootstraps, [&](int rank) {
    VerbsOptions options;
    options.peers.assign(3, true);
    options.devices = "no_such_device";
    return make_verbs(*bootstraps[size_t(rank)], options, Log("rank " + std::to_string(rank)));
  });
  for (const auto& transport : transports) EXPECT_EQ(transport, nullptr);
}

// One line of each rank, which only those see who ask for everything.
TEST(Verbs, WhereNoDeviceIsThereThatIsSaidOnceAndOnlyForDebugging) {
  std::string why_not;
  if (const VerbsLibrary* const library = VerbsLibrary::load(why_not)) {
    int count = 0;
    if (ibv_device** const list = library->get_device_list(&count)) library->free_device_list(list);
    if (count > 0) GTEST_SKIP() << "this machine has RDMA devices: " << count;
  }
  const auto lines_of_two_ranks = [](const char* level) {
    ::setenv("TUTTI_LOG", level, 1);
    testing::internal::CaptureStderr();
    const auto bootstraps = fake_bootstraps(2);
    on_each_rank(bootstraps, [&](int rank) {
      VerbsOptions options;
      options.peers.assign(2, true);
      return make_verbs(*bootstraps[size_t(rank)], options, Log("rank " + std::to_string(rank)));
    });
    ::unsetenv("TUTTI_LOG");
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(lines_of_two_ranks("info"), "");
  const std::string lines = lines_of_two_ranks("debug");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2) << lines;
  for (const char* rank : {"[rank 0] verbs: not used: ", "[rank 1] verbs: not used: "})
    EXPECT_NE(lines.find(rank), std::string::npos) << lines;
}

}  // namespace
}  // namespace tutti
