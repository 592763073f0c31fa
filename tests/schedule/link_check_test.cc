// Proofs of linked plans: all that may be used are proven, and each way to be wrong is found.
#include "schedule/link_check.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "algorithms/catalog.h"
#include "schedule/check.h"

namespace tutti {
namespace {

std::vector<Plan> all_plans(Collective collective, std::string_view name, int n, int root, std::span<const bool> in_place) {
  const Algorithm& algorithm = *find_algorithm(collective, name);
  std::vector<Plan> plans;
  Group group{.rank = 0, .n = n, .root = root, .pipeline = 1, .host_of = {}};
  for (group.rank = 0; group.rank < n; ++group.rank)
    plans.push_back(lower(record(algorithm, group), algorithm.shape(group), name, in_place[size_t(group.rank)]));
  return plans;
}

LinkedPlan linked_of(Collective collective, std::string_view name, int n, int root, std::span<const bool> in_place,
                     bool puts = true) {
  LinkedPlan linked;
  EXPECT_TRUE(link(collective, all_plans(collective, name, n, root, in_place), root, in_place, &linked, puts));
  return linked;
}

TEST(LinkCheck, ProvesWhatCallsWithoutAMessageUse) {
  struct Row {
    Collective collective;
    std::string_view name;
  };
  for (const Row& row : {Row{Collective::all_reduce, "two_shot"}, Row{Collective::broadcast, "direct"},
                         Row{Collective::reduce, "direct"}, Row{Collective::all_gather, "direct"},
                         Row{Collective::reduce_scatter, "direct"}, Row{Collective::gather, "direct"},
                         Row{Collective::scatter, "direct"}, Row{Collective::all_to_all, "direct"}})
    for (int n = 2; n <= int(linked_ranks_max); ++n) {
      const Algorithm& algorithm = *find_algorithm(row.collective, row.name);
      const Group group{.rank = 0, .n = n, .root = n - 1, .pipeline = 1, .host_of = {}};
      EXPECT_GT(prove_linked(algorithm, group), 0) << row.name << " " << name(row.collective) << " " << n;
      if (meaning(row.collective).reduces) {
        EXPECT_TRUE(algorithm.claim(group).left_fold);
      }
    }
  const Group alone{.rank = 0, .n = 1, .root = 0, .pipeline = 1, .host_of = {}};
  EXPECT_EQ(prove_linked(*find_algorithm(Collective::all_reduce, "two_shot"), alone), 0);
}

constexpr std::array<bool, 3> apart{}, in_place{true, true, true};

std::string wrong(Collective collective, const LinkedPlan& linked, std::span<const bool> places = apart, int root = 0) {
  return check_linked(collective, linked, root, places).violation;
}

TEST(LinkCheck, FindsASumThatIsNotWhatItShouldBe) {
  const LinkedPlan right = linked_of(Collective::all_reduce, "two_shot", 3, 0, apart);
  EXPECT_EQ(wrong(Collective::all_reduce, right), "");
  LinkedPlan plan = right;
  plan.steps[1].operands[2] = plan.steps[1].operands[0];
  EXPECT_NE(wrong(Collective::all_reduce, plan).find("is in it twice"), std::string::npos);
  plan = right;
  --plan.steps[1].n_operands;
  EXPECT_NE(wrong(Collective::all_reduce, plan).find("joins other inputs"), std::string::npos);
  plan = right;
  plan.steps[1].finish = false;
  EXPECT_NE(wrong(Collective::all_reduce, plan).find("not finished"), std::string::npos);
  plan = right;
  --plan.steps[2].n_outputs;
  EXPECT_NE(wrong(Collective::all_reduce, plan).find("nobody writes it"), std::string::npos);
  plan = right;
  plan.steps[0].operands[1].chunk = plan.steps[1].operands[1].chunk;
  EXPECT_NE(wrong(Collective::all_reduce, plan).find("a chunk of another length"), std::string::npos);
  plan = right;
  plan.steps[0].operands[1].kind = LinkedPlace::output;
  plan.steps[0].operands[1].rank = 0;
  EXPECT_NE(wrong(Collective::all_reduce, plan), "") << "reads what nobody has given";
  plan = right;
  plan.steps[0].outputs[0].kind = LinkedPlace::input;
  EXPECT_NE(wrong(Collective::all_reduce, plan), "") << "writes an input";
  plan = right;
  std::swap(plan.steps[0].operands[0], plan.steps[0].operands[1]);
  EXPECT_EQ(wrong(Collective::all_reduce, plan), "");
  EXPECT_FALSE(check_linked(Collective::all_reduce, plan, 0, apart).in_rank_order);
  EXPECT_TRUE(check_linked(Collective::all_reduce, right, 0, apart).in_rank_order);
}

TEST(LinkCheck, FindsACopyOfSomethingElse) {
  const LinkedPlan right = linked_of(Collective::all_to_all, "direct", 3, 0, apart);
  EXPECT_EQ(wrong(Collective::all_to_all, right), "");
  LinkedPlan plan = right;
  plan.steps[0].operands[0].chunk = uint16_t((plan.steps[0].operands[0].chunk + 1) % 3);
  EXPECT_NE(wrong(Collective::all_to_all, plan).find("it gets another input"), std::string::npos);
  plan = linked_of(Collective::gather, "direct", 3, 2, apart);
  EXPECT_EQ(wrong(Collective::gather, plan, apart, 2), "");
  EXPECT_NE(wrong(Collective::gather, plan, apart, 1), "") << "another rank's output";
}

TEST(LinkCheck, FindsWhatIsOnlyRightWhereNobodyIsInPlace) {
  for (const bool puts : {true, false}) {
    EXPECT_EQ(wrong(Collective::all_gather, linked_of(Collective::all_gather, "direct", 3, 0, in_place, puts), in_place), "");
    EXPECT_EQ(wrong(Collective::all_reduce, linked_of(Collective::all_reduce, "two_shot", 3, 0, in_place, true), in_place), "");
  }
  const LinkedPlan one_shot = linked_of(Collective::all_reduce, "one_shot", 3, 0, apart, false);
  EXPECT_EQ(wrong(Collective::all_reduce, one_shot), "");
  EXPECT_EQ(wrong(Collective::all_reduce, one_shot, in_place), "it needs an order");
}

LinkedPlan packets_of(Collective collective, std::string_view name, int n, int root, std::span<const bool> in_place) {
  LinkedPlan linked;
  if (!link_packets(collective, all_plans(collective, name, n, root, in_place), root, in_place, &linked)) linked.ranks = 0;
  return linked;
}

std::string wrong_packets(Collective collective, const LinkedPlan& linked, std::span<const bool> places = apart) {
  return check_packets(collective, linked, 0, places).violation;
}

TEST(LinkCheck, ProvesThatCallsOfPacketsMayFollowEachOther) {
  for (int n = 2; n <= int(linked_ranks_max); ++n)
    for (const bool here : {false, true}) {
      const std::array<bool, 8> all = {here, here, here, here, here, here, here, here};
      const std::span<const bool> places = std::span(all).first(size_t(n));
      const auto proof = [&](Collective collective, std::string_view name) {
        return check_packets(collective, packets_of(collective, name, n, 0, places), 0, places);
      };
      for (const auto& [collective, name] :
           {std::pair{Collective::all_reduce, "one_shot"}, std::pair{Collective::reduce_scatter, "direct"},
            std::pair{Collective::all_gather, "direct"}, std::pair{Collective::all_to_all, "direct"}}) {
        EXPECT_EQ(proof(collective, name).violation, "") << tutti::name(collective) << " of " << n << (here ? " in place" : "");
        EXPECT_TRUE(proof(collective, name).in_rank_order);
      }
      // The root of a broadcast hears of nobody, and might be two calls ahead.
      EXPECT_NE(proof(Collective::broadcast, "direct").violation.find("ends unheard"), std::string::npos);
      EXPECT_NE(proof(Collective::gather, "direct").violation.find("ends unheard"), std::string::npos);
    }
}

TEST(LinkCheck, FindsNothingElseWrongWithPacketsOfAnyAlgorithm) {
  int proven = 0;
  for (const Algorithm& algorithm : catalog())
    for (int n = 2; n <= int(linked_ranks_max); ++n) {
      constexpr std::array<bool, 8> none{};
      const std::span<const bool> places = std::span(none).first(size_t(n));
      const LinkedPlan plan = packets_of(algorithm.collective, algorithm.name, n, 0, places);
      if (plan.ranks == 0) continue;
      const std::string violation = check_packets(algorithm.collective, plan, 0, places).violation;
      EXPECT_TRUE(violation.empty() || violation.find("ends unheard") != std::string::npos)
          << name(algorithm.collective) << "/" << algorithm.name << " of " << n << ": " << violation;
      proven += violation.empty();
    }
  EXPECT_GT(proven, 60);
}

TEST(LinkCheck, FindsWhatIsWrongWithPackets) {
  const LinkedPlan right = packets_of(Collective::all_reduce, "one_shot", 3, 0, apart);
  ASSERT_EQ(wrong_packets(Collective::all_reduce, right), "");
  const auto step_of = [&](LinkedPlan& plan, uint32_t rank, uint32_t i) -> LinkedStep& {
    return plan.steps[size_t{plan.first_step[rank]} + i];
  };
  const auto with = [&](auto change) {
    LinkedPlan plan = right;
    change(plan);
    return wrong_packets(Collective::all_reduce, plan);
  };
  EXPECT_NE(with([&](LinkedPlan& p) { step_of(p, 1, 0).n_outputs = 1; }).find("waits for ever"), std::string::npos);
  EXPECT_NE(with([&](LinkedPlan& p) { step_of(p, 0, 0).outputs[1] = step_of(p, 0, 0).outputs[0]; }).find("writes a slot again"),
            std::string::npos);
  EXPECT_NE(with([&](LinkedPlan& p) { step_of(p, 0, 1).operands[2] = step_of(p, 0, 1).operands[1]; }).find("reads a message again"),
            std::string::npos);
  EXPECT_NE(with([&](LinkedPlan& p) { step_of(p, 0, 1).operands[0].rank = 1; }).find("reads the memory of rank 1"),
            std::string::npos);
  EXPECT_NE(with([&](LinkedPlan& p) { step_of(p, 0, 1).outputs[0].rank = 1; }).find("writes the memory of rank 1"),
            std::string::npos);
  EXPECT_NE(with([&](LinkedPlan& p) { step_of(p, 0, 1).outputs[0].kind = LinkedPlace::input; }).find("the rank's input"),
            std::string::npos);
  EXPECT_NE(with([&](LinkedPlan& p) { step_of(p, 0, 1).finish = false; }).find("not finished"), std::string::npos);
  EXPECT_NE(with([&](LinkedPlan& p) { step_of(p, 0, 0).operands[0].kind = LinkedPlace::output; }).find("not there"),
            std::string::npos);
  EXPECT_NE(with([&](LinkedPlan& p) { step_of(p, 0, 0).outputs[0].chunk = 9; }).find("a slot that no rank has"),
            std::string::npos);
  EXPECT_NE(with([&](LinkedPlan& p) { p.waits = true; }).find("not of packets alone"), std::string::npos);
}

}  // namespace
}  // namespace tutti
