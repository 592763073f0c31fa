// 3,000 seeded mutants of each algorithm: the checker rejects each, or it gives right results when it is executed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../schedule/concrete.h"
#include "algorithms/catalog.h"
#include "base/error.h"
#include "schedule/check.h"
#include "schedule/print.h"

namespace tutti {
namespace {

constexpr int mutants = 3000;

struct Case {
  std::vector<Schedule> schedules;
  Shape shape;
  int root = 0;
  int slots = 1;
};

class Mutator {
 public:
  Mutator(const Algorithm& algorithm, uint64_t seed) : algorithm_(algorithm), random_(seed) {}

  // A right program of 2 to 9 ranks.
  Case original() {
    std::vector<int> hosts(size_t(below(8) + 2));
    for (int& host : hosts) host = int(below(3));
    Group group;
    group.n = int(hosts.size());
    group.root = meaning(algorithm_.collective).rooted ? int(below(hosts.size())) : 0;
    group.pipeline = algorithm_.pipelined ? int(below(4)) + 1 : 1;
    group.host_of = hosts;
    group.core_of = hosts;
    Case result{{}, algorithm_.shape(group), group.root, algorithm_.claim(group).slots};
    for (group.rank = 0; group.rank < group.n; ++group.rank) result.schedules.push_back(record(algorithm_, group));
    return result;
  }

  // Changes one thing of one rank and says what. The result differs from the original in something that is used.
  std::string mutate(Case& c) {
    const std::vector<Schedule> before = c.schedules;
    for (;;) {
      c.schedules = before;
      const size_t rank = below(c.schedules.size());
      Schedule& s = c.schedules[rank];
      if (s.empty()) continue;
      const size_t i = below(s.size());
      const std::string step = to_text(s[i]);
      const std::string what = change(s, i, c);
      if (to_text(s) != to_text(before[rank]))
        return "rank " + std::to_string(rank) + " step " + std::to_string(i) + " (" + step + "): " + what;
    }
  }

 private:
  size_t below(size_t n) { return size_t(random_() % n); }

  std::string change(Schedule& s, size_t i, const Case& c) {
    Step& step = s[i];
    switch (below(9)) {
      case 0: return s.erase(s.begin() + long(i)), "dropped";
      case 1: return s.insert(s.begin() + long(i), Step(step)), "doubled";
      case 2: return i + 1 < s.size() ? (std::swap(s[i], s[i + 1]), "swapped with the next") : "";
      case 3: return std::swap(s[i], s[below(s.size())]), "swapped with another";
      case 4: return step.peer = uint32_t(below(c.schedules.size() + 1)), "peer";
      case 5: return step.verb = Verb(below(6)), "verb";
      case 6: return step.incoming_first = !step.incoming_first, "order";
      case 7: return moved(below(2) ? step.a : step.dst, c.shape), "slice";
      default: {  // a step of another place
        const Schedule& other = c.schedules[below(c.schedules.size())];
        if (other.empty()) return "";
        const Step copy = other[below(other.size())];
        return s.insert(s.begin() + long(i), copy), "inserted " + to_text(copy);
      }
    }
  }

  void moved(Slice& slice, const Shape& shape) {
    switch (below(3)) {
      case 0: slice.buffer = Buffer(below(3)); break;
      case 1: slice.first = uint32_t(below(shape.output + 1)); break;
      default: slice.count = uint32_t(below(shape.output + 1));
    }
  }

