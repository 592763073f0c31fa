// One call of a v-form on one rank: blocks of uneven sizes, in any order in memory and with gaps, and what must come
// out.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/signature.h"
#include "base/types.h"
#include "communicator/values.h"
#include "schedule/chunks.h"
#include "schedule/collective.h"
#include "transport/simulated/random.h"

namespace tutti::test {

inline constexpr Collective v_forms[] = {Collective::all_gather_v, Collective::reduce_scatter_v, Collective::gather_v,
                                         Collective::scatter_v, Collective::all_to_all_v};

struct VFormCase {
  Collective kind = Collective::all_gather_v;
  int n = 2;
  int root = 0;
  DataType type = DataType::int32;
  ReduceOp op = ReduceOp::sum;
  size_t size_max = 20;   // elements of a block; about a third are empty, a few are the largest
  bool in_place = false;  // where a rank has both buffers
  bool dense = false;     // blocks follow each other, and no displacements are given
  uint64_t seed = 1;
};

inline std::string describe(const VFormCase& c) {
  return fmt::format("{} n={} root={} {} {} size_max={} in_place={} dense={} seed={}", name(c.kind), c.n, c.root,
                     name(c.type), name(c.op), c.size_max, c.in_place, c.dense, c.seed);
}

// One rank's memory and arguments. Everything about all ranks follows from the case, so that no rank asks another.
class VFormCall {
 public:
  struct Side {
    Part part = Part::none;
    size_t at = 0;                              // bytes from the start of the memory to where the pointer points
    std::vector<size_t> counts, displacements;  // of every rank's block, also where part is own
  };

  VFormCall(const VFormCase& c, int rank) : case_(c), rank_(rank), width_(element_bytes(c.type)) {
    const Meaning& means = meaning(c.kind);
    send_.part = means.input_of(rank == c.root);
    recv_.part = means.output_of(rank == c.root);
    for (int r = 0; r < c.n; ++r) {
      send_.counts.push_back(size(rank, r));
      recv_.counts.push_back(size(r, rank));
    }
    lay_out();
    fill();
  }

  std::byte* memory() { return memory_.data(); }
  std::span<std::byte> all() { return memory_; }
  const Side& send() const { return send_; }
  const Side& recv() const { return recv_; }
  size_t own_count() const {
    const Side& whole = send_.part == Part::all ? send_ : recv_;
    return whole.counts[size_t(rank_)];
  }
  const std::byte* send_data() const { return memory_.data() + send_.at; }
  std::byte* recv_data() { return memory_.data() + recv_.at; }
  bool one_buffer() const { return case_.in_place && send_.part != Part::none && recv_.part != Part::none; }

  // The memory as it was before the call.
  void refill() { memory_ = before_; }

  // Empty where the memory is as it must be, gaps and inputs included.
  std::string wrong() const {
    if (memory_ == expected_) return "";
    for (size_t i = 0; i < memory_.size(); ++i)
      if (memory_[i] != expected_[i]) return fmt::format("{}: rank {}: byte {} is wrong", describe(case_), rank_, i);
    return "";
  }

 private:
  // Elements of the block that goes from one rank to another.
  size_t size(int from, int to) const {
    const bool by_receiver = case_.kind == Collective::reduce_scatter_v || case_.kind == Collective::scatter_v;
    if (case_.kind == Collective::all_to_all_v) {
      const auto low = uint64_t(std::min(from, to)), high = uint64_t(std::max(from, to));
      return drawn(case_.in_place || from < to ? low * 64 + high : high * 64 + low);
    }
    return drawn(uint64_t(by_receiver ? to : from));
  }
  size_t drawn(uint64_t which) const {
    Random random(case_.seed * 1000 + which);
    const uint64_t dice = random.below(6);
    return dice < 2 ? 0 : dice == 2 ? case_.size_max : random.below(case_.size_max + 1);
  }

  // The rank's own block only, or all of them: backwards and with gaps, or dense. Returns the elements that it spans.
  size_t place(Side& side) const {
    size_t next = 0;
    side.displacements.assign(size_t(case_.n), 0);
    if (side.part == Part::own) return side.counts[size_t(rank_)];
    for (int i = 0; i < case_.n; ++i) {
      const size_t r = size_t(case_.dense ? i : case_.n - 1 - i);
      side.displacements[r] = next;
      next += side.counts[r] + (case_.dense ? 0 : 1 + r % 3);
    }
    return next;
  }

  void lay_out() {
    constexpr size_t guard = 64;
    const size_t me = size_t(rank_), send_bytes = place(send_) * width_, recv_bytes = place(recv_) * width_;
    send_.at = guard + case_.seed % 5 * width_;
    recv_.at = send_.at + send_bytes + guard;
    memory_.assign(recv_.at + recv_bytes + guard, std::byte{0xa5});
    if (!one_buffer()) return;
    if (send_.part == Part::all && recv_.part == Part::all) recv_.at = send_.at;
    else if (send_.part == Part::all) recv_.at = send_.at + send_.displacements[me] * width_;
    else send_.at = recv_.at + recv_.displacements[me] * width_;
  }

  using Block = std::vector<uint8_t>;
  Block sent(int from, int to, size_t elements) const {
    if (meaning(case_.kind).reduces) return reduce_input(case_.type, case_.op, from, size_t(to), elements * width_);
    Block block(elements * width_);
    fill_with_bytes(block.data(), size_t(from * 4099 + to * 1013), block.size());
    return block;
  }
  Block received(int from, size_t elements) const {
    if (meaning(case_.kind).reduces)
      return reduce_result(case_.type, case_.op, uint32_t(case_.n), size_t(rank_), elements * width_);
    return sent(from, sends_to_each(from) ? rank_ : from, elements);
  }
  // Whether a rank sends every other another block; else it has one.
  bool sends_to_each(int rank) const { return meaning(case_.kind).input_of(rank == case_.root) == Part::all; }

  static void put(std::vector<std::byte>& memory, size_t at, const Block& block) {
    if (!block.empty()) std::memcpy(memory.data() + at, block.data(), block.size());
  }

  void fill() {
    for (int r = 0; r < case_.n; ++r) {
      if (send_.part == Part::none || (send_.part == Part::own && r != rank_)) continue;
      put(memory_, send_.at + send_.displacements[size_t(r)] * width_, sent(rank_, r, send_.counts[size_t(r)]));
    }
    before_ = expected_ = memory_;
    for (int r = 0; r < case_.n; ++r) {
      if (recv_.part == Part::none || (recv_.part == Part::own && r != rank_)) continue;
      const int from = recv_.part == Part::own && meaning(case_.kind).rooted ? case_.root : r;
      put(expected_, recv_.at + recv_.displacements[size_t(r)] * width_, received(from, recv_.counts[size_t(r)]));
    }
  }

  VFormCase case_;
  int rank_;
  size_t width_;
  Side send_, recv_;
  std::vector<std::byte> memory_, before_, expected_;
};

}  // namespace tutti::test
