// Pairs of a value and an index: minloc and maxloc.
#include "reduce/elements.h"
#include "reduce/families.h"
#include "reduce/plain.h"

namespace tutti {
namespace {

template <class V, class I>
ReduceFunction pairs_for(ReduceOp op) {
  return op == ReduceOp::maxloc ? reduce_plain<Pair<V, I>, scalar::Locate<true>>
                                : reduce_plain<Pair<V, I>, scalar::Locate<false>>;
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
