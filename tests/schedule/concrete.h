// Programs executed on numbers, in random order of ranks: a second opinion on what the checker says, which shares no
// code with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/signature.h"
#include "schedule/chunks.h"
#include "schedule/plan.h"

namespace tutti::concrete {

using Numbers = std::vector<uint64_t>;

// What `op` means: a sum that is exact; a hash that shows every difference of order; or what does not commute but may be
// grouped at will: maps x → ax + b of 32 bits, joined one after the other. A prefix sum, which every rank groups in a way
// of its own, is run with maps where others are with the hash. left_fold is that hash, compared with what one step makes
// of all inputs in the order of ranks; a plan's steps round what they join.
enum class Arithmetic { sum, hash, maps, left_fold };

inline uint64_t scrambled(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
  return (x ^ x >> 32) * 0xd6e8feb86659fd93ull ^ x >> 29;
}
inline uint64_t added(Arithmetic arithmetic, uint64_t a, uint64_t b) {
  if (arithmetic == Arithmetic::sum) return a + b;
  if (arithmetic != Arithmetic::maps) return scrambled(a) - 3 * scrambled(b);
  const uint32_t a_factor = uint32_t(a >> 32), b_factor = uint32_t(b >> 32);
  return uint64_t{a_factor * b_factor} << 32 | uint32_t(a_factor * uint32_t(b) + uint32_t(a));
}
inline uint64_t rounded(uint64_t x) { return scrambled(x ^ 0x5bd1e995); }
inline uint64_t finished(uint64_t x) { return x * 5 + 7; }
inline uint64_t input(uint32_t rank, size_t element) { return scrambled(rank * 1'000'003 + element); }

// Runs either schedules or plans; the other span is empty.
class Run {
 public:
  Run(Collective collective, std::span<const Schedule> schedules, std::span<const Plan> plans, const Shape& shape,
      int root, bool in_place, size_t slots, Arithmetic arithmetic, uint64_t seed)
      : collective_(collective),
        schedules_(schedules),
        plans_(plans),
        shape_(shape),
        root_(uint32_t(root)),
        in_place_(in_place),
        slots_(slots),
        arithmetic_(prefixes() && arithmetic == Arithmetic::hash ? Arithmetic::maps : arithmetic),
        random_(seed),
        n_(uint32_t(plans.empty() ? schedules.size() : plans.size())),
        ranks_(n_),
        // Chunks of different sizes, the last ones short or empty; an all_to_all's are equal.
        elements_(shape.output * 2 + (collective == Collective::all_to_all ? 0 : 1)),
        chunks_(elements_, shape.output, 8) {
    for (uint32_t r = 0; r < n_; ++r) fill(r);
    before_ = ranks_;
  }

  // "" where every rank ends with the right numbers, else what is wrong.
  std::string result() {
    std::vector<uint32_t> alive(n_);
    for (uint32_t r = 0; r < n_; ++r) alive[r] = r;
    // Random order: pick a rank that has not been found stuck since anybody last moved.
    std::vector<uint32_t> candidates = alive;
    while (!candidates.empty()) {
      const size_t pick = random_() % candidates.size();
      if (act(candidates[pick])) {
        candidates = alive;
      } else {
        candidates[pick] = candidates.back();
        candidates.pop_back();
      }
      if (!wrong_.empty()) return wrong_;
    }
    for (uint32_t r = 0; r < n_; ++r)
      if (ranks_[r].step < steps(r)) return "rank " + std::to_string(r) + " waits for ever";
    for (const auto& [pair, fifo] : fifos_)
      if (!fifo.empty()) return "a message is left";
    return compared();
  }

 private:
  struct Rank {
    std::vector<Numbers> memory[3];  // by Buffer, then chunk
    size_t step = 0;
  };

  size_t steps(uint32_t rank) const { return plans_.empty() ? schedules_[rank].size() : plans_[rank].steps.size(); }

