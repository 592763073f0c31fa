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
    if (way.watched) lending.took(way, 0, (way.lends ? lent : copied) + (i % 3 == 0 ? 10 * copied : 0));
  }
  return lends;
}

constexpr int block = int(Lending::lone.block_calls);
constexpr int first_trial = Lending::lone.first_calls + Lending::lone.calls();
constexpr int pause_min = Lending::pause_min, pause_max = Lending::pause_max;
constexpr int round = pause_max + Lending::lone.calls();  // once trials have become rare

TEST(Lending, IsTriedAndThenDoneWhereItIsFaster) {
  Lending lending(true);
  EXPECT_EQ(calls(lending, Lending::lone.first_calls, 1000, 700), 0);
  EXPECT_EQ(calls(lending, first_trial - int(Lending::lone.first_calls), 1000, 700), block);
  EXPECT_EQ(calls(lending, pause_min, 1000, 700), pause_min);
}

TEST(Lending, IsSeldomTriedWhereItIsNot) {
  Lending lending(true);
  calls(lending, first_trial, 1000, 1400);
  EXPECT_EQ(calls(lending, pause_min, 1000, 1400), 0);
  EXPECT_EQ(calls(lending, pause_min, 1000, 1400), block) << "tried again";
  EXPECT_LE(calls(lending, 10 * round, 1000, 1400), 16 * block);
}

TEST(Lending, ChangesWithWhatIsMeasured) {
  Lending lending(true);
  for (int turn = 0; turn < 3; ++turn) {
    calls(lending, 2 * round, 1000, 500);  // whatever it is in the midst of
    EXPECT_EQ(calls(lending, round, 1000, 500), round - block);
    calls(lending, 2 * round, 500, 1000);
    EXPECT_EQ(calls(lending, round, 500, 1000), block);
  }
}

// Ranks on one core make a call when others have made theirs, and others run between a rank's calls: here rank 0 copies in 100 ns
// what takes all of them 1000.
TEST(Lending, CountsWhatIsBetweenCallsWhereRanksShareCores) {
  for (const bool crowded : {false, true}) {
    const Lending::Trial& trial = crowded ? Lending::crowded : Lending::lone;
    Lending lending(true, trial);
    const uint32_t calls = trial.first_calls + trial.calls();
    TimeNs now = 1;
    for (uint32_t i = 0; i < calls; ++i) {
      const Lending::Way way = lending.next(Collective::all_to_all, bytes, false);
      const TimeNs since = now + (way.lends ? 0 : 900);
      now = since + (way.lends ? 700 : 100);
      if (way.watched) lending.took(way, since, now);
    }
    EXPECT_EQ(lending.next(Collective::all_to_all, bytes, false).lends, crowded);
  }
}

// Whoever is the root: blocks go one way, and who sends some lends by itself.
TEST(Lending, OfWhatGoesOneWayEachRankLeadsInItsOwn) {
  for (const bool is_rank_0 : {false, true}) {
    Lending lending(is_rank_0);
    EXPECT_EQ(lending.next(Collective::all_to_all, bytes, false).leads, is_rank_0);
    for (const Collective kind : {Collective::broadcast, Collective::scatter, Collective::gather, Collective::scatter_v,
                                  Collective::gather_v}) {
      const Lending::Trial& trial = kind == Collective::gather ? Lending::lone_gather : Lending::lone;
      calls(lending, int(trial.first_calls + trial.calls()), 1000, 700, bytes, kind);
      EXPECT_EQ(calls(lending, pause_min, 1000, 700, bytes, kind), pause_min) << name(kind);
    }
  }
}

// Its senders are ahead of the root by what they could send: by many small calls.
TEST(Lending, OfASmallGatherIsTriedForLonger) {
  for (const size_t size : {Lending::ahead_bytes_max, 2 * Lending::ahead_bytes_max}) {
    const Lending::Trial& trial = size == Lending::ahead_bytes_max ? Lending::lone_gather : Lending::lone;
    Lending lending(true);
    EXPECT_EQ(calls(lending, int(trial.first_calls + trial.calls()), 1000, 700, size, Collective::gather), int(trial.block_calls));
    EXPECT_EQ(calls(lending, pause_min, 1000, 700, size, Collective::gather), pause_min);
    EXPECT_EQ(calls(lending, 1, 1000, 700, 4 * size, Collective::gather), 1) << "as its neighbour";
  }
}

// A copied message is slow while what it lies in is touched for the first time, or is in no cache.
TEST(Lending, OfSmallCallsIsTriedOnceAllPlacesAreUsed) {
  constexpr size_t small = size_t{64} << 10;
  constexpr int places = int(Lending::settling_bytes / small);
  for (const auto& [kind, lends_first] : {std::pair(Collective::all_to_all, false), {Collective::gather, false}, {Collective::all_to_all, true}}) {
    Lending lending(true, Lending::lone, lends_first);
    bool lent_before = lends_first;
    const int before = lends_first ? int(Lending::lone.guessed_calls) : places;
    for (int i = 0, in_a_row = 0; i < before + 3 * places; ++i) {
      const Lending::Way way = lending.next(kind, small, false);
      in_a_row = way.lends == lent_before ? in_a_row + 1 : 1;
      lent_before = way.lends;
      const bool is_slow = !way.lends && in_a_row <= places;
      if (way.watched) lending.took(way, 0, is_slow ? 8000 : way.lends ? 2000 : 1000);
    }
    EXPECT_EQ(calls(lending, pause_min / 2, 1000, 2000, small, kind), 0) << name(kind) << lends_first;
  }
}

// A rank between others follows in some groups, and leads in others.
TEST(Lending, OfSendsInGroupsIsWhatThoseThatLeadHaveMeasured) {
  Lending lending(false);
  const auto sends = [&](bool leads) {
    const Lending::Way way = lending.next_sends(bytes, leads);
    EXPECT_TRUE(way.of_sends());
    if (way.watched && leads) lending.took(way, 0, way.lends ? 700 : 1000);
    else if (way.watched) lending.follow(way, false);
    return way.lends;
  };
  for (int i = 0; i < first_trial; ++i) sends(true);
  for (int i = 0; i < pause_min; ++i) EXPECT_TRUE(sends(true));
  for (int i = 0; i < int(Lending::lone.first_calls); ++i) EXPECT_FALSE(sends(false));
  int tried = 0;
  for (int i = 0; i < int(Lending::lone.calls()); ++i) tried += sends(false);
  EXPECT_EQ(tried, block) << "with those that lead";
  for (int i = 0; i < pause_min; ++i) EXPECT_FALSE(sends(false));
}

TEST(Lending, BeginsAsItIsTold) {
  Lending lending(true, Lending::crowded, true);
  TimeNs now = 1;
  const auto calls = [&](int n, TimeNs copied, TimeNs lent) {
    int lends = 0;
    for (int i = 0; i < n; ++i) {
      const Lending::Way way = lending.next(Collective::all_to_all, bytes, false);
      lends += way.lends;
      now += way.lends ? lent : copied;
      if (way.watched) lending.took(way, now - 1, now);
    }
    return lends;
  };
  const int crowded_block = int(Lending::crowded.block_calls), first = int(Lending::crowded.guessed_calls);
  EXPECT_EQ(calls(first + 2 * crowded_block, 950, 1000), first + crowded_block);
  EXPECT_EQ(calls(2 * first, 950, 1000), 2 * first) << "that little is less than calls differ";
  calls(2 * crowded_block, 800, 1000);
  EXPECT_EQ(calls(pause_min, 800, 1000), 0);
}

TEST(Lending, IsJudgedByRunsThatNobodyHasHeldUpWhereRanksShareCores) {
  const int trial = int(Lending::crowded.calls()), first = int(Lending::crowded.guessed_calls);
  for (int held_up = 0; held_up < trial; ++held_up) {
    Lending lending(true, Lending::crowded, true);
    TimeNs now = 1;
    for (int i = 0; i < first + trial; ++i) {
      const Lending::Way way = lending.next(Collective::all_to_all, bytes, false);
      now += (way.lends ? 800 : 1000) + (i == first + held_up ? 50'000 : 0);
      if (way.watched) lending.took(way, now - 1, now);
    }
    EXPECT_TRUE(lending.next(Collective::all_to_all, bytes, false).lends) << "call " << held_up << " of the trial took long";
  }
}

// Where each leads for itself a trial that is lost is over, and what is better is found also if its first calls take long.
TEST(Lending, IsTriedNoLongerThanItTakesToLoseWhereRanksShareCores) {
  const auto tried = [](Collective kind, TimeNs copied, TimeNs lent) {
    Lending lending(true, Lending::crowded, true);
    TimeNs now = 1;
    int copies = 0;
    for (int i = 0; i < int(Lending::crowded.guessed_calls + Lending::crowded.calls()); ++i) {
      const Lending::Way way = lending.next(kind, bytes, false);
      const bool settles = !way.lends && copies < int(Lending::crowded.settling_calls);
      copies += !way.lends;
      const TimeNs since = now;
      now += way.lends ? lent : settles ? copied * 17 / 10 : copied;
      if (way.watched) lending.took(way, since, now);
    }
    return std::pair{copies, lending.next(kind, bytes, false).lends};
  };
  EXPECT_EQ(tried(Collective::scatter, 3000, 1000), std::pair(3, true));
  EXPECT_EQ(tried(Collective::gather, 1400, 1000), std::pair(6 + 8, true));
  EXPECT_EQ(tried(Collective::scatter, 800, 1000), std::pair(int(Lending::crowded.block_calls), false));
  EXPECT_EQ(tried(Collective::all_to_all, 3000, 1000), std::pair(int(Lending::crowded.block_calls), true)) << "others count its calls";
}

// A short loop measures the way that is right as a rule, and no trial.
TEST(Lending, IsTriedLateWhereItBeginsWithAGoodGuess) {
  Lending lending(true, Lending::lone, true);
  const int first = int(Lending::lone.guessed_calls);
  EXPECT_EQ(calls(lending, first + block, 800, 1000), first + block);
  EXPECT_EQ(calls(lending, block, 800, 1000), 0);
  EXPECT_EQ(calls(lending, 2 * first, 800, 1000), 0) << "the guess was wrong";
}

// Whoever sends and he who receives have parts that fit each other.
TEST(Lending, KnowsWhichSideSends) {
  using enum Lending::Side;
  for (const Collective kind : {Collective::broadcast, Collective::exscan, Collective::scatter, Collective::scatter_v}) {
    EXPECT_EQ(Lending::side_of(kind, true), sends);
    EXPECT_EQ(Lending::side_of(kind, false), receives);
  }
  for (const Collective kind : {Collective::reduce, Collective::gather, Collective::gather_v}) {
    EXPECT_EQ(Lending::side_of(kind, true), receives);
    EXPECT_EQ(Lending::side_of(kind, false), sends);
  }
  for (const Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::send_recv, Collective::barrier})
    for (const bool is_root : {false, true}) EXPECT_EQ(Lending::side_of(kind, is_root), neither);
}

