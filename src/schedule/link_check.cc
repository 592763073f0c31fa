// Proving linked plans: every place is known from the beginning, so nothing has to be run.
#include "schedule/link_check.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "schedule/check.h"
#include "schedule/collective.h"

namespace tutti {
namespace {

constexpr int all_choices_ranks_max = 4;

// One chunk of one rank's input.
struct Given {
  uint32_t rank = 0, chunk = 0;
  friend bool operator==(const Given&, const Given&) = default;
};

class LinkedChecker {
 public:
  LinkedChecker(Collective collective, const LinkedPlan& linked, int root, std::span<const bool> in_place)
      : meaning_(meaning(collective)), linked_(linked), root_(uint32_t(root)), in_place_(in_place) {}

  LinkedProof run() {
    if (!is_free_of_order(linked_, in_place_)) return {"it needs an order", false};
    results_.assign(size_t{linked_.ranks} * linked_.chunks, {});
    for (uint32_t s = 0; s < linked_.first_step[linked_.ranks]; ++s)
      for (uint32_t i = 0; i < linked_.steps[s].chunks; ++i)
        if (std::string wrong = take(linked_.steps[s], i); !wrong.empty())
          return {fmt::format("step {}, chunk {}: {}", s, linked_.steps[s].first_chunk + i, wrong), false};
    for (uint32_t rank = 0; rank < linked_.ranks; ++rank)
      for (uint32_t chunk = 0; chunk < linked_.chunks; ++chunk)
        if (std::string wrong = judge(rank, chunk); !wrong.empty())
          return {fmt::format("rank {}, chunk {}: {}", rank, chunk, wrong), false};
    return {"", in_rank_order_};
  }

 private:
  struct Result {
    bool written = false, finished = false;
    std::vector<Given> joined;
  };

  bool is_root(uint32_t rank) const { return meaning_.rooted ? rank == root_ : rank == 0; }
  Part input_of(uint32_t rank) const { return meaning_.input_of(is_root(rank)); }
  Part output_of(uint32_t rank) const { return meaning_.output_of(is_root(rank)); }
  static bool is_own(const LinkedPlace& place) {
    return place.kind == LinkedPlace::own_input || place.kind == LinkedPlace::own_output;
  }
  static bool is_input(const LinkedPlace& place) {
    return place.kind == LinkedPlace::input || place.kind == LinkedPlace::own_input;
  }

  // "" where the place exists for that chunk, of that length.
  std::string misplaced(const LinkedStep& step, const LinkedPlace& place, uint32_t i) const {
    if (place.rank >= linked_.ranks || place.kind == LinkedPlace::slot) return "a place that no rank has";
    if (place.chunk + i >= linked_.chunks) return fmt::format("chunk {} of {}", place.chunk + i, linked_.chunks);
    if (is_own(place) && (step.chunks != 1 || place.chunk != place.rank)) return "a block as the rank's own that is not";
    if (!linked_.blocks && place.chunk != step.first_chunk) return "a chunk of another length";
    return "";
  }

  // What lies in a place before anything is done.
  std::optional<Given> given(const LinkedPlace& place, uint32_t i) const {
    const uint32_t chunk = place.chunk + i;
    if (!is_input(place) && !in_place_[place.rank]) return {};
    if (!holds(input_of(place.rank), place.rank, chunk)) return {};
    return Given{place.rank, chunk};
  }

  std::string take(const LinkedStep& step, uint32_t i) {
    std::vector<Given> joined;
    for (uint32_t k = 0; k < step.n_operands; ++k) {
      if (std::string wrong = misplaced(step, step.operands[k], i); !wrong.empty()) return "it reads " + wrong;
      const std::optional<Given> operand = given(step.operands[k], i);
      if (!operand) return fmt::format("it reads chunk {} of rank {}, who has not given it", step.operands[k].chunk + i,
                                       step.operands[k].rank);
      joined.push_back(*operand);
    }
    for (uint32_t k = 0; k < step.n_outputs; ++k) {
      const LinkedPlace& output = step.outputs[k];
      if (std::string wrong = misplaced(step, output, i); !wrong.empty()) return "it writes " + wrong;
      if (is_input(output) && !in_place_[output.rank]) return fmt::format("it writes the input of rank {}", output.rank);
      if (!holds(output_of(output.rank), output.rank, output.chunk + i))
        return fmt::format("it writes chunk {} of rank {}, who has no such output", output.chunk + i, output.rank);
      Result& result = results_[size_t{output.rank} * linked_.chunks + output.chunk + i];
      result = {true, step.finish, joined};
    }
    return "";
  }

