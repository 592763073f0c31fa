// float16 and bfloat16: folded in float32, rounded once to nearest even.
#include "reduce/families.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/floats16.cc"
#include <hwy/foreach_target.h>
#include "reduce/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

ReduceFunction float16_function_here(DataType type, ReduceOp op) {
  return type == DataType::bfloat16 ? function_for<Bfloat16Element>(op) : function_for<Float16Element>(op);
}

PutFunction float16_put_here(DataType type, ReduceOp op) {
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
