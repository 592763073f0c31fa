// Reductions written naively, one element at a time: what src/reduce is compared with, and any test of a collective.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/types.h"

namespace tutti {

// The layout of a float of 8 or 16 bits.
struct SmallFloat {
  int mantissa_bits;
  int bias;
  uint32_t code_max;      // the largest finite value, without sign
  bool has_infinity;      // its code is code_max + 1
  bool saturates;         // overflow of finite values gives code_max, not infinity
  uint32_t sign;          // the sign's bit
  uint32_t canonical_nan;
};

inline SmallFloat small_float(DataType type) {
  switch (type) {
    case DataType::float16: return {10, 15, 0x7bff, true, false, 0x8000, 0x7e00};
    case DataType::bfloat16: return {7, 127, 0x7f7f, true, false, 0x8000, 0x7fc0};
    case DataType::float8e4m3: return {3, 7, 0x7e, false, true, 0x80, 0x7f};
    case DataType::float8e5m2: return {2, 15, 0x7b, true, true, 0x80, 0x7e};
    default: throw std::logic_error("not a float of 8 or 16 bits");
  }
}

// The value of a code without sign, finite or one beyond the largest finite.
inline double small_float_magnitude(const SmallFloat& f, uint32_t code) {
  const int exponent = int(code >> f.mantissa_bits);
  const uint32_t mantissa = code & ((1u << f.mantissa_bits) - 1);
  if (exponent == 0) return std::ldexp(double(mantissa), 1 - f.bias - f.mantissa_bits);
  return std::ldexp(double(mantissa + (1u << f.mantissa_bits)), exponent - f.bias - f.mantissa_bits);
}

inline double decode_small_float(DataType type, uint32_t bits) {
  const SmallFloat f = small_float(type);
  const uint32_t code = bits & (f.sign - 1);
  double value;
  if (code <= f.code_max) value = small_float_magnitude(f, code);
  else if (f.has_infinity && code == f.code_max + 1) value = std::numeric_limits<double>::infinity();
  else return std::numeric_limits<double>::quiet_NaN();
  return bits & f.sign ? -value : value;
}

// The nearest code, ties to the even one. The code beyond the largest stands for overflow.
inline uint32_t encode_small_float(DataType type, double value) {
  const SmallFloat f = small_float(type);
  if (std::isnan(value)) return f.canonical_nan;
  const uint32_t sign = std::signbit(value) ? f.sign : 0;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | (f.has_infinity ? f.code_max + 1 : f.code_max);
  const uint32_t overflow = f.code_max + 1;
  if (magnitude >= small_float_magnitude(f, overflow)) return sign | (f.saturates ? f.code_max : overflow);
  uint32_t low = 0, high = overflow;  // magnitude(low) <= magnitude < magnitude(high)
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (small_float_magnitude(f, middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - small_float_magnitude(f, low);
  const double above = small_float_magnitude(f, high) - magnitude;
  const uint32_t nearest = below < above || (below == above && low % 2 == 0) ? low : high;
  return sign | (nearest == overflow && f.saturates ? f.code_max : nearest);
}

template <typename T>
T read_element(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}
template <typename T>
void write_element(void* element, T value) {
  std::memcpy(element, &value, sizeof value);
}

// One element as a double: exact for every type, except integers beyond 2^53 (nearest). Of complex numbers the real
// part, of pairs the value.
inline double element_to_double(DataType type, const void* element) {
  switch (type) {
    case DataType::int8: return read_element<int8_t>(element);
    case DataType::uint8: return read_element<uint8_t>(element);
    case DataType::boolean: return read_element<uint8_t>(element) != 0;
    case DataType::int16: return read_element<int16_t>(element);
    case DataType::uint16: return read_element<uint16_t>(element);
    case DataType::int32:
    case DataType::int32_int32: return read_element<int32_t>(element);
    case DataType::uint32: return read_element<uint32_t>(element);
    case DataType::int64:
    case DataType::int64_int64: return double(read_element<int64_t>(element));
    case DataType::uint64: return double(read_element<uint64_t>(element));
    case DataType::float32:
    case DataType::complex64:
    case DataType::float32_int32: return double(read_element<float>(element));
    case DataType::float64:
    case DataType::complex128:
    case DataType::float64_int64: return read_element<double>(element);
    case DataType::float16:
    case DataType::bfloat16: return decode_small_float(type, read_element<uint16_t>(element));
    case DataType::float8e4m3:
    case DataType::float8e5m2: return decode_small_float(type, read_element<uint8_t>(element));
    case DataType::opaque: break;
  }
  throw std::logic_error("not a type");
}

template <typename A, typename B>
void write_two(void* element, A first, B second) {
  write_element(element, first);
  write_element(static_cast<uint8_t*>(element) + sizeof first, second);
}

// The integer part of a number of less than 64 bits, cut to T's bits as two's complement is.
template <typename T>
T integer_of(double value) {
  return T(value < 0 ? uint64_t(int64_t(value)) : uint64_t(value));
}

// The element nearest to `value`, ties to even, saturating as the type does. Integers: as integer_of.
// Complex numbers get `value` - 1 as imaginary part: products of 1 and 2 + i have no zeros whose sign depends on the
// order. Pairs get an index of their own for each value.
inline void element_from_double(DataType type, double value, void* element) {
  switch (type) {
    case DataType::boolean: return write_element(element, uint8_t(value != 0));
    case DataType::int16: return write_element(element, integer_of<int16_t>(value));
    case DataType::uint16: return write_element(element, integer_of<uint16_t>(value));
    case DataType::complex64: return write_two(element, float(value), float(value - 1));
    case DataType::complex128: return write_two(element, value, value - 1);
    case DataType::float32_int32: return write_two(element, float(value), integer_of<int32_t>(value) + 5);
    case DataType::float64_int64: return write_two(element, value, integer_of<int64_t>(value) + 5);
    case DataType::int32_int32: return write_two(element, integer_of<int32_t>(value), integer_of<int32_t>(value) + 5);
    case DataType::int64_int64: return write_two(element, integer_of<int64_t>(value), integer_of<int64_t>(value) + 5);
    case DataType::int8: return write_element(element, integer_of<int8_t>(value));
    case DataType::uint8: return write_element(element, integer_of<uint8_t>(value));
    case DataType::int32: return write_element(element, integer_of<int32_t>(value));
    case DataType::uint32: return write_element(element, integer_of<uint32_t>(value));
    case DataType::int64: return write_element(element, integer_of<int64_t>(value));
    case DataType::uint64: return write_element(element, integer_of<uint64_t>(value));
    case DataType::float32: return write_element(element, float(value));
    case DataType::float64: return write_element(element, value);
    case DataType::float16:
    case DataType::bfloat16: return write_element(element, uint16_t(encode_small_float(type, value)));
    case DataType::float8e4m3:
    case DataType::float8e5m2: return write_element(element, uint8_t(encode_small_float(type, value)));
    case DataType::opaque: break;
  }
  throw std::logic_error("not a type");
}

template <typename F>
F fold_floats(ReduceOp op, F a, F b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: return a + b;
    case ReduceOp::prod: return a * b;
    case ReduceOp::max:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<F>::quiet_NaN();
      if (a == b) return std::signbit(a) ? b : a;
      return a > b ? a : b;
    case ReduceOp::min:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<F>::quiet_NaN();
      if (a == b) return std::signbit(a) ? a : b;
      return a < b ? a : b;
    default: break;
  }
  throw std::logic_error("not an operator of floats");
}

// T is 64 bits wide, signed or not; the caller cuts the result to its type.
template <typename T>
T fold_integers(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: return T(uint64_t(a) + uint64_t(b));
    case ReduceOp::prod: return T(uint64_t(a) * uint64_t(b));
    case ReduceOp::max: return a > b ? a : b;
    case ReduceOp::min: return a < b ? a : b;
    case ReduceOp::band: return a & b;
    case ReduceOp::bor: return a | b;
    case ReduceOp::bxor: return a ^ b;
    case ReduceOp::land: return a != 0 && b != 0;
    case ReduceOp::lor: return a != 0 || b != 0;
    default: break;
  }
  throw std::logic_error("not an operator of integers");
}

template <typename T>
void reference_integer(ReduceOp op, std::span<const void* const> elements, uint32_t divisor, void* result) {
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  T folded = read_element<T>(elements[0]);
  for (const void* element : elements.subspan(1))
    folded = T(fold_integers<Wide>(op, folded, read_element<T>(element)));
  if (op == ReduceOp::land || op == ReduceOp::lor) folded = folded != 0;
  else if (divisor > 1 && op < ReduceOp::band) folded = T(Wide(folded) / Wide(divisor));
  write_element(result, folded);
}

inline void reference_bool(ReduceOp op, std::span<const void* const> elements, void* result) {
  size_t true_elements = 0;
  for (const void* element : elements) true_elements += read_element<uint8_t>(element) != 0;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bor:
    case ReduceOp::lor: return write_element(result, uint8_t(true_elements > 0));
    case ReduceOp::bxor: return write_element(result, uint8_t(true_elements % 2));
    default: return write_element(result, uint8_t(true_elements == elements.size()));
  }
}

template <typename F>
void reference_complex(ReduceOp op, std::span<const void* const> elements, uint32_t divisor, void* result) {
  const auto part = [](const void* element, size_t i) {
    return read_element<F>(static_cast<const uint8_t*>(element) + i * sizeof(F));
  };
  F real = part(elements[0], 0), imaginary = part(elements[0], 1);
  for (const void* element : elements.subspan(1)) {
    const F a = real, b = imaginary, c = part(element, 0), d = part(element, 1);
    real = op == ReduceOp::prod ? a * c - b * d : a + c;
    imaginary = op == ReduceOp::prod ? a * d + b * c : b + d;
  }
  for (F* const folded : {&real, &imaginary}) {
    if (divisor > 1) *folded /= F(divisor);
    if (std::isnan(*folded)) *folded = std::numeric_limits<F>::quiet_NaN();
  }
  write_two(result, real, imaginary);
}

// The best value of all (a NaN where there is one, the sign of zero counts), and the least index that stands beside it.
template <typename V, typename I>
void reference_pair(ReduceOp op, std::span<const void* const> elements, void* result) {
  const auto index_of = [](const void* element) {
    return read_element<I>(static_cast<const uint8_t*>(element) + sizeof(V));
  };
  const auto same = [](V a, V b) {
    if constexpr (std::is_floating_point_v<V>)
      return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
    else return a == b;
  };
  V best = read_element<V>(elements[0]);
  for (const void* element : elements.subspan(1)) {
    const V value = read_element<V>(element);
    if constexpr (std::is_floating_point_v<V>)
      best = fold_floats(op == ReduceOp::minloc ? ReduceOp::min : ReduceOp::max, best, value);
    else best = op == ReduceOp::minloc ? std::min(best, value) : std::max(best, value);
  }
  I index = std::numeric_limits<I>::max();
  for (const void* element : elements)
    if (same(read_element<V>(element), best)) index = std::min(index, index_of(element));
  if constexpr (std::is_floating_point_v<V>)
    if (std::isnan(best)) best = std::numeric_limits<V>::quiet_NaN();
  write_two(result, best, index);
}

