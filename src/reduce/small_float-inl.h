// Floats of 8 and 16 bits to float32 lanes and back, by arithmetic alone. Compiled once per instruction set.
//
// A code is the bits of a small float without its sign. No float32 subnormal is ever an operand, so the results do not
// depend on a flush-to-zero mode, and no slow path of the processor is taken.
#if defined(TUTTI_REDUCE_SMALL_FLOAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_SMALL_FLOAT_INL_H_
#undef TUTTI_REDUCE_SMALL_FLOAT_INL_H_
#else
#define TUTTI_REDUCE_SMALL_FLOAT_INL_H_
#endif

#include <cstdint>
#include <limits>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether float16 is converted by instructions, exactly and to nearest even.
constexpr bool native_float16 = (HWY_TARGET & (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL)) != 0;

template <int mantissa, int exponent_bias>
struct SmallFloatCode {
  static constexpr int mantissa_bits = mantissa, bias = exponent_bias;
  static constexpr int shift = 23 - mantissa_bits;
  static constexpr int32_t smallest_normal = (128 - bias) << 23;  // 2^(1 - bias) as the bits of a float32

  // Finite codes. Subnormals are given the smallest normal exponent, whose leading one is subtracted again.
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<hn::RebindToSigned<D>> code) {
    const hn::RebindToSigned<D> bits;
    const auto shifted = hn::ShiftLeft<shift>(code);
    const auto normal = hn::BitCast(d, hn::Add(shifted, hn::Set(bits, (127 - bias) << 23)));
    const auto one = hn::BitCast(d, hn::Set(bits, smallest_normal));
    const auto subnormal = hn::Sub(hn::BitCast(d, hn::Add(shifted, hn::Set(bits, smallest_normal))), one);
    const auto is_subnormal = hn::Lt(code, hn::Set(bits, 1 << mantissa_bits));
    return hn::IfThenElse(hn::RebindMask(d, is_subnormal), subnormal, normal);
  }

  // Elements as whole numbers, with a sign in bit `sign_bit`. Infinities and NaN have the largest exponent and the same
  // mantissa.
  template <int sign_bit, class D>
  static HWY_INLINE hn::Vec<D> decode_with_infinity(D d, hn::Vec<hn::RebindToSigned<D>> element) {
    constexpr int32_t exponent_max = 2 * bias + 1;
    const hn::RebindToSigned<D> bits;
    const auto code = hn::And(element, hn::Set(bits, (1 << sign_bit) - 1));
    const auto finite = hn::BitCast(bits, decode(d, code));
    const auto special = hn::Add(hn::ShiftLeft<shift>(code), hn::Set(bits, (255 - exponent_max) << 23));
    const auto is_special = hn::Gt(code, hn::Set(bits, (exponent_max << mantissa_bits) - 1));
    const auto magnitude = hn::IfThenElse(is_special, special, finite);
    return hn::BitCast(d, hn::Or(magnitude, hn::ShiftLeft<31 - sign_bit>(hn::Sub(element, code))));
  }

  // Not negative, finite, at most a binade above the largest. Adding a power of two whose last bit weighs as much as
  // the last bit of the result lets the adder round to nearest even; what it left in the mantissa is the code, but
  // for the exponent.
  template <class D>
  static HWY_INLINE hn::Vec<hn::RebindToSigned<D>> encode(D d, hn::Vec<D> magnitude) {
    const hn::RebindToSigned<D> bits;
    const auto least = hn::Set(bits, smallest_normal);
    const auto exponent = hn::Max(hn::And(hn::BitCast(bits, magnitude), hn::Set(bits, 0x7f800000)), least);
    const auto rounder = hn::Add(exponent, hn::Set(bits, shift << 23));
    const auto rounded = hn::BitCast(bits, hn::Add(magnitude, hn::BitCast(d, rounder)));
    return hn::Add(hn::Sub(rounded, rounder), hn::ShiftRight<shift>(hn::Sub(exponent, least)));
  }
};

// The sign of each lane in the sign's place of a small float: bit 7 or 15.
template <int sign_bit, class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> sign_at(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> bits;
  const auto sign = hn::And(hn::BitCast(bits, v), hn::Set(bits, 0x80000000u));
  (void)d;
  return hn::BitCast(hn::RebindToSigned<D>(), hn::ShiftRight<31 - sign_bit>(sign));
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif
