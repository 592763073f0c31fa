// The data that tutti-perf sends and what must come out: small whole numbers, so that every type and operator is exact
// in whatever order ranks are added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/perf/library.h"
#include "bench/perf/options.h"

namespace tutti::perf {

// Data repeats after so many elements. A prime: a piece that lands at a wrong place is seen, as pieces do not begin at
// multiples of it.
inline constexpr size_t period = 1021;

// One period of a buffer.
using Period = std::vector<std::byte>;

// What a mulsum multiplies a rank's input by.
constexpr int64_t multiplier(int rank) { return 1 + rank % 2; }

// What `rank` of `ranks` puts in, in run `seed`. Without an operator: any bytes.
Period input_period(const Type& type, const std::optional<Operator>& op, int ranks, int rank, uint64_t seed);
// What a reduction over all ranks gives, or over the first `joined` of them. Means are exact of all ranks only.
Period reduced_period(const Type& type, const Operator& op, int ranks, uint64_t seed, int joined);
inline Period reduced_period(const Type& type, const Operator& op, int ranks, uint64_t seed) {
  return reduced_period(type, op, ranks, seed, ranks);
}

// The period as it is from element `first` of a buffer on.
Period shifted(const Period& period_bytes, size_t first, size_t element_bytes);

// The whole number `value` as an element, beside `second` as imaginary part or index. Exact only for what the type can
// hold; integers wrap; bool is 0 or 1.
void encode(const Type& type, int64_t value, int64_t second, std::byte* element);

// A buffer's bytes, one period after the other.
void fill(std::span<std::byte> buffer, const Period& period_bytes);
// Elements of `element_bytes` that differ.
size_t count_wrong(std::span<const std::byte> buffer, const Period& period_bytes, size_t element_bytes);

// Memory for `bytes` bytes with watched bytes on both sides.
class WatchedBuffer {
 public:
  static constexpr size_t margin_bytes = 4096;
  // From `memory`, which outlives it; else ordinary. Throws std::bad_alloc.
  explicit WatchedBuffer(size_t bytes, SharedMemory memory = {nullptr, nullptr});
  // The first `bytes` bytes; what follows is watched from now on. bytes must not exceed the size.
  std::span<std::byte> use(size_t bytes);
  // The bytes in use, as they are now.
  std::span<const std::byte> look() const { return {memory_.get() + margin_bytes, used_}; }
  // From the first watched byte to the last.
  std::span<std::byte> whole() { return {memory_.get(), used_ + 2 * margin_bytes}; }
  // Watched bytes (up to a margin on each side) that are no longer as they were.
  size_t count_touched() const;

 private:
  struct Free {
    void (*release)(void* memory);
    void operator()(std::byte* memory) const { release(memory); }
  };
  size_t bytes_ = 0, used_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace tutti::perf