  void fill(uint32_t rank) {
    const uint32_t counts[3] = {shape_.input, shape_.output, shape_.scratch};
    for (int b = 0; b < 3; ++b)
      for (uint32_t c = 0; c < counts[b]; ++c) {
        Numbers chunk(chunks_.size(c % shape_.output));
        for (uint64_t& x : chunk) x = random_();
        ranks_[rank].memory[b].push_back(chunk);
      }
    for (uint32_t c = 0; c < shape_.input; ++c) {
      if (!has_input(rank, c)) continue;
      Numbers& chunk = memory(rank, Buffer::input, c);
      for (size_t i = 0; i < chunk.size(); ++i) chunk[i] = input(rank, chunks_.first(c) + i);
    }
  }

  // Which chunks of its buffers a caller has.
  bool has_input(uint32_t rank, uint32_t chunk) const {
    switch (collective_) {
      case Collective::broadcast:
      case Collective::scatter: return rank == root_;
      case Collective::all_gather:
      case Collective::gather: return rank == chunk;
      default: return true;
    }
  }
  bool has_output(uint32_t rank, uint32_t chunk) const {
    switch (collective_) {
      case Collective::reduce:
      case Collective::gather: return rank == root_;
      case Collective::reduce_scatter:
      case Collective::scatter: return rank == chunk;
      case Collective::exscan: return rank > 0;
      default: return true;
    }
  }
  bool prefixes() const { return collective_ == Collective::scan || collective_ == Collective::exscan; }
  bool reduced() const {
    return collective_ == Collective::all_reduce || collective_ == Collective::reduce ||
           collective_ == Collective::reduce_scatter || prefixes();
  }
  // Element i of a chunk of a rank's result.
  uint64_t expected(uint32_t rank, uint32_t chunk, size_t i) const {
    const size_t at = chunks_.first(chunk) + i;
    switch (collective_) {
      case Collective::broadcast:
      case Collective::scatter: return input(root_, at);
      case Collective::all_gather:
      case Collective::gather: return input(chunk, at);
      case Collective::all_to_all: return input(chunk, chunks_.first(rank) + i);
      default: break;
    }
    const uint32_t end = collective_ == Collective::scan ? rank + 1 : collective_ == Collective::exscan ? rank : n_;
    uint64_t sum = input(0, at);
    for (uint32_t r = 1; r < end; ++r) sum = added(arithmetic_, sum, input(r, at));
    return arithmetic_ == Arithmetic::left_fold && !plans_.empty() ? rounded(finished(sum)) : finished(sum);
  }

  Numbers& memory(uint32_t rank, Buffer buffer, uint32_t chunk) {
    if (in_place_ && buffer == Buffer::input) buffer = Buffer::output;
    return ranks_[rank].memory[int(buffer)][chunk];
  }

  Numbers read(uint32_t rank, const Slice& slice) {
    Numbers all;
    for (uint32_t c = slice.first; c < slice.first + slice.count; ++c) {
      if (c >= ranks_[rank].memory[int(slice.buffer)].size()) {
        wrong_ = "out of range";
        return all;
      }
      const Numbers& chunk = memory(rank, slice.buffer, c);
      all.insert(all.end(), chunk.begin(), chunk.end());
    }
    return all;
  }

  void write(uint32_t rank, const Slice& slice, const Numbers& all) {
    if (read(rank, slice).size() != all.size()) wrong_ = "another size";
    if (!wrong_.empty()) return;
    size_t at = 0;
    for (uint32_t c = slice.first; c < slice.first + slice.count; ++c)
      for (uint64_t& x : memory(rank, slice.buffer, c)) x = all[at++];
  }

  Numbers sum(const Numbers& a, const Numbers& b) {
    if (a.size() != b.size()) wrong_ = "adds other sizes";
    Numbers result(std::min(a.size(), b.size()));
    for (size_t i = 0; i < result.size(); ++i) result[i] = added(arithmetic_, a[i], b[i]);
    return result;
  }

  bool act(uint32_t rank) {
    if (ranks_[rank].step == steps(rank)) return false;
    const bool moved = plans_.empty() ? act(rank, schedules_[rank][ranks_[rank].step])
                                      : act(rank, plans_[rank], plans_[rank].steps[ranks_[rank].step]);
    ranks_[rank].step += moved;
    return moved;
  }

  bool act(uint32_t rank, const Step& step) {
    const bool receives = step.verb == Verb::recv || step.verb == Verb::recv_reduce;
    if ((receives || step.verb == Verb::send) && step.peer >= n_) return wrong_ = "no such rank", false;
    Numbers message;
    if (receives) {
      auto& fifo = fifos_[{step.peer, rank}];
      if (fifo.empty()) return false;
      message = fifo.front();
      fifo.pop_front();
    }
    switch (step.verb) {
      case Verb::send:
        if (fifos_[{rank, step.peer}].size() >= slots_) return false;
        fifos_[{rank, step.peer}].push_back(read(rank, step.a));
        break;
      case Verb::recv: write(rank, step.dst, message); break;
      case Verb::recv_reduce: {
        const Numbers a = read(rank, step.a);
        write(rank, step.dst, step.incoming_first ? sum(message, a) : sum(a, message));
        break;
      }
      case Verb::reduce: write(rank, step.dst, sum(read(rank, step.a), read(rank, step.b))); break;
      case Verb::copy: write(rank, step.dst, read(rank, step.a)); break;
      case Verb::finish: {
        Numbers all = read(rank, step.dst);
        for (uint64_t& x : all) x = finished(x);
        write(rank, step.dst, all);
      }
    }
    return true;
  }

  bool act(uint32_t rank, const Plan& plan, const Fold& fold) {
    for (uint32_t p : plan.from(fold))
      if (fifos_[{p, rank}].empty()) return false;
    for (uint32_t p : plan.to(fold))
      if (fifos_[{rank, p}].size() >= slots_) return false;
    std::vector<Numbers> operands;
    for (uint32_t p : plan.from(fold)) {
      operands.push_back(fifos_[{p, rank}].front());
      fifos_[{p, rank}].pop_front();
    }
    if (fold.a.count > 0) operands.insert(operands.begin() + fold.a_place, read(rank, fold.a));
    if (fold.b.count > 0) operands.push_back(read(rank, fold.b));
    Numbers all = operands[0];
    for (size_t i = 1; i < operands.size(); ++i) all = sum(all, operands[i]);
    if (fold.finish)
      for (uint64_t& x : all) x = finished(x);
    if (arithmetic_ == Arithmetic::left_fold && (fold.finish || operands.size() > 1))
      for (uint64_t& x : all) x = rounded(x);
    if (fold.dst.count > 0) write(rank, fold.dst, all);
    for (uint32_t p : plan.to(fold)) fifos_[{rank, p}].push_back(all);
    return true;
  }

  std::string compared() {
    const bool hashed = reduced() && arithmetic_ == Arithmetic::hash;  // then only that all ranks have the same
    for (uint32_t c = 0; c < shape_.output; ++c) {
      const Numbers* first = nullptr;
      for (uint32_t r = 0; r < n_; ++r) {
        const Numbers& chunk = ranks_[r].memory[int(Buffer::output)][c];
        if (!has_output(r, c)) {
          if (chunk != before_[r].memory[int(Buffer::output)][c]) return "output that is not the rank's has changed";
          continue;
        }
        if (first == nullptr) first = &chunk;
        if (hashed && chunk != *first) return "rank " + std::to_string(r) + " has another result";
        for (size_t i = 0; !hashed && i < chunk.size(); ++i)
          if (chunk[i] != expected(r, c, i)) return "a wrong result";
      }
    }
    for (uint32_t r = 0; r < n_; ++r)
      if (ranks_[r].memory[int(Buffer::input)] != before_[r].memory[int(Buffer::input)]) return "an input has changed";
    return "";
  }

  Collective collective_;
  std::span<const Schedule> schedules_;
  std::span<const Plan> plans_;
  Shape shape_;
  uint32_t root_;
  bool in_place_;
  size_t slots_;
  Arithmetic arithmetic_;
  std::mt19937_64 random_;
  uint32_t n_;
  std::vector<Rank> ranks_, before_;
  size_t elements_;
  Chunks chunks_;
  std::map<std::pair<uint32_t, uint32_t>, std::deque<Numbers>> fifos_;
  std::string wrong_;
};

}  // namespace tutti::concrete
