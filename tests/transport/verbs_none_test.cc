// The verbs transport of a build without libibverbs, among ranks of which some have ports: the steps of the set-up must
// fit.
#include <gtest/gtest.h>

#include "transport/fake_bootstrap.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs/verbs_routes.h"

namespace tutti {
namespace {

TEST(VerbsNone, ReachesNobodyWhereNobodyHasPorts) {
  const auto bootstraps = fake_bootstraps(2);
  const auto made = on_each_rank(bootstraps, [&](int rank) {
    VerbsOptions options;
    options.peers.assign(2, true);
    options.peers[size_t(rank)] = false;
    WhyNotReached why_not(2);
    options.why_not = &why_not;
    auto transport = make_verbs(*bootstraps[size_t(rank)], options, Log("test"));
    EXPECT_EQ(why_not[size_t(rank)], "");
    EXPECT_EQ(why_not[size_t(1 - rank)], "this build of Tutti has none (libibverbs-dev was not installed)");
    return transport;
  });
  EXPECT_EQ(made[0], nullptr);
  EXPECT_EQ(made[1], nullptr);
}

// Two ranks play a round of the set-up as those with devices take it; the third has this build's.
TEST(VerbsNone, TakesPartInTheRoundsOfOthers) {
  struct Nothing {
    int32_t to;
  };
  constexpr int rounds = 3;
  const auto bootstraps = fake_bootstraps(3);
  const auto done = on_each_rank(bootstraps, [&](int rank) {
    Bootstrap& bootstrap = *bootstraps[size_t(rank)];
    if (rank == 2) {
      VerbsOptions options;
      options.peers.assign(3, true);
      EXPECT_EQ(make_verbs(bootstrap, options, Log("test")), nullptr);
      bootstrap.barrier();  // in step with the others still
      return true;
    }
    EXPECT_EQ(exchange_verbs_hellos(bootstrap, {65536, 1 << 20, 1, {VerbsPort{}}}).size(), 3u);
    for (int round = 0; round < rounds; ++round) {
      const auto offers = gather_for_me(bootstrap, std::vector<Nothing>{{1 - rank}, {2}}, rank);
      EXPECT_EQ(offers[size_t(1 - rank)].size(), 1u);
      EXPECT_TRUE(offers[2].empty());
      bootstrap.barrier();
      gather_for_me(bootstrap, std::vector<Nothing>(), rank);
      EXPECT_EQ(any_rank(bootstrap, round + 1 < rounds && rank == 0), round + 1 < rounds);
    }
    bootstrap.barrier();
    return true;
  });
  EXPECT_TRUE(done[2]);
}

}  // namespace
}  // namespace tutti
