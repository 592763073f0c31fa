// Symbolic memory of the checker: what a chunk holds, as an expression over all ranks' inputs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedule/plan.h"

namespace tutti::symbolic {

constexpr uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}
// a op b: another number than b op a, and than any other grouping.
constexpr uint64_t combined(uint64_t a, uint64_t b) {
  return mix(a * 0x9e3779b97f4a7c15ull + mix(b + 0x632be59bd9b4e019ull));
}
constexpr uint64_t finished(uint64_t a) { return mix(a ^ 0xd6e8feb86659fd93ull); }
constexpr uint64_t rounded(uint64_t a) { return mix(a ^ 0xa0761d6478bd642full); }
constexpr uint64_t leaf(uint32_t rank, uint32_t chunk) { return mix(uint64_t(rank) << 32 | chunk); }

inline constexpr uint32_t nothing = ~0u;

// `words` × 64 ranks at most.
template <size_t words>
struct Value {
  uint32_t chunk = nothing;  // its number, counted through all runs; `nothing`: never written
  uint16_t hops = 0;         // messages on the longest chain that brought it here
  bool finished = false;
  // The sum is that of ranks [first, beyond) in their order; first > beyond: it is in another.
  uint16_t first = 0, beyond = 0;
  // Every operand but the first was one rank's input; of plans, all were, and joined (and finished) in one step.
  bool left_fold = true;
  uint64_t expression = 0;             // hash of the expression
  uint64_t passes = 0;                 // hash of the expression with the ends of passes
  std::array<uint64_t, words> from{};  // the ranks whose inputs are in it, each once
};

// One direction between two ranks: at most `slots` messages.
template <size_t words>
class Fifo {
 public:
  using Message = std::vector<Value<words>>;

  size_t size() const { return size_; }
  const Message& front() const { return ring_[first_]; }
  // Memory for the next message; it keeps what an earlier one allocated.
  Message& push(size_t slots) {
    if (ring_.empty()) ring_.resize(slots);
    return ring_[(first_ + size_++) % ring_.size()];
  }
  void pop() {
    first_ = (first_ + 1) % ring_.size();
    --size_;
  }

 private:
  std::vector<Message> ring_;
  size_t first_ = 0, size_ = 0;
};

}  // namespace tutti::symbolic
