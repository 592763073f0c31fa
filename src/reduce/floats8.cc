// float8e4m3 and float8e5m2: folded in float32, rounded once to nearest even, saturating. max and min
// compare their codes.
#include "reduce/families.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/floats8.cc"
#include <hwy/foreach_target.h>
#include "reduce/elements-inl.h"
#include "reduce/float8_sums-inl.h"
#include "reduce/ordered-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

ReduceFunction float8_function_here(DataType type, ReduceOp op) {
#if HWY_TARGET == HWY_AVX3
  if (is_sum(op) && has_byte_tables())
    return type == DataType::float8e5m2 ? sum_float8<Float8e5m2Format> : sum_float8<Float8e4m3Format>;
#endif
  return type == DataType::float8e5m2 ? small_float_function<Float8e5m2Element, int8_t, 0x7c, 0x7e>(op)
                                      : small_float_function<Float8e4m3Element, int8_t, 0x7e, 0x7f>(op);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(float8_function_here);
ReduceFunction float8_function(DataType type, ReduceOp op) noexcept {
  return HWY_DYNAMIC_DISPATCH(float8_function_here)(type, op);
}

}  // namespace tutti
#endif
