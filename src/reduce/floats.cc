// float32 and float64: computed as they are stored.
#include "reduce/families.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/floats.cc"
#include <hwy/foreach_target.h>
#include "reduce/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

ReduceFunction float_function_here(DataType type, ReduceOp op) {
  return type == DataType::float64 ? function_for<FloatElement<double>>(op) : function_for<FloatElement<float>>(op);
}

PutFunction float_put_here(DataType type, ReduceOp op) {
  return type == DataType::float64 ? put_function_for<FloatElement<double>>(op) : put_function_for<FloatElement<float>>(op);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(float_function_here);
HWY_EXPORT(float_put_here);
ReduceFunction float_function(DataType type, ReduceOp op) noexcept {
  return HWY_DYNAMIC_DISPATCH(float_function_here)(type, op);
}
PutFunction float_put(DataType type, ReduceOp op) noexcept { return HWY_DYNAMIC_DISPATCH(float_put_here)(type, op); }

}  // namespace tutti
#endif