  const Algorithm& algorithm_;
  std::mt19937_64 random_;
};

// "" where schedules, and the plans made of them if the checker accepts those, give right results in several orders.
std::string executed(const Algorithm& algorithm, const Case& c, bool in_place, uint64_t seed) {
  std::vector<Plan> plans;
  CheckOptions options{.slots = 2, .in_place = in_place, .lowered = true, .repeat = 1};
  try {
    if (!check(algorithm.collective, c.schedules, c.shape, c.root, options).violation)
      for (const Schedule& s : c.schedules) plans.push_back(lower(s, c.shape, "", in_place));
  } catch (const Error&) {  // a sum of two local slices: a plan cannot hold it
  }
  for (uint64_t order = 0; order < 3; ++order)
    for (const auto arithmetic : {concrete::Arithmetic::sum, concrete::Arithmetic::hash}) {
      concrete::Run plain(algorithm.collective, c.schedules, {}, c.shape, c.root, in_place, size_t(c.slots) + order,
                          arithmetic, seed + order);
      if (std::string wrong = plain.result(); !wrong.empty()) return "schedules: " + wrong;
      if (plans.empty()) continue;
      concrete::Run fused(algorithm.collective, {}, plans, c.shape, c.root, in_place, 2 + order, arithmetic,
                          seed + order);
      if (std::string wrong = fused.result(); !wrong.empty()) return "plans: " + wrong;
    }
  return "";
}

// Whether executing gives exactly what one step makes of all inputs in the order of ranks.
bool folds_from_the_left(const Algorithm& algorithm, const Case& c, bool in_place, bool lowered) {
  std::vector<Plan> plans;
  for (const Schedule& s : c.schedules)
    if (lowered) plans.push_back(lower(s, c.shape, "", in_place));
  const std::vector<Schedule> none;
  return concrete::Run(algorithm.collective, lowered ? none : c.schedules, plans, c.shape, c.root, in_place, 2,
                       concrete::Arithmetic::left_fold, 1)
      .result()
      .empty();
}

class Mutants : public testing::TestWithParam<size_t> {
 protected:
  const Algorithm& algorithm() const { return catalog()[GetParam()]; }
};

TEST_P(Mutants, AreRejectedOrEquivalent) {
  const uint64_t seed = 20'000 + GetParam();
  Mutator mutator(algorithm(), seed);
  int rejected = 0, equivalent = 0, seen_wrong = 0;
  for (int i = 0; i < mutants; ++i) {
    Case c = mutator.original();
    const std::string what = mutator.mutate(c);
    const bool in_place = i % 2;
    CheckOptions options{.slots = c.slots, .in_place = in_place, .lowered = false, .repeat = 1};
    if (check(algorithm().collective, c.schedules, c.shape, c.root, options).violation) {
      ++rejected;
      seen_wrong += !executed(algorithm(), c, in_place, seed + uint64_t(i)).empty();
      continue;
    }
    const std::string wrong = executed(algorithm(), c, in_place, seed + uint64_t(i));
    ASSERT_EQ(wrong, "") << "accepted, seed " << seed << " mutant " << i << ", n " << c.schedules.size()
                         << ", in place " << in_place << ": " << what;
    ++equivalent;
  }
  const std::string who = std::string(name(algorithm().collective)) + "/" + std::string(algorithm().name);
  std::printf("%s: of %d mutants %d rejected (%d of them seen to go wrong), %d equivalent\n", who.c_str(), mutants,
              rejected, seen_wrong, equivalent);
  EXPECT_EQ(rejected + equivalent, mutants);
  // What is rejected is wrong indeed, but for little that happens to do no harm (a value finished twice by nothing, a
  // chunk under another number of the same size).
  EXPECT_GT(rejected, mutants / 2);
  EXPECT_GT(seen_wrong, rejected * 9 / 10);
}

// Mutants of order: all ranks still agree, so that only the claim breaks. Renaming the ranks of all programs alike is one
// kind; those of single steps that the checker accepts are others.
TEST_P(Mutants, OfOrderAreToldByTheProof) {
  if (!meaning(algorithm().collective).reduces) return;
  const uint64_t seed = 40'000 + GetParam();
  Mutator mutator(algorithm(), seed);
  std::mt19937_64 random(seed);
  int folds = 0, others = 0, unseen = 0;
  for (int i = 0; i < mutants; ++i) {
    Case c = mutator.original();
    const bool in_place = i % 2, lowered = i / 2 % 2;
    if (i % 3 == 0 && !algorithm().shape({}).blocks) {
      std::vector<uint32_t> names(c.schedules.size());
      std::iota(names.begin(), names.end(), 0u);
      std::shuffle(names.begin(), names.end(), random);
      std::vector<Schedule> renamed(names.size());
      for (size_t r = 0; r < names.size(); ++r) {
        for (Step& step : c.schedules[r]) step.peer = names[step.peer];
        renamed[names[r]] = c.schedules[r];
      }
      c.schedules = renamed;
      c.root = int(names[size_t(c.root)]);
    } else if (i % 3 == 1) {
      mutator.mutate(c);
    }
    CheckOptions options{.slots = 2, .in_place = in_place, .lowered = lowered};
    Proof proof;
    try {
      proof = check(algorithm().collective, c.schedules, c.shape, c.root, options);
    } catch (const Error&) {
      continue;
    }
    if (proof.violation) continue;
    const bool seen = folds_from_the_left(algorithm(), c, in_place, lowered);
    ASSERT_TRUE(seen || !proof.left_fold) << "seed " << seed << " mutant " << i << ": proven, but it adds otherwise";
    folds += proof.left_fold;
    others += !proof.left_fold;
    unseen += seen && !proof.left_fold;  // chunks that happen to be empty
  }
  std::printf("%d fold from the left, %d do not, of which execution shows %d\n", folds, others, others - unseen);
  // A scan in another order is no scan: the proof refuses it, whatever is claimed.
  if (meaning(algorithm().collective).joins == Joins::all) {
    EXPECT_GT(others, mutants / 40);
  }
  // Of up to 9 blocks of a reduce_scatter as it is executed, the last one or two are empty: about one in six.
  EXPECT_LE(unseen, others / 3);
}

TEST_P(Mutants, ComeFromOriginalsThatGiveRightResults) {
  Mutator mutator(algorithm(), 7);
  for (int i = 0; i < 100; ++i) {
    const Case c = mutator.original();
    ASSERT_EQ(executed(algorithm(), c, i % 2, uint64_t(i)), "") << "n " << c.schedules.size();
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, Mutants, testing::Range(size_t{0}, catalog().size()), [](const auto& row) {
  const Algorithm& a = catalog()[row.param];
  return std::string(name(a.collective)) + "_" + std::string(a.name);
});

}  // namespace
}  // namespace tutti
