// The checker names rank, step and what is wrong, for each kind of fault.
#include "schedule/check.h"

#include <gtest/gtest.h>

#include "algorithms/catalog.h"

namespace tutti {
namespace {

Step send(uint32_t to, Slice a) { return {Verb::send, false, to, a, {}, {}}; }
Step recv(uint32_t from, Slice dst) { return {Verb::recv, false, from, {}, {}, dst}; }
Step add(uint32_t from, Slice a, Slice dst, bool incoming_first = false) {
  return {Verb::recv_reduce, incoming_first, from, a, {}, dst};
}
Step copy(Slice a, Slice dst) { return {Verb::copy, false, 0, a, {}, dst}; }
Step finish(Slice dst) { return {Verb::finish, false, 0, {}, {}, dst}; }

using Programs = std::vector<Schedule>;

std::string why(Collective collective, const Programs& programs, Shape shape = {1, 1, 1, 1},
                CheckOptions options = {}) {
  const Proof proof = check(collective, programs, shape, 0, options);
  return proof.violation ? proof.violation->sentence : "";
}
std::string why_sum(const Programs& programs, Shape shape = {1, 1, 1, 1}, CheckOptions options = {}) {
  return why(Collective::all_reduce, programs, shape, options);
}
std::string why_spread(const Programs& programs, Shape shape = {1, 1, 1, 1}, CheckOptions options = {}) {
  return why(Collective::broadcast, programs, shape, options);
}

// Two ranks exchange and add, the lower rank's input first.
Programs exchange() {
  return {{send(1, in(0)), add(1, in(0), out(0)), finish(out(0))},
          {send(0, in(0)), add(0, in(0), out(0), true), finish(out(0))}};
}

TEST(Check, ProvesAnExchangeAndMeasuresIt) {
  const Proof proof = check(Collective::all_reduce, exchange(), {1, 1, 0, 1}, 0);
  ASSERT_FALSE(proof.violation) << proof.violation->sentence;
  EXPECT_EQ(proof.rounds, 1);
  EXPECT_EQ(proof.chunks_sent_max, 1u);
  EXPECT_EQ(proof.messages_sent_max, 1u);
}

TEST(Check, SeesAnotherOrderOfAddition) {
  Programs programs = exchange();
  programs[1][1].incoming_first = false;
  EXPECT_EQ(why_sum(programs),
            "rank 0 at its end: output chunk 0 adds in another order than on rank 1: bits may differ");
}

// Each rank joins inputs of its own, in the order of ranks, and finishes only what it keeps.
TEST(Check, HoldsAScanToTheRanksUpToItsOwn) {
  const auto why_scan = [](const Programs& programs) { return why(Collective::scan, programs); };
  const Programs chain = {{send(1, in(0)), copy(in(0), out(0)), finish(out(0))},
                          {add(0, in(0), out(0), true), send(2, out(0)), finish(out(0))},
                          {add(1, in(0), out(0), true), finish(out(0))}};
  EXPECT_EQ(why_scan(chain), "");
  Programs other = chain;
  other[1][0].incoming_first = false;
  EXPECT_EQ(why_scan(other), "rank 1 at its end: output chunk 0 is not in the order of ranks");
  other = chain;
  other[2] = {recv(1, scratch(0)), copy(in(0), out(0)), finish(out(0))};
  EXPECT_EQ(why_scan(other), "rank 2 at step 3 (finish out[0]): finishes a chunk that lacks the input of rank 0");
  other = chain;
  std::swap(other[1][1], other[1][2]);
  EXPECT_EQ(why_scan(other),
            "rank 2 at step 1 (recv_reduce out[0] = message of 1 + in[0]): adds to a finished chunk");
  EXPECT_EQ(why(Collective::exscan, chain),
            "rank 0 at step 2 (copy out[0] = in[0]): writes output chunk 0, which it does not have");
  EXPECT_EQ(why(Collective::exscan, {{send(1, in(0))}, {add(0, in(0), out(0), true), finish(out(0))}}),
            "rank 1 at step 2 (finish out[0]): finishes a chunk that has the input of rank 1 too");
  EXPECT_EQ(why(Collective::exscan, {{send(1, in(0))}, {recv(0, out(0)), finish(out(0))}}), "");
}

TEST(Check, SeesASecondLocalOperandBesideAMessage) {
  Plan p0{"", {1, 1, 1, 1}, 1, {{in(0), {}, 0, 0, 1}, {in(0), out(0), 0, 0, 0, 0, true}}, {1}};
  Plan p1{"", {1, 1, 1, 1}, 1, {{in(0), out(0), 0, 1, 0, 0, true, in(0)}}, {0}};
  const Proof proof = check(Collective::scan, std::vector<Plan>{p0, p1}, 0, {.slots = 2});
  ASSERT_TRUE(proof.violation);
  EXPECT_NE(proof.violation->sentence.find("a second local operand that is not of two"), std::string::npos)
      << proof.violation->sentence;
}

TEST(Check, SeesACircleOfWaits) {
  Programs programs = exchange();
  std::swap(programs[0][0], programs[0][1]);
  std::swap(programs[1][0], programs[1][1]);
  EXPECT_EQ(why_sum(programs),
            "rank 0 at step 1 (recv_reduce out[0] = in[0] + message of 1): waits for ever for a message of rank 1, for "
            "rank 1 at step 1 (recv_reduce out[0] = message of 0 + in[0]) waits as well");
}

TEST(Check, SeesAFullFifo) {
  const Programs programs = {{send(1, in(0)), send(1, in(0)), recv(1, scratch(0)), copy(in(0), out(0))},
                             {send(0, scratch(0)), recv(0, out(0)), recv(0, out(0))}};
  Programs swapped = programs;
  swapped[1] = {copy(in(0), out(0)), send(0, out(0))};
  EXPECT_EQ(why_spread(swapped).substr(0, 46), "rank 1 at step 1 (copy out[0] = in[0]): reads ");
  const Programs full = {{send(1, in(0)), send(1, in(0)), copy(in(0), out(0)), recv(1, out(0))},
                         {recv(0, out(0)), send(0, out(0)), send(0, out(0)), recv(0, out(0))}};
  EXPECT_EQ(why_spread(full), "a message from rank 1 to rank 0 is never received");
  const Programs both_send_first = {{send(1, in(0)), send(1, in(0)), copy(in(0), out(0))}, {recv(0, out(0))}};
  EXPECT_EQ(why_spread(both_send_first), "a message from rank 0 to rank 1 is never received");
  const Programs three = {{send(1, in(0)), send(1, in(0)), send(1, in(0)), copy(in(0), out(0))}, {recv(0, out(0))}};
  EXPECT_EQ(why_spread(three),
            "rank 0 at step 3 (send in[0] to 1): waits for ever for a free slot to rank 1, for rank 1 at its end has "
            "ended");
}

TEST(Check, SeesAnInputAddedTwice) {
  Programs programs = exchange();
  programs[0].insert(programs[0].begin(), send(1, in(0)));
  programs[1].insert(programs[1].begin() + 2, add(0, out(0), out(0)));
  EXPECT_EQ(why_sum(programs),
            "rank 1 at step 3 (recv_reduce out[0] = out[0] + message of 0): adds the input of rank 0 twice");
}

TEST(Check, SeesWhatIsFinishedTooEarlyTwiceOrNever) {
  Programs early = exchange();
  early[0] = {copy(in(0), out(0)), finish(out(0)), send(1, out(0)), recv(1, out(0))};
  EXPECT_EQ(why_sum(early), "rank 0 at step 2 (finish out[0]): finishes a chunk that lacks the input of rank 1");
  Programs twice = exchange();
  twice[1].push_back(finish(out(0)));
  EXPECT_EQ(why_sum(twice), "rank 1 at step 4 (finish out[0]): finishes a chunk twice");
  Programs never = exchange();
  never[1].pop_back();
  EXPECT_EQ(why_sum(never), "rank 1 at its end: output chunk 0 was not finished");
  EXPECT_EQ(why_spread({{copy(in(0), out(0)), finish(out(0))}}),
            "rank 0 at step 2 (finish out[0]): broadcast has nothing to finish");
}

TEST(Check, SeesWhatIsWrittenWhereTheCallerHasNoMemory) {
  EXPECT_EQ(why_sum({{copy(in(0), scratch(0)), finish(scratch(0)), copy(scratch(0), in(0))}}),
            "rank 0 at step 3 (copy in[0] = scratch[0]): in[0] is not its to write");
  EXPECT_EQ(why(Collective::reduce, {{add(1, in(0), out(0)), finish(out(0))}, {copy(in(0), out(0)), send(0, out(0))}}),
            "rank 1 at step 1 (copy out[0] = in[0]): writes output chunk 0, which it does not have");
  const Shape blocks = {2, 2, 2, 1, true};
  const Programs scatter = {{send(1, in(1)), copy(in(0), out(0))}, {recv(0, out(1))}};
  EXPECT_EQ(why(Collective::scatter, scatter, blocks), "");
  Programs whole = scatter;
  whole[0].push_back(copy(in(1), out(1)));
  EXPECT_EQ(why(Collective::scatter, whole, blocks),
            "rank 0 at step 3 (copy out[1] = in[1]): writes output chunk 1, which it does not have");
  // Rank 1 has no input but its own.
  EXPECT_EQ(why(Collective::all_gather, {{copy(in(0), out(0)), recv(1, out(1))}, {send(0, in(0))}}, blocks),
            "rank 1 at step 1 (send in[0] to 0): reads chunk 0 of in[0], which holds nothing yet");
}

TEST(Check, LetsOnlyTheBlocksOfAnAllToAllChangeTheirNumbers) {
  const Shape blocks = {2, 2, 0, 1, true};
  const Programs exchange = {{send(1, in(1)), copy(in(0), out(0)), recv(1, out(1))},
                             {send(0, in(0)), copy(in(1), out(1)), recv(0, out(0))}};
  EXPECT_EQ(why(Collective::all_to_all, exchange, blocks), "");
  Programs kept = exchange;
  kept[0][0].a = in(0);
  EXPECT_EQ(why(Collective::all_to_all, kept, blocks), "rank 1 at its end: output chunk 0 holds chunk 0");
  Programs own = exchange;
  own[1] = {send(0, in(0)), recv(0, out(0)), copy(out(0), out(1))};
  EXPECT_EQ(why(Collective::all_to_all, own, blocks), "rank 1 at its end: output chunk 1 is not of rank 1");
  EXPECT_EQ(why(Collective::all_gather,
                {{send(1, in(0)), recv(1, out(1)), copy(in(0), out(0))},
                 {send(0, in(1)), copy(in(1), out(1)), recv(0, out(1))}},
                blocks),
            "rank 1 at step 3 (recv out[1] from 0): rank 0 sent chunk 0 where chunk 1 is received");
  EXPECT_EQ(why(Collective::all_to_all, exchange, {2, 2, 0, 1, false}),
            "2 chunks, but all_to_all has a block per rank");
  EXPECT_EQ(why_sum({{copy(in(0), out(0)), finish(out(0))}}, {1, 1, 0, 1, true}),
            "1 chunks that are blocks, but all_reduce has one buffer");
}

TEST(Check, SeesMissingInputsAndOutputs) {
  const Programs alone = {{copy(in(0), out(0))}, {copy(in(0), out(0)), finish(out(0))}};
  EXPECT_EQ(why_sum(alone), "rank 0 at its end: output chunk 0 is one that lacks the input of rank 1");
  EXPECT_EQ(why_spread({{}}), "rank 0 at its end: output chunk 0 holds nothing");
  EXPECT_EQ(why_spread({{send(1, out(0))}, {recv(0, out(0))}}),
            "rank 0 at step 1 (send out[0] to 1): reads chunk 0 of out[0], which holds nothing yet");
}

TEST(Check, SeesInPlaceWhatIsOverwrittenTooEarly) {
  // Rank 1 receives into its output before its input, the same memory, has been sent.
  const Programs programs = {
      {send(1, in(0)), add(1, in(0), out(0)), finish(out(0))},
      {recv(0, out(0)), send(0, in(0)), {Verb::reduce, false, 0, out(0), in(0), out(0)}, finish(out(0))}};
  EXPECT_EQ(why_sum(programs), "");
  EXPECT_EQ(why_sum(programs, {1, 1, 1, 1}, {.in_place = true}),
            "rank 1 at step 3 (reduce out[0] = out[0] + in[0]): adds the input of rank 0 twice");
}

TEST(Check, SeesChunksThatChangeTheirNumbers) {
  const Shape two{2, 2, 2, 2};
  EXPECT_EQ(why_spread({{send(1, in(0)), copy(in(0, 2), out(0, 2))}, {recv(0, out(1))}}, two),
            "rank 1 at step 1 (recv out[1] from 0): rank 0 sent chunk 0 where chunk 1 is received");
  EXPECT_EQ(why_spread({{send(1, in(0, 2)), copy(in(0, 2), out(0, 2))}, {recv(0, out(0))}}, two),
            "rank 1 at step 1 (recv out[0] from 0): rank 0 sent 2 chunks where 1 are received");
  EXPECT_EQ(why_spread({{copy(in(0), out(1))}}, two),
            "rank 0 at step 1 (copy out[1] = in[0]): in[0] and out[1] are different chunks: their sizes may differ");
  EXPECT_EQ(why_spread({{copy(in(2), out(2))}}, two),
            "rank 0 at step 1 (copy out[2] = in[2]): in[2] is outside of its 2 chunks");
}

TEST(Check, SeesPeersThatAreNone) {
  EXPECT_EQ(why_spread({{send(7, in(0))}}), "rank 0 at step 1 (send in[0] to 7): rank 7 does not exist");
  EXPECT_EQ(why_spread({{send(0, in(0))}}), "rank 0 at step 1 (send in[0] to 0): talks to itself");
}

TEST(Check, SeesMessagesBeyondTheDeclaredLargest) {
  EXPECT_EQ(why_spread({{send(1, in(0, 2)), copy(in(0, 2), out(0, 2))}, {recv(0, out(0, 2))}}, {2, 2, 0, 1}),
            "rank 0 at step 1 (send in[0..1] to 1): sends more than the 1 chunks of the largest message");
}

TEST(Check, SeesAPassThatIsRoundedElsewhere) {
  // Rank 0 adds three inputs in one pass, rank 1 in two: the same expression, but 16-bit floats round once or twice.
  const Fold sends{in(0), {}, 0, 0, 2, 0, false};
  Plan p0{"", {1, 1, 0, 1}, 1, {sends, {in(0), out(0), 2, 2, 0, 0, true}}, {1, 2, 1, 2}};
  Plan p1{"",
          {1, 1, 0, 1},
          1,
          {sends, {in(0), out(0), 2, 1, 0, 1, false}, {out(0), out(0), 3, 1, 0, 0, true}},
          {0, 2, 0, 2}};
  Plan p2{"", {1, 1, 0, 1}, 1, {sends, {in(0), out(0), 2, 2, 0, 2, true}}, {0, 1, 0, 1}};
  const std::vector<Plan> plans = {p0, p1, p2};
  const Proof proof = check(Collective::all_reduce, plans, 0, {.slots = 2});
  ASSERT_TRUE(proof.violation);
  EXPECT_EQ(proof.violation->rank, 1);
  EXPECT_EQ(proof.violation->sentence,
            "rank 1 at its end: output chunk 0 is rounded at other places than on rank 2: bits may differ");
}

TEST(Check, SeesFusedStepsThatWaitInACircle) {
  // Each rank would send and add in one pass: nobody sends before it has received.
  const Plan p0{"", {1, 1, 0, 1}, 1, {{in(0), out(0), 0, 1, 1, 0, true}}, {1, 1}};
  const Plan p1{"", {1, 1, 0, 1}, 1, {{in(0), out(0), 0, 1, 1, 1, true}}, {0, 0}};
  const std::vector<Plan> plans = {p0, p1};
  const Proof proof = check(Collective::all_reduce, plans, 0, {.slots = 2});
  ASSERT_TRUE(proof.violation);
  EXPECT_EQ(
      proof.violation->sentence,
      "rank 0 at step 1 (out[0] = finish(in[0] + from 1), send to 1): waits for ever for a message of rank 1, for "
      "rank 1 at step 1 (out[0] = finish(from 0 + in[0]), send to 0) waits as well");
}

// A plan that lets a peer write early must not touch that place before.
TEST(Check, RefusesToTouchWhatAPeerMayWriteEarly) {
  const Fold sends{in(0), {}, 0, 0, 1}, copies{in(0), out(0)};
  Fold receives{{}, out(0), 0, 1};
  receives.early = 1;
  const Plan root{"", {1, 1, 0, 1}, 1, {sends, copies}, {1}};
  const auto checked = [&](std::vector<Fold> steps) {
    const Plan other{"", {1, 1, 0, 1}, 1, std::move(steps), {0}};
    return check(Collective::broadcast, std::vector<Plan>{root, other}, 0, {.slots = 2});
  };
  EXPECT_FALSE(checked({receives}).violation);
  const Proof proof = checked({{out(0), out(0)}, receives});
  ASSERT_TRUE(proof.violation);
  EXPECT_EQ(proof.violation->sentence, "rank 1 at step 1 (out[0] = out[0]): touches out[0], where a peer may write meanwhile");
}

TEST(Check, HoldsAnAlgorithmToItsClaim) {
  Algorithm ring = *find_algorithm(Collective::all_reduce, "ring");
  Group group;
  group.n = 4;
  ring.claim = [](const Group&) { return Claim{5, 1.5, 1}; };
  EXPECT_EQ(check(ring, group).violation->sentence, "claims 5 rounds but needs 6");
  ring.claim = [](const Group&) { return Claim{6, 1.25, 1}; };
  EXPECT_EQ(check(ring, group).violation->sentence, "claims that a rank sends 1.25 times the buffer, but it is 1.5");
  ring.claim = [](const Group&) { return Claim{6, 1.5, 1, false, true}; };
  EXPECT_EQ(check(ring, group).violation->sentence,
            "claims to add all inputs in one step, in the order of ranks, but adds otherwise");
  ring.shape = [](const Group& g) { return Shape{uint32_t(4 + g.rank), 4, 0, 1}; };
  EXPECT_EQ(check(ring, group).violation->sentence, "rank 1 has another shape");
}

// Three ranks; rank 0 adds in the order that is asked for and spreads the sum.
Programs sum_at_rank_0(const std::vector<Step>& additions) {
  Programs programs = {additions, {send(0, in(0)), recv(0, out(0))}, {send(0, in(0)), recv(0, out(0))}};
  for (const uint32_t peer : {1u, 2u}) programs[0].push_back(send(peer, out(0)));
  return programs;
}

TEST(Check, TellsAFoldFromTheLeftFromOtherOrders) {
  const auto proof_of = [](const std::vector<Step>& additions, bool lowered) {
    const CheckOptions options{.slots = 2, .lowered = lowered};
    const Proof proof = check(Collective::all_reduce, sum_at_rank_0(additions), {1, 1, 1, 1}, 0, options);
    EXPECT_FALSE(proof.violation) << proof.violation->sentence;
    return proof;
  };
  const std::vector<Step> fold = {add(1, in(0), out(0)), add(2, out(0), out(0)), finish(out(0))};
  const std::vector<Step> swapped = {add(2, in(0), out(0)), add(1, out(0), out(0)), finish(out(0))};
  const std::vector<Step> from_the_right = {recv(1, scratch(0)), add(2, scratch(0), scratch(0)),
                                            {Verb::reduce, false, 0, in(0), scratch(0), out(0)}, finish(out(0))};
  EXPECT_TRUE(proof_of(fold, false).left_fold);
  EXPECT_TRUE(proof_of(fold, true).left_fold);
  EXPECT_FALSE(proof_of(swapped, false).left_fold);
  EXPECT_FALSE(proof_of(swapped, false).in_rank_order);
  EXPECT_FALSE(proof_of(from_the_right, false).left_fold);
  EXPECT_TRUE(proof_of(from_the_right, false).in_rank_order);
}

// The same expression, but the sum of two is stored, and so rounded, before the third joins it: lowering does not make
// one step of it because it is sent in between.
TEST(Check, TellsAFoldInOneStepFromOneInSeveral) {
  const Programs programs = {
      {add(1, in(0), out(0)), send(1, out(0)), add(2, out(0), out(0)), finish(out(0)), send(1, out(0)), send(2, out(0))},
      {send(0, in(0)), recv(0, scratch(0)), recv(0, out(0))},
      {send(0, in(0)), recv(0, out(0))}};
  const Proof plain = check(Collective::all_reduce, programs, {1, 1, 1, 1}, 0, {.slots = 2});
  const Proof plans = check(Collective::all_reduce, programs, {1, 1, 1, 1}, 0, {.slots = 2, .lowered = true});
  ASSERT_FALSE(plain.violation || plans.violation);
  EXPECT_TRUE(plain.left_fold);
  EXPECT_FALSE(plans.left_fold);
  EXPECT_TRUE(plans.in_rank_order);
  // And where the last part, which divides an average, is a step of its own.
  const Programs apart = {{add(1, in(0), out(0)), send(1, out(0)), finish(out(0)), send(1, out(0))},
                          {send(0, in(0)), recv(0, scratch(0)), recv(0, out(0))}};
  EXPECT_FALSE(check(Collective::all_reduce, apart, {1, 1, 1, 1}, 0, {.slots = 2, .lowered = true}).left_fold);
}

TEST(Check, ProvesManyRunsBackToBack) {
  for (const Algorithm& algorithm : catalog())
    for (bool lowered : {false, true}) {
      Group group;
      group.n = 6;
      group.pipeline = algorithm.pipelined ? 5 : 1;
      const Proof proof = check(algorithm, group, {.slots = 2, .in_place = true, .lowered = lowered, .repeat = 7});
      EXPECT_FALSE(proof.violation) << algorithm.name << ": " << proof.violation->sentence;
    }
}

TEST(Check, RefusesWhatItCannotProve) {
  EXPECT_EQ(why(Collective::send_recv, exchange()), "send_recv has no schedule");
  EXPECT_EQ(why_sum({}), "root 0 of 0 ranks");
  EXPECT_EQ(why_sum(exchange(), {1, 1, 1, 1}, {.slots = 0}), "0 slots, 1 runs: a plan needs 2 slots, a schedule 1");
}

}  // namespace
}  // namespace tutti
