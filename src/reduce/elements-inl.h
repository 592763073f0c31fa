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
  static constexpr bool in_pairs = false;
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

// NaN of both vectors made canonical, where there is any, which is seldom.
template <class D>
HWY_INLINE void make_canonical(D d, hn::Vec<D>& v0, hn::Vec<D>& v1) {
  if (HWY_LIKELY(hn::AllFalse(d, hn::Or(hn::IsNaN(v0), hn::IsNaN(v1))))) return;
  v0 = canonical(d, v0);
  v1 = canonical(d, v1);
}

struct Float16Element : FloatLanes<float> {
  using Code = SmallFloatCode<10, 15>;
  static constexpr size_t bytes = 2;
  static constexpr bool in_pairs = native_float16;

#if HWY_TARGET != HWY_SCALAR
  template <class D>
  static HWY_INLINE void load_pair(D d, const uint8_t* from, hn::Vec<D>& v0, hn::Vec<D>& v1) {
    v0 = load(d, from);
    v1 = load(d, from + hn::Lanes(d) * bytes);
  }
  template <class D>
  static HWY_INLINE auto joined(D d, hn::Vec<D> v0, hn::Vec<D> v1) {
    const hn::Repartition<uint16_t, D> all;
    const hn::Rebind<hwy::float16_t, D> half;
    const hn::Rebind<uint16_t, D> half_bits;
    make_canonical(d, v0, v1);
    return hn::Combine(all, hn::BitCast(half_bits, hn::DemoteTo(half, v1)), hn::BitCast(half_bits, hn::DemoteTo(half, v0)));
  }
#endif
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
  static constexpr bool in_pairs = HWY_TARGET != HWY_SCALAR;

#if HWY_TARGET != HWY_SCALAR
  // The elements of even places and those of odd ones, which thus stay where they are.
  template <class D>
  static HWY_INLINE void load_pair(D d, const uint8_t* from, hn::Vec<D>& even, hn::Vec<D>& odd) {
    const hn::RebindToUnsigned<D> bits;
    const auto both = load_lanes(bits, from);
    even = hn::BitCast(d, hn::ShiftLeft<16>(both));
    odd = hn::BitCast(d, hn::And(both, hn::Set(bits, 0xffff0000u)));
  }
  template <class D>
  static HWY_INLINE auto joined(D d, hn::Vec<D> even, hn::Vec<D> odd) {
    const hn::RebindToUnsigned<D> bits;
    const hn::Repartition<uint16_t, D> halves;
    make_canonical(d, even, odd);
    const auto e = hn::BitCast(bits, even), o = hn::BitCast(bits, odd);
    const auto kept = hn::OddEven(hn::BitCast(halves, o), hn::BitCast(halves, hn::ShiftRight<16>(e)));
    const auto cut = hn::OddEven(hn::BitCast(halves, hn::ShiftLeft<16>(o)), hn::BitCast(halves, e));
    // One more where what is cut off is above a half of the last bit that is kept, or a half and that bit is 1: where
    // 0x8000 - cut + (that bit is 0) - 1 is below 0.
    const hn::RebindToSigned<decltype(halves)> whole;
    const auto below_half = hn::BitCast(whole, hn::Xor(cut, hn::Set(halves, uint16_t{0x7fff})));
    const auto is_even = hn::BitCast(whole, hn::AndNot(kept, hn::Set(halves, uint16_t{1})));
    return hn::Add(kept, hn::ShiftRight<15>(hn::BitCast(halves, hn::SaturatedAdd(below_half, is_even))));
  }
#endif

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

// Rounded by the instruction for it, of AVX512_BF16, which no target of Highway's is known to have (has_native_bfloat16()).
// It takes subnormals for zeros and keeps what a NaN carries: these, which are seldom, go the way of all processors.
#if HWY_TARGET == HWY_AVX3
struct NativeBfloat16Element : Bfloat16Element {
  template <class D>
  static HWY_INLINE auto joined(D d, hn::Vec<D> even, hn::Vec<D> odd) {
    const hn::Repartition<uint16_t, D> halves;
    constexpr int nan_or_subnormal = 0x80 | 0x20 | 0x01;
    const auto unfit = _mm512_fpclass_ps_mask(even.raw, nan_or_subnormal) | _mm512_fpclass_ps_mask(odd.raw, nan_or_subnormal);
    if (HWY_UNLIKELY(unfit != 0)) return Bfloat16Element::joined(d, even, odd);
    __m512i apart;  // first all of the even places
    asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(apart) : "v"(odd.raw), "v"(even.raw));
    alignas(64) static constexpr uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return hn::Vec<decltype(halves)>{_mm512_permutexvar_epi16(_mm512_load_si512(order), apart)};
  }
};

inline bool has_native_bfloat16() { return __builtin_cpu_supports("avx512bf16"); }
#endif

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
