// What ranks give to calls, and what must come of it: many bytes in little time, so that tests' time is that of the calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/types.h"
#include "reduce/reference.h"

namespace tutti::test {

// --- What is moved: random bytes, the same ones again and again, of each message from another one of them on -----------------

inline const std::vector<uint8_t>& random_bytes() {
  static const std::vector<uint8_t> bytes = [] {
    std::vector<uint8_t> made(65521);  // a prime, so that blocks begin each at another place
    std::mt19937 random;
    for (uint8_t& byte : made) byte = uint8_t(random());
    return made;
  }();
  return bytes;
}

// Calls for each stretch of so many bytes from `first` on visit(where it begins, the random bytes of it), until that gives false.
template <typename Visit>
bool each_stretch(size_t first, size_t size, const Visit& visit) {
  const std::vector<uint8_t>& bytes = random_bytes();
  for (size_t done = 0; done < size;) {
    const size_t at = (first + done) % bytes.size(), stretch = std::min(bytes.size() - at, size - done);
    if (!visit(done, std::span(bytes).subspan(at, stretch))) return false;
    done += stretch;
  }
  return true;
}

inline void fill_with_bytes(void* buffer, size_t first, size_t size) {
  each_stretch(first, size, [buffer](size_t at, std::span<const uint8_t> bytes) {
    std::memcpy(static_cast<uint8_t*>(buffer) + at, bytes.data(), bytes.size());
    return true;
  });
}

inline bool holds_bytes(const void* buffer, size_t first, size_t size) {
  return each_stretch(first, size, [buffer](size_t at, std::span<const uint8_t> bytes) {
    return std::memcmp(static_cast<const uint8_t*>(buffer) + at, bytes.data(), bytes.size()) == 0;
  });
}

// --- What is reduced: elements that repeat after a few, so that few are made, and joined for reference, one by one -----------

inline size_t period(DataType type, ReduceOp op) {
  switch (op) {
    case ReduceOp::prod: return 5;
    case ReduceOp::sum:
    case ReduceOp::avg: return element_bytes(type) >= 4 ? 1009 : 2;
    case ReduceOp::min:
    case ReduceOp::max: return 13;
    default: return 7;
  }
}

// Small integers, whose sums and products of up to 9 ranks are exact in every type in any order: float8e5m2 has three bits, so
// sums are of 0 and 1, or 0 and 2, there; products are of powers of two, of which few are not 1.
inline double input_value(DataType type, ReduceOp op, int rank, size_t i) {
  const size_t k = (size_t(rank) * 7 + i) % period(type, op);
  if (op == ReduceOp::prod) return k == 0 ? 2 : 1;
  return double(op == ReduceOp::avg ? 2 * k : k);
}

// Makes the rest of a buffer like its first part.
inline void repeat(std::span<uint8_t> buffer, size_t first_part) {
  for (size_t done = first_part; done < buffer.size(); done *= 2)
    std::memcpy(buffer.data() + done, buffer.data(), std::min(done, buffer.size() - done));
}

// A rank's input: so many bytes from element `first` on.
inline std::vector<uint8_t> reduce_input(DataType type, ReduceOp op, int rank, size_t first, size_t bytes) {
  std::vector<uint8_t> input(bytes);
  const size_t width = element_bytes(type), made = std::min(bytes, period(type, op) * width);
  for (size_t i = 0; i * width < made; ++i) element_from_double(type, input_value(type, op, rank, first + i), &input[i * width]);
  repeat(input, made);
  return input;
}

// What comes of these of so many ranks.
inline std::vector<uint8_t> reduce_result(DataType type, ReduceOp op, uint32_t ranks, size_t first, size_t bytes) {
  const size_t made = std::min(bytes, period(type, op) * element_bytes(type));
  std::vector<std::vector<uint8_t>> inputs;
  for (uint32_t rank = 0; rank < ranks; ++rank) inputs.push_back(reduce_input(type, op, int(rank), first, made));
  std::vector<uint8_t> result = reference_reduce(type, op, inputs, op == ReduceOp::avg ? ranks : 1);
  result.resize(bytes);
  repeat(result, made);
  return result;
}

}  // namespace tutti::test