// Folds in F, rounds once.
template <typename F>
void reference_float(DataType type, ReduceOp op, std::span<const void* const> elements, uint32_t divisor,
                     void* result) {
  F folded = F(element_to_double(type, elements[0]));
  for (const void* element : elements.subspan(1)) folded = fold_floats(op, folded, F(element_to_double(type, element)));
  if (divisor > 1) folded = folded / F(divisor);
  if (std::isnan(folded)) folded = std::numeric_limits<F>::quiet_NaN();
  element_from_double(type, double(folded), result);
}

// One element: the fold of `elements`, left to right, divided. Any divisor makes a truth value of one element.
inline void reference_element(DataType type, ReduceOp op, std::span<const void* const> elements, uint32_t divisor,
                              void* result) {
  if (elements.size() == 1 && divisor <= (gives_truth(op, type) ? 0 : 1)) {
    std::memcpy(result, elements[0], element_bytes(type));
    return;
  }
  switch (type) {
    case DataType::int8: return reference_integer<int8_t>(op, elements, divisor, result);
    case DataType::uint8: return reference_integer<uint8_t>(op, elements, divisor, result);
    case DataType::int16: return reference_integer<int16_t>(op, elements, divisor, result);
    case DataType::uint16: return reference_integer<uint16_t>(op, elements, divisor, result);
    case DataType::boolean: return reference_bool(op, elements, result);
    case DataType::complex64: return reference_complex<float>(op, elements, divisor, result);
    case DataType::complex128: return reference_complex<double>(op, elements, divisor, result);
    case DataType::float32_int32: return reference_pair<float, int32_t>(op, elements, result);
    case DataType::float64_int64: return reference_pair<double, int64_t>(op, elements, result);
    case DataType::int32_int32: return reference_pair<int32_t, int32_t>(op, elements, result);
    case DataType::int64_int64: return reference_pair<int64_t, int64_t>(op, elements, result);
    case DataType::int32: return reference_integer<int32_t>(op, elements, divisor, result);
    case DataType::uint32: return reference_integer<uint32_t>(op, elements, divisor, result);
    case DataType::int64: return reference_integer<int64_t>(op, elements, divisor, result);
    case DataType::uint64: return reference_integer<uint64_t>(op, elements, divisor, result);
    case DataType::float64: return reference_float<double>(type, op, elements, divisor, result);
    default: return reference_float<float>(type, op, elements, divisor, result);
  }
}

// What reduce_function(type, op) must give for these inputs, all of one size in bytes.
inline std::vector<uint8_t> reference_reduce(DataType type, ReduceOp op,
                                             const std::vector<std::vector<uint8_t>>& inputs, uint32_t divisor) {
  const size_t bytes = element_bytes(type);
  std::vector<uint8_t> result(inputs.at(0).size());
  std::vector<const void*> elements(inputs.size());
  for (size_t offset = 0; offset + bytes <= result.size(); offset += bytes) {
    for (size_t k = 0; k < inputs.size(); ++k) elements[k] = inputs[k].data() + offset;
    reference_element(type, op, elements, divisor, result.data() + offset);
  }
  return result;
}

// What strict determinism gives for any number of inputs: from the left, in passes over at most 8 operands, of which each
// but the first begins with what the one before has left, rounded to the type. The last one divides.
inline std::vector<uint8_t> reference_left_fold(DataType type, ReduceOp op,
                                                const std::vector<std::vector<uint8_t>>& inputs, uint32_t divisor) {
  std::vector<std::vector<uint8_t>> pass;
  for (size_t i = 0; i < inputs.size(); ++i) {
    pass.push_back(inputs[i]);
    const bool last = i + 1 == inputs.size();
    if (last) return reference_reduce(type, op, pass, divisor);
    if (pass.size() == 8) pass = {reference_reduce(type, op, pass, 0)};
  }
  return {};
}

}  // namespace tutti
