// The Elements of floats: how each type is read into lanes and written back. Compiled once per instruction set.
#if defined(TUTTI_REDUCE_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_ELEMENTS_INL_H_
#undef TUTTI_REDUCE_ELEMENTS_INL_H_
#else
#define TUTTI_REDUCE_ELEMENTS_INL_H_
#endif

#include "reduce/kernel-inl.h"
#include "reduce/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

// What the Elements of floats have in common.
template <typename T>
struct FloatLanes {
  using Lane = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> divide(D d, hn::Vec<D> v, uint32_t divisor) {
    return divide_floats(d, v, divisor);
  }
};

// --- float32 and float64: computed as they are stored

template <typename T>
struct FloatElement : FloatLanes<T> {
  static constexpr size_t bytes = sizeof(T);

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    return load_lanes(d, from);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> rounded(D d, hn::Vec<D> v) {
    return canonical(d, v);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, uint8_t* to) {
    store_lanes(d, rounded(d, v), to);
  }
};

// --- float16 and bfloat16: computed in float32, rounded once to nearest even

struct Float16Element : FloatLanes<float> {
  using Code = SmallFloatCode<10, 15>;
  static constexpr size_t bytes = 2;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    const auto halves = load_lanes(hn::Rebind<uint16_t, D>(), from);
    if constexpr (native_float16) {
      return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), halves));
    } else {
      return Code::template decode_with_infinity<15>(d, hn::PromoteTo(hn::RebindToSigned<D>(), halves));
    }
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, uint8_t* to) {
    const hn::Rebind<uint16_t, D> halves;
    if constexpr (native_float16) {
      store_lanes(halves, hn::BitCast(halves, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), canonical(d, v))), to);
    } else {
      const hn::RebindToSigned<D> bits;
      const auto is_nan = hn::RebindMask(bits, hn::IsNaN(v));
      // What is 2^16 or more, infinity too, gets the code of 2^16, which is infinity's.
      const auto clamped = hn::Min(hn::Abs(v), hn::Set(d, 65536.0f));
      const auto code = hn::Or(Code::encode(d, clamped), sign_at<15>(d, v));
      const auto element = hn::IfThenElse(is_nan, hn::Set(bits, 0x7e00), code);
      store_lanes(halves, hn::TruncateTo(halves, hn::BitCast(hn::RebindToUnsigned<D>(), element)), to);
    }
  }
};

struct Bfloat16Element : FloatLanes<float> {
  static constexpr size_t bytes = 2;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    const hn::RebindToUnsigned<D> bits;
    const auto halves = load_lanes(hn::Rebind<uint16_t, D>(), from);
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, halves)));
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, uint8_t* to) {
    const hn::RebindToUnsigned<D> bits;
    const hn::Rebind<uint16_t, D> halves;
    const auto element = hn::BitCast(bits, canonical(d, v));
    const auto odd = hn::And(hn::ShiftRight<16>(element), hn::Set(bits, 1u));
    const auto rounded = hn::Add(element, hn::Add(odd, hn::Set(bits, 0x7fffu)));
    store_lanes(halves, hn::TruncateTo(halves, hn::ShiftRight<16>(rounded)), to);
  }
};

// --- float8e4m3 and float8e5m2: computed in float32, rounded once to nearest even, saturating

// Where float16 is native, a code is first moved into the places of a float16.
struct Float8e4m3Element : FloatLanes<float> {
  using Code = SmallFloatCode<3, 7>;
  static constexpr size_t bytes = 1;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    const hn::Rebind<int8_t, D> narrow;
    const auto element = load_lanes(narrow, from);
    if constexpr (native_float16) {
      // Sign, a zero, four bits of exponent with float16's bias, three of mantissa: 2^-8 of the value.
      const hn::Rebind<int16_t, D> half;
      const auto places = hn::And(hn::ShiftLeft<7>(hn::PromoteTo(half, element)), hn::Set(half, int16_t(0xbf80)));
      const auto is_nan = hn::Eq(hn::And(places, hn::Set(half, int16_t(0x3f80))), hn::Set(half, int16_t(0x3f80)));
      const auto halves = hn::IfThenElse(is_nan, hn::Set(half, int16_t(0x7e00)), places);
      return hn::Mul(hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), halves)), hn::Set(d, 256.0f));
    } else {
      const hn::RebindToSigned<D> bits;
      const auto wide = hn::PromoteTo(bits, element);
      const auto code = hn::And(wide, hn::Set(bits, 0x7f));
      const auto nan = hn::Set(bits, 0x7fc00000);
      const auto finite = hn::BitCast(bits, Code::decode(d, code));
      const auto magnitude = hn::IfThenElse(hn::Eq(code, hn::Set(bits, 0x7f)), nan, finite);
      const auto sign = hn::ShiftLeft<31>(hn::ShiftRight<7>(hn::BitCast(hn::RebindToUnsigned<D>(), wide)));
      return hn::BitCast(d, hn::Or(magnitude, hn::BitCast(bits, sign)));
    }
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, uint8_t* to) {
    const hn::RebindToSigned<D> bits;
    const hn::Rebind<uint8_t, D> narrow;
    const auto is_nan = hn::RebindMask(bits, hn::IsNaN(v));
    const auto clamped = hn::Min(hn::Abs(v), hn::Set(d, 448.0f));
    const auto code = hn::Or(Code::encode(d, clamped), sign_at<7>(d, v));
    const auto element = hn::IfThenElse(is_nan, hn::Set(bits, 0x7f), code);
    store_lanes(narrow, hn::TruncateTo(narrow, hn::BitCast(hn::RebindToUnsigned<D>(), element)), to);
  }
};

struct Float8e5m2Element : FloatLanes<float> {
  using Code = SmallFloatCode<2, 15>;
  static constexpr size_t bytes = 1;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    const auto element = load_lanes(hn::Rebind<uint8_t, D>(), from);
    if constexpr (native_float16) {
      // A float16 with eight bits of mantissa less.
      const auto halves = hn::ShiftLeft<8>(hn::PromoteTo(hn::Rebind<uint16_t, D>(), element));
      return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), halves));
    } else {
      return Code::template decode_with_infinity<7>(d, hn::PromoteTo(hn::RebindToSigned<D>(), element));
    }
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, uint8_t* to) {
    const hn::RebindToSigned<D> bits;
    const hn::Rebind<uint8_t, D> narrow;
    const auto is_nan = hn::RebindMask(bits, hn::IsNaN(v));
    const auto magnitude = hn::Abs(v);
    // No product of eight finite elements leaves float32, so an infinity came from an input.
    const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
    const auto is_infinite = hn::RebindMask(bits, hn::Eq(magnitude, infinity));
    const auto finite = Code::encode(d, hn::Min(magnitude, hn::Set(d, 57344.0f)));
    const auto code = hn::Or(hn::IfThenElse(is_infinite, hn::Set(bits, 0x7c), finite), sign_at<7>(d, v));
    const auto element = hn::IfThenElse(is_nan, hn::Set(bits, 0x7e), code);
    store_lanes(narrow, hn::TruncateTo(narrow, hn::BitCast(hn::RebindToUnsigned<D>(), element)), to);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif
