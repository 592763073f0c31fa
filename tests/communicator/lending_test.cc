// When calls lend ordinary memory: where that has been measured to be faster, and never for good.
#include "communicator/lending.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr size_t bytes = 1 << 20;

// Of the next n calls, how many lend, where copying and lending take so long.
int calls(Lending& lending, int n, TimeNs copied, TimeNs lent, size_t size = bytes, Collective kind = Collective::all_to_all,
          bool in_place = false) {
  int lends = 0;
  for (int i = 0; i < n; ++i) {
    const Lending::Way way = lending.next(kind, size, in_place);
    lends += way.lends;
    // A late rank holds up every third call.
    if (way.watched) lending.took(way, (way.lends ? lent : copied) + (i % 3 == 0 ? 10 * copied : 0));
  }
  return lends;
}

constexpr int trial = Lending::first_calls + Lending::blocks * Lending::block_calls;
constexpr int period = Lending::period_calls;

TEST(Lending, IsTriedAndThenDoneWhereItIsFaster) {
  Lending lending(true);
  EXPECT_EQ(calls(lending, Lending::first_calls, 1000, 700), 0);
  EXPECT_EQ(calls(lending, trial - int(Lending::first_calls), 1000, 700), int(Lending::block_calls));
  EXPECT_EQ(calls(lending, 500, 1000, 700), 500);
}

TEST(Lending, IsSeldomTriedWhereItIsNot) {
  Lending lending(true);
  calls(lending, trial, 1000, 1400);
  EXPECT_EQ(calls(lending, 500, 1000, 1400), 0);
  EXPECT_LE(calls(lending, 10 * period, 1000, 1400), 10 * period / 50);
}

TEST(Lending, ChangesWithWhatIsMeasured) {
  Lending lending(true);
  for (int turn = 0; turn < 3; ++turn) {
    calls(lending, 2 * period, 1000, 500);  // whatever it is in the midst of
    EXPECT_EQ(calls(lending, period, 1000, 500), period - int(Lending::block_calls));
    calls(lending, 2 * period, 500, 1000);
    EXPECT_EQ(calls(lending, period, 500, 1000), int(Lending::block_calls));
  }
}

TEST(Lending, StaysAsItIsWhereBothAreAlike) {
  Lending lending(true);
  calls(lending, 2 * period, 1000, 990);
  EXPECT_EQ(calls(lending, period, 1000, 990), int(Lending::block_calls));
  calls(lending, 2 * period, 1000, 800);
  calls(lending, 2 * period, 990, 1000);
  EXPECT_EQ(calls(lending, period, 990, 1000), period - int(Lending::block_calls));
}

// Calls of a size class may have different sizes, which is no reason to take one way for the slower one.
TEST(Lending, ComparesTimesOfABytesWorth) {
  Lending lending(true);
  for (int i = 0; i < trial; ++i) {
    const size_t size = bytes + bytes / 2 * size_t(i / int(Lending::block_calls) % 2);  // lent ones are the larger
    const Lending::Way way = lending.next(Collective::all_gather, size, false);
    if (way.watched) lending.took(way, TimeNs(size / (way.lends ? 11 : 10)));
  }
  EXPECT_EQ(calls(lending, 100, 100, 90, bytes, Collective::all_gather), 100);
}

TEST(Lending, KnowsEachKindAndSizeByItself) {
  Lending lending(true);
  calls(lending, trial, 1000, 500);
  EXPECT_EQ(calls(lending, 4, 1000, 500, 2 * bytes), 0);
  EXPECT_EQ(calls(lending, 4, 1000, 500, bytes, Collective::all_to_all, true), 0);
  for (const Collective kind : {Collective::all_gather, Collective::all_gather_v, Collective::all_to_all_v}) {
    EXPECT_TRUE(Lending::serves(kind));
    EXPECT_EQ(calls(lending, 4, 1000, 500, bytes, kind), 0) << name(kind);
  }
  EXPECT_EQ(calls(lending, 4, 1000, 500), 4);
  calls(lending, trial, 1000, 500, ~size_t{0});
  EXPECT_EQ(calls(lending, 4, 1000, 500, ~size_t{0}), 4) << "of any size";
  EXPECT_FALSE(Lending::serves(Collective::all_reduce));
  EXPECT_FALSE(Lending::serves(Collective::broadcast));
}

TEST(Lending, OfOtherRanksIsWhatRankZeroDid) {
  Lending lending(false);
  for (int i = 0; i < 2 * period; ++i) {
    const bool led = i / 7 % 2 != 0;
    Lending::Way way = lending.next(Collective::all_gather, bytes, false);
    ASSERT_TRUE(way.watched);
    lending.follow(way, led);
    way = lending.next(Collective::all_gather, bytes + 1, false);
    EXPECT_EQ(way.lends, led) << "of that kind and size";
    EXPECT_FALSE(lending.next(Collective::all_to_all, bytes, false).lends);
  }
}

}  // namespace
}  // namespace tutti
