// Linked plans: the same expressions as the plans that they are made of, whatever order the ranks' steps run in.
#include "schedule/link.h"

#include <deque>
#include <map>
#include <random>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "algorithms/catalog.h"
#include "schedule/verbs.h"

namespace tutti {
namespace {

// What lies in one rank's memory, as expressions: by "in", "out" or "slot", and number. In place, "in" is "out".
using Memory = std::map<std::pair<std::string, uint32_t>, std::string>;

std::string joined(const std::vector<std::string>& operands, bool finish) {
  std::string sum = operands[0];
  for (size_t k = 1; k < operands.size(); ++k) sum = "(" + sum + "+" + operands[k] + ")";
  return finish ? "f" + sum : sum;
}

class Linked : public ::testing::Test {
 protected:
  void make(Collective collective, std::string_view name, int n, bool in_place) {
    in_place_ = in_place;
    const Algorithm& algorithm = *find_algorithm(collective, name);
    plans_.clear();
    for (int rank = 0; rank < n; ++rank) {
      Group group{.rank = rank, .n = n, .root = 0, .pipeline = 2, .host_of = {}};
      Schedule schedule;
      Recorder recorder(schedule);
      algorithm.record(recorder, group);
      plans_.push_back(lower(schedule, algorithm.shape(group), name, in_place));
    }
    const std::array<bool, 9> all = {in_place, in_place, in_place, in_place, in_place, in_place, in_place, in_place, in_place};
    links_ = link(collective, plans_, 0, std::span(all).first(size_t(n)), &linked_);
  }

  std::vector<Memory> fresh(uint32_t chunks) const {
    std::vector<Memory> ranks(plans_.size());
    for (size_t r = 0; r < ranks.size(); ++r)
      for (uint32_t c = 0; c < chunks; ++c) ranks[r][{buffer(true), c}] = fmt::format("{}.{}", r, c);
    return ranks;
  }
  std::string buffer(bool input) const { return input && !in_place_ ? "in" : "out"; }

  // By messages, as the engine does.
  std::vector<Memory> run_plans() const {
    const Shape& shape = plans_[0].shape;
    std::vector<Memory> ranks = fresh(std::max(shape.input, shape.output));
    std::vector<size_t> next(plans_.size());
    std::map<std::pair<uint32_t, uint32_t>, std::deque<std::vector<std::string>>> fifos;
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t r = 0; r < plans_.size(); ++r)
        while (next[r] < plans_[r].steps.size()) {
          const Fold& fold = plans_[r].steps[next[r]];
          bool ready = true;
          for (const uint32_t from : plans_[r].from(fold)) ready &= !fifos[{from, r}].empty();
          if (!ready) break;
          std::vector<std::vector<std::string>> operands;
          const auto local = [&](const Slice& slice) {
            std::vector<std::string> values;
            for (uint32_t i = 0; i < slice.count; ++i)
              values.push_back(ranks[r][{buffer(slice.buffer == Buffer::input), slice.first + i}]);
            return values;
          };
          for (const uint32_t from : plans_[r].from(fold)) {
            operands.push_back(fifos[{from, r}].front());
            fifos[{from, r}].pop_front();
          }
          if (fold.a.count > 0) operands.insert(operands.begin() + fold.a_place, local(fold.a));
          if (fold.b.count > 0) operands.push_back(local(fold.b));
          std::vector<std::string> result;
          for (size_t i = 0; i < operands[0].size(); ++i) {
            std::vector<std::string> column;
            for (const auto& operand : operands) column.push_back(operand[i]);
            result.push_back(joined(column, fold.finish));
          }
          for (uint32_t i = 0; i < fold.dst.count; ++i)
            ranks[r][{buffer(fold.dst.buffer == Buffer::input), fold.dst.first + i}] = result[i];
          for (const uint32_t to : plans_[r].to(fold)) fifos[{r, to}].push_back(result);
          ++next[r];
          moved = true;
        }
    }
    return ranks;
  }

