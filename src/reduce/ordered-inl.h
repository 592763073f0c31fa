// max and min of floats of 8 and 16 bits, by their codes alone: an order of whole numbers. Compiled once per instruction set.
#if defined(TUTTI_REDUCE_ORDERED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_ORDERED_INL_H_
#undef TUTTI_REDUCE_ORDERED_INL_H_
#else
#define TUTTI_REDUCE_ORDERED_INL_H_
#endif

#include "reduce/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

// A code's key: the code itself where its sign is +, else the complement of its other bits, so that keys are ordered as what
// they stand for, -0 before +0. NaN has the key that wins: of max its canonical code, which is above infinity's, of min the
// lowest of all, which no number has. T is signed, `largest` the code of infinity, or of the largest number where there is none.
template <typename T, T largest, T nan, bool greatest>
struct OrderedElement {
  using Lane = T;
  static constexpr size_t bytes = sizeof(T);
  static constexpr bool in_pairs = false;
  static constexpr T without_sign = std::numeric_limits<T>::max(), lowest = std::numeric_limits<T>::min();

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    const auto code = load_lanes(d, from);
    const auto is_nan = hn::Gt(hn::And(code, hn::Set(d, without_sign)), hn::Set(d, largest));
    return hn::IfThenElse(is_nan, hn::Set(d, greatest ? nan : lowest), other_way(d, code));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> divide(D, hn::Vec<D> key, uint32_t) {
    return key;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> rounded(D d, hn::Vec<D> key) {
    const auto code = other_way(d, key);
    if constexpr (greatest) return code;
    return hn::IfThenElse(hn::Eq(key, hn::Set(d, lowest)), hn::Set(d, nan), code);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> key, uint8_t* to) {
    store_lanes(d, rounded(d, key), to);
  }

 private:
  // Of a code its key, of a key its code.
  template <class D>
  static HWY_INLINE hn::Vec<D> other_way(D d, hn::Vec<D> v) {
    return hn::Xor(v, hn::And(hn::BroadcastSignBit(v), hn::Set(d, without_sign)));
  }
};

template <class Element, typename T, T largest, T nan>
ReduceFunction small_float_function(ReduceOp op) {
  return function_for<Element, OrderedElement<T, largest, nan, true>, OrderedElement<T, largest, nan, false>>(op);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif
