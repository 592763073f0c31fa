// Schedules that a user writes are proven: a good one is measured, each kind of fault is refused with the rank, step
// and chunk that break it; and ranks see whether they have the same.
#include "schedule/user_schedule.h"

#include <gtest/gtest.h>

#include <random>

#include "algorithms/catalog.h"
#include "base/error.h"
#include "schedule/check.h"

namespace tutti {
namespace {

Step send(uint32_t to, Slice a) { return {Verb::send, false, to, a, {}, {}}; }
Step recv(uint32_t from, Slice dst) { return {Verb::recv, false, from, {}, {}, dst}; }
Step add(uint32_t from, Slice a, Slice dst, bool incoming_first = false) {
  return {Verb::recv_reduce, incoming_first, from, a, {}, dst};
}
Step reduce(Slice a, Slice b, Slice dst) { return {Verb::reduce, false, 0, a, b, dst}; }
Step copy(Slice a, Slice dst) { return {Verb::copy, false, 0, a, {}, dst}; }
Step finish(Slice dst) { return {Verb::finish, false, 0, {}, {}, dst}; }

// Each of two ranks adds one half and sends the sum back.
UserSchedule halves() {
  UserSchedule schedule;
  schedule.source = "halves.json";
  schedule.name = "halves";
  schedule.collective = Collective::all_reduce;
  schedule.shape = {2, 2, 1, 1};
  schedule.ranks = {
      {send(1, in(1)), add(1, in(0), out(0)), finish(out(0)), send(1, out(0)), recv(1, out(1))},
      {send(0, in(0)), add(0, in(1), out(1)), finish(out(1)), send(0, out(1)), recv(0, out(0))},
  };
  return schedule;
}

std::string why(UserSchedule schedule) {
  try {
    prove(schedule);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(UserSchedule, IsProvenAndMeasured) {
  UserSchedule schedule = halves();
  prove(schedule);
  EXPECT_EQ(schedule.claim.rounds, 2);
  EXPECT_DOUBLE_EQ(schedule.claim.bytes_sent, 1);
  EXPECT_EQ(schedule.claim.slots, 1);
}

TEST(UserSchedule, OfEveryAlgorithmOfTheCatalogIsProven) {
  for (const Algorithm& algorithm : catalog())
    for (const int n : {1, 2, 5, 8}) {
      Group group;
      group.n = n;
      group.root = meaning(algorithm.collective).rooted ? n - 1 : 0;
      group.pipeline = algorithm.pipelined ? 3 : 1;
      UserSchedule schedule{"x.json", "x", "", algorithm.collective, group.root, algorithm.shape(group), {}, {}};
      for (group.rank = 0; group.rank < n; ++group.rank) schedule.ranks.push_back(record(algorithm, group));
      ASSERT_EQ(why(schedule), "") << algorithm.name << " n " << n;
      const Claim claim = algorithm.claim(group);
      prove(schedule);
      EXPECT_EQ(schedule.claim.rounds, claim.rounds);
      EXPECT_NEAR(schedule.claim.bytes_sent, claim.bytes_sent, 1e-9);
      EXPECT_LE(schedule.claim.slots, claim.slots);
      EXPECT_TRUE(schedule.claim.rank_order || !claim.rank_order);
    }
}

// One fault after another in the same good schedule.
TEST(UserSchedule, IsRefusedWithRankStepAndChunk) {
  using Fault = void (*)(UserSchedule&);
  const std::pair<Fault, const char*> faults[] = {
      // Not complete.
      {[](UserSchedule& s) { s.ranks[1].pop_back(); },
       "halves.json: rank 1, after its last step, 4, chunk 0: output chunk 0 holds nothing"},
      {[](UserSchedule& s) { s.ranks[0].insert(s.ranks[0].begin() + 4, send(1, out(0))); },
       "halves.json: rank 0, step 5 (send out[0] to 1), chunk 0: a message from rank 0 to rank 1 is never received"},
      {[](UserSchedule& s) {
         s.ranks[0].erase(s.ranks[0].begin() + 3);
         s.ranks[1].pop_back();
       },
       "halves.json: rank 1, after its last step, 4, chunk 0: output chunk 0 holds nothing"},
      {[](UserSchedule& s) { s.ranks[0][1] = recv(1, out(0)); },
       "halves.json: rank 0, step 3 (finish out[0]), chunk 0: finishes a chunk that lacks the input of rank 0"},
      {[](UserSchedule& s) { s.ranks[0].erase(s.ranks[0].begin() + 2); },
       "halves.json: rank 0, after its last step, 4, chunk 0: output chunk 0 was not finished"},
      // Added twice.
      {[](UserSchedule& s) { s.ranks[1].insert(s.ranks[1].begin() + 2, reduce(out(1), in(1), out(1))); },
       "halves.json: rank 1, step 3 (reduce out[1] = out[1] + in[1]), chunk 1: adds the input of rank 1 twice"},
      {[](UserSchedule& s) { s.ranks[1].insert(s.ranks[1].begin() + 2, finish(out(1))); },
       "halves.json: rank 1, step 4 (finish out[1]), chunk 1: finishes a chunk twice"},
      // Deadlock.
      {[](UserSchedule& s) {
         std::swap(s.ranks[0][0], s.ranks[0][1]);
         std::swap(s.ranks[1][0], s.ranks[1][1]);
       },
       "halves.json: rank 0, step 1 (recv_reduce out[0] = in[0] + message of 1), chunk 0: waits for ever for a message "
       "of rank 1, for rank 1 at step 1 (recv_reduce out[1] = in[1] + message of 0) waits as well"},
      // Hazards.
      {[](UserSchedule& s) {  // in place, the second message is the sum
         s.ranks[0] = {send(1, in(0)), add(1, in(0), out(0)), finish(out(0)), send(1, in(0)),
                       send(1, in(1)), add(1, in(1), out(1)), finish(out(1))};
         s.ranks[1] = {send(0, in(0)), recv(0, scratch(0)), add(0, in(0), out(0), true),
                       finish(out(0)), send(0, in(1)),      add(0, in(1), out(1), true),
                       finish(out(1))};
       },
       "halves.json: rank 1, step 3 (recv_reduce out[0] = message of 0 + in[0]), chunk 0: in place: adds"},
      {[](UserSchedule& s) { s.ranks[0].insert(s.ranks[0].begin(), send(1, scratch(0))); },
       "halves.json: rank 0, step 1 (send scratch[0] to 1), chunk 0: reads chunk 0 of scratch[0], which holds nothing "
       "yet"},
      {[](UserSchedule& s) { s.ranks[0][1].dst = in(0); },
       "halves.json: rank 0, step 2 (recv_reduce in[0] = in[0] + message of 1), chunk 0: in[0] is not its to write"},
      // Out of range.
      {[](UserSchedule& s) { s.ranks[1][0].a = in(2); },
       "halves.json: rank 1, step 1 (send in[2] to 0), chunk 2: in[2] is outside of its 2 chunks"},
      {[](UserSchedule& s) { s.ranks[1][4].dst = scratch(1); },
       "halves.json: rank 1, step 5 (recv scratch[1] from 0), chunk 1: scratch[1] is outside of its 1 chunks"},
      {[](UserSchedule& s) { s.ranks[0][3].peer = 2; },
       "halves.json: rank 0, step 4 (send out[0] to 2), chunk 0: rank 2 does not exist"},
      {[](UserSchedule& s) { s.ranks[0][3].peer = 0; },
       "halves.json: rank 0, step 4 (send out[0] to 0), chunk 0: talks to itself"},
      {[](UserSchedule& s) { s.shape.input = 3; }, "halves.json: 3 input and 2 output chunks, at most 1 in a message"},
      // Sizes and numbers.
      {[](UserSchedule& s) { s.ranks[1][4].dst = out(1); },
       "halves.json: rank 1, step 5 (recv out[1] from 0), chunk 1: rank 0 sent chunk 0 where chunk 1 is received"},
      {[](UserSchedule& s) { s.ranks[0][0].a = in(0, 2); },
       "halves.json: rank 0, step 1 (send in[0..1] to 1), chunk 0: sends more than the 1 chunks of the largest "
       "message"},
      {[](UserSchedule& s) { s.ranks[0].insert(s.ranks[0].begin(), copy(in(0), out(1))); },
       "halves.json: rank 0, step 1 (copy out[1] = in[0]), chunk 0: in[0] and out[1] are different chunks: their sizes "
       "may differ"},
  };
  for (const auto& [fault, sentence] : faults) {
    UserSchedule schedule = halves();
    fault(schedule);
    const std::string seen = why(schedule);
    EXPECT_EQ(seen.substr(0, std::string(sentence).size()), sentence);
  }
}

TEST(UserSchedule, MayAddTwoLocalSlicesLongAfterOneWasReceived) {
  UserSchedule schedule = halves();
  schedule.shape.scratch = 2;
  schedule.ranks[1][1] = recv(0, scratch(1));
  schedule.ranks[1].insert(schedule.ranks[1].begin() + 2, {send(0, in(1)), reduce(scratch(1), in(1), out(1))});
  schedule.ranks[0].insert(schedule.ranks[0].begin() + 2, recv(1, scratch(1)));
  EXPECT_EQ(why(schedule), "");
}

TEST(UserSchedule, MustGiveAllRanksTheSameBits) {
  UserSchedule schedule = halves();
  schedule.shape = {1, 1, 0, 1};
  schedule.ranks = {{send(1, in(0)), add(1, in(0), out(0)), finish(out(0))},
                    {send(0, in(0)), add(0, in(0), out(0)), finish(out(0))}};
  EXPECT_EQ(
      why(schedule),
      "halves.json: rank 0, after its last step, 3, chunk 0: output chunk 0 adds in another order than on rank 1: "
      "bits may differ");
}

TEST(UserSchedule, MayHaveTwoMessagesUnderWayAndNoMore) {
  // Both ranks send all chunks before they receive one.
  const auto of_chunks = [](int chunks) {
    UserSchedule schedule = halves();
    schedule.shape = {uint32_t(chunks), uint32_t(chunks), 0, 1};
    for (uint32_t r = 0; r < 2; ++r) {
      Schedule& steps = schedule.ranks[r] = {};
      for (int c = 0; c < chunks; ++c) steps.push_back(send(1 - r, in(c)));
      for (int c = 0; c < chunks; ++c) {
        steps.push_back(add(1 - r, in(c), out(c), r == 1));
        steps.push_back(finish(out(c)));
      }
    }
    return schedule;
  };
  for (const int chunks : {1, 2}) {
    UserSchedule schedule = of_chunks(chunks);
    prove(schedule);
    EXPECT_EQ(schedule.claim.slots, chunks);
  }
  EXPECT_EQ(
      why(of_chunks(3)),
      "halves.json: rank 0, step 3 (send in[2] to 1), chunk 2: waits for ever for a free slot to rank 1, for rank 1 "
      "at step 3 (send in[2] to 0) waits as well");
}

// Every refusal of a mutant names a place within the file.
TEST(UserSchedule, RefusalsOfMutantsNameAPlace) {
  const uint64_t seed = 4711;
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    UserSchedule schedule = halves();
    Schedule& steps = schedule.ranks[random() % 2];
    Step& step = steps[random() % steps.size()];
    switch (random() % 6) {
      case 0: step.peer = uint32_t(random() % 3); break;
      case 1: step.a = in(int(random() % 3), 1 + int(random() % 2)); break;
      case 2: step.dst = out(int(random() % 3)); break;
      case 3: step.verb = Verb(random() % 6); break;
      case 4: steps.erase(steps.begin() + long(random() % steps.size())); break;
      default: std::swap(step, steps[random() % steps.size()]);
    }
    try {  // without the fields that the verb does not have
      schedule = parse_user_schedule(to_json(schedule), schedule.source);
    } catch (const Error&) {
      continue;
    }
    const std::string sentence = why(schedule);
    if (sentence.empty()) continue;
    ++refused;
    EXPECT_TRUE(sentence.starts_with("halves.json: rank ")) << "seed " << seed << ": " << sentence;
    EXPECT_NE(sentence.find("step"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("chunk"), std::string::npos) << sentence;
  }
  EXPECT_GT(refused, 800);
}

TEST(UserSchedule, DifferencesBetweenRanksAreNamed) {
  UserSchedule other = halves();
  std::swap(other.ranks[0][0], other.ranks[0][1]);
  UserSchedule commented = halves();
  commented.sentence = "The same.";
  commented.source = "elsewhere.json";
  const std::string mine = identity(std::vector{halves()}), changed = identity(std::vector{other});
  EXPECT_EQ(identity({}), "");
  EXPECT_EQ(mine, identity(std::vector{commented}));
  EXPECT_NE(mine, changed);
  EXPECT_EQ(difference(std::vector{mine, mine, mine}), "");
  EXPECT_EQ(difference(std::vector<std::string>{mine}), "");
  const std::string sentence = difference(std::vector<std::string>{mine, "", mine, changed});
  EXPECT_EQ(
      sentence.substr(0, 143),
      "ranks load different schedules (TUTTI_SCHEDULES): 1, 3 differ from rank 0; rank 0 has all_reduce/halves for "
      "2 ranks, root 0, contents " +
          mine.substr(mine.size() - 17, 9));
  EXPECT_TRUE(sentence.ends_with(", rank 1 has none")) << sentence;
}

}  // namespace
}  // namespace tutti