  // A random rank takes its next step, of those that wait for nothing.
  std::vector<Memory> run_linked(uint64_t seed) const {
    std::mt19937_64 random(seed);
    const Shape& shape = plans_[0].shape;
    std::vector<Memory> ranks = fresh(std::max(shape.input, shape.output));
    std::vector<uint32_t> done(linked_.ranks);
    const auto at = [&](const LinkedPlace& place, uint32_t i) -> std::string& {
      const bool input = place.kind == LinkedPlace::input || place.kind == LinkedPlace::own_input;
      if (place.kind == LinkedPlace::slot) return ranks[place.rank][{fmt::format("slot {}", place.chunk), i}];
      return ranks[place.rank][{buffer(input), place.chunk + i}];
    };
    for (;;) {
      std::vector<uint32_t> able;
      bool left = false;
      for (uint32_t r = 0; r < linked_.ranks; ++r) {
        if (linked_.first_step[r] + done[r] == linked_.first_step[r + 1]) continue;
        left = true;
        const LinkedStep& step = linked_.steps[linked_.first_step[r] + done[r]];
        bool ready = true;
        for (uint32_t k = 0; k < step.n_waits; ++k) ready &= done[step.waits[k].rank] >= step.waits[k].steps;
        if (ready) able.push_back(r);
      }
      if (!left) break;
      EXPECT_FALSE(able.empty()) << "it waits for ever";
      if (able.empty()) break;
      const uint32_t r = able[random() % able.size()];
      const LinkedStep& step = linked_.steps[linked_.first_step[r] + done[r]++];
      for (uint32_t i = 0; i < step.chunks; ++i) {
        std::vector<std::string> operands;
        for (uint32_t k = 0; k < step.n_operands; ++k) operands.push_back(at(step.operands[k], i));
        const std::string result = joined(operands, step.finish);
        for (uint32_t k = 0; k < step.n_outputs; ++k) at(step.outputs[k], i) = result;
      }
    }
    return ranks;
  }

  static Memory outputs(const Memory& memory) {
    Memory kept;
    for (const auto& [place, value] : memory)
      if (place.first == "out") kept[place] = value;
    return kept;
  }

  bool in_place_ = false, links_ = false;
  std::vector<Plan> plans_;
  LinkedPlan linked_;
};

TEST_F(Linked, GivesTheExpressionsOfThePlansInAnyOrder) {
  int linked = 0;
  for (const Algorithm& algorithm : catalog())
    for (int n = 1; n <= int(linked_ranks_max); ++n)
      for (const bool in_place : {false, true}) {
        make(algorithm.collective, algorithm.name, n, in_place);
        if (!links_) continue;
        ++linked;
        const std::vector<Memory> expected = run_plans();
        for (uint64_t seed = 1; seed <= 5; ++seed) {
          const std::vector<Memory> found = run_linked(seed);
          for (size_t r = 0; r < found.size(); ++r)
            ASSERT_EQ(outputs(found[r]), outputs(expected[r]))
                << name(algorithm.collective) << "/" << algorithm.name << ", rank " << r << " of " << n
                << (in_place ? ", in place" : "") << ", seed " << seed;
        }
      }
  EXPECT_GT(linked, 150);
}

// One pass each: a rank reads everybody's share and writes everybody's result; nobody waits.
TEST_F(Linked, MakesTwoShotOneStepOfEachRankThatWaitsForNobody) {
  for (const bool in_place : {false, true})
    for (int n = 2; n <= 8; ++n) {
      make(Collective::all_reduce, "two_shot", n, in_place);
      ASSERT_TRUE(links_);
      EXPECT_FALSE(linked_.waits);
      EXPECT_EQ(linked_.slots, 0u);
      EXPECT_EQ(linked_.first_step[size_t(n)], n);
      for (int r = 0; r < n; ++r) {
        EXPECT_EQ(linked_.steps[size_t(r)].n_operands, n);
        EXPECT_EQ(linked_.steps[size_t(r)].n_outputs, n);
      }
    }
}

TEST_F(Linked, MakesOneShotOneStepOfEachRankWhereItIsNotInPlace) {
  make(Collective::all_reduce, "one_shot", 5, false);
  ASSERT_TRUE(links_);
  EXPECT_FALSE(linked_.waits);
  EXPECT_EQ(linked_.first_step[5], 5);
  // In place, what others read is copied first.
  make(Collective::all_reduce, "one_shot", 5, true);
  ASSERT_TRUE(links_);
  EXPECT_TRUE(linked_.waits);
  EXPECT_EQ(linked_.slots, 1u);
}

TEST_F(Linked, WaitsOnlyForStepsThatSayThatTheyAreAwaited) {
  make(Collective::all_reduce, "ring", 4, false);
  ASSERT_TRUE(links_);
  EXPECT_TRUE(linked_.waits);
  for (size_t i = 0; i < linked_.first_step[4]; ++i)
    for (size_t k = 0; k < linked_.steps[i].n_waits; ++k) {
      const LinkedWait& wait = linked_.steps[i].waits[k];
      ASSERT_GT(wait.steps, 0);
      EXPECT_TRUE(linked_.steps[linked_.first_step[wait.rank] + wait.steps - 1u].awaited);
    }
}

// What is shared out among ranks as they please must give the same results in any order of its elements.
TEST_F(Linked, IsFreeOfOrderWhereNoStepTouchesWhatAnotherWrites) {
  const auto free = [&](Collective collective, std::string_view name, int n, bool in_place) {
    make(collective, name, n, in_place);
    const std::array<bool, 8> all = {in_place, in_place, in_place, in_place, in_place, in_place, in_place, in_place};
    return links_ && is_free_of_order(linked_, all);
  };
  for (int n = 2; n <= 8; ++n)
    for (const bool in_place : {false, true}) {
      EXPECT_TRUE(free(Collective::all_reduce, "two_shot", n, in_place));
      EXPECT_TRUE(free(Collective::broadcast, "direct", n, in_place));
      EXPECT_TRUE(free(Collective::all_gather, "direct", n, in_place));
      EXPECT_TRUE(free(Collective::reduce_scatter, "direct", n, in_place));
      EXPECT_EQ(free(Collective::all_to_all, "direct", n, in_place), !in_place);
      EXPECT_EQ(free(Collective::all_reduce, "one_shot", n, in_place), !in_place);
      EXPECT_EQ(free(Collective::all_reduce, "ring", n, in_place), n == 2) << "two ranks add as by two_shot";
    }
  // One element less of order: a step that writes where another one reads, writes, or reads at another element.
  const std::array<bool, 8> apart{}, one{true, true, true};
  make(Collective::all_reduce, "two_shot", 3, false);
  ASSERT_TRUE(is_free_of_order(linked_, apart));
  const LinkedPlan right = linked_;
  linked_.steps[0].outputs[1] = linked_.steps[1].outputs[1];
  EXPECT_FALSE(is_free_of_order(linked_, apart)) << "two steps write one place";
  linked_ = right;
  linked_.steps[0].outputs[0] = linked_.steps[1].operands[2];
  EXPECT_FALSE(is_free_of_order(linked_, apart)) << "a step writes what another one reads";
  linked_ = right;
  EXPECT_TRUE(is_free_of_order(linked_, one)) << "by the same elements";
  linked_.steps[0].operands[0].chunk = linked_.steps[1].operands[0].chunk;
  EXPECT_TRUE(is_free_of_order(linked_, apart));
  EXPECT_FALSE(is_free_of_order(linked_, one)) << "in place, a step reads what another one writes";
}

TEST_F(Linked, RefusesMoreRanksThanItHasRoomFor) {
  make(Collective::all_reduce, "two_shot", 9, false);
  EXPECT_FALSE(links_);
}

}  // namespace
}  // namespace tutti
