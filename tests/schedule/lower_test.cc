// What lowering makes of schedules: fewer passes and no needless stores, with the same messages.
#include <gtest/gtest.h>

#include "algorithms/catalog.h"
#include "base/error.h"
#include "schedule/check.h"
#include "schedule/price.h"
#include "schedule/print.h"

namespace tutti {
namespace {

std::string lowered(Collective collective, std::string_view name, int rank, int n, bool in_place = false) {
  Group group;
  group.rank = rank;
  group.n = n;
  const Algorithm& algorithm = *find_algorithm(collective, name);
  return to_text(lower(record(algorithm, group), algorithm.shape(group), name, in_place));
}

TEST(Lower, MakesOneShotTwoSteps) {
  EXPECT_EQ(lowered(Collective::all_reduce, "one_shot", 2, 4),
            "   1  in[0], send to 3 0 1\n"
            "   2  out[0] = finish(from 0 + from 1 + in[0] + from 3)\n");
}

// Runs of blocks wait in scratch, as a part of them goes on in other company; what comes to a rank of an exclusive scan is
// its result, and with its own input what goes on.
TEST(Lower, NeedsNoScratchButForRunsOfBlocksAndExclusiveScans) {
  for (const Algorithm& algorithm : catalog())
    for (const Plan& plan : plans_of(algorithm, {.rank = 0, .n = 7, .root = 0, .pipeline = 3, .host_of = {}}))
      if ((plan.shape.message == 1 || algorithm.name == "halving_doubling" || algorithm.name == "hierarchical") &&
          algorithm.collective != Collective::exscan) {
        EXPECT_EQ(plan.shape.scratch, 0u) << name(algorithm.collective) << "/" << algorithm.name;
      }
}

TEST(Lower, KeepsSumsOnTheirWayOutOfMemory) {
  EXPECT_EQ(lowered(Collective::all_reduce, "ring", 0, 3),
            "   1  in[0], send to 1\n"
            "   2  from 2 + in[2], send to 1\n"
            "   3  out[1] = finish(from 2 + in[1]), send to 1\n"
            "   4  out[0] = from 2, send to 1\n"
            "   5  out[2] = from 2\n");
}

TEST(Lower, AddsAllChildrenOfATreeInOnePass) {
  EXPECT_EQ(lowered(Collective::all_reduce, "tree", 0, 8),
            "   1  out[0] = finish(in[0] + from 1 + from 2 + from 4), send to 4 2 1\n");
  EXPECT_EQ(lowered(Collective::all_reduce, "tree", 4, 8),
            "   1  in[0] + from 5 + from 6, send to 0\n"
            "   2  out[0] = from 0, send to 6 5\n");
}

TEST(Lower, CopiesWhileItSendsAndNotInPlace) {
  EXPECT_EQ(lowered(Collective::broadcast, "direct", 0, 3), "   1  out[0] = in[0], send to 1 2\n");
  EXPECT_EQ(lowered(Collective::broadcast, "direct", 0, 3, true), "   1  out[0], send to 1 2\n");
  EXPECT_EQ(lowered(Collective::broadcast, "direct", 0, 1, true), "");
}

// What is copied is sent from the input, which stays as it is, even where the copy is written again later on; a sum of the
// input and a message is sent from where it is stored.
TEST(Lower, SendsInputsFromWhereTheyLie) {
  const Shape shape{1, 1, 0, 1};
  const auto in = [](uint32_t i) { return Slice{i, 1, Buffer::input}; };
  const auto out = [](uint32_t i) { return Slice{i, 1, Buffer::output}; };
  Schedule schedule(3);
  schedule[0].verb = Verb::copy, schedule[0].a = in(0), schedule[0].dst = out(0);
  schedule[1].verb = Verb::send, schedule[1].a = out(0), schedule[1].peer = 1;
  schedule[2].verb = Verb::recv_reduce, schedule[2].a = out(0), schedule[2].dst = out(0), schedule[2].peer = 1;
  const Plan plan = lower(schedule, shape, "test", false);
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.steps[0].source(), in(0));
  EXPECT_TRUE(plan.steps[0].keeps);
  EXPECT_TRUE(plan.steps[0].given);
  const Plan in_place = lower(schedule, shape, "test", true);
  EXPECT_EQ(in_place.steps[0].source(), out(0));
  EXPECT_FALSE(in_place.steps[0].keeps);
  EXPECT_TRUE(in_place.steps[0].given);
}

// Whether the first step that sends does so in a row.
bool in_a_row(Collective collective, std::string_view name, int n, int rank, bool in_place) {
  Group group;
  group.n = n;
  group.rank = rank;
  const Algorithm& algorithm = *find_algorithm(collective, name);
  const Plan plan = lower(record(algorithm, group), algorithm.shape(group), name, in_place);
  for (uint32_t step = 0; step < plan.steps.size(); ++step)
    if (plan.steps[step].n_to > 0) return plan.sends_in_a_row(step);
  return false;
}

// What follows a message may be written with it where nothing else goes to its receiver in between, and it is what the caller gave.
TEST(Lower, SendsInARowWhatTheCallerGave) {
  for (const bool in_place : {false, true}) {
    EXPECT_TRUE(in_a_row(Collective::all_reduce, "one_shot", 2, 0, in_place));
    EXPECT_TRUE(in_a_row(Collective::all_gather, "direct", 2, 1, in_place));
    EXPECT_TRUE(in_a_row(Collective::all_to_all, "direct", 2, 1, in_place));
    EXPECT_TRUE(in_a_row(Collective::broadcast, "direct", 4, 0, in_place));
    EXPECT_TRUE(in_a_row(Collective::gather, "direct", 4, 1, in_place));
    EXPECT_TRUE(in_a_row(Collective::reduce, "chain", 4, 1, in_place)) << "the first of the chain only sends";
    EXPECT_FALSE(in_a_row(Collective::reduce, "chain", 4, 2, in_place)) << "a sum";
    EXPECT_FALSE(in_a_row(Collective::broadcast, "chain", 4, 1, in_place)) << "what has come";
    EXPECT_FALSE(in_a_row(Collective::all_reduce, "two_shot", 2, 0, in_place)) << "a sum goes there, too";
    EXPECT_FALSE(in_a_row(Collective::all_reduce, "one_shot", 3, 0, in_place)) << "to several, who all send, too";
    EXPECT_FALSE(in_a_row(Collective::all_to_all, "pairwise", 4, 0, in_place)) << "to several, who all send, too";
  }
}

// A message may come before its step where nobody misses what it overwrites: the output, unless an earlier step of the run
// reads or writes there.
TEST(Lower, MessagesMayComeBeforeTheirStepsWhereNothingElseLies) {
  const Schedule schedule = {{Verb::send, false, 1, in(1), {}, {}},
                             {Verb::recv, false, 1, {}, {}, out(0)},
                             {Verb::recv, false, 1, {}, {}, out(1)},
                             {Verb::recv, false, 1, {}, {}, out(2)},
                             {Verb::send, false, 1, out(2), {}, {}},
                             {Verb::recv, false, 1, {}, {}, out(2)}};
  const auto early = [&](bool in_place, Slice slice) {
    const Plan plan = lower(schedule, {3, 3, 0, 1}, "", in_place);
    const auto last = std::find_if(plan.steps.rbegin(), plan.steps.rend(), [&](const Fold& f) { return f.dst == slice; });
    return int(last->early);
  };
  for (const bool in_place : {false, true}) {
    EXPECT_EQ(early(in_place, out(0)), 4) << "of every four messages of rank 1, one";
    EXPECT_EQ(early(in_place, out(1)), in_place ? 0 : 4) << "in place, chunk 1 is sent first";
    EXPECT_EQ(early(in_place, out(2)), 0) << "it was written before, and sent";
  }
}

// What is finished is one pass from its source: a step that adds all inputs may not begin with a copy of one.
TEST(Lower, SaysWhichPlansHaveAllTheirSendsFirst) {
  const auto sends_first = [](Collective collective, std::string_view name) {
    Group group;
    group.rank = 1;
    group.n = 4;
    const Algorithm& algorithm = *find_algorithm(collective, name);
    return lower(record(algorithm, group), algorithm.shape(group), name, false).sends_first;
  };
  for (const Collective direct : {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all})
    EXPECT_TRUE(sends_first(direct, "direct")) << name(direct);
  EXPECT_TRUE(sends_first(Collective::all_reduce, "one_shot"));
  for (const std::string_view staged : {"two_shot", "ring", "recursive_doubling"})
    EXPECT_FALSE(sends_first(Collective::all_reduce, staged)) << staged;
}

TEST(Lower, SaysWhichPlansHaveAtMostOneMessageForAndFromEachRank) {
  for (const int n : {2, 3, 4, 5, 8}) {
    const auto one_each = [n](std::string_view name, int rank) {
      Group group;
      group.rank = rank;
      group.n = n;
      const Algorithm& algorithm = *find_algorithm(Collective::all_reduce, name);
      return lower(record(algorithm, group), algorithm.shape(group), name, false).one_message_each;
    };
    for (int rank = 0; rank < n; ++rank) {
      EXPECT_TRUE(one_each("one_shot", rank)) << rank << " of " << n;
      EXPECT_TRUE(one_each("recursive_doubling", rank)) << rank << " of " << n;
      EXPECT_FALSE(one_each("two_shot", rank)) << rank << " of " << n;  // a part, and its sum
    }
  }
}

TEST(Lower, FinishesACopyWhileItCopiesRatherThanCopyWhileItSends) {
  EXPECT_EQ(lowered(Collective::scan, "direct", 0, 3),
            "   1  in[0], send to 1 2\n"
            "   2  out[0] = finish(in[0])\n");
  EXPECT_EQ(lowered(Collective::scan, "direct", 0, 3, true),
            "   1  out[0], send to 1 2\n"
            "   2  out[0] = finish(out[0])\n");
}

// What comes to a rank of an exclusive scan is its result, which in place would overwrite its input too early.
TEST(Lower, PutsWhatWouldOnlyBeCopiedToTheOutputThereAtOnce) {
  EXPECT_EQ(lowered(Collective::exscan, "chain", 1, 3),
            "   1  out[0] = from 0\n"
            "   2  out[0] + in[0], send to 2\n"
            "   3  out[0] = finish(out[0])\n");
  EXPECT_EQ(lowered(Collective::exscan, "chain", 1, 3, true),
            "   1  scratch[0] = from 0\n"
            "   2  scratch[0] + out[0], send to 2\n"
            "   3  out[0] = finish(scratch[0])\n");
}

TEST(Lower, LeavesScratchWhereTheOutputIsNotFreeOrMoreIsReadOfIt) {
  const Shape shape{.input = 2, .output = 2, .scratch = 2, .message = 2};
  const auto text = [&](const Schedule& schedule) { return to_text(lower(schedule, shape, "", false)); };
  const auto step = [](Verb verb, Slice a, Slice dst, uint32_t peer = 0) { return Step{verb, false, peer, a, {}, dst}; };
  const Step recv = step(Verb::recv, {}, scratch(0), 1), copy = step(Verb::copy, scratch(0), out(0));
  const Step other = step(Verb::recv, {}, out(0), 2), send_out = step(Verb::send, out(0), {}, 2);
  const Step send_both = step(Verb::send, scratch(0, 2), {}, 3);
  const Step between = step(Verb::recv, {}, out(1), 2);
  EXPECT_EQ(text({recv, between, copy}), "   1  out[0] = from 1\n   2  out[1] = from 2\n");
  // Written, read in between; read later; part of more; never made.
  EXPECT_EQ(text({recv, other, send_out, copy}),
            "   1  scratch[0] = from 1\n   2  out[0] = from 2, send to 2\n   3  out[0] = scratch[0]\n");
  EXPECT_EQ(text({other, recv, send_out, copy}),
            "   1  out[0] = from 2\n   2  scratch[0] = from 1\n   3  out[0], send to 2\n   4  out[0] = scratch[0]\n");
  const Step send_later = step(Verb::send, scratch(0), {}, 3), touch = step(Verb::send, out(0), {}, 2);
  EXPECT_EQ(text({recv, between, copy, touch, send_later}),
            "   1  scratch[0] = from 1\n   2  out[1] = from 2\n   3  out[0] = scratch[0], send to 2 3\n");
  EXPECT_EQ(text({recv, send_both, copy}),
            "   1  scratch[0] = from 1\n   2  scratch[0..1], send to 3\n   3  out[0] = scratch[0]\n");
  EXPECT_EQ(text({between, copy}), "   1  out[1] = from 2\n   2  out[0] = scratch[0]\n");
}

TEST(Lower, KeepsAStoreThatIsReadLater) {
  const Schedule schedule = {{Verb::recv, false, 1, {}, {}, scratch(0)},
                             {Verb::copy, false, 0, scratch(0), {}, out(0)},
                             {Verb::send, false, 1, in(0), {}, {}},
                             {Verb::send, false, 1, scratch(0), {}, {}}};
  const Plan plan = lower(schedule, {1, 1, 1, 1}, "", false);
  EXPECT_EQ(to_text(plan),
            "   1  scratch[0] = from 1\n"
            "   2  out[0] = scratch[0]\n"
            "   3  in[0], send to 1\n"
            "   4  scratch[0], send to 1\n");
  EXPECT_EQ(plan.shape.scratch, 1u);
}

TEST(Lower, NeverSendsTwiceToOnePeerInOneStep) {
  const Schedule schedule = {{Verb::send, false, 1, in(0), {}, {}}, {Verb::send, false, 1, in(0), {}, {}}};
  EXPECT_EQ(lower(schedule, {1, 1, 0, 1}, "", false).steps.size(), 2u);
}

TEST(Lower, KeepsTheStoreOfAMessageThatIsOnlyPassedOnForItsSize) {
  const Schedule schedule = {{Verb::recv, false, 1, {}, {}, scratch(1)}, {Verb::send, false, 2, scratch(1), {}, {}}};
  EXPECT_EQ(to_text(lower(schedule, {2, 2, 2, 1}, "", false)), "   1  scratch[1] = from 1, send to 2\n");
}

TEST(Lower, LeavesSeveralBlocksOneMessageAndOneLocalOperandAPass) {
  const Schedule schedule = {{Verb::recv_reduce, false, 1, in(0, 2), {}, scratch(0, 2)},
                             {Verb::recv_reduce, false, 2, scratch(0, 2), {}, scratch(0, 2)},
                             {Verb::send, false, 3, scratch(0, 2), {}, {}}};
  EXPECT_EQ(lower(schedule, {4, 4, 4, 2, true}, "", false).steps.size(), 2u);
  EXPECT_EQ(lower(schedule, {4, 4, 4, 2, false}, "", false).steps.size(), 1u);
}

// What came in is needed again, so the sum is a pass of its own, which also sends and finishes but takes no message.
TEST(Lower, AddsTwoLocalSlicesInAPassOfTheirOwn) {
  const Schedule schedule = {{Verb::recv, false, 1, {}, {}, scratch(0)},
                             {Verb::reduce, false, 0, scratch(0), in(0), scratch(1)},
                             {Verb::send, false, 2, scratch(1), {}, {}},
                             {Verb::reduce, false, 0, in(0), scratch(0), out(0)},
                             {Verb::recv_reduce, false, 3, out(0), {}, out(0)},
                             {Verb::finish, false, 0, {}, {}, out(0)}};
  EXPECT_EQ(to_text(lower(schedule, {1, 1, 2, 1}, "", false)),
            "   1  scratch[0] = from 1\n"
            "   2  scratch[0] + in[0], send to 2\n"
            "   3  out[0] = in[0] + scratch[0]\n"
            "   4  out[0] = finish(out[0] + from 3)\n");
}

}  // namespace
}  // namespace tutti
