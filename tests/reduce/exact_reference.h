// A second opinion on exact sums: whole numbers of any length, and rounding by looking for the nearest element.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "reference.h"

namespace tutti {

// A natural number, its lowest 32 bits first.
class Natural {
 public:
  Natural() = default;
  // value × 2^1074, which is whole for any float64 that is not below 0.
  explicit Natural(double value) {
    if (value == 0) return;
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);  // 0.5 to 1
    *this = Natural(uint64_t(std::ldexp(fraction, 53)), exponent - 53 + 1074);
  }
  // value × 2^shift; a shift to the right loses nothing that is there.
  Natural(uint64_t value, int shift) {
    if (shift < 0) value >>= -shift, shift = 0;
    words_.assign(size_t(shift / 32 + 3), 0);
    const unsigned __int128 wide = static_cast<unsigned __int128>(value) << shift % 32;
    for (size_t i = 0; i < 3; ++i) words_[size_t(shift / 32) + i] = uint32_t(wide >> 32 * i);
  }

  void add(const Natural& other) {
    words_.resize(std::max(words_.size(), other.words_.size()) + 1, 0);
    uint64_t carry = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      carry += uint64_t{words_[i]} + other.word(i);
      words_[i] = uint32_t(carry);
      carry >>= 32;
    }
  }
  // other must not be greater.
  void subtract(const Natural& other) {
    int64_t borrow = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      borrow += int64_t{words_[i]} - int64_t{other.word(i)};
      words_[i] = uint32_t(borrow);
      borrow >>= 32;
    }
  }
  Natural times(uint32_t factor) const {
    Natural product = *this;
    product.words_.push_back(0);
    uint64_t carry = 0;
    for (uint32_t& word : product.words_) {
      carry += uint64_t{word} * factor;
      word = uint32_t(carry);
      carry >>= 32;
    }
    return product;
  }
  int compare(const Natural& other) const {
    for (size_t i = std::max(words_.size(), other.words_.size()); i-- > 0;)
      if (word(i) != other.word(i)) return word(i) < other.word(i) ? -1 : 1;
    return 0;
  }
  bool is_zero() const { return compare({}) == 0; }

 private:
  uint32_t word(size_t i) const { return i < words_.size() ? words_[i] : 0; }
  std::vector<uint32_t> words_;
};

// Bits of a floating type without its sign: its largest finite code; the next one stands for overflow.
inline uint64_t largest_code(DataType type) {
  if (type == DataType::float64) return 0x7fef'ffff'ffff'ffff;
  if (type == DataType::float32) return 0x7f7f'ffff;
  return small_float(type).code_max;
}
// Of a code up to the one beyond the largest.
inline Natural value_of_code(DataType type, uint64_t code) {
  if (type == DataType::float64)
    return code > largest_code(type) ? Natural(1, 1024 + 1074) : Natural(std::bit_cast<double>(code));
  if (type == DataType::float32)
    return Natural(code > largest_code(type) ? 0x1p128 : double(std::bit_cast<float>(uint32_t(code))));
  return Natural(small_float_magnitude(small_float(type), uint32_t(code)));
}
inline uint64_t sign_bit(DataType type) { return uint64_t{1} << (8 * element_bytes(type) - 1); }
inline uint64_t nan_code(DataType type) {
  if (type == DataType::float64) return 0x7ff8'0000'0000'0000;
  if (type == DataType::float32) return 0x7fc0'0000;
  return small_float(type).canonical_nan;
}

// The code nearest to sum / divisor; of two, the even one.
inline uint64_t nearest_code(DataType type, const Natural& sum, uint32_t divisor) {
  const bool is_small = type != DataType::float32 && type != DataType::float64;
  const uint64_t largest = largest_code(type), overflow = largest + 1;
  const uint64_t too_large = is_small && small_float(type).saturates ? largest : overflow;
  uint64_t low = 0, high = overflow;  // value(low) <= sum / divisor < value(high)
  if (value_of_code(type, high).times(divisor).compare(sum) <= 0) return too_large;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (value_of_code(type, middle).times(divisor).compare(sum) <= 0 ? low : high) = middle;
  }
  Natural both = value_of_code(type, low);
  both.add(value_of_code(type, high));
  const int to_middle = sum.times(2).compare(both.times(divisor));
  const uint64_t nearest = to_middle < 0 || (to_middle == 0 && low % 2 == 0) ? low : high;
  return nearest == overflow ? too_large : nearest;
}

// Bits of one element: the exact sum of `elements`, divided, rounded once.
inline uint64_t reference_exact_code(DataType type, const std::vector<const void*>& elements, uint32_t divisor) {
  Natural sums[2];  // of what is not below 0, and of what is
  bool infinite[2] = {};
  for (const void* element : elements) {
    const double value = element_to_double(type, element);
    if (std::isnan(value)) return nan_code(type);
    const bool negative = std::signbit(value);
    if (std::isinf(value)) infinite[negative] = true;
    else sums[negative].add(Natural(std::fabs(value)));
  }
  if (infinite[0] && infinite[1]) return nan_code(type);
  const uint64_t infinity = largest_code(type) + 1;
  if (infinite[0] || infinite[1]) return infinity | (infinite[1] ? sign_bit(type) : 0);
  const bool negative = sums[1].compare(sums[0]) > 0;
  sums[negative].subtract(sums[!negative]);
  return nearest_code(type, sums[negative], std::max(divisor, 1u)) | (negative ? sign_bit(type) : 0);
}

// What an exact sum must give for these inputs, all of one size in bytes.
inline std::vector<uint8_t> reference_exact_sum(DataType type, const std::vector<std::vector<uint8_t>>& inputs,
                                                uint32_t divisor) {
  if (type == DataType::complex64) type = DataType::float32;
  if (type == DataType::complex128) type = DataType::float64;
  const size_t bytes = element_bytes(type);
  std::vector<uint8_t> result(inputs.at(0).size());
  std::vector<const void*> elements(inputs.size());
  for (size_t at = 0; at + bytes <= result.size(); at += bytes) {
    for (size_t k = 0; k < inputs.size(); ++k) elements[k] = inputs[k].data() + at;
    const uint64_t code = reference_exact_code(type, elements, divisor);
    std::memcpy(result.data() + at, &code, bytes);
  }
  return result;
}

}  // namespace tutti
