// Bounds: of bytes and rounds, and rounds counted where everybody has one partner at a time.
#include "schedule/bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "algorithms/catalog.h"
#include "schedule/check.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

std::vector<Schedule> schedules_of(Collective collective, std::string_view name, int n, int root = 0) {
  std::vector<Schedule> schedules;
  Group group;
  group.n = n;
  group.root = root;
  for (group.rank = 0; group.rank < n; ++group.rank)
    schedules.push_back(record(*find_algorithm(collective, name), group));
  return schedules;
}

TEST(Bounds, OfBytesAreThoseOfTheBusiestRank) {
  EXPECT_DOUBLE_EQ(bytes_bound(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bytes_bound(Collective::barrier, 4), 1.5);
  for (const Collective whole : {Collective::broadcast, Collective::reduce, Collective::scan, Collective::exscan})
    EXPECT_DOUBLE_EQ(bytes_bound(whole, 4), 1);
  for (const Collective others : {Collective::all_gather, Collective::reduce_scatter, Collective::scatter,
                                  Collective::all_to_all, Collective::all_gather_v, Collective::all_to_all_v})
    EXPECT_DOUBLE_EQ(bytes_bound(others, 4), 0.75);
  EXPECT_DOUBLE_EQ(bytes_bound(Collective::gather, 4), 0.25);
  for (const Collective any : planned_collectives) EXPECT_EQ(bytes_bound(any, 1), 0);
}

TEST(Bounds, OfRoundsAreOneOrALogarithm) {
  const int up[] = {0, 0, 1, 2, 2, 3, 3, 3, 3, 4};
  for (int n = 1; n <= 9; ++n) {
    EXPECT_EQ(rounds_bound(Rounds::one, n), n > 1);
    EXPECT_EQ(rounds_bound(Rounds::one_partner, n), up[n]);
  }
}

TEST(Bounds, RoundsOfOnePartnerAreCountedAtThePorts) {
  for (int n = 2; n <= 20; ++n) {
    const int log2_up = rounds_bound(Rounds::one_partner, n);
    // All at once is one after the other here.
    EXPECT_EQ(one_partner_rounds(schedules_of(Collective::broadcast, "direct", n)), n - 1);
    EXPECT_EQ(one_partner_rounds(schedules_of(Collective::gather, "direct", n)), n - 1);
    EXPECT_EQ(one_partner_rounds(schedules_of(Collective::all_gather, "direct", n)), n - 1);
    EXPECT_EQ(one_partner_rounds(schedules_of(Collective::all_reduce, "ring", n)), 2 * (n - 1));
    EXPECT_EQ(one_partner_rounds(schedules_of(Collective::broadcast, "binomial", n, n / 2)), log2_up);
    EXPECT_EQ(one_partner_rounds(schedules_of(Collective::all_reduce, "circulant", n)), 2 * log2_up);
    EXPECT_EQ(one_partner_rounds(schedules_of(Collective::exscan, "doubling_123", n)),
              n == 2 ? 1 : int(std::ceil(std::log2(n - 1) + std::log2(4.0 / 3) - 1e-9)));
  }
}

// Two messages to one partner are one round where nothing came in between.
TEST(Bounds, MessagesThatFollowEachOtherToOneRankAreOne) {
  const Step send{Verb::send, false, 1, in(0), {}, {}}, recv{Verb::recv, false, 0, {}, {}, out(0)};
  const Step back{Verb::send, false, 0, in(0), {}, {}}, answer{Verb::recv, false, 1, {}, {}, out(0)};
  EXPECT_EQ(one_partner_rounds(std::vector<Schedule>{{send, send}, {recv, recv}}), 1);
  EXPECT_EQ(one_partner_rounds(std::vector<Schedule>{{send, answer, send}, {recv, back, recv}}), 3);
}

}  // namespace
}  // namespace tutti
