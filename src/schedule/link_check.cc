// Proving linked plans: every place is known from the beginning, so nothing has to be run.
#include "schedule/link_check.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
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

 protected:
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
    if (place.rank >= linked_.ranks) return "a place that no rank has";
    if (place.kind == LinkedPlace::slot)
      return linked_.packets && place.chunk < linked_.slots && i < linked_.slot_chunks ? "" : "a slot that no rank has";
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
      const bool is_there = in_place_[rank] && wanted == Given{rank, chunk};
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

// Step by step, as ranks and their messages come: what lies where, and of whom each rank has heard.
class PacketChecker : LinkedChecker {
 public:
  PacketChecker(Collective collective, const LinkedPlan& linked, int root, std::span<const bool> in_place)
      : LinkedChecker(collective, linked, root, in_place), heard_(linked.ranks), sends_(linked.ranks), next_(linked.ranks) {}

  LinkedProof run() {
    if (!linked_.packets || linked_.waits) return {"it is not of packets alone", false};
    results_.assign(size_t{linked_.ranks} * linked_.chunks, {});
    for (uint32_t rank = 0; rank < linked_.ranks; ++rank) {
      heard_[rank] = 1u << rank;
      for (const bool input : {true, false})
        for (uint32_t chunk = 0; chunk < linked_.chunks; ++chunk) put_given(rank, input, chunk);
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t rank = 0; rank < linked_.ranks; ++rank)
        for (; !is_done(rank) && is_ready(rank, step_of(rank)); ++next_[rank], moved = true) {
          const uint32_t s = linked_.first_step[rank] + next_[rank];
          for (uint32_t i = 0; i < linked_.steps[s].chunks; ++i)
            if (std::string wrong = take_packets(rank, linked_.steps[s], i); !wrong.empty())
              return {fmt::format("step {}, chunk {}: {}", s, linked_.steps[s].first_chunk + i, wrong), false};
        }
    }
    return verdict();
  }

 private:
  using Place = std::tuple<uint32_t, int, uint32_t, uint32_t>;  // rank; input, output or slot; its number; chunk in a slot
  // With a message: of whom its sender had heard, and which chunk's length it has.
  struct Told {
    uint32_t heard = 0, chunk = 0;
  };

  LinkedProof verdict() {
    for (uint32_t rank = 0; rank < linked_.ranks; ++rank) {
      if (!is_done(rank)) return {fmt::format("rank {} waits for ever", rank), false};
      for (uint32_t chunk = 0; chunk < linked_.chunks; ++chunk)
        if (std::string wrong = judge(rank, chunk); !wrong.empty())
          return {fmt::format("rank {}, chunk {}: {}", rank, chunk, wrong), false};
      // Else it might write the next but one call's packets over those that the other has not read yet.
      if ((sends_[rank] & ~heard_[rank]) != 0) return {fmt::format("rank {} ends unheard of one it sends to", rank), false};
    }
    if (read_.size() != slots_written_) return {"a message is never read", false};
    return {"", in_rank_order_};
  }

  bool is_done(uint32_t rank) const { return linked_.first_step[rank] + next_[rank] == linked_.first_step[rank + 1]; }
  const LinkedStep& step_of(uint32_t rank) const { return linked_.steps[linked_.first_step[rank] + next_[rank]]; }

  Place key(const LinkedPlace& place, uint32_t i) const {
    if (place.kind == LinkedPlace::slot) return {place.rank, 2, place.chunk, i};
    const bool input = is_input(place) && !in_place_[place.rank];
    return {place.rank, input ? 0 : 1, place.chunk + i, 0};
  }
  void put_given(uint32_t rank, bool input, uint32_t chunk) {
    const LinkedPlace place{uint8_t(rank), input ? LinkedPlace::input : LinkedPlace::output, uint16_t(chunk)};
    if (const std::optional<Given> here = given(place, 0)) memory_[key(place, 0)] = {true, false, {*here}};
  }

  bool is_ready(uint32_t rank, const LinkedStep& step) const {
    for (uint32_t k = 0; k < step.n_operands; ++k)
      for (uint32_t i = 0; i < step.chunks; ++i)
        if (step.operands[k].kind == LinkedPlace::slot && step.operands[k].rank == rank &&
            !memory_.contains(key(step.operands[k], i)))
          return false;
    return true;
  }

  std::string take_packets(uint32_t rank, const LinkedStep& step, uint32_t i) {
    Result made{true, step.finish, {}};
    for (uint32_t k = 0; k < step.n_operands; ++k) {
      const LinkedPlace& operand = step.operands[k];
      if (std::string wrong = misplaced(step, operand, i); !wrong.empty()) return "it reads " + wrong;
      if (operand.rank != rank) return fmt::format("it reads the memory of rank {}", operand.rank);
      const auto found = memory_.find(key(operand, i));
      if (found == memory_.end()) return "it reads what is not there";
      const Result& there = found->second;
      if (there.finished && step.n_operands > 1) return "it joins what is finished";
      if (k > 0 && there.joined.size() > 1) in_rank_order_ = false;
      made.finished = made.finished || there.finished;
      made.joined.insert(made.joined.end(), there.joined.begin(), there.joined.end());
      if (operand.kind != LinkedPlace::slot) continue;
      if (!read_.insert(key(operand, i)).second) return "it reads a message again";
      const Told& told = told_[key(operand, i)];
      if (!linked_.blocks && told.chunk != step.first_chunk + i) return "it reads a message of another length";
      heard_[rank] |= told.heard;
    }
    for (uint32_t k = 0; k < step.n_outputs; ++k)
      if (std::string wrong = write_packets(rank, step, step.outputs[k], i, made); !wrong.empty()) return wrong;
    return "";
  }

  std::string write_packets(uint32_t rank, const LinkedStep& step, const LinkedPlace& output, uint32_t i, const Result& made) {
    if (std::string wrong = misplaced(step, output, i); !wrong.empty()) return "it writes " + wrong;
    if (output.kind == LinkedPlace::slot) {
      if (!memory_.emplace(key(output, i), made).second) return "it writes a slot again";
      ++slots_written_;
      told_[key(output, i)] = {heard_[rank], step.first_chunk + i};
      sends_[rank] |= 1u << output.rank;
      return "";
    }
    if (output.rank != rank) return fmt::format("it writes the memory of rank {}", output.rank);
    if (is_input(output) && !in_place_[rank]) return "it writes the rank's input";
    memory_[key(output, i)] = made;
    if (holds(output_of(rank), rank, output.chunk + i)) results_[size_t{rank} * linked_.chunks + output.chunk + i] = made;
    return "";
  }

  std::map<Place, Result> memory_;
  std::map<Place, Told> told_;
  std::set<Place> read_;
  size_t slots_written_ = 0;
  std::vector<uint32_t> heard_, sends_;  // bits of ranks
  std::vector<uint32_t> next_;
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

LinkedProof check_packets(Collective collective, const LinkedPlan& linked, int root, std::span<const bool> in_place) {
  return PacketChecker(collective, linked, root, in_place).run();
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
