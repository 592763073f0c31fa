// Comparing calls that ranks wait in: what is news, what is a mismatch and what is none, and when to look again.
#include "bootstrap/waiting_calls.h"

#include <gtest/gtest.h>

#include "base/signature.h"

namespace tutti {
namespace {

uint64_t broadcast_from(uint32_t root) { return pack({Collective::broadcast, DataType::int8, ReduceOp::sum, root, 8}); }

// A rank that has made these calls.
OwnCalls made(std::vector<uint64_t> calls) {
  return {[calls = std::move(calls)](uint64_t number) {
            return number < calls.size() ? std::optional(calls[number]) : std::nullopt;
          },
          {}};
}

TEST(WaitingCalls, AreNewsOnlyToWhoHasNotHeardOfThem) {
  WaitingCalls calls(0);
  EXPECT_TRUE(calls.empty());
  EXPECT_TRUE(calls.hear({1, 5, broadcast_from(2)}, 0));
  EXPECT_FALSE(calls.hear({1, 5, broadcast_from(2)}, 0));
  EXPECT_FALSE(calls.hear({3, 5, broadcast_from(2)}, 0)) << "another rank's, but the same call";
  EXPECT_FALSE(calls.hear({0, 5, broadcast_from(2)}, 0)) << "this rank's own";
  EXPECT_TRUE(calls.hear({3, 6, broadcast_from(2)}, 0));
  EXPECT_EQ(calls.known().size(), 2u);
  EXPECT_FALSE(calls.look(0));
}

TEST(WaitingCalls, OfOneNumberThatDifferAreAMismatchWhoeverHearsOfThem) {
  WaitingCalls calls(0);
  calls.hear({4, 5, broadcast_from(2)}, 0);
  calls.hear({1, 6, broadcast_from(1)}, 0);
  EXPECT_FALSE(calls.look(0));
  EXPECT_FALSE(calls.hear({3, 5, broadcast_from(1)}, 0));
  const auto pair = calls.look(0);
  ASSERT_TRUE(pair);
  EXPECT_EQ((*pair)[0].rank, 3);
  EXPECT_EQ((*pair)[0].signature, broadcast_from(1));
  EXPECT_EQ((*pair)[1].rank, 4);
  EXPECT_EQ((*pair)[1].signature, broadcast_from(2));
}

TEST(WaitingCalls, AreComparedWithOnesOwnOnceTheyAreMade) {
  WaitingCalls calls(7);
  calls.hear({4, 1, broadcast_from(2)}, 0);
  EXPECT_FALSE(calls.look(0));
  calls.compare_with(made({broadcast_from(2)}));
  EXPECT_FALSE(calls.look(0)) << "that is number 0";
  calls.compare_with(made({broadcast_from(0), broadcast_from(2)}));
  EXPECT_FALSE(calls.look(0));
  calls.hear({4, 2, broadcast_from(2)}, 0);
  calls.compare_with(made({broadcast_from(0), broadcast_from(2), broadcast_from(3)}));
  const auto pair = calls.look(0);
  ASSERT_TRUE(pair);
  EXPECT_EQ((*pair)[0].rank, 4);
  EXPECT_EQ((*pair)[1].rank, 7);
  EXPECT_EQ((*pair)[1].signature, broadcast_from(3));
  EXPECT_EQ((*pair)[1].number, 2u);
}

// All have gone on, and stand in calls that match. The first difference is shown, as far back as both tell.
TEST(WaitingCalls, AreComparedWithWhatWasCalledBeforeThem) {
  std::vector<uint64_t> here(200, broadcast_from(2)), there = here;
  WaitingCalls others(5);
  const auto tell = [&] {
    WaitingCalls calls(3);
    calls.compare_with(made(here));
    others.compare_with(made(there));
    calls.hear(others.own(199, there[199]), 0);
    return calls.look(0);
  };
  EXPECT_FALSE(tell());
  EXPECT_EQ(others.own(199, there[199]).before.size(), WaitingCalls::before_max);
  EXPECT_EQ(others.own(4, there[4]).before.size(), 4u);
  there[198] = there[150] = broadcast_from(1);
  const auto pair = tell();
  ASSERT_TRUE(pair);
  EXPECT_EQ((*pair)[0].rank, 3);
  EXPECT_EQ((*pair)[0].number, 150u);
  EXPECT_EQ((*pair)[0].signature, broadcast_from(2));
  EXPECT_EQ((*pair)[1].signature, broadcast_from(1));
  there = here;
  there[100] = broadcast_from(1);
  EXPECT_FALSE(tell()) << "too long ago";
}

// Each rank knows what it sends itself.
TEST(WaitingCalls, WhoseSizesOnlyPairsKnowMayDifferInThem) {
  const auto signature = [](Collective kind, uint64_t count, uint32_t root) {
    return pack({kind, DataType::float32, ReduceOp::sum, root, count});
  };
  for (const Collective kind : {Collective::gather_v, Collective::scatter_v, Collective::all_to_all_v}) {
    EXPECT_TRUE(match(signature(kind, 3, 1), signature(kind, 5, 1)));
    EXPECT_FALSE(match(signature(kind, 3, 1), signature(Collective::barrier, 5, 1)));
    WaitingCalls calls(0);
    calls.compare_with(made({signature(kind, 3, 1)}));
    calls.hear({1, 0, signature(kind, 5, 1)}, 0);
    EXPECT_FALSE(calls.hear({2, 0, signature(kind, 9, 1)}, 0));
    EXPECT_FALSE(calls.look(0));
    calls.hear({3, 0, pack({kind, DataType::float64, ReduceOp::sum, 1, 5})}, 0);
    EXPECT_TRUE(calls.look(0));
  }
  EXPECT_FALSE(match(signature(Collective::gather_v, 3, 1), signature(Collective::gather_v, 3, 2)));
  EXPECT_FALSE(match(signature(Collective::all_gather_v, 3, 0), signature(Collective::all_gather_v, 5, 0)));
  EXPECT_FALSE(match(signature(Collective::all_reduce, 3, 0), signature(Collective::all_reduce, 5, 0)));
  const Call opaque{Collective::all_to_all_v, DataType::opaque, ReduceOp::sum, 0, 3, 24};
  Call longer = opaque;
  longer.count = 4;
  EXPECT_TRUE(match(pack(opaque), pack(longer)));
  longer.opaque_bytes = 16;
  EXPECT_FALSE(match(pack(opaque), pack(longer)));
  const Terms named{Determinism::as_communicator, 2, 1};
  EXPECT_TRUE(match(pack(opaque, named), pack({Collective::all_to_all_v, DataType::opaque, ReduceOp::sum, 0, 9, 24}, named)));
  EXPECT_FALSE(match(pack(opaque, named), pack(opaque)));
}

TEST(WaitingCalls, AreForgottenInTheOrderOfTheirNumbers) {
  WaitingCalls calls(0);
  for (uint64_t number = 10; number < 10 + WaitingCalls::calls_max; ++number)
    EXPECT_TRUE(calls.hear({1, number, broadcast_from(2)}, 0));
  EXPECT_FALSE(calls.hear({1, 3, broadcast_from(2)}, 0)) << "lower than all";
  EXPECT_TRUE(calls.hear({1, 1000, broadcast_from(2)}, 0));
  EXPECT_EQ(calls.known().size(), WaitingCalls::calls_max);
  EXPECT_EQ(calls.known().front().number, 11u);
}

TEST(WaitingCalls, AreLookedAtAgainMoreAndMoreSeldomUntilTheyMatch) {
  WaitingCalls calls(0);
  EXPECT_FALSE(calls.look_again_ns());
  calls.hear({1, 0, broadcast_from(2)}, 0);
  TimeNs now = 0;
  int looks = 0;
  for (; now < 100 * ns_per_s; ++looks) {
    EXPECT_FALSE(calls.look(now));
    ASSERT_TRUE(calls.look_again_ns());
    EXPECT_GE(*calls.look_again_ns(), now + 100 * ns_per_ms);
    EXPECT_LE(*calls.look_again_ns(), std::max(2 * now, now + 100 * ns_per_ms));
    now = *calls.look_again_ns();
  }
  EXPECT_LT(looks, 15);
  calls.compare_with(made({broadcast_from(2)}));
  EXPECT_FALSE(calls.look(now));
  EXPECT_FALSE(calls.look_again_ns());
}

TEST(WaitingCalls, AreDescribedAsTheirRankDoes) {
  WaitingCalls calls(0);
  EXPECT_EQ(calls.describe(broadcast_from(2)), "broadcast(count 8, int8, root 2)");
  calls.compare_with({{}, [](uint64_t) { return std::string("something"); }});
  EXPECT_EQ(calls.describe(broadcast_from(2)), "something");
  EXPECT_EQ(differing_calls("rank 1", "a()", "rank 2", "b()"), "rank 1 called a() while rank 2 called b()");
}

}  // namespace
}  // namespace tutti
