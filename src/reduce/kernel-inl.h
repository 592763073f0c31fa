// The body of every reduction: one pass over n inputs. Compiled once per instruction set by each family's source.
//
// An Element says how a type is read into lanes it can be computed in (float32 for the small floats) and written back;
// an Op joins two vectors of such lanes. Both speak of any width by a Highway tag. Small floats are read and written two
// vectors at a time where that is less work (in_pairs), in whatever order the Element likes.
#if defined(TUTTI_REDUCE_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_KERNEL_INL_H_
#undef TUTTI_REDUCE_KERNEL_INL_H_
#else
#define TUTTI_REDUCE_KERNEL_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <hwy/highway.h>
#include "reduce/families.h"
#include "reduce/stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Outputs that cannot be streamed from registers go through a stage of this size, which stays in the first cache.
constexpr size_t stage_bytes = 2048;

// --- Bytes and lanes: memory is touched as bytes, so that no alignment of elements is assumed ------------------------

template <class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const uint8_t* from) {
  if constexpr (HWY_TARGET == HWY_SCALAR) {
    hn::TFromD<D> lane;
    std::memcpy(&lane, from, sizeof lane);
    return hn::Set(d, lane);
  } else {
    return hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D>(), from));
  }
}

template <class D>
HWY_INLINE void store_lanes(D d, hn::Vec<D> v, uint8_t* to) {
  if constexpr (HWY_TARGET == HWY_SCALAR) {
    const hn::TFromD<D> lane = hn::GetLane(v);
    std::memcpy(to, &lane, sizeof lane);
  } else {
    const hn::Repartition<uint8_t, D> bytes;
    hn::StoreU(hn::BitCast(bytes, v), bytes, to);
    (void)d;
  }
}

// Past the caches; `to` lies at a multiple of the vector.
template <class D>
HWY_INLINE void stream_lanes(D d, hn::Vec<D> v, uint8_t* to) {
  if constexpr (HWY_TARGET == HWY_SCALAR) {
    store_lanes(d, v, to);
  } else {
    const hn::Repartition<uint8_t, D> bytes;
    hn::Stream(hn::BitCast(bytes, v), bytes, to);
    (void)d;
  }
}

HWY_INLINE const uint8_t* bytes_of(const void* input) { return static_cast<const uint8_t*>(input); }

// --- Operators -------------------------------------------------------------------------------------------------------

// Signed integers are added and multiplied as unsigned ones: the same bits, and they wrap by definition.
template <class D>
constexpr bool is_signed_integer = std::is_integral_v<hn::TFromD<D>>&& std::is_signed_v<hn::TFromD<D>>;

struct Sum {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b) {
    if constexpr (is_signed_integer<D>) {
      const hn::RebindToUnsigned<D> u;
      return hn::BitCast(d, hn::Add(hn::BitCast(u, a), hn::BitCast(u, b)));
    } else {
      return hn::Add(a, b);
    }
  }
};

struct Prod {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D d, V a, V b) {
    using Lane = hn::TFromD<D>;
    if constexpr (is_signed_integer<D>) {
      const hn::RebindToUnsigned<D> u;
      return hn::BitCast(d, apply(u, hn::BitCast(u, a), hn::BitCast(u, b)));
    } else if constexpr (std::is_floating_point_v<Lane> || sizeof(Lane) == 4) {
      return hn::Mul(a, b);
    } else if constexpr (hn::MaxLanes(D()) == 1) {
      return hn::Set(d, static_cast<Lane>(uint64_t{hn::GetLane(a)} * uint64_t{hn::GetLane(b)}));
    } else if constexpr (sizeof(Lane) == 1) {
      const hn::Repartition<uint16_t, D> pairs;
      const auto a16 = hn::BitCast(pairs, a), b16 = hn::BitCast(pairs, b);
      const auto even = hn::And(hn::Mul(a16, b16), hn::Set(pairs, uint16_t{0xff}));
      const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
      return hn::BitCast(d, hn::Or(even, odd));
    } else {
      return hn::Mul(a, b);
    }
  }
};

// NaN if any is NaN; equal values differ at most in the sign of zero, which And clears and Or sets.
struct Max {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      const V greater = hn::IfThenElse(hn::Gt(a, b), a, b);  // b where b is NaN
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), greater));
    } else {
      return hn::Max(a, b);
    }
  }
};

