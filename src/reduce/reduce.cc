// Which family serves a type.
#include "reduce/reduce.h"

#include "reduce/families.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/reduce.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

const char* target_here() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(target_here);

const char* reduce_target() noexcept { return HWY_DYNAMIC_DISPATCH(target_here)(); }

ReduceFunction reduce_function(DataType type, ReduceOp op) noexcept {
  if (!defined(op, type) || op == ReduceOp::custom || op == ReduceOp::custom_in_order) return nullptr;
  if (gives_truth(op, type)) return logic_function(type, op);
  switch (family(type)) {
    case Family::complex: return complex_function(type, op);
    case Family::pair: return pair_function(type, op);
    case Family::floating: break;
    default: return integer_function(type, op);
  }
  switch (type) {
    case DataType::float32:
    case DataType::float64: return float_function(type, op);
    case DataType::float16:
    case DataType::bfloat16: return float16_function(type, op);
    default: return float8_function(type, op);
  }
}

PutFunction put_function(DataType type, ReduceOp op) noexcept {
  switch (type) {
    case DataType::float32:
    case DataType::float64: return float_put(type, op);
    case DataType::float16:
    case DataType::bfloat16: return float16_put(type, op);
    default: return nullptr;
  }
}

}  // namespace tutti
#endif
