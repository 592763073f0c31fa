// The machine of the proof: all ranks' programs run symbolically over bounded FIFOs. For check.cc only.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "schedule/check.h"
#include "schedule/print.h"
#include "schedule/symbolic.h"

namespace tutti::symbolic {

// The programs under proof: schedules, or plans.
struct Programs {
  std::span<const Schedule> schedules;
  std::span<const Plan> plans;

  size_t ranks() const { return plans.empty() ? schedules.size() : plans.size(); }
  size_t steps(uint32_t rank) const { return plans.empty() ? schedules[rank].size() : plans[rank].steps.size(); }
  std::string text(uint32_t rank, size_t step) const {
    return plans.empty() ? to_text(schedules[rank][step]) : to_text(plans[rank], plans[rank].steps[step]);
  }
  // The slice that a step is about.
  const Slice& slice(uint32_t rank, size_t step) const {
    const Slice& a = plans.empty() ? schedules[rank][step].a : plans[rank].steps[step].a;
    const Slice& dst = plans.empty() ? schedules[rank][step].dst : plans[rank].steps[step].dst;
    return dst.count > 0 ? dst : a;
  }
  bool sends(uint32_t rank, size_t step, uint32_t to) const {
    if (plans.empty()) return schedules[rank][step].verb == Verb::send && schedules[rank][step].peer == to;
    const auto peers = plans[rank].to(plans[rank].steps[step]);
    return std::find(peers.begin(), peers.end(), to) != peers.end();
  }
};

// Thrown where the first thing is wrong; never leaves check().
struct Wrong {
  Violation violation;
};

// Runs the programs of all ranks, for sets of up to words × 64 ranks. prove() throws Wrong.
template <size_t words>
class Machine {
 public:
  using Cell = Value<words>;

  Machine(Collective collective, const Programs& programs, const Shape& shape, int root, const CheckOptions& options)
      : collective_(collective),
        meaning_(meaning(collective)),
        programs_(programs),
        shape_(shape),
        root_(uint32_t(root)),
        options_(options),
        n_(uint32_t(programs.ranks())),
        ranks_(n_),
        fifos_(),
        fifo_of_(size_t(n_) * n_, nothing),
        results_() {
    results_.resize(size_t(options.repeat) * shape.output * results_each());
    for (uint32_t r = 0; r < n_; ++r) begin_run(r);
  }

  Proof prove() {
    for (uint32_t r = 0; r < n_; ++r) wake(r);
    while (!ready_.empty()) {
      const uint32_t rank = ready_.front();
      ready_.pop_front();
      ranks_[rank].queued = false;
      run(rank);
    }
    for (uint32_t r = 0; r < n_; ++r)
      if (ranks_[r].run < options_.repeat) waits_for_ever(r);
    for (uint32_t pair = 0; pair < n_ * n_; ++pair)
      if (fifo_of_[pair] != nothing && fifos_[fifo_of_[pair]].size() > 0) never_received(pair / n_, pair % n_);
    for (uint32_t i = 0; i < shape_.output * results_each(); ++i) {
      proof_.expression = combined(proof_.expression, results_[i].expression);
      proof_.passes = combined(proof_.passes, results_[i].passes);
    }
    for (const Rank& rank : ranks_) {
      proof_.chunks_sent_max = std::max(proof_.chunks_sent_max, rank.chunks_sent);
      proof_.messages_sent_max = std::max(proof_.messages_sent_max, rank.messages_sent);
    }
    return proof_;
  }

 private:
  struct Rank {
    std::vector<Cell> cells;  // output, then input (out of place only), then scratch
    std::vector<bool> lent;   // of these, in this run: a peer may read them where they lie, at any time
    std::vector<bool> awaited;  // likewise: a peer may write them at any time, until the step that receives them
    size_t step = 0;
    int run = 0;
    bool queued = false;
    uint64_t chunks_sent = 0, messages_sent = 0;
  };

  // --- Saying what is wrong

