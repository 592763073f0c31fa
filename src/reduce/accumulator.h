// Sums of floats without any rounding, element by element: the slow way of exact sums, and what it knows of formats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace tutti {

// How a floating type is laid out, from the highest bit: sign, exponent, mantissa.
struct FloatFormat {
  int bytes;
  int mantissa_bits;
  int exponent_bits;
  bool has_infinity = true;  // the largest exponent is that of infinities and NaNs; else of numbers but for one NaN
  bool saturates = false;    // a finite sum too large becomes the largest number, not infinity

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr uint64_t exponent_max() const { return (uint64_t{1} << exponent_bits) - 1; }
  constexpr uint64_t sign() const { return uint64_t{1} << (mantissa_bits + exponent_bits); }
  constexpr uint64_t infinity() const { return exponent_max() << mantissa_bits; }
  // sign 0, the highest mantissa bit alone; where there is but one NaN, that.
  constexpr uint64_t nan() const { return has_infinity ? infinity() | uint64_t{1} << (mantissa_bits - 1) : sign() - 1; }
  constexpr uint64_t largest() const { return has_infinity ? infinity() - 1 : sign() - 2; }
};

// The type must be a float of 8 to 64 bits.
const FloatFormat& float_format(DataType type) noexcept;

// A fixed-point number that holds any sum of up to 2^31 floats of up to 64 bits exactly (Kulisch, "Mathematical
// foundation of computer arithmetic", 1977), in digits of 32 bits that may carry over late. Costs what is touched, so
// little where the inputs are of like magnitude.
class Accumulator {
 public:
  explicit Accumulator(const FloatFormat& format) noexcept : format_(format) {}

  // One more input, as its bits.
  void add(uint64_t bits) noexcept;
  // The sum divided by `divisor` (from 1 on), rounded once to nearest even, as bits: NaN where an input was one, or
  // both infinities were; an infinity where one was; +0 where the sum is nothing; else the nearest number, beyond the
  // largest what the format says. Call once.
  uint64_t rounded(uint32_t divisor) noexcept;

 private:
  // The lowest digits are for what a division leaves below the smallest number.
  static constexpr int fraction_digits = 3, digit_bits = 32;
  static constexpr int lowest_exponent = -1074 - fraction_digits * digit_bits;
  static constexpr int digits_max = 76;

  int position(int exponent) const noexcept { return exponent - lowest_exponent; }
  // Of the mantissa's last bit in a subnormal number.
  int last_position() const noexcept { return position(1 - format_.bias() - format_.mantissa_bits); }
  void reach(int first, int beyond) noexcept;
  bool normalize() noexcept;
  uint32_t divide(uint32_t divisor) noexcept;
  uint64_t round_magnitude(bool more) const noexcept;

  const FloatFormat& format_;
  std::array<int64_t, digits_max> digits_;  // only [first_, beyond_) are set
  int first_ = 0, beyond_ = 0;
  bool nan_ = false, infinite_[2] = {false, false};  // by sign
};

// The sum of element i of each input, divided and rounded, as bits.
uint64_t sum_slowly(const FloatFormat& format, const void* const* inputs, int n_inputs, size_t i,
                    uint32_t divisor) noexcept;

}  // namespace tutti
