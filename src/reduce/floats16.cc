// float16 and bfloat16: folded in float32, rounded once to nearest even. max and min compare their codes.
#include "reduce/families.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/floats16.cc"
#include <hwy/foreach_target.h>
#include "reduce/elements-inl.h"
#include "reduce/ordered-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

ReduceFunction float16_function_here(DataType type, ReduceOp op) {
#if HWY_TARGET == HWY_AVX3
  if (type == DataType::bfloat16 && is_sum(op) && has_native_bfloat16()) return reduce<NativeBfloat16Element, Sum>;
#endif
  return type == DataType::bfloat16 ? small_float_function<Bfloat16Element, int16_t, 0x7f80, 0x7fc0>(op)
                                    : small_float_function<Float16Element, int16_t, 0x7c00, 0x7e00>(op);
}

PutFunction float16_put_here(DataType type, ReduceOp op) {
#if HWY_TARGET == HWY_AVX3
  if (type == DataType::bfloat16 && has_native_bfloat16()) return put_function_for<NativeBfloat16Element>(op);
#endif
  return type == DataType::bfloat16 ? put_function_for<Bfloat16Element>(op) : put_function_for<Float16Element>(op);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(float16_function_here);
HWY_EXPORT(float16_put_here);
ReduceFunction float16_function(DataType type, ReduceOp op) noexcept {
  return HWY_DYNAMIC_DISPATCH(float16_function_here)(type, op);
}
PutFunction float16_put(DataType type, ReduceOp op) noexcept { return HWY_DYNAMIC_DISPATCH(float16_put_here)(type, op); }

}  // namespace tutti
#endif
