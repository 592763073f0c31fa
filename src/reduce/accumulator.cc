// The fixed-point sum, its division and its rounding.
#include "reduce/accumulator.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tutti {
namespace {

constexpr FloatFormat float64_format{8, 52, 11}, float32_format{4, 23, 8}, float16_format{2, 10, 5};
constexpr FloatFormat bfloat16_format{2, 7, 8};
constexpr FloatFormat float8e4m3_format{1, 3, 4, false, true}, float8e5m2_format{1, 2, 5, true, true};

constexpr uint64_t digit_mask = 0xffffffff;

}  // namespace

const FloatFormat& float_format(DataType type) noexcept {
  switch (type) {
    case DataType::float64: return float64_format;
    case DataType::float16: return float16_format;
    case DataType::bfloat16: return bfloat16_format;
    case DataType::float8e4m3: return float8e4m3_format;
    case DataType::float8e5m2: return float8e5m2_format;
    default: return float32_format;
  }
}

// Digits [first, beyond) are set from now on.
void Accumulator::reach(int first, int beyond) noexcept {
  if (first_ == beyond_) first_ = beyond_ = first;
  while (first_ > first) digits_[size_t(--first_)] = 0;
  while (beyond_ < beyond) digits_[size_t(beyond_++)] = 0;
}

void Accumulator::add(uint64_t bits) noexcept {
  const bool negative = (bits & format_.sign()) != 0;
  const uint64_t code = bits & (format_.sign() - 1);
  if (code > format_.largest()) {
    if (format_.has_infinity && code == format_.infinity()) infinite_[negative] = true;
    else nan_ = true;
    return;
  }
  const uint64_t fraction = code & ((uint64_t{1} << format_.mantissa_bits) - 1);
  const int exponent = int(code >> format_.mantissa_bits);
  const uint64_t mantissa = exponent == 0 ? fraction : fraction | uint64_t{1} << format_.mantissa_bits;
  if (mantissa == 0) return;
  const int at = last_position() + std::max(exponent, 1) - 1, digit = at / digit_bits;
  reach(digit, digit + 3);
  const unsigned __int128 wide = static_cast<unsigned __int128>(mantissa) << at % digit_bits;
  for (int i = 0; i < 3; ++i) {
    const int64_t part = int64_t(uint64_t(wide >> i * digit_bits) & digit_mask);
    digits_[size_t(digit + i)] += negative ? -part : part;
  }
}

// Makes every digit one of 0 to 2^32 - 1, of the magnitude. True where the sum was below 0.
bool Accumulator::normalize() noexcept {
  reach(first_, beyond_ + 2);  // where carries go
  int64_t carry = 0;
  for (int i = first_; i < beyond_; ++i) {
    const int64_t value = digits_[size_t(i)] + carry;
    digits_[size_t(i)] = value & int64_t(digit_mask);
    carry = value >> digit_bits;
  }
  if (carry == 0) return false;
  // The highest carry is -1: two's complement.
  uint64_t one = 1;
  for (int i = first_; i < beyond_; ++i) {
    const uint64_t value = (~uint64_t(digits_[size_t(i)]) & digit_mask) + one;
    digits_[size_t(i)] = int64_t(value & digit_mask);
    one = value >> digit_bits;
  }
  return true;
}

// The remainder.
uint32_t Accumulator::divide(uint32_t divisor) noexcept {
  if (divisor <= 1) return 0;
  reach(first_ - fraction_digits, beyond_);
  uint64_t remainder = 0;
  for (int i = beyond_; i-- > first_;) {
    const uint64_t value = remainder << digit_bits | uint64_t(digits_[size_t(i)]);
    digits_[size_t(i)] = int64_t(value / divisor);
    remainder = value % divisor;
  }
  return uint32_t(remainder);
}

// more: there is something below the digits.
uint64_t Accumulator::round_magnitude(bool more) const noexcept {
  int top = beyond_ - 1;
  while (top >= first_ && digits_[size_t(top)] == 0) --top;
  if (top < first_) return 0;  // and nothing below: a quotient's fraction has more bits than its divisor
  // The three highest digits hold all that counts but whether there is anything below them.
  unsigned __int128 window = 0;
  for (int i = top; i > top - 3; --i) window = window << digit_bits | (i >= first_ ? uint64_t(digits_[size_t(i)]) : 0);
  for (int i = first_; i <= top - 3 && !more; ++i) more = digits_[size_t(i)] != 0;
  const int top_bit = top * digit_bits + int(std::bit_width(uint64_t(digits_[size_t(top)]))) - 1;
  const int smallest = last_position(), last = std::max(top_bit - format_.mantissa_bits, smallest);
  const int below = last - (top - 2) * digit_bits;  // bits of the window below the mantissa's last: at least 12
  uint64_t mantissa = 0;
  if (below <= 3 * digit_bits) {
    mantissa = uint64_t(window >> below);
    const unsigned __int128 half = static_cast<unsigned __int128>(1) << (below - 1), rest = window & (2 * half - 1);
    mantissa += rest > half || (rest == half && (more || mantissa % 2 == 1));
  }
  // The exponent's field lies above the mantissa: a number's leading one, and a carry of rounding, add one to it.
  const uint64_t code = (uint64_t(last - smallest) << format_.mantissa_bits) + mantissa;
  if (code <= format_.largest()) return code;
  return format_.saturates ? format_.largest() : format_.infinity();
}

uint64_t Accumulator::rounded(uint32_t divisor) noexcept {
  if (nan_ || (infinite_[0] && infinite_[1])) return format_.nan();
  if (infinite_[0] || infinite_[1]) return format_.infinity() | (infinite_[1] ? format_.sign() : 0);
  if (first_ == beyond_) return 0;
  const bool negative = normalize();
  const uint32_t remainder = divide(divisor);
  const uint64_t magnitude = round_magnitude(remainder != 0);
  return negative ? magnitude | format_.sign() : magnitude;
}

uint64_t sum_slowly(const FloatFormat& format, const void* const* inputs, int n_inputs, size_t i,
                    uint32_t divisor) noexcept {
  Accumulator sum(format);
  const size_t width = size_t(format.bytes);
  for (int k = 0; k < n_inputs; ++k) {
    uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const uint8_t*>(inputs[k]) + i * width, width);
    sum.add(bits);
  }
  return sum.rounded(divisor);
}

}  // namespace tutti
