// Calls that wait for each other: what closes a circle, what does not, and what is news to whom.
#include "bootstrap/stuck_calls.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

StuckCall receive(int sender, uint32_t received, uint64_t collectives = 0) {
  return {-1, 0, 0, true, sender, sender + 1, received, collectives, {}};
}
StuckCall collective(uint64_t number, int first, int end) { return {-1, 0, 0, false, first, end, number, number + 1, {}}; }

// Ranks who tell each other all that is news, at once.
class Ranks {
 public:
  explicit Ranks(int n) : n_(n) {
    for (int rank = 0; rank < n; ++rank) ranks_.emplace_back(rank);
  }
  // sent: to whom how much; to the others nothing.
  void stick(int rank, StuckCall call, const std::vector<std::pair<int, uint32_t>>& sent = {}) {
    std::vector<uint32_t> by_rank(size_t(n_), 0);
    for (const auto& [to, much] : sent) by_rank[size_t(to)] = much;
    ranks_[size_t(rank)].stick(std::move(call), std::move(by_rank));
    for (bool any = true; any;) {
      any = false;
      for (StuckCalls& from : ranks_)
        if (const auto news = from.own_news()) {
          any = true;
          ++told;
          for (StuckCalls& to : ranks_) to.hear(*news);
        }
    }
  }
  // In words: "0 1 2"; every rank finds the same or nothing.
  std::string circle() const {
    std::string found;
    for (const StuckCalls& rank : ranks_) {
      std::string one;
      for (const StuckCall& call : rank.circle()) one += (one.empty() ? "" : " ") + std::to_string(call.rank);
      EXPECT_TRUE(one.empty() || found.empty() || one == found) << one << " and " << found;
      if (!one.empty()) found = one;
    }
    return found;
  }
  int told = 0;

 private:
  int n_;
  std::vector<StuckCalls> ranks_;
};

TEST(StuckCalls, AReceiveOfWhoWaitsInACollectiveForTheReceiverIsACircle) {
  Ranks ranks(2);
  ranks.stick(0, collective(3, 0, 2), {{1, 7}});
  EXPECT_EQ(ranks.told, 0) << "nobody may be concerned";
  ranks.stick(1, receive(0, 7, 3));
  EXPECT_EQ(ranks.circle(), "0 1");
}

TEST(StuckCalls, AMessageUnderWayIsNoReasonToWaitForever) {
  Ranks ranks(2);
  ranks.stick(0, collective(3, 0, 2), {{1, 8}});
  ranks.stick(1, receive(0, 7, 3));
  EXPECT_EQ(ranks.circle(), "");
}

TEST(StuckCalls, WhoHasCalledTheCollectiveIsNotWaitedForThere) {
  Ranks ranks(2);
  ranks.stick(0, collective(3, 0, 2));
  ranks.stick(1, receive(0, 0, 4));
  EXPECT_EQ(ranks.circle(), "");
}

TEST(StuckCalls, OnlyRanksThatACollectiveNeedsAreWaitedForThere) {
  for (const int end : {1, 2, 3}) {
    Ranks ranks(3);
    ranks.stick(0, collective(0, 0, end));
    ranks.stick(1, receive(0, 0));
    EXPECT_EQ(ranks.circle(), end < 2 ? "" : "0 1");
  }
}

TEST(StuckCalls, ReceivesInARingAreACircleWhereverItBegins) {
  for (const int n : {2, 3, 5, 7})
    for (int first = 0; first < n; ++first) {
      Ranks ranks(n + 1);
      for (int i = 0; i < n; ++i) {
        EXPECT_EQ(ranks.circle(), "");
        const int rank = (first + i) % n;
        ranks.stick(rank, receive((rank + n - 1) % n, uint32_t(rank)), {{(rank + 1) % n, uint32_t(rank + 1) % uint32_t(n)}});
      }
      std::string all = "0";  // each waits for the one before
      for (int rank = n - 1; rank > 0; --rank) all += " " + std::to_string(rank);
      EXPECT_EQ(ranks.circle(), all);
    }
}

TEST(StuckCalls, AChainThatLeadsToWhoIsNotStuckIsNone) {
  Ranks ranks(4);
  ranks.stick(0, collective(0, 1, 2));
  ranks.stick(1, receive(2, 0));
  ranks.stick(2, receive(3, 0));
  EXPECT_EQ(ranks.circle(), "");
  ranks.stick(3, receive(0, 0));
  EXPECT_EQ(ranks.circle(), "0 1 2 3");
}

// Rank 1's first call has ended since, and so was served; what was said of it closes no circle with the later ones.
TEST(StuckCalls, WhatWasSaidOfAnEarlierCallDoesNotCountForALaterOne) {
  Ranks ranks(2);
  ranks.stick(0, receive(1, 0));
  ranks.stick(1, receive(0, 0), {{0, 1}});  // that message is on its way
  EXPECT_EQ(ranks.circle(), "");
  ranks.stick(0, collective(0, 0, 1), {{1, 1}});
  EXPECT_EQ(ranks.circle(), "");
  ranks.stick(1, receive(0, 1, 1), {{0, 1}});
  EXPECT_EQ(ranks.circle(), "") << "who waits for itself alone waits for nobody";
  ranks.stick(0, receive(1, 1, 1), {{1, 1}});
  EXPECT_EQ(ranks.circle(), "0 1");
}

TEST(StuckCalls, AreNewsOnlyToWhoHasNotHeardOfThem) {
  StuckCalls calls(0);
  EXPECT_TRUE(calls.empty());
  StuckCall call = receive(2, 5);
  call.rank = 1;
  call.serial = 1;
  EXPECT_TRUE(calls.hear(call));
  EXPECT_FALSE(calls.hear(call));
  call.unserved.push_back({2, 1});
  EXPECT_TRUE(calls.hear(call));
  const StuckCall before = call;
  call.unserved.push_back({2, 2});
  EXPECT_TRUE(calls.hear(call));
  EXPECT_FALSE(calls.hear(before)) << "it came by a longer way";
  call.serial = 0;
  EXPECT_FALSE(calls.hear(call)) << "an earlier one";
  call.serial = 2;
  EXPECT_TRUE(calls.hear(call));
  call.rank = 0;
  EXPECT_FALSE(calls.hear(call)) << "this rank's own";
  EXPECT_EQ(calls.known().size(), 1u);
  EXPECT_FALSE(calls.own_news());
}

}  // namespace
}  // namespace tutti