  // Whose input, and which chunk of it, becomes a rank's output chunk where nothing is joined.
  std::optional<Given> source(uint32_t rank, uint32_t chunk) const {
    if (meaning_.transposes) return Given{chunk, rank};
    std::optional<Given> found;
    for (uint32_t r = 0; r < linked_.ranks; ++r)
      if (holds(input_of(r), r, chunk)) found = Given{r, chunk};
    return found;
  }

  std::string judge(uint32_t rank, uint32_t chunk) {
    if (!holds(output_of(rank), rank, chunk)) return "";
    const Result& result = results_[size_t{rank} * linked_.chunks + chunk];
    if (!meaning_.reduces) {
      const std::optional<Given> wanted = source(rank, chunk);
      const bool is_there = in_place_[rank] && wanted == Given{rank, chunk} && !meaning_.transposes;
      if (!result.written) return is_there ? "" : "nobody writes it";
      return result.joined.size() == 1 && result.joined[0] == wanted && !result.finished ? "" : "it gets another input";
    }
    if (!result.written) return "nobody writes it";
    if (!result.finished) return "its sum is not finished";
    std::set<uint32_t> ranks;
    for (const Given& input : result.joined) {
      if (input.chunk != chunk) return fmt::format("chunk {} of rank {} is in its sum", input.chunk, input.rank);
      if (!ranks.insert(input.rank).second) return fmt::format("the input of rank {} is in it twice", input.rank);
    }
    const uint32_t n = meaning_.joined(rank, linked_.ranks);
    if (ranks.size() != n || (n > 0 && *ranks.rbegin() != n - 1)) return "its sum joins other inputs";
    for (size_t k = 0; k < result.joined.size(); ++k) in_rank_order_ = in_rank_order_ && result.joined[k].rank == k;
    return "";
  }

  const Meaning& meaning_;
  const LinkedPlan& linked_;
  const uint32_t root_;
  const std::span<const bool> in_place_;
  std::vector<Result> results_;  // by rank and chunk
  bool in_rank_order_ = true;
};

using Choice = std::array<bool, linked_ranks_max>;

// Which ranks are in place, of those that can be.
std::set<Choice> choices(const Meaning& kind, int n, int root) {
  std::set<Choice> all;
  const auto add = [&](uint32_t mask) {
    Choice choice{};
    for (int r = 0; r < n; ++r) {
      const bool is_root = kind.rooted ? r == root : r == 0;
      const bool can = kind.input_of(is_root) != Part::none && kind.output_of(is_root) != Part::none;
      choice[size_t(r)] = can && (mask >> r & 1) != 0;
    }
    all.insert(choice);
  };
  const uint32_t every = (1u << n) - 1;
  if (n <= all_choices_ranks_max)
    for (uint32_t mask = 0; mask <= every; ++mask) add(mask);
  for (const uint32_t mask : {0u, every}) add(mask);
  for (int r = 0; r < n; ++r) add(1u << r), add(every & ~(1u << r));
  return all;
}

}  // namespace

LinkedProof check_linked(Collective collective, const LinkedPlan& linked, int root, std::span<const bool> in_place) {
  return LinkedChecker(collective, linked, root, in_place).run();
}

int prove_linked(const Algorithm& algorithm, const Group& group) {
  if (group.n < 2 || group.n > int(linked_ranks_max)) return 0;
  const Meaning& kind = meaning(algorithm.collective);
  const bool folds = kind.reduces && algorithm.claim(group).left_fold;
  int proven = 0;
  for (const Choice& choice : choices(kind, group.n, group.root)) {
    const std::span<const bool> in_place = std::span(choice).first(size_t(group.n));
    std::vector<Plan> plans;
    Group one = group;
    for (one.rank = 0; one.rank < group.n; ++one.rank)
      plans.push_back(lower(record(algorithm, one), algorithm.shape(one), algorithm.name, choice[size_t(one.rank)]));
    for (const bool puts : {true, false}) {
      LinkedPlan linked;
      if (!link(algorithm.collective, plans, group.root, in_place, &linked, puts) || !is_free_of_order(linked, in_place))
        continue;
      LinkedProof proof = check_linked(algorithm.collective, linked, group.root, in_place);
      if (proof.violation.empty() && folds && !proof.in_rank_order) proof.violation = "sums have another order than in messages";
      if (!proof.violation.empty())
        throw Error(Code::internal_error, fmt::format("{}/{} with {} ranks, root {}, in the memory of all: {}",
                                                      name(algorithm.collective), algorithm.name, group.n, group.root,
                                                      proof.violation));
      ++proven;
    }
  }
  return proven;
}

}  // namespace tutti
