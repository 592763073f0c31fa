// Sums of floats of 8 bits, 64 elements a turn, where a byte can be looked up among 128 (AVX512_VBMI), which says what a code
// means with two instructions. Compiled for AVX3 alone, which has the others that are used here.
#if defined(TUTTI_REDUCE_FLOAT8_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_FLOAT8_SUMS_INL_H_
#undef TUTTI_REDUCE_FLOAT8_SUMS_INL_H_
#else
#define TUTTI_REDUCE_FLOAT8_SUMS_INL_H_
#endif

#include <array>
#include <bit>

#include "reduce/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

inline bool has_byte_tables() { return __builtin_cpu_supports("avx512vbmi"); }

// Both formats end in a float16 of which the code is the upper bits, so that the subnormals of one are those of the other: e5m2
// as it is, e4m3 times 2^-8.
struct Float8e4m3Format {
  using Element = Float8e4m3Element;
  static constexpr int halvings = 8, largest = 0x7e;
};
struct Float8e5m2Format {
  using Element = Float8e5m2Element;
  static constexpr int halvings = 0, largest = 0x7b;
};

// The two bytes of a float32 that are not 0, of every code without its sign. Codes above the largest give NaN, infinity's too:
// turns that have any go the other way.
struct Float8Tables {
  alignas(64) std::array<uint8_t, 128> upper, lower;
};

template <class Format>
constexpr Float8Tables make_tables() {
  using Code = typename Format::Element::Code;
  constexpr int one = 1 << Code::mantissa_bits;
  Float8Tables tables = {};
  for (int code = 0; code < 128; ++code) {
    const int exponent = code / one, mantissa = code % one;
    // A mantissa's last bit weighs 2^(1 - bias - mantissa_bits) where the exponent is least.
    float value = exponent == 0 ? float(mantissa) : float(one + mantissa);
    for (int e = 1; e < exponent; ++e) value *= 2;
    for (int e = 1; e < Code::bias + Code::mantissa_bits + Format::halvings; ++e) value /= 2;
    const uint32_t bits = code > Format::largest ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
    tables.upper[size_t(code)] = uint8_t(bits >> 24);
    tables.lower[size_t(code)] = uint8_t(bits >> 16);
  }
  return tables;
}

template <class Format>
inline constexpr Float8Tables float8_tables = make_tables<Format>();

// Of every byte of `codes` the one that its lower seven bits number.
HWY_INLINE __m512i looked_up(__m512i codes, __m512i first, __m512i second) {
  asm("vpermi2b %2, %1, %0" : "+v"(codes) : "v"(first), "v"(second));
  return codes;
}

// 64 elements as float32, in the order in which bytes and words are unpacked and packed again.
struct Float8Turn {
  __m512 a, b, c, d;
};

template <class Format>
class Float8Sum {
 public:
  static constexpr __mmask64 all = ~__mmask64{0};

  // The elements of a turn that begins at `at`, or the first ones of it. n: of so many inputs, or as many as the fold has. Past
  // the caches go only whole turns, to a multiple of 64 bytes.
  template <int n>
  static HWY_INLINE void fold(const Fold& fold, size_t at, __mmask64 which, Store store) {
    const int n_inputs = n > 0 ? n : fold.n_inputs;
    const Float8Sum decoder;
    Float8Turn sum = decoder.decode(load(fold, 0, at, which));
    for (int k = 1; k < n_inputs; ++k) {
      const Float8Turn next = decoder.decode(load(fold, k, at, which));
      sum = {_mm512_add_ps(sum.a, next.a), _mm512_add_ps(sum.b, next.b), _mm512_add_ps(sum.c, next.c), _mm512_add_ps(sum.d, next.d)};
    }
    if (fold.divisor > 1) sum = divided(sum, float(fold.divisor));
    // What is cut off a sum of two is never near to a half of the last bit kept, of other results it may be.
    if (n != 2 || fold.divisor > 1) sum = with_rest(sum);
    encode(fold, at, which, store, halves(sum.a, sum.b), halves(sum.c, sum.d));
  }

 private:
  Float8Sum()
      : upper_{_mm512_load_si512(&float8_tables<Format>.upper[0]), _mm512_load_si512(&float8_tables<Format>.upper[64])},
        lower_{_mm512_load_si512(&float8_tables<Format>.lower[0]), _mm512_load_si512(&float8_tables<Format>.lower[64])} {}

  static HWY_INLINE __m512i load(const Fold& fold, int k, size_t at, __mmask64 which) {
    const uint8_t* const from = bytes_of(fold.inputs[k]) + at;
    return which == all ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi8(which, from);
  }

