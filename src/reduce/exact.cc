// Exact sums: vectors of doubles with a proof, lane by lane, that nothing was lost; where there is none, the slow way.
#include "reduce/exact.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "reduce/accumulator.h"
#include "reduce/families.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/exact.cc"
#include <hwy/foreach_target.h>
#include "reduce/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

// Floats of 8 and 16 bits but bfloat16 span 41 bits: sums of so many fit into the 53 of a double.
constexpr int plain_inputs_max = 4096;

// What one call is about.
struct ExactCall {
  const void* const* inputs;
  int n_inputs;
  double divisor;     // from 1 on
  bool power_of_two;  // the divisor

  bool divides() const { return divisor != 1; }
};

// s + e is a + b, exactly, unless one is not finite: then e is NaN (Knuth, "The Art of Computer Programming", 4.2.2).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V two_sum(D, V a, V b, V& error) {
  const V s = hn::Add(a, b), b_part = hn::Sub(s, a), a_part = hn::Sub(s, b_part);
  error = hn::Add(hn::Sub(a, a_part), hn::Sub(b, b_part));
  return s;
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V either_bits(D d, V a, V b) {
  const hn::RebindToUnsigned<D> bits;
  return hn::BitCast(d, hn::Or(hn::BitCast(bits, a), hn::BitCast(bits, b)));
}

// --- From doubles to elements ----------------------------------------------------------------------------------------

// The neighbour of `value` on the side of `rest`, which is what its last bit lacks, where that makes the last bit odd:
// a later rounding to fewer bits then sees that something lies beyond (Boldo, Melquiond, "Emulation of FMA and
// correctly rounded sums: proved algorithms using rounding to odd", 2008).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V towards_odd(D d, V value, V rest) {
  const hn::RebindToSigned<D> bits;
  const auto code = hn::BitCast(bits, value), one = hn::Set(bits, int64_t{1});
  const auto outwards = hn::Or(hn::BroadcastSignBit(hn::Xor(code, hn::BitCast(bits, rest))), one);  // 1, or -1
  const auto even = hn::Eq(hn::And(code, one), hn::Zero(bits));
  const auto inexact = hn::RebindMask(bits, hn::Ne(rest, hn::Zero(d)));
  return hn::BitCast(d, hn::IfThenElse(hn::And(even, inexact), hn::Add(code, outwards), code));
}

// The 24 highest bits, the last one odd where anything lies below them. For what is a normal float32, or has no more
// bits.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V cut_to_odd_float(D d, V value) {
  const hn::RebindToSigned<D> bits;
  const auto code = hn::BitCast(bits, value), below = hn::Set(bits, (int64_t{1} << 29) - 1);
  const auto lost = hn::And(code, below);
  const auto sticky = hn::IfThenElseZero(hn::Ne(lost, hn::Zero(bits)), hn::Set(bits, int64_t{1} << 29));
  return hn::BitCast(d, hn::Or(hn::AndNot(below, code), sticky));
}

// A type whose sums are computed in doubles: how it is read, and written from a double that stands for an exact value.
template <class Element_, DataType type_, bool never_rounds_>
struct NarrowSum {
  using Element = Element_;
  static constexpr DataType type = type_;
  static constexpr size_t bytes = Element::bytes;
  // Sums of up to plain_inputs_max inputs fit into a double, whatever they are.
  static constexpr bool never_rounds = never_rounds_;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    return hn::PromoteTo(d, Element::load(hn::Rebind<float, D>(), from));
  }

  // A quotient that is rounded to a double and then to the type is right. For let h lie half-way between two elements:
  // h × divisor is a double, as it has at most 25 + 17 bits. So if value / divisor is not h, value is another double,
  // further from h × divisor than half of h's last bit times the divisor, and the double nearest to the quotient is not
  // h.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V divided(D d, V value, const ExactCall& call, V& bad) {
    if (!call.divides()) return value;
    value = hn::Div(value, hn::Set(d, call.divisor));
    if constexpr (type == DataType::bfloat16) {  // whose way leads over float32, which has fewer bits there
      const auto small = hn::Lt(hn::Abs(value), hn::Set(d, 0x1p-126));
      bad = hn::IfThenElse(hn::AndNot(hn::Eq(value, hn::Zero(d)), small), hn::Set(d, 1.0), bad);
    }
    return value;
  }

  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, uint8_t* to) {
    const hn::Rebind<float, D> narrow;
    if constexpr (bytes < sizeof(float)) value = cut_to_odd_float(d, value);
    if constexpr (HWY_TARGET == HWY_SCALAR) {  // where Highway makes the largest number of what is beyond it
      Element::store(narrow, hn::Set(narrow, static_cast<float>(hn::GetLane(value))), to);
    } else {
      Element::store(narrow, hn::DemoteTo(narrow, value), to);
    }
  }
};

using Float32Sum = NarrowSum<FloatElement<float>, DataType::float32, false>;
using Bfloat16Sum = NarrowSum<Bfloat16Element, DataType::bfloat16, false>;
using Float16Sum = NarrowSum<Float16Element, DataType::float16, true>;
using Float8e4m3Sum = NarrowSum<Float8e4m3Element, DataType::float8e4m3, true>;
using Float8e5m2Sum = NarrowSum<Float8e5m2Element, DataType::float8e5m2, true>;

// float64: the sum is high + low.
struct Float64Sum {
  static constexpr DataType type = DataType::float64;
  static constexpr size_t bytes = 8;
  static constexpr bool never_rounds = false;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    return load_lanes(d, from);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, uint8_t* to) {
    FloatElement<double>::store(d, value, to);
  }

  // high is what high + low rounds to.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V divided(D d, V high, V low, const ExactCall& call, V& bad) {
    if (!call.divides()) return high;
    const V divisor = hn::Set(d, call.divisor);
    V quotient = hn::Div(high, divisor);
    if (!call.power_of_two) quotient = divided_by_any(d, high, low, quotient, divisor, bad);
    // Near the ends of the range, what is said below of exact steps does not hold, nor that halving is exact.
    const V size = hn::Abs(quotient);
    const auto inside = hn::And(hn::Ge(size, hn::Set(d, 0x1p-900)), hn::Le(size, hn::Set(d, 0x1p+900)));
    const auto nothing = hn::And(hn::Eq(high, hn::Zero(d)), hn::Eq(low, hn::Zero(d)));
    bad = hn::IfThenElse(hn::Or(inside, nothing), bad, hn::Set(d, 1.0));
    return quotient;
  }

  // The quotient of high and what is left over, exactly, give the next bits of the quotient; where they leave no doubt
  // to which side it is rounded, it is right (Ziv's test).
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V divided_by_any(D d, V high, V low, V quotient, V divisor, V& bad) {
    const hn::RebindToUnsigned<D> bits;
    const V upper = hn::BitCast(d, hn::And(hn::BitCast(bits, quotient), hn::Set(bits, ~uint64_t{0} << 27)));
    const V lower = hn::Sub(quotient, upper);  // both times the divisor, of 17 bits, are exact
    const V rest = hn::Sub(hn::Sub(high, hn::Mul(upper, divisor)), hn::Mul(lower, divisor));
    V tail;
    const V sum = two_sum(d, quotient, hn::Div(hn::Add(rest, low), divisor), tail);
    const V more = hn::Mul(tail, hn::Set(d, 1 + 0x1p-40));
    bad = hn::IfThenElse(hn::Eq(sum, hn::Add(sum, more)), bad, hn::Set(d, 1.0));
    return sum;
  }
};

// --- Sums of one vector, right in the lanes where `bad` is zero
// --------------------------------------------------------

template <class Sum, class D>
HWY_INLINE hn::Vec<D> load_at(D d, const ExactCall& call, int k, size_t i) {
  return Sum::load(d, bytes_of(call.inputs[k]) + i * Sum::bytes);
}

// Additions that are exact whatever the inputs.
template <class Sum, class D>
HWY_INLINE void add_plainly(D d, const ExactCall& call, size_t i, hn::Vec<D>& sum, hn::Vec<D>& bad) {
  sum = load_at<Sum>(d, call, 0, i);
  for (int k = 1; k < call.n_inputs; ++k) sum = hn::Add(sum, load_at<Sum>(d, call, k, i));
  bad = hn::Zero(d);
}

// s is exact where no addition has left an error.
template <class Sum, class D>
HWY_INLINE void add_once(D d, const ExactCall& call, size_t i, hn::Vec<D>& sum, hn::Vec<D>& bad) {
  sum = load_at<Sum>(d, call, 0, i);
  bad = hn::Zero(d);
  for (int k = 1; k < call.n_inputs; ++k) {
    hn::Vec<D> error;
    sum = two_sum(d, sum, load_at<Sum>(d, call, k, i), error);
    bad = either_bits(d, bad, error);
  }
}

// high + low is exact where no addition of errors has left an error: two sums, one below the other (Ogita, Rump, Oishi,
// "Accurate sum and dot product", 2005).
template <class Sum, class D>
HWY_INLINE void add_twice(D d, const ExactCall& call, size_t i, hn::Vec<D>& high, hn::Vec<D>& low, hn::Vec<D>& bad) {
  hn::Vec<D> sum = load_at<Sum>(d, call, 0, i), errors = hn::Zero(d);
  bad = hn::Zero(d);
  for (int k = 1; k < call.n_inputs; ++k) {
    hn::Vec<D> error, lost;
    sum = two_sum(d, sum, load_at<Sum>(d, call, k, i), error);
    errors = two_sum(d, errors, error, lost);
    bad = either_bits(d, bad, lost);
  }
  high = two_sum(d, sum, errors, low);
}

template <class D>
HWY_INLINE bool all_good(D d, hn::Vec<D> bad) {
  return hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

// As above with `levels` sums, one below the other: as many inputs are added exactly whatever they are, and more where
// they fit. Then parts[0] is what the sum rounds to, but for ties, and each later part what all before it lack.
constexpr int levels = 4;

template <class Sum, class D, class V = hn::Vec<D>>
HWY_INLINE void add_in_levels(D d, const ExactCall& call, size_t i, V (&parts)[levels], V& bad) {
  for (V& part : parts) part = hn::Zero(d);
  bad = hn::Zero(d);
  for (int k = 0; k < call.n_inputs; ++k) {
    V rest = load_at<Sum>(d, call, k, i);
    for (int level = 0; level < std::min(levels, k); ++level) parts[level] = two_sum(d, parts[level], rest, rest);
    if (k < levels) {
      parts[k] = rest;  // where nothing was added yet
    } else {
      bad = either_bits(d, bad, rest);
    }
  }
  V moved;
  for (int round = 0; round < levels; ++round) {
    moved = hn::Zero(d);
    for (int level = levels - 1; level > 0; --level) {
      V low;
      const V high = two_sum(d, parts[level - 1], parts[level], low);
      moved = either_bits(d, moved, hn::Sub(high, parts[level - 1]));
      parts[level - 1] = high, parts[level] = low;
    }
    if (all_good(d, moved)) break;
  }
  bad = either_bits(d, bad, moved);
}

// A vector whose first sum was not exact everywhere. Its lanes that were stay as they are.
template <class Sum, class D>
HWY_NOINLINE void add_again(D d, const ExactCall& call, size_t i, hn::Vec<D>& sum, hn::Vec<D>& bad) {
  hn::Vec<D> high, low;
  if (call.n_inputs > levels) add_twice<Sum>(d, call, i, high, low, bad);
  if (call.n_inputs <= levels || !all_good(d, bad)) {
    hn::Vec<D> parts[levels];
    add_in_levels<Sum>(d, call, i, parts, bad);
    high = parts[0], low = parts[1];
  }
  sum = towards_odd(d, high, low);
}

// The same for float64, where a tie is decided by what lies below `low`.
template <class D>
HWY_NOINLINE void add_float64_again(D d, const ExactCall& call, size_t i, hn::Vec<D>& high, hn::Vec<D>& low,
                                    hn::Vec<D>& bad) {
  hn::Vec<D> parts[levels];
  add_in_levels<Float64Sum>(d, call, i, parts, bad);
  high = parts[0], low = parts[1];
  const auto next = hn::Add(high, hn::Mul(low, hn::Set(d, 1 + 0x1p-52)));
  const auto decided = hn::Or(hn::Eq(next, high), hn::Eq(parts[2], hn::Zero(d)));
  bad = hn::IfThenElse(decided, bad, hn::Set(d, 1.0));
}

// Lanes that are still in doubt get their element by the slow way, into `codes`. Before anything is written: the output
// may be an input.
template <class Sum, class D>
HWY_NOINLINE void sum_doubtful(D d, const ExactCall& call, size_t i, hn::Vec<D> bad, uint64_t* codes, bool* doubtful) {
  HWY_ALIGN double flags[hn::MaxLanes(D())];
  hn::Store(hn::IfThenElse(hn::Eq(bad, hn::Zero(d)), hn::Zero(d), hn::Set(d, 1.0)), d, flags);
  for (size_t lane = 0; lane < hn::Lanes(d); ++lane) {
    doubtful[lane] = flags[lane] != 0;
    if (doubtful[lane])
      codes[lane] = sum_slowly(float_format(Sum::type), call.inputs, call.n_inputs, i + lane, uint32_t(call.divisor));
  }
}

// One vector from its sum to the output.
template <class Sum, class D>
HWY_INLINE void finish_vector(D d, const ExactCall& call, size_t i, hn::Vec<D> sum, hn::Vec<D> bad, uint8_t* to) {
  const hn::Vec<D> zero = hn::Zero(d);
  if (HWY_LIKELY(all_good(d, bad))) return Sum::store(d, hn::Add(sum, zero), to);  // + 0 makes -0 into +0
  uint64_t codes[hn::MaxLanes(D())];
  bool doubtful[hn::MaxLanes(D())];
  sum_doubtful<Sum>(d, call, i, bad, codes, doubtful);
  const auto good = hn::Eq(bad, zero);
  Sum::store(d, hn::IfThenElseZero(good, hn::Add(sum, zero)), to);
  for (size_t lane = 0; lane < hn::Lanes(d); ++lane)
    if (doubtful[lane]) std::memcpy(to + lane * Sum::bytes, &codes[lane], Sum::bytes);
}

// `plain`: additions are exact whatever the inputs.
template <class Sum, bool plain, class D>
HWY_INLINE void sum_vector(D d, const ExactCall& call, size_t i, uint8_t* to) {
  hn::Vec<D> sum, bad;
  if constexpr (Sum::type == DataType::float64) {
    hn::Vec<D> high, low;
    add_twice<Sum>(d, call, i, high, low, bad);
    if (HWY_UNLIKELY(!all_good(d, bad))) add_float64_again(d, call, i, high, low, bad);
    sum = Sum::divided(d, high, low, call, bad);
  } else {
    if constexpr (plain) {
      add_plainly<Sum>(d, call, i, sum, bad);
    } else {
      add_once<Sum>(d, call, i, sum, bad);
      if (HWY_UNLIKELY(!all_good(d, bad))) {
        if (call.n_inputs == 2) {  // `bad` is what the one addition lacks: all of that, unless it is NaN
          sum = towards_odd(d, sum, bad);
          bad = hn::IfThenZeroElse(hn::Eq(bad, bad), bad);
        } else {
          add_again<Sum>(d, call, i, sum, bad);
        }
      }
    }
    sum = Sum::divided(d, sum, call, bad);
  }
  finish_vector<Sum>(d, call, i, sum, bad, to);
}

// Elements [first, first + count) into `to`.
template <class Sum, bool plain>
HWY_INLINE void sum_range(const ExactCall& call, size_t first, size_t count, uint8_t* to) {
  const hn::ScalableTag<double> d;
  const hn::CappedTag<double, 1> one;
  const size_t lanes = hn::Lanes(d), end = first + count;
  size_t i = first;
  for (; i + lanes <= end; i += lanes, to += lanes * Sum::bytes) sum_vector<Sum, plain>(d, call, i, to);
  for (; i < end; ++i, to += Sum::bytes) sum_vector<Sum, plain>(one, call, i, to);
}

// A stage at a time past the caches, or all at once.
template <class Sum, bool plain>
HWY_NOINLINE void sum_all(const ExactCall& call, size_t count, uint8_t* output, Store store) {
  if (store == Store::cached || count * Sum::bytes < streaming_bytes_min)
    return sum_range<Sum, plain>(call, 0, count, output);
  alignas(cache_line_bytes) uint8_t stage[stage_bytes];
  size_t n = (stage_bytes - past_cache_line(output)) / Sum::bytes;  // later ones begin on a cache line, where they can
  for (size_t i = 0; i < count; i += n, n = stage_bytes / Sum::bytes) {
    n = std::min(n, count - i);
    sum_range<Sum, plain>(call, i, n, stage);
    stream_bytes(output + i * Sum::bytes, stage, n * Sum::bytes);
  }
  hwy::FlushStream();
}

// A ReduceFunction, as exact.h says.
template <class Sum>
void exact_sum(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t divisor,
               Store store) noexcept {
  const uint32_t parts = std::max(divisor, 1u);
  const ExactCall call{inputs, n_inputs, double(parts), std::has_single_bit(parts)};
  auto* const bytes = static_cast<uint8_t*>(output);
  if constexpr (Sum::never_rounds)
    if (n_inputs <= plain_inputs_max) return sum_all<Sum, true>(call, count, bytes, store);
  sum_all<Sum, false>(call, count, bytes, store);
}

ReduceFunction exact_sum_function_here(DataType type) {
  switch (type) {
    case DataType::float64: return exact_sum<Float64Sum>;
    case DataType::float32: return exact_sum<Float32Sum>;
    case DataType::float16: return exact_sum<Float16Sum>;
    case DataType::bfloat16: return exact_sum<Bfloat16Sum>;
    case DataType::float8e4m3: return exact_sum<Float8e4m3Sum>;
    case DataType::float8e5m2: return exact_sum<Float8e5m2Sum>;
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(exact_sum_function_here);

namespace {

ReduceFunction of_floats(DataType type) noexcept { return HWY_DYNAMIC_DISPATCH(exact_sum_function_here)(type); }

// Of complex numbers: both parts.
template <DataType part>
void exact_sum_of_parts(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t divisor,
                        Store store) noexcept {
  of_floats(part)(output, inputs, n_inputs, 2 * count, divisor, store);
}

}  // namespace

ReduceFunction exact_sum_function(DataType type) noexcept {
  if (type == DataType::complex64) return exact_sum_of_parts<DataType::float32>;
  if (type == DataType::complex128) return exact_sum_of_parts<DataType::float64>;
  return of_floats(type);
}

}  // namespace tutti
#endif
