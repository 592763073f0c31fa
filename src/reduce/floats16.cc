// float16 and bfloat16: folded in float32, rounded once to nearest even.
#include "reduce/families.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/floats16.cc"
#include <hwy/foreach_target.h>
#include "reduce/kernel-inl.h"
#include "reduce/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

struct Float16Element {
  using Lane = float;
  using Code = SmallFloatCode<10, 15>;
  static constexpr size_t bytes = 2;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    const auto halves = load_lanes(hn::Rebind<uint16_t, D>(), from);
    if constexpr (native_float16) {
      return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), halves));
    } else {
      const hn::RebindToSigned<D> bits;
      const auto element = hn::PromoteTo(bits, halves);
      const auto code = hn::And(element, hn::Set(bits, 0x7fff));
      const auto finite = hn::BitCast(bits, Code::decode(d, code));
      // Infinity and NaN: the largest exponent, the same mantissa.
      const auto special = hn::Add(hn::ShiftLeft<13>(code), hn::Set(bits, (255 - 31) << 23));
      const auto magnitude = hn::IfThenElse(hn::Gt(code, hn::Set(bits, 0x7bff)), special, finite);
      return hn::BitCast(d, hn::Or(magnitude, hn::ShiftLeft<16>(hn::Sub(element, code))));
    }
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> divide(D d, hn::Vec<D> v, uint32_t divisor) {
    return divide_floats(d, v, divisor);
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

struct Bfloat16Element {
  using Lane = float;
  static constexpr size_t bytes = 2;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    const hn::RebindToUnsigned<D> bits;
    const auto halves = load_lanes(hn::Rebind<uint16_t, D>(), from);
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, halves)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> divide(D d, hn::Vec<D> v, uint32_t divisor) {
    return divide_floats(d, v, divisor);
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

ReduceFunction float16_function_here(DataType type, ReduceOp op) {
  return type == DataType::bfloat16 ? function_for<Bfloat16Element>(op) : function_for<Float16Element>(op);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(float16_function_here);
ReduceFunction float16_function(DataType type, ReduceOp op) noexcept {
  return HWY_DYNAMIC_DISPATCH(float16_function_here)(type, op);
}

}  // namespace tutti
#endif