  std::string where(uint32_t rank) const {
    const size_t step = ranks_[rank].step;
    if (step >= programs_.steps(rank)) return fmt::format("rank {} at its end", rank);
    return fmt::format("rank {} at step {} ({})", rank, step + 1, programs_.text(rank, step));
  }
  // chunk -1: the first one of the step.
  [[noreturn]] void wrong(uint32_t rank, int chunk, const std::string& what) const {
    const size_t step = ranks_[rank].step;
    if (chunk < 0 && step < programs_.steps(rank)) chunk = int(number(programs_.slice(rank, step)));
    throw Wrong{{int(rank), int(step), chunk, where(rank) + ": " + what, what}};
  }
  // Names the step that sent the first message left over: as many are left as sends come after it.
  [[noreturn]] void never_received(uint32_t from, uint32_t to) {
    const int chunk = int(fifo(from, to).front()[0].chunk % shape_.output);
    const std::string what = fmt::format("a message from rank {} to rank {} is never received", from, to);
    size_t left = fifo(from, to).size(), step = programs_.steps(from);
    while (step > 0 && left > 0) left -= programs_.sends(from, --step, to);
    throw Wrong{{int(from), int(step), chunk, what, what}};
  }
  [[noreturn]] void waits_for_ever(uint32_t rank) const {
    const auto [peer, why] = waiting_on(rank);
    const bool ended = ranks_[peer].run == options_.repeat;
    wrong(rank, -1,
          fmt::format("waits for ever {}, for {} {}", why, where(peer), ended ? "has ended" : "waits as well"));
  }
  std::pair<uint32_t, std::string> waiting_on(uint32_t rank) const {
    const auto message_of = [](uint32_t p) { return fmt::format("for a message of rank {}", p); };
    const auto slot_to = [](uint32_t p) { return fmt::format("for a free slot to rank {}", p); };
    const size_t at = ranks_[rank].step;
    if (programs_.plans.empty()) {
      const Step& step = programs_.schedules[rank][at];
      return {step.peer, step.verb == Verb::send ? slot_to(step.peer) : message_of(step.peer)};
    }
    const Plan& plan = programs_.plans[rank];
    for (uint32_t p : plan.from(plan.steps[at]))
      if (size(p, rank) == 0) return {p, message_of(p)};
    for (uint32_t p : plan.to(plan.steps[at]))
      if (size(rank, p) == size_t(options_.slots)) return {p, slot_to(p)};
    return {rank, "for itself"};
  }

  // --- Memory

  void begin_run(uint32_t rank) {
    Rank& state = ranks_[rank];
    state.step = 0;
    const uint32_t input_at = options_.in_place ? 0 : shape_.output;
    state.cells.assign(input_at + std::max(shape_.input, options_.in_place ? shape_.output : 0) + shape_.scratch, {});
    state.lent.assign(programs_.plans.empty() ? 0 : state.cells.size(), false);
    state.awaited.assign(state.cells.size(), false);
    if (!programs_.plans.empty())
      for (const Fold& fold : programs_.plans[rank].steps) await_early(rank, fold, true);
    const Part part = meaning_.input_of(rank == root_);
    for (uint32_t c = 0; c < shape_.input; ++c) {
      if (!holds(part, rank, c)) continue;
      Cell& cell = state.cells[input_at + c];
      cell.chunk = uint32_t(state.run) * shape_.output + c;
      cell.expression = cell.passes = leaf(rank, c);
      cell.from[rank / 64] = uint64_t{1} << rank % 64;
      cell.first = uint16_t(rank);
      cell.beyond = uint16_t(rank + 1);
    }
  }

  // A peer may, or may no longer, write where this step receives to.
  void await_early(uint32_t rank, const Fold& fold, bool awaited) {
    if (fold.early == 0) return;
    const auto first = ranks_[rank].awaited.begin() + fold.dst.first;
    TUTTI_ASSERT(fold.dst.buffer == Buffer::output && fold.dst.first + fold.dst.count <= shape_.output);
    std::fill_n(first, fold.dst.count, awaited);
  }

  // The number of a slice's first chunk: what its size depends on.
  uint32_t number(const Slice& slice) const { return slice.first % shape_.output; }

  Cell* cells(uint32_t rank, const Slice& slice) {
    const uint32_t size = slice.buffer == Buffer::input    ? shape_.input
                          : slice.buffer == Buffer::output ? shape_.output
                                                           : shape_.scratch;
    if (slice.count == 0) wrong(rank, int(slice.first), "an empty slice");
    if (slice.first >= size || slice.count > size - slice.first)
      wrong(rank, int(slice.first), fmt::format("{} is outside of its {} chunks", to_text(slice), size));
    if (number(slice) + slice.count > shape_.output)
      wrong(rank, int(slice.first), fmt::format("{} joins chunks that are not neighbours", to_text(slice)));
    const uint32_t input_at = options_.in_place ? 0 : shape_.output;
    const uint32_t base = slice.buffer == Buffer::output  ? 0
                          : slice.buffer == Buffer::input ? input_at
                                                          : input_at + shape_.input;
    const auto awaited = ranks_[rank].awaited.begin() + base + slice.first;
    if (std::find(awaited, awaited + slice.count, true) != awaited + slice.count)
      wrong(rank, int(slice.first), fmt::format("touches {}, where a peer may write meanwhile", to_text(slice)));
    return ranks_[rank].cells.data() + base + slice.first;
  }

  // Where a step writes: scratch, or output that is the caller's to get back.
  Cell* target(uint32_t rank, const Slice& slice) {
    Cell* const at = cells(rank, slice);
    for (size_t i = size_t(at - ranks_[rank].cells.data()), left = ranks_[rank].lent.empty() ? 0 : slice.count; left > 0;
         ++i, --left)
      if (ranks_[rank].lent[i]) wrong(rank, -1, fmt::format("writes {}, which it has lent", to_text(slice)));
    if (slice.buffer == Buffer::input)
      wrong(rank, int(slice.first), fmt::format("{} is not its to write", to_text(slice)));
    if (slice.buffer == Buffer::scratch) return at;
    const Part part = meaning_.output_of(rank == root_);
    for (uint32_t c = slice.first; c < slice.first + slice.count; ++c)
      if (!holds(part, rank, c)) wrong(rank, int(c), fmt::format("writes output chunk {}, which it does not have", c));
    return at;
  }

  void same_chunks(uint32_t rank, const Slice& a, const Slice& b) const {
    if (a.count != b.count || (!meaning_.transposes && number(a) != number(b)))
      wrong(rank, int(a.first),
            fmt::format("{} and {} are different chunks: their sizes may differ", to_text(a), to_text(b)));
  }

  void written(uint32_t rank, const Cell& cell, const Slice& slice, uint32_t i) const {
    if (cell.chunk == nothing)
      wrong(rank, int(slice.first + i),
            fmt::format("reads chunk {} of {}, which holds nothing yet", slice.first + i, to_text(slice)));
  }

  // sum = sum op more, and without an end of the pass.
  void add(uint32_t rank, Cell& sum, const Cell& more) const {
    if (sum.chunk != more.chunk) wrong(rank, int(more.chunk % shape_.output), "adds different chunks");
    if (sum.finished || more.finished) wrong(rank, int(sum.chunk % shape_.output), "adds to a finished chunk");
    for (size_t w = 0; w < words; ++w) {
      if (const uint64_t twice = sum.from[w] & more.from[w])
        wrong(rank, int(sum.chunk % shape_.output),
              fmt::format("adds the input of rank {} twice", w * 64 + size_t(std::countr_zero(twice))));
      sum.from[w] |= more.from[w];
    }
    const bool in_order = sum.first < sum.beyond && sum.beyond == more.first && more.first < more.beyond;
    sum.left_fold = sum.left_fold && in_order && more.beyond - more.first == 1;
    sum.first = in_order ? sum.first : 1;
    sum.beyond = in_order ? more.beyond : 0;
    sum.hops = std::max(sum.hops, more.hops);
    sum.expression = combined(sum.expression, more.expression);
    sum.passes = combined(sum.passes, more.passes);
  }

  void finish(uint32_t rank, Cell& cell) const {
    const int chunk = int(cell.chunk % shape_.output);
    if (!meaning_.reduces) wrong(rank, chunk, fmt::format("{} has nothing to finish", name(collective_)));
    if (cell.finished) wrong(rank, chunk, "finishes a chunk twice");
    if (cell.from != wanted(rank)) wrong(rank, chunk, "finishes a chunk " + difference(rank, cell));
    cell.finished = true;
    cell.expression = symbolic::finished(cell.expression);
    cell.passes = symbolic::finished(cell.passes);
  }

  // Whose inputs a result of this rank must join, each once.
  std::array<uint64_t, words> wanted(uint32_t rank) const {
    std::array<uint64_t, words> set{};
    const uint32_t joined = meaning_.joined(rank, n_);
    for (uint32_t w = 0; w * 64 < joined; ++w)
      set[w] = joined - w * 64 >= 64 ? ~uint64_t{0} : (uint64_t{1} << (joined - w * 64)) - 1;
    return set;
  }

  std::string difference(uint32_t rank, const Cell& cell) const {
    const std::array<uint64_t, words> set = wanted(rank);
    const auto in = [](const std::array<uint64_t, words>& ranks, uint32_t r) { return ranks[r / 64] >> r % 64 & 1; };
    for (uint32_t r = 0; r < n_; ++r)
      if (in(set, r) && !in(cell.from, r)) return fmt::format("that lacks the input of rank {}", r);
    for (uint32_t r = 0; r < n_; ++r)
      if (!in(set, r) && in(cell.from, r)) return fmt::format("that has the input of rank {} too", r);
    return "";
  }

  // --- FIFOs

  size_t size(uint32_t from, uint32_t to) const {
    const uint32_t index = fifo_of_[from * n_ + to];
    return index == nothing ? 0 : fifos_[index].size();
  }
  Fifo<words>& fifo(uint32_t from, uint32_t to) {
    uint32_t& index = fifo_of_[from * n_ + to];
    if (index == nothing) {
      index = uint32_t(fifos_.size());
      fifos_.emplace_back();
    }
    return fifos_[index];
  }
  void known_peer(uint32_t rank, uint32_t peer) const {
    if (peer >= n_) wrong(rank, -1, fmt::format("rank {} does not exist", peer));
    if (peer == rank) wrong(rank, -1, "talks to itself");
  }
  void wake(uint32_t rank) {
    if (ranks_[rank].queued) return;
    ranks_[rank].queued = true;
    ready_.push_back(rank);
  }

  void push(uint32_t rank, uint32_t peer, const Cell* from, uint32_t count) {
    auto& message = fifo(rank, peer).push(size_t(options_.slots));
    message.assign(from, from + count);
    uint16_t hops = 0;
    for (const Cell& cell : message) hops = std::max(hops, cell.hops);
    for (Cell& cell : message) cell.hops = uint16_t(hops + 1);
    proof_.rounds = std::max(proof_.rounds, hops + 1);
    if (count > shape_.message)
      wrong(rank, -1, fmt::format("sends more than the {} chunks of the largest message", shape_.message));
    if (ranks_[rank].run == 0) {
      ++ranks_[rank].messages_sent;
      ranks_[rank].chunks_sent += count;
    }
    wake(peer);
  }

  const Cell* front(uint32_t rank, uint32_t peer, const Slice& as) {
    const auto& message = fifo(peer, rank).front();
    if (message.size() != as.count)
      wrong(rank, int(as.first),
            fmt::format("rank {} sent {} chunks where {} are received", peer, message.size(), as.count));
    if (!meaning_.transposes && message[0].chunk % shape_.output != number(as))
      wrong(rank, int(as.first),
            fmt::format("rank {} sent chunk {} where chunk {} is received", peer, message[0].chunk % shape_.output,
                        number(as)));
    return message.data();
  }
  void pop(uint32_t rank, uint32_t peer) {
    fifo(peer, rank).pop();
    wake(peer);
  }

  // --- Running

  void run(uint32_t rank) {
    Rank& state = ranks_[rank];
    while (state.run < options_.repeat) {
      const size_t steps = programs_.steps(rank);
      for (; state.step < steps; ++state.step) {
        const bool moved = programs_.plans.empty() ? act(rank, programs_.schedules[rank][state.step])
                                                   : act(rank, programs_.plans[rank]);
        if (!moved) return;
      }
      end_run(rank);
      if (++state.run < options_.repeat) begin_run(rank);
    }
  }

  bool act(uint32_t rank, const Step& step) {
    switch (step.verb) {
      case Verb::send: return send(rank, step);
      case Verb::recv: return recv(rank, step);
      case Verb::recv_reduce: return recv_reduce(rank, step);
      case Verb::reduce:
        same_chunks(rank, step.a, step.b);
        same_chunks(rank, step.a, step.dst);
        reduce(rank, cells(rank, step.a), cells(rank, step.b), step.a, step.b, step.dst);
        return true;
      case Verb::copy: {
        same_chunks(rank, step.a, step.dst);
        const Cell* a = cells(rank, step.a);
        Cell* dst = target(rank, step.dst);
        for (uint32_t i = 0; i < step.a.count; ++i) {
          written(rank, a[i], step.a, i);
          dst[i] = a[i];
        }
        return true;
      }
      case Verb::finish: {
        Cell* dst = target(rank, step.dst);
        for (uint32_t i = 0; i < step.dst.count; ++i) {
          written(rank, dst[i], step.dst, i);
          finish(rank, dst[i]);
          dst[i].passes = rounded(dst[i].passes);
        }
        return true;
      }
    }
    wrong(rank, -1, "no verb");
  }

  bool send(uint32_t rank, const Step& step) {
    known_peer(rank, step.peer);
    if (size(rank, step.peer) == size_t(options_.slots)) return false;
    const Cell* a = cells(rank, step.a);
    for (uint32_t i = 0; i < step.a.count; ++i) written(rank, a[i], step.a, i);
    push(rank, step.peer, a, step.a.count);
    return true;
  }

  bool recv(uint32_t rank, const Step& step) {
    known_peer(rank, step.peer);
    if (size(step.peer, rank) == 0) return false;
    Cell* dst = target(rank, step.dst);
    std::copy_n(front(rank, step.peer, step.dst), step.dst.count, dst);
    pop(rank, step.peer);
    return true;
  }

  bool recv_reduce(uint32_t rank, const Step& step) {
    known_peer(rank, step.peer);
    if (size(step.peer, rank) == 0) return false;
    same_chunks(rank, step.a, step.dst);
    const Cell* a = cells(rank, step.a);
    const Cell* message = front(rank, step.peer, step.dst);
    if (step.incoming_first)
      reduce(rank, message, a, step.dst, step.a, step.dst);
    else
      reduce(rank, a, message, step.a, step.dst, step.dst);
    pop(rank, step.peer);
    return true;
  }

  // a_name and b_name are for sentences.
  void reduce(uint32_t rank, const Cell* a, const Cell* b, const Slice& a_name, const Slice& b_name,
              const Slice& sum_name) {
    Cell* dst = target(rank, sum_name);
    for (uint32_t i = 0; i < sum_name.count; ++i) {
      written(rank, a[i], a_name, i);
      written(rank, b[i], b_name, i);
      Cell sum = a[i];
      add(rank, sum, b[i]);
      sum.passes = rounded(sum.passes);
      dst[i] = sum;
    }
  }

  // One fold, whole or not at all.
  bool act(uint32_t rank, const Plan& plan) {
    const Fold& fold = plan.steps[ranks_[rank].step];
    const auto from = plan.from(fold), to = plan.to(fold);
    for (uint32_t peer : from) known_peer(rank, peer);
    for (uint32_t peer : to) known_peer(rank, peer);
    for (uint32_t peer : from)
      if (size(peer, rank) == 0) return false;
    for (uint32_t peer : to)
      if (size(rank, peer) == size_t(options_.slots)) return false;
    distinct(rank, from);
    distinct(rank, to);

    await_early(rank, fold, false);
    const bool local = fold.a.count > 0;
    if (local && fold.dst.count > 0) same_chunks(rank, fold.a, fold.dst);
    if (from.empty() && !local) wrong(rank, -1, "a fold of nothing");
    if (fold.b.count > 0 && (!from.empty() || !local)) wrong(rank, -1, "a second local operand that is not of two");
    if (fold.b.count > 0) same_chunks(rank, fold.a, fold.b);
    if (local && fold.a_place > from.size()) wrong(rank, -1, "the local operand's place is beyond the last");
    if (!local && fold.dst.count == 0) wrong(rank, -1, "no slice says how large the message is");
    const Slice& named = local ? fold.a : fold.dst;
    operands_.clear();
    for (uint32_t peer : from) operands_.push_back(front(rank, peer, named));
    if (local) operands_.insert(operands_.begin() + fold.a_place, cells(rank, fold.a));
    if (fold.b.count > 0) operands_.push_back(cells(rank, fold.b));
    sums_.resize(named.count);
    for (uint32_t i = 0; i < named.count; ++i) sums_[i] = fold_one(rank, fold, named, i);
    if (fold.dst.count > 0) std::copy(sums_.begin(), sums_.end(), target(rank, fold.dst));
    for (uint32_t peer : from) pop(rank, peer);
    for (uint32_t peer : to) push(rank, peer, sums_.data(), named.count);
    if (fold.keeps) lend(rank, fold.source());
    return true;
  }

  void lend(uint32_t rank, const Slice& slice) {
    const auto first = ranks_[rank].lent.begin() + (cells(rank, slice) - ranks_[rank].cells.data());
    std::fill_n(first, slice.count, true);
  }

  Cell fold_one(uint32_t rank, const Fold& fold, const Slice& named, uint32_t i) const {
    Cell sum = operands_[0][i];
    written(rank, sum, named, i);
    // A sum that comes in as an operand was made by another step; so was one that is only finished here.
    if (sum.beyond - sum.first != 1 && (fold.finish || operands_.size() > 1)) sum.left_fold = false;
    for (size_t k = 1; k < operands_.size(); ++k) {
      written(rank, operands_[k][i], named, i);
      add(rank, sum, operands_[k][i]);
    }
    if (fold.finish) finish(rank, sum);
    if (fold.finish || operands_.size() > 1) sum.passes = rounded(sum.passes);
    return sum;
  }

  void distinct(uint32_t rank, std::span<const uint32_t> peers) {
    if (peers.size() < 2) return;
    sorted_.assign(peers.begin(), peers.end());
    std::sort(sorted_.begin(), sorted_.end());
    if (std::adjacent_find(sorted_.begin(), sorted_.end()) != sorted_.end())
      wrong(rank, -1, "names a peer twice in one fold");
  }

  // --- The result

  void end_run(uint32_t rank) {
    const Part part = meaning_.output_of(rank == root_);
    for (uint32_t c = 0; c < shape_.output; ++c)
      if (holds(part, rank, c)) right(rank, c, ranks_[rank].cells[c]);
  }

  // Results that a chunk has: one that is the same on all ranks, or one of each rank.
  uint32_t results_each() const { return meaning_.joins == Joins::all ? 1 : n_; }

  // Output chunk c of a rank whose run ends here.
  void right(uint32_t rank, uint32_t c, const Cell& cell) {
    const int chunk = int(c);
    if (cell.chunk == nothing) wrong(rank, chunk, fmt::format("output chunk {} holds nothing", c));
    const uint32_t first = uint32_t(ranks_[rank].run) * shape_.output;
    if (cell.chunk != first + (meaning_.transposes ? rank : c))
      wrong(rank, chunk, fmt::format("output chunk {} holds chunk {}", c, cell.chunk % shape_.output));
    if (meaning_.transposes) {
      if (cell.expression != leaf(c, rank)) wrong(rank, chunk, fmt::format("output chunk {} is not of rank {}", c, c));
      return;
    }
    if (meaning_.reduces && cell.from != wanted(rank))
      wrong(rank, chunk, fmt::format("output chunk {} is one {}", c, difference(rank, cell)));
    if (meaning_.reduces && !cell.finished) wrong(rank, chunk, fmt::format("output chunk {} was not finished", c));
    const bool in_order = cell.first < cell.beyond;
    if (meaning_.joins != Joins::all && !in_order)
      wrong(rank, chunk, fmt::format("output chunk {} is not in the order of ranks", c));
    proof_.in_rank_order &= in_order;
    proof_.left_fold &= cell.left_fold && in_order;
    // Where ranks join different inputs, each has a result of its own.
    Result& result = meaning_.joins == Joins::all ? results_[first + c] : results_[(first + c) * n_ + rank];
    if (result.rank < 0) result = {int(rank), cell.expression, cell.passes};
    if (result.expression != cell.expression)
      wrong(rank, chunk,
            fmt::format("output chunk {} adds in another order than on rank {}: bits may differ", c, result.rank));
    if (result.passes != cell.passes)
      wrong(rank, chunk,
            fmt::format("output chunk {} is rounded at other places than on rank {}: bits may differ", c, result.rank));
  }

  struct Result {
    int rank = -1;
    uint64_t expression = 0, passes = 0;
  };

  Collective collective_;
  Meaning meaning_;
  const Programs& programs_;
  const Shape& shape_;
  uint32_t root_;
  const CheckOptions& options_;
  uint32_t n_;
  std::vector<Rank> ranks_;
  std::deque<Fifo<words>> fifos_;
  std::vector<uint32_t> fifo_of_;  // [from * n + to]; `nothing`: not used yet
  // [run * output chunks + chunk], of the first rank that ended; where each has its own, [that * n + rank].
  std::vector<Result> results_;
  std::deque<uint32_t> ready_;
  std::vector<const Cell*> operands_;
  std::vector<Cell> sums_;
  std::vector<uint32_t> sorted_;
  Proof proof_;
};

}  // namespace tutti::symbolic
