// Which family serves a type, and copying.
#include "reduce/reduce.h"

#include "reduce/families.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/reduce.cc"
#include <hwy/foreach_target.h>
#include "reduce/stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

const char* target_here() { return hwy::TargetName(HWY_TARGET); }

void stream_copy_here(uint8_t* output, const uint8_t* input, size_t bytes) {
  stream_bytes(output, input, bytes);
  hwy::FlushStream();
}

void stream_on_here(uint8_t* output, const uint8_t* input, size_t bytes) { stream_bytes(output, input, bytes); }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(target_here);
HWY_EXPORT(stream_copy_here);
HWY_EXPORT(stream_on_here);

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

void copy_bytes(void* output, const void* input, size_t bytes, Store store) noexcept {
  if (output == input || bytes == 0) return;
  if (store == Store::streaming && bytes >= streaming_bytes_min)
    HWY_DYNAMIC_DISPATCH(stream_copy_here)(static_cast<uint8_t*>(output), static_cast<const uint8_t*>(input), bytes);
  else
    std::memcpy(output, input, bytes);
}

void stream_bytes_on(void* output, const void* input, size_t bytes) noexcept {
  HWY_DYNAMIC_DISPATCH(stream_on_here)(static_cast<uint8_t*>(output), static_cast<const uint8_t*>(input), bytes);
}

void stream_end() noexcept { hwy::FlushStream(); }

}  // namespace tutti
#endif
