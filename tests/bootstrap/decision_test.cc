// One decision without links: what a vote binds to, and what a decider must decide.
#include "bootstrap/decision.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

const Bytes one{std::byte{1}}, two{std::byte{2}};

Vote sent(const Decision& decision, int size) { return decode_vote(encode(decision.votes()), size); }

TEST(Decision, WhoHasVotedForALaterDeciderTakesNothingFromAnEarlierOne) {
  Decision voter(2, 3, true);
  voter.ask({});
  voter.turn_to(1);
  EXPECT_FALSE(voter.take(0, one));
  EXPECT_TRUE(voter.take(1, two));
  EXPECT_EQ(voter.value(), two);
}

TEST(Decision, WhatAVoterHasTakenIsDecidedAgain) {
  Decision decider(1, 3, true), voter(2, 3, true);
  EXPECT_TRUE(voter.take(0, one));
  for (Decision* decision : {&decider, &voter}) {
    decision->ask({});
    decision->turn_to(1);
  }
  const std::vector<bool> lives = {false, true, true};
  EXPECT_FALSE(decider.may_decide(lives));
  EXPECT_EQ(decider.missing(lives), std::vector<int>{2});
  decider.hear(sent(voter, 3));
  EXPECT_TRUE(decider.may_decide(lives));
  EXPECT_EQ(decider.votes().taken, one);
  EXPECT_TRUE(decider.take(1, decider.votes().taken));
  EXPECT_FALSE(decider.may_decide(lives)) << "once is enough";
}

TEST(Decision, ThePromptFirstRankAsksNobodyAndOthersAskAll) {
  for (const bool prompt : {true, false}) {
    Decision first(0, 2, prompt);
    first.turn_to(0);
    EXPECT_FALSE(first.may_decide({true, true})) << "it takes no part yet";
    first.ask({});
    EXPECT_EQ(first.may_decide({true, true}), prompt);
    EXPECT_TRUE(first.may_decide({true, false}));
  }
}

TEST(Decision, VotesForAnotherDeciderAreVoid) {
  Decision decider(1, 3, false), voter(2, 3, false);
  for (Decision* decision : {&decider, &voter}) decision->ask({});
  decider.turn_to(1);
  voter.turn_to(0);
  decider.hear(sent(voter, 3));
  EXPECT_FALSE(decider.may_decide({false, true, true}));
  voter.turn_to(1);
  decider.hear(sent(voter, 3));
  EXPECT_TRUE(decider.may_decide({false, true, true}));
}

TEST(Decision, ThatSeveralWishIsSeen) {
  Decision decider(0, 4, false);
  decider.ask({});
  decider.turn_to(0);
  for (int rank = 1; rank < 4; ++rank) {
    Decision voter(rank, 4, false);
    voter.ask(rank == 2 ? Bytes{} : Bytes{std::byte(rank)});
    voter.turn_to(0);
    decider.hear(sent(voter, 4));
  }
  ASSERT_EQ(decider.votes().wishes.size(), 2u);
  EXPECT_EQ(decider.votes().wishes[0].rank, 1);
  EXPECT_EQ(decider.votes().wishes[1].rank, 3);
  EXPECT_TRUE(decider.have_voted(std::vector{0, 1, 2, 3}));
}

// So that what comes of them does not depend on who was quick.
TEST(Decision, WhichWishesAreKeptDependsOnThemAlone) {
  const int size = 5;
  std::vector<int> order{1, 2, 3, 4};
  do {
    Decision decider(0, size, false);
    decider.turn_to(0);
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == order.size() / 2) decider.ask(Bytes{std::byte{9}});
      Decision voter(order[i], size, false);
      voter.ask(Bytes{std::byte(order[i] == 3 ? 2 : 8), std::byte(order[i])});
      voter.turn_to(0);
      decider.hear(sent(voter, size));
    }
    const std::vector<Wish>& wishes = decider.votes().wishes;
    ASSERT_EQ(wishes.size(), 2u);
    EXPECT_EQ(wishes[0].rank, 3);
    EXPECT_EQ(wishes[1].rank, 1);
  } while (std::ranges::next_permutation(order).found);
}

TEST(Decision, NonsenseIsNoVote) {
  Decision voter(5, 6, false);
  voter.ask({});
  voter.turn_to(0);
  const Bytes vote = encode(voter.votes());
  EXPECT_THROW(decode_vote(vote, 5), Error);
  EXPECT_THROW(decode_vote(std::span(vote).first(vote.size() - 1), 6), Error);
  EXPECT_EQ(encode(decode_vote(vote, 6)), vote);
}

}  // namespace
}  // namespace tutti