struct Min {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
      const V less = hn::IfThenElse(hn::Lt(a, b), a, b);
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), less));
    } else {
      return hn::Min(a, b);
    }
  }
};

// --- Loops -----------------------------------------------------------------------------------------------------------

// What one call is about; `inputs` may be at any offset into the caller's.
struct Fold {
  uint8_t* output;
  const void* const* inputs;
  int n_inputs;
  size_t count;
  uint32_t divisor;
};

// The folded value of one vector at `offset` bytes, before rounding to the element.
template <class Element, class Op, class D>
HWY_INLINE hn::Vec<D> fold_vector(D d, const Fold& fold, size_t offset) {
  auto folded = Element::load(d, bytes_of(fold.inputs[0]) + offset);
  for (int k = 1; k < fold.n_inputs; ++k)
    folded = Op::apply(d, folded, Element::load(d, bytes_of(fold.inputs[k]) + offset));
  return Element::divide(d, folded, fold.divisor);
}

// Elements of a turn: two vectors of lanes.
template <class Element, class D>
HWY_INLINE void load_pair(D d, const uint8_t* from, hn::Vec<D>& v0, hn::Vec<D>& v1) {
  if constexpr (Element::in_pairs) {
    Element::load_pair(d, from, v0, v1);
  } else {
    v0 = Element::load(d, from);
    v1 = Element::load(d, from + hn::Lanes(d) * Element::bytes);
  }
}

// Whether a turn's elements fill whole vectors, which can be streamed.
template <class Element>
constexpr bool fills_vectors = (Element::in_pairs ? 2 : 1) * Element::bytes == sizeof(typename Element::Lane);

// Rounds two vectors and writes them to all outputs. Streams only Elements that fill vectors, to aligned outputs.
template <class Element, Store store, class D>
HWY_INLINE void put_pair(D d, hn::Vec<D> v0, hn::Vec<D> v1, uint8_t* const* to, int n_outputs, size_t at) {
  if constexpr (Element::in_pairs) {
    const auto joined = Element::joined(d, v0, v1);
    const hn::DFromV<decltype(joined)> tag;
    for (int k = 0; k < n_outputs; ++k)
      if constexpr (store == Store::streaming) stream_lanes(tag, joined, to[k] + at);
      else store_lanes(tag, joined, to[k] + at);
  } else {
    const size_t step = hn::Lanes(d) * Element::bytes;
    for (int k = 0; k < n_outputs; ++k)
      if constexpr (store == Store::streaming) {
        stream_lanes(d, Element::rounded(d, v0), to[k] + at);
        stream_lanes(d, Element::rounded(d, v1), to[k] + at + step);
      } else {
        Element::store(d, v0, to[k] + at);
        Element::store(d, v1, to[k] + at + step);
      }
  }
}

// The inputs of a fold, read two vectors a turn: n of them, or, where n is 0, as many as the fold has. Every input
// has load instructions and a register of its own. Prefetchers tell streams apart by the instruction that reads
// them; and a core has, it seems, as many lines on their way from memory as it finds loads among the instructions
// ahead: out of the caches even the question whether there is one more input costs up to a tenth. Of more vectors a
// turn the compiler would choose the order.
template <class Element, class Op, int n>
class Inputs {
 public:
  HWY_INLINE explicit Inputs(const Fold& fold) : Inputs(fold, std::make_index_sequence<most>()) {}

  // Folds the two vectors that begin `at` bytes after the inputs' first.
  template <class D, class V>
  HWY_INLINE void fold(D d, size_t at, V& v0, V& v1) const {
    load_pair<Element>(d, from_[0] + at, v0, v1);
    join_others(d, at, v0, v1, std::make_index_sequence<most - 1>());
  }

 private:
  static constexpr int most = n > 0 ? n : reduce_inputs_max;

  // Of an input that is not there, the first one's place, where nobody reads for it.
  template <size_t... k>
  HWY_INLINE Inputs(const Fold& fold, std::index_sequence<k...>)
      : n_(fold.n_inputs), from_{bytes_of(fold.inputs[is_there(k) ? k : 0])...} {}

  template <class D, class V, size_t... k>
  HWY_INLINE void join_others([[maybe_unused]] D d, [[maybe_unused]] size_t at, V& v0, V& v1,
                              std::index_sequence<k...>) const {
    ((is_there(k + 1) ? join(d, from_[k + 1] + at, v0, v1) : void()), ...);
  }

  template <class D, class V>
  static HWY_INLINE void join(D d, const uint8_t* from, V& v0, V& v1) {
    V next0, next1;
    load_pair<Element>(d, from, next0, next1);
    v0 = Op::apply(d, v0, next0);
    v1 = Op::apply(d, v1, next1);
  }

  HWY_INLINE bool is_there(size_t k) const { return n > 0 || int(k) < n_; }

  const int n_;
  const uint8_t* const from_[most];
};

// Sums and the like may be written to several outputs at once.
constexpr int put_outputs_max = 8;

// Two vectors a turn, as far as they go, each to all outputs; returns the number of elements done. n, m > 0: so many
// inputs, so many outputs.
template <class Element, class Op, int n, int m, Store store, class D>
HWY_INLINE size_t fold_counted(D d, const Fold& fold, uint8_t* const* outputs, int n_outputs) {
  const size_t step = hn::Lanes(d) * Element::bytes, end = fold.count / (2 * hn::Lanes(d)) * 2 * step;
  const int to_n = m > 0 ? m : n_outputs;
  const Inputs<Element, Op, n> inputs(fold);
  uint8_t* to[m > 0 ? m : put_outputs_max];
  for (int k = 0; k < to_n; ++k) to[k] = outputs[k];
  const uint32_t divisor = fold.divisor;
  for (size_t at = 0; at < end; at += 2 * step) {
    hn::Vec<D> v0, v1;
    inputs.fold(d, at, v0, v1);
    v0 = Element::divide(d, v0, divisor);
    v1 = Element::divide(d, v1, divisor);
    put_pair<Element, store>(d, v0, v1, to, to_n, at);
  }
  return end / Element::bytes;
}

// Only sums are compiled for every number of inputs.
template <class Element, class Op, int m, Store store, class D>
HWY_INLINE size_t fold_turns(D d, const Fold& fold, uint8_t* const* outputs, int n_outputs) {
  if constexpr (std::is_same_v<Op, Sum>) {
    static_assert(reduce_inputs_max == 8);
    switch (fold.n_inputs) {
      case 1: return fold_counted<Element, Op, 1, m, store>(d, fold, outputs, n_outputs);
      case 2: return fold_counted<Element, Op, 2, m, store>(d, fold, outputs, n_outputs);
      case 3: return fold_counted<Element, Op, 3, m, store>(d, fold, outputs, n_outputs);
      case 4: return fold_counted<Element, Op, 4, m, store>(d, fold, outputs, n_outputs);
      case 5: return fold_counted<Element, Op, 5, m, store>(d, fold, outputs, n_outputs);
      case 6: return fold_counted<Element, Op, 6, m, store>(d, fold, outputs, n_outputs);
      case 7: return fold_counted<Element, Op, 7, m, store>(d, fold, outputs, n_outputs);
      default: return fold_counted<Element, Op, 8, m, store>(d, fold, outputs, n_outputs);
    }
  } else {
    return fold_counted<Element, Op, 0, m, store>(d, fold, outputs, n_outputs);
  }
}

// To the fold's own output.
template <class Element, class Op, Store store, class D>
HWY_INLINE size_t fold_turns(D d, const Fold& fold) {
  return fold_turns<Element, Op, 1, store>(d, fold, &fold.output, 1);
}

// Any count of at least one vector. The last vector may overlap the one before it: it is folded first, while an output
// that is also an input is still untouched, and written last.
template <class Element, class Op, bool wide, class D>
HWY_INLINE void fold_vectors(D d, const Fold& fold) {
  const size_t lanes = hn::Lanes(d), last = fold.count - lanes;
  const auto tail = fold_vector<Element, Op>(d, fold, last * Element::bytes);
  size_t i = 0;
  if constexpr (wide)
    if (fold.count >= 2 * lanes) i = fold_turns<Element, Op, Store::cached>(d, fold);
  for (; i < last; i += lanes) {
    const size_t offset = i * Element::bytes;
    Element::store(d, fold_vector<Element, Op>(d, fold, offset), fold.output + offset);
  }
  Element::store(d, tail, fold.output + last * Element::bytes);
}

// The widest vectors that the count fills.
template <class Element, class Op>
HWY_INLINE void fold_cached(const Fold& fold) {
  using Lane = typename Element::Lane;
  const hn::ScalableTag<Lane> full;
  const hn::CappedTag<Lane, 16 / sizeof(Lane)> half;
  const hn::CappedTag<Lane, 8 / sizeof(Lane)> quarter;
  const hn::CappedTag<Lane, 1> one;
  if (fold.count >= hn::Lanes(full)) return fold_vectors<Element, Op, true>(full, fold);
  if constexpr (hn::MaxLanes(half) > 1 && hn::MaxLanes(full) > hn::MaxLanes(half))
    if (fold.count >= hn::Lanes(half)) return fold_vectors<Element, Op, false>(half, fold);
  if constexpr (hn::MaxLanes(quarter) > 1)
    if (fold.count >= hn::Lanes(quarter)) return fold_vectors<Element, Op, false>(quarter, fold);
  if constexpr (hn::MaxLanes(full) > 1)
    for (size_t i = 0; i < fold.count; ++i) {
      const size_t offset = i * Element::bytes;
      Element::store(one, fold_vector<Element, Op>(one, fold, offset), fold.output + offset);
    }
}

// A ReduceFunction, defined below. The loops over a stage and past the caches call it for their parts: one copy of
// fold_cached for each Element and Op is enough to compile, and a call is nothing beside a part.
template <class Element, class Op>
HWY_NOINLINE void reduce(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t divisor,
                         Store store) noexcept;

template <class Element, class Op>
HWY_INLINE void fold_part(const Fold& fold) {
  reduce<Element, Op>(fold.output, fold.inputs, fold.n_inputs, fold.count, fold.divisor, Store::cached);
}

// The same fold for the elements [first, first + count), whose inputs' addresses are written to `inputs`.
template <class Element>
HWY_INLINE Fold part(const Fold& fold, size_t first, size_t count, const void** inputs) {
  const size_t offset = first * Element::bytes;
  for (int k = 0; k < fold.n_inputs; ++k) inputs[k] = bytes_of(fold.inputs[k]) + offset;
  return {fold.output + offset, inputs, fold.n_inputs, count, fold.divisor};
}

HWY_INLINE size_t past_cache_line(const uint8_t* output) {
  return reinterpret_cast<uintptr_t>(output) % cache_line_bytes;
}

// Block by block over a stage. The first block is cut so that the others begin on a cache line of the output, where
// its alignment allows.
template <class Element, class Op>
HWY_INLINE void fold_staged(const Fold& fold) {
  alignas(cache_line_bytes) uint8_t stage[stage_bytes];
  const void* inputs[reduce_inputs_max] = {};
  size_t count = (stage_bytes - past_cache_line(fold.output)) / Element::bytes;
  for (size_t i = 0; i < fold.count; i += count, count = stage_bytes / Element::bytes) {
    count = std::min(count, fold.count - i);
    Fold block = part<Element>(fold, i, count, inputs);
    uint8_t* output = std::exchange(block.output, stage);
    fold_part<Element, Op>(block);
    stream_bytes(output, stage, count * Element::bytes);
  }
}

// From vectors straight past the caches; what lies before the first cache line of the output, and after the last turn
// of two vectors, is stored as usual. The output lies at a multiple of the element.
template <class Element, class Op>
HWY_INLINE void fold_direct(const Fold& fold) {
  const void* inputs[reduce_inputs_max] = {};
  const size_t past = past_cache_line(fold.output), head = past == 0 ? 0 : (cache_line_bytes - past) / Element::bytes;
  if (head > 0) fold_part<Element, Op>(part<Element>(fold, 0, head, inputs));
  const hn::ScalableTag<typename Element::Lane> d;
  const Fold body = part<Element>(fold, head, fold.count - head, inputs);
  const size_t done = head + fold_turns<Element, Op, Store::streaming>(d, body);
  if (done < fold.count) fold_part<Element, Op>(part<Element>(fold, done, fold.count - done, inputs));
}

// The count is large: a head never reaches past it.
template <class Element, class Op>
HWY_NOINLINE void fold_streaming(const Fold& fold) {
  bool direct = false;
  if constexpr (fills_vectors<Element>) {
    direct = reinterpret_cast<uintptr_t>(fold.output) % Element::bytes == 0;
    if (direct) fold_direct<Element, Op>(fold);
  }
  if (!direct) fold_staged<Element, Op>(fold);
  hwy::FlushStream();
}

template <class Element, class Op>
HWY_NOINLINE void reduce(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t divisor,
                         Store store) noexcept {
  if (n_inputs == 1 && divisor <= 1) return copy_bytes(output, inputs[0], count * Element::bytes, store);
  const Fold fold{static_cast<uint8_t*>(output), inputs, n_inputs, count, divisor};
  if (store == Store::streaming && count * Element::bytes >= streaming_bytes_min)
    return fold_streaming<Element, Op>(fold);
  fold_cached<Element, Op>(fold);
}

// --- Several outputs -------------------------------------------------------------------------------------------------

template <class Element, class Op, Store store>
HWY_INLINE size_t put_turns(const Fold& fold, uint8_t* const* outputs, int n_outputs) {
  const hn::ScalableTag<typename Element::Lane> d;
  if (n_outputs == 2) return fold_turns<Element, Op, 2, store>(d, fold, outputs, n_outputs);
  return fold_turns<Element, Op, 0, store>(d, fold, outputs, n_outputs);
}

// By way of a stage in the first cache: what is left of a count, and what cannot be streamed from registers.
template <class Element, class Op>
HWY_NOINLINE void put_staged(const Fold& fold, uint8_t* const* outputs, int n_outputs, Store store) {
  alignas(cache_line_bytes) uint8_t stage[stage_bytes];
  const void* inputs[reduce_inputs_max] = {};
  constexpr size_t block = stage_bytes / Element::bytes;
  for (size_t i = 0; i < fold.count; i += block) {
    const size_t count = std::min(block, fold.count - i), at = i * Element::bytes;
    for (int k = 0; k < fold.n_inputs; ++k) inputs[k] = bytes_of(fold.inputs[k]) + at;
    fold_part<Element, Op>({stage, inputs, fold.n_inputs, count, fold.divisor});
    for (int k = 0; k < n_outputs; ++k)
      if (store == Store::streaming) stream_bytes(outputs[k] + at, stage, count * Element::bytes);
      else std::memcpy(outputs[k] + at, stage, count * Element::bytes);
  }
}

// A PutFunction.
template <class Element, class Op>
HWY_NOINLINE void put_everywhere(void* const* outputs, int n_outputs, const void* const* inputs, int n_inputs, size_t count,
                                 uint32_t divisor, Store store) noexcept {
  uint8_t* to[put_outputs_max] = {};
  bool aligned = true;
  for (int k = 0; k < n_outputs; ++k) {
    to[k] = static_cast<uint8_t*>(outputs[k]);
    aligned = aligned && past_cache_line(to[k]) == 0;
  }
  Fold fold{nullptr, inputs, n_inputs, count, divisor};
  size_t done = 0;
  if (store == Store::cached) {
    done = put_turns<Element, Op, Store::cached>(fold, to, n_outputs);
  } else {
    if constexpr (fills_vectors<Element>)
      if (aligned) done = put_turns<Element, Op, Store::streaming>(fold, to, n_outputs);
  }
  if (done == count) return;
  const void* rest[reduce_inputs_max] = {};
  for (int k = 0; k < n_inputs; ++k) rest[k] = bytes_of(inputs[k]) + done * Element::bytes;
  for (int k = 0; k < n_outputs; ++k) to[k] += done * Element::bytes;
  fold.inputs = rest;
  fold.count = count - done;
  put_staged<Element, Op>(fold, to, n_outputs, store);
}

constexpr bool is_sum(ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premulsum; }

template <class Element>
PutFunction put_function_for(ReduceOp op) {
  return is_sum(op) ? put_everywhere<Element, Sum> : nullptr;
}

// max and min by Elements of their own, where they have any.
template <class Element, class Greatest = Element, class Least = Element>
ReduceFunction function_for(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod: return reduce<Element, Prod>;
    case ReduceOp::max: return reduce<Greatest, Max>;
    case ReduceOp::min: return reduce<Least, Min>;
    default: return reduce<Element, Sum>;
  }
}

// --- For Elements that are computed as floats ------------------------------------------------------------------------

// The one quiet NaN, whatever NaN it was.
template <class D>
HWY_INLINE hn::Vec<D> canonical(D d, hn::Vec<D> v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN()), v);
}

template <class D>
HWY_INLINE hn::Vec<D> divide_floats(D d, hn::Vec<D> v, uint32_t divisor) {
  return divisor <= 1 ? v : hn::Div(v, hn::Set(d, static_cast<hn::TFromD<D>>(divisor)));
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif
