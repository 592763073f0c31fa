// Pairs of a value and an index: minloc and maxloc.
#include <cmath>
#include <limits>
#include <type_traits>

#include "reduce/families.h"
#include "reduce/plain.h"

namespace tutti {
namespace {

template <class V, class I>
struct Pair {
  V value;
  I index;
};

// Whether a stands before b in the order of min: NaN before all numbers, -0 before +0.
template <class V>
bool less(V a, V b) {
  if constexpr (std::is_floating_point_v<V>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
    if (a == b) return std::signbit(a) && !std::signbit(b);
  }
  return a < b;
}
// In the order of max: NaN before all numbers, then the greatest.
template <class V>
bool greater(V a, V b) {
  if constexpr (std::is_floating_point_v<V>)
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  return less(b, a);
}

template <bool greatest>
struct Locate {
  template <class V, class I>
  static Pair<V, I> apply(Pair<V, I> a, Pair<V, I> b) {
    const bool a_first = greatest ? greater(a.value, b.value) : less(a.value, b.value);
    const bool b_first = greatest ? greater(b.value, a.value) : less(b.value, a.value);
    if (a_first || (!b_first && a.index <= b.index)) return a;
    return b;
  }
  template <class V, class I>
  static Pair<V, I> finished(Pair<V, I> a) {
    if constexpr (std::is_floating_point_v<V>)
      if (std::isnan(a.value)) a.value = std::numeric_limits<V>::quiet_NaN();
    return a;
  }
};

template <class V, class I>
ReduceFunction pairs_for(ReduceOp op) {
  return op == ReduceOp::maxloc ? reduce_plain<Pair<V, I>, Locate<true>> : reduce_plain<Pair<V, I>, Locate<false>>;
}

}  // namespace

ReduceFunction pair_function(DataType type, ReduceOp op) noexcept {
  switch (type) {
    case DataType::float32_int32: return pairs_for<float, int32_t>(op);
    case DataType::float64_int64: return pairs_for<double, int64_t>(op);
    case DataType::int32_int32: return pairs_for<int32_t, int32_t>(op);
    default: return pairs_for<int64_t, int64_t>(op);
  }
}

}  // namespace tutti