TEST(Lending, HasADutyForEachSide) {
  using enum Lending::Duty;
  const auto duty = [](Collective kind, int ranks, bool is_root, bool in_place = false, bool crowded = false) {
    return Lending::duty_of(kind, {ranks, is_root, in_place, crowded});
  };
  for (const Collective kind : {Collective::all_gather, Collective::all_to_all_v})
    for (const bool is_root : {false, true}) EXPECT_EQ(duty(kind, 5, is_root), lends);
  for (const bool is_root : {false, true}) {
    EXPECT_EQ(duty(Collective::all_to_all, 5, is_root, false, true), lends);
    for (const Collective kind : {Collective::all_gather, Collective::all_gather_v, Collective::broadcast, Collective::exscan})
      EXPECT_EQ(duty(kind, 2, is_root, false, true), none);
  }
  for (const Collective kind : {Collective::scatter, Collective::scatter_v}) {
    EXPECT_EQ(duty(kind, 2, true), lends);
    EXPECT_EQ(duty(kind, 2, true, true), lends_or_puts);
    EXPECT_EQ(duty(kind, 2, false), offers);
    EXPECT_EQ(duty(kind, 3, true, true), lends);
    EXPECT_EQ(duty(kind, 3, false), none);
    EXPECT_EQ(duty(kind, 2, false, false, true), none);
  }
  for (const Collective kind : {Collective::gather, Collective::gather_v})
    for (const int ranks : {2, 3})
      for (const bool crowded : {false, true}) {
        EXPECT_EQ(duty(kind, ranks, true, false, crowded), tries_offers);
        EXPECT_EQ(duty(kind, ranks, false, false, crowded), puts);
      }
  EXPECT_EQ(duty(Collective::broadcast, 2, true), lends);
  EXPECT_EQ(duty(Collective::broadcast, 2, true, true), lends_or_puts);
  EXPECT_EQ(duty(Collective::exscan, 2, true), lends_or_puts);
  for (const Collective kind : {Collective::broadcast, Collective::exscan}) {
    EXPECT_EQ(duty(kind, 2, false), offers);
    for (const bool is_root : {false, true}) EXPECT_EQ(duty(kind, 3, is_root), none);
  }
  EXPECT_EQ(duty(Collective::send_recv, 7, true), puts);
  EXPECT_EQ(duty(Collective::send_recv, 7, false), tries_offers);
  for (const Collective kind : {Collective::all_reduce, Collective::reduce, Collective::scan, Collective::barrier})
    EXPECT_EQ(duty(kind, 2, true), none);
}

TEST(Lending, StaysAsItIsWhereBothAreAlike) {
  Lending lending(true);
  calls(lending, 4 * round, 1000, 990);
  EXPECT_EQ(calls(lending, round, 1000, 990), block);
  calls(lending, 2 * round, 1000, 800);
  calls(lending, 2 * round, 990, 1000);
  EXPECT_EQ(calls(lending, round, 990, 1000), round - block);
}

// Calls of a size class may have different sizes, which is no reason to take one way for the slower one.
TEST(Lending, ComparesTimesOfABytesWorth) {
  Lending lending(true);
  for (int i = 0; i < first_trial; ++i) {
    const bool second = i >= int(Lending::lone.first_calls) + block;
    const size_t size = bytes + bytes / 2 * size_t(second);  // lent ones are the larger
    const Lending::Way way = lending.next(Collective::all_gather, size, false);
    if (way.watched) lending.took(way, 0, TimeNs(size / (way.lends ? 11 : 10)));
  }
  EXPECT_EQ(calls(lending, 100, 100, 90, bytes, Collective::all_gather), 100);
}

TEST(Lending, KnowsEachKindByItself) {
  Lending lending(true);
  calls(lending, first_trial, 1000, 500);
  EXPECT_EQ(calls(lending, 4, 1000, 500, bytes, Collective::all_to_all, true), 0);
  for (const Collective kind : {Collective::all_gather, Collective::all_gather_v, Collective::all_to_all_v}) {
    EXPECT_TRUE(Lending::serves(kind));
    EXPECT_EQ(calls(lending, 4, 1000, 500, bytes, kind), 0) << name(kind);
  }
  EXPECT_EQ(calls(lending, 4, 1000, 500), 4);
  calls(lending, first_trial, 1000, 500, ~size_t{0});
  EXPECT_EQ(calls(lending, 4, 1000, 500, ~size_t{0}), 4) << "of any size";
  EXPECT_FALSE(Lending::serves(Collective::all_reduce));
  EXPECT_TRUE(Lending::serves(Collective::broadcast));
}

TEST(Lending, OfANewSizeIsAsOfItsNearest) {
  Lending lending(true);
  const auto lends = [&](size_t size) { return calls(lending, 1, 1000, 500, size) == 1; };
  const int later_trial = Lending::first_calls_as_neighbour + Lending::lone.calls();
  calls(lending, first_trial, 1000, 500, 1 << 20);
  calls(lending, later_trial, 500, 1000, 1 << 23);
  EXPECT_TRUE(lends(1 << 19));
  EXPECT_TRUE(lends(1));
  EXPECT_TRUE(lends(1 << 21));
  EXPECT_FALSE(lends(1 << 22));
  EXPECT_FALSE(lends(1 << 24));
  // It is tried all the same, later.
  const int as_nearest = Lending::first_calls_as_neighbour - 1, both = Lending::lone.calls();
  EXPECT_EQ(calls(lending, as_nearest, 500, 1000, 1 << 19), as_nearest);
  EXPECT_EQ(calls(lending, both, 500, 1000, 1 << 19), block);
  EXPECT_EQ(calls(lending, 100, 500, 1000, 1 << 19), 0);
}

TEST(Lending, OfOtherRanksIsWhatRankZeroDid) {
  Lending lending(false);
  const int until = Lending::lone.first_calls;
  for (const Collective kind : {Collective::all_gather, Collective::all_gather_v}) {
    for (int i = 0; i < until / 2; ++i) {
      const bool led = i % 2 == 0;
      Lending::Way way = lending.next(kind, bytes, false);
      ASSERT_TRUE(way.watched);
      lending.follow(way, led);
      way = lending.next(kind, bytes + 1, false);
      EXPECT_EQ(way.lends, led) << "of that kind and size";
      EXPECT_FALSE(lending.next(Collective::all_to_all, size_t{1} << 30, false).lends);
    }
  }
}

// All ranks make the same calls, so they need not see that it is tried, when every second way would take others by surprise.
TEST(Lending, IsTriedByAllRanksAtTheSameCalls) {
  Lending first(true), other(false);
  int surprises = 0, tried = 0;
  for (int i = 0; i < 3 * round; ++i) {
    const bool lent_is_faster = i / (round / 2) % 2 == 0;
    const size_t size = i % 7 == 0 ? bytes : bytes / 4;
    const Lending::Way led = first.next(Collective::all_gather, size, false);
    const Lending::Way way = other.next(Collective::all_gather, size, false);
    if (led.watched) first.took(led, 0, TimeNs(led.lends == lent_is_faster ? size : 2 * size));
    if (way.watched) other.follow(way, led.lends);
    surprises += led.lends != way.lends;
    tried += !way.watched;
  }
  EXPECT_GT(tried, 10 * block);
  EXPECT_LE(surprises, 12) << "at most when another way has been chosen";
}

// What blocks of a v-form have in all differs from rank to rank, and so which calls are of one size.
TEST(Lending, OfVFormsIsTriedByRankZeroAlone) {
  Lending other(false);
  for (int i = 0; i < 2 * pause_min; ++i) {
    const bool led = i / 11 % 2 == 0;
    const Lending::Way way = other.next(Collective::all_to_all_v, bytes, false);
    ASSERT_TRUE(way.watched);
    EXPECT_TRUE(i % 11 == 0 || way.lends == led);
    other.follow(way, led);
  }
}

}  // namespace
}  // namespace tutti