  HWY_INLINE Float8Turn decode(__m512i codes) const {
    const __m512i zero = _mm512_setzero_si512(), lower = looked_up(codes, lower_[0], lower_[1]);
    const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi8(char(0x80)));
    const __m512i upper = _mm512_or_si512(looked_up(codes, upper_[0], upper_[1]), sign);
    const __m512i first = _mm512_unpacklo_epi8(lower, upper), second = _mm512_unpackhi_epi8(lower, upper);
    return {_mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, first)), _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, first)),
             _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, second)), _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, second))};
  }

  static HWY_INLINE Float8Turn divided(const Float8Turn& turn, float divisor) {
    const __m512 by = _mm512_set1_ps(divisor);
    return {_mm512_div_ps(turn.a, by), _mm512_div_ps(turn.b, by), _mm512_div_ps(turn.c, by), _mm512_div_ps(turn.d, by)};
  }

  // With six bits of mantissa, the last of them set if any behind it was ("rounding to odd", Boldo and Melquiond, "Emulation of
  // FMA and correctly rounded sums", 2008): what is rounded later is rounded as if it were whole.
  static HWY_INLINE Float8Turn with_rest(const Float8Turn& turn) {
    return {with_rest(turn.a), with_rest(turn.b), with_rest(turn.c), with_rest(turn.d)};
  }
  static HWY_INLINE __m512 with_rest(__m512 v) {
    const __m512i bits = _mm512_castps_si512(v), behind = _mm512_set1_epi32(0x1ffff);
    const __m512i carried = _mm512_add_epi32(_mm512_and_si512(bits, behind), behind);
    return _mm512_castsi512_ps(_mm512_andnot_si512(behind, _mm512_or_si512(bits, carried)));
  }

  static HWY_INLINE __m512i halves(__m512 first, __m512 second) {
    constexpr int cut = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(first, cut)), _mm512_cvtps_ph(second, cut), 1);
  }

  // The magnitude's code, to nearest even, saturated, with its sign.
  static HWY_INLINE __m512i code(__m512i half, __m512i magnitude) {
    constexpr int shift = 10 - Format::Element::Code::mantissa_bits;
    const __m512i finite = _mm512_min_epu16(magnitude, _mm512_set1_epi16(Format::largest << shift));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(finite, shift), _mm512_set1_epi16(1));
    const __m512i rounded = _mm512_add_epi16(_mm512_add_epi16(finite, _mm512_set1_epi16((1 << (shift - 1)) - 1)), odd);
    return _mm512_or_si512(_mm512_srli_epi16(rounded, shift),
                           _mm512_and_si512(_mm512_srli_epi16(half, 8), _mm512_set1_epi16(0x80)));
  }

  static HWY_INLINE void encode(const Fold& fold, size_t at, __mmask64 which, Store store, __m512i first, __m512i second) {
    const __m512i magnitude = _mm512_set1_epi16(0x7fff), infinity = _mm512_set1_epi16(0x7c00);
    const __m512i first_magnitude = _mm512_and_si512(first, magnitude), second_magnitude = _mm512_and_si512(second, magnitude);
    const __m512i larger = _mm512_max_epu16(first_magnitude, second_magnitude);
    if (HWY_UNLIKELY(_mm512_cmpge_epu16_mask(larger, infinity) != 0)) return fold_special(fold, at, which);
    const __m512i packed = _mm512_packus_epi16(code(first, first_magnitude), code(second, second_magnitude));
    // Four bytes each of what was in `a`, in `b`, ...: packed, those of a and c stand before those of b and d.
    const __m512i order = _mm512_setr_epi32(0, 8, 2, 10, 1, 9, 3, 11, 4, 12, 6, 14, 5, 13, 7, 15);
    const __m512i codes = _mm512_permutexvar_epi32(order, packed);
    if (store == Store::streaming) _mm512_stream_si512(reinterpret_cast<__m512i*>(fold.output + at), codes);
    else if (which == all) _mm512_storeu_si512(fold.output + at, codes);
    else _mm512_mask_storeu_epi8(fold.output + at, which, codes);
  }

  // Where there is an infinity or a NaN.
  static HWY_NOINLINE void fold_special(const Fold& fold, size_t at, __mmask64 which) {
    const void* inputs[reduce_inputs_max] = {};
    const size_t count = size_t(std::popcount(uint64_t{which}));
    fold_part<typename Format::Element, Sum>(part<typename Format::Element>(fold, at, count, inputs));
  }

  const __m512i upper_[2], lower_[2];
};

template <class Format, int n>
HWY_INLINE void fold_float8(const Fold& fold, Store store) {
  using Sums = Float8Sum<Format>;
  constexpr size_t turn = 64;
  constexpr auto first_of = [](size_t count) { return Sums::all >> (turn - count); };
  size_t at = 0;
  if (store == Store::streaming) {
    at = -reinterpret_cast<uintptr_t>(fold.output) % turn;
    if (at > 0) Sums::template fold<n>(fold, 0, first_of(at), Store::cached);
  }
  for (; at + turn <= fold.count; at += turn) Sums::template fold<n>(fold, at, Sums::all, store);
  if (at < fold.count) Sums::template fold<n>(fold, at, first_of(fold.count - at), Store::cached);
}

// A ReduceFunction.
template <class Format>
HWY_NOINLINE void sum_float8(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t divisor,
                             Store store) noexcept {
  if (n_inputs == 1 && divisor <= 1) return copy_bytes(output, inputs[0], count, store);
  const Fold fold{static_cast<uint8_t*>(output), inputs, n_inputs, count, divisor};
  const Store way = store == Store::streaming && count >= streaming_bytes_min ? Store::streaming : Store::cached;
  if (n_inputs == 2) fold_float8<Format, 2>(fold, way);
  else fold_float8<Format, 0>(fold, way);
  if (way == Store::streaming) hwy::FlushStream();
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif
