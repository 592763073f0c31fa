// Integers of 8 to 64 bits: they wrap; division truncates. Bits are joined as bytes, of whatever width.
#include <bit>

#include "reduce/families.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/integers.cc"
#include <hwy/foreach_target.h>
#include "reduce/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

template <typename T>
struct IntegerElement {
  using Lane = T;
  static constexpr size_t bytes = sizeof(T);
  static constexpr bool in_pairs = false;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* from) {
    return load_lanes(d, from);
  }
  // Done by sum_integers, for many elements at once.
  template <class D>
  static HWY_INLINE hn::Vec<D> divide(D, hn::Vec<D> v, uint32_t) {
    return v;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> rounded(D, hn::Vec<D> v) {
    return v;
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, uint8_t* to) {
    store_lanes(d, v, to);
  }
};

// Up to 32 bits by way of a float twice as wide, which the compiler vectorizes: (magnitude + 1/2) / divisor is at least
// half of 1 / divisor away from any whole number, and two roundings, of the reciprocal and of the product, move it by less
// than 2^-6 of 1 / divisor. Of 64 bits, halves, quarters and so on are shifted. A whole number of blocks at a time: what
// is vectorized at -O2.
constexpr size_t divided_block = 64;

template <typename T>
HWY_INLINE void divide_block(T* elements, uint32_t divisor) {
  constexpr size_t count = divided_block;
  if constexpr (sizeof(T) < 8) {
    using Float = std::conditional_t<sizeof(T) < 4, float, double>;
    using Whole = std::conditional_t<sizeof(T) < 4, int32_t, int64_t>;
    const Float reciprocal = Float{1} / static_cast<Float>(divisor);
    for (size_t i = 0; i < count; ++i) {
      const Float value = static_cast<Float>(elements[i]), half = elements[i] < T{0} ? Float(-0.5) : Float(0.5);
      elements[i] = static_cast<T>(static_cast<Whole>((value + half) * reciprocal));
    }
  } else if (std::has_single_bit(divisor)) {
    const int shift = std::countr_zero(divisor);
    for (size_t i = 0; i < count; ++i) {
      const T towards_zero = elements[i] < T{0} ? static_cast<T>(divisor - 1) : T{0};
      elements[i] = static_cast<T>((elements[i] + towards_zero) >> shift);
    }
  } else {
    for (size_t i = 0; i < count; ++i) elements[i] = static_cast<T>(elements[i] / static_cast<T>(divisor));
  }
}

// Block by block: sum into a stage, divide there, copy to the output.
template <typename T>
HWY_NOINLINE void average(const Fold& fold, Store store) {
  constexpr size_t stage_elements = stage_bytes / sizeof(T);
  static_assert(stage_elements % divided_block == 0);
  alignas(64) T stage[stage_elements];
  const void* inputs[reduce_inputs_max];
  for (size_t i = 0; i < fold.count; i += stage_elements) {
    const size_t count = std::min(stage_elements, fold.count - i), offset = i * sizeof(T);
    for (int k = 0; k < fold.n_inputs; ++k) inputs[k] = bytes_of(fold.inputs[k]) + offset;
    reduce<IntegerElement<std::make_unsigned_t<T>>, Sum>(stage, inputs, fold.n_inputs, count, 1, Store::cached);
    std::fill(stage + count, stage + (count + divided_block - 1) / divided_block * divided_block, T{0});
    for (size_t k = 0; k < count; k += divided_block) divide_block(stage + k, fold.divisor);
    if (store == Store::streaming)
      stream_bytes(fold.output + offset, reinterpret_cast<const uint8_t*>(stage), count * sizeof(T));
    else
      std::memcpy(fold.output + offset, stage, count * sizeof(T));
  }
  if (store == Store::streaming) hwy::FlushStream();
}

// A ReduceFunction.
template <typename T>
void sum_integers(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t divisor,
                  Store store) noexcept {
  if (divisor > 1) return average<T>({static_cast<uint8_t*>(output), inputs, n_inputs, count, divisor}, store);
  reduce<IntegerElement<std::make_unsigned_t<T>>, Sum>(output, inputs, n_inputs, count, 1, store);
}

struct BitAnd {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::And(a, b);
  }
};
struct BitOr {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Or(a, b);
  }
};
struct BitXor {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Xor(a, b);
  }
};

template <class Op>
HWY_NOINLINE void reduce_bytes(void* output, const void* const* inputs, int n_inputs, size_t bytes, Store store) {
  reduce<IntegerElement<uint8_t>, Op>(output, inputs, n_inputs, bytes, 1, store);
}

// A ReduceFunction for elements of any `width`. Only avg divides.
template <size_t width, class Op>
void reduce_bits(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t, Store store) noexcept {
  reduce_bytes<Op>(output, inputs, n_inputs, count * width, store);
}

// Sums and products have the same bits with a sign and without.
template <typename T>
ReduceFunction integers_for(ReduceOp op) {
  switch (op) {
    case ReduceOp::band: return reduce_bits<sizeof(T), BitAnd>;
    case ReduceOp::bor: return reduce_bits<sizeof(T), BitOr>;
    case ReduceOp::bxor: return reduce_bits<sizeof(T), BitXor>;
    case ReduceOp::prod: return reduce<IntegerElement<std::make_unsigned_t<T>>, Prod>;
    case ReduceOp::max: return reduce<IntegerElement<T>, Max>;
    case ReduceOp::min: return reduce<IntegerElement<T>, Min>;
    default: return sum_integers<T>;
  }
}

ReduceFunction integer_function_here(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::int8: return integers_for<int8_t>(op);
    case DataType::uint8: return integers_for<uint8_t>(op);
    case DataType::int16: return integers_for<int16_t>(op);
    case DataType::uint16: return integers_for<uint16_t>(op);
    case DataType::int32: return integers_for<int32_t>(op);
    case DataType::uint32: return integers_for<uint32_t>(op);
    case DataType::int64: return integers_for<int64_t>(op);
    default: return integers_for<uint64_t>(op);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(integer_function_here);
ReduceFunction integer_function(DataType type, ReduceOp op) noexcept {
  return HWY_DYNAMIC_DISPATCH(integer_function_here)(type, op);
}

}  // namespace tutti
#endif
