// What families.h is for the types that need the toolkit: float16 and both float8, and casts among floats.
#pragma once

#include "cuda_kernels/families.h"
#include "cuda_kernels/small_floats.h"

namespace tutti {

template <class Make>
typename Make::Body float16_body(DataType type, ReduceOp op, int n_inputs) {
  return type == DataType::bfloat16 ? float_body<Make, ScalarBfloat16>(op, n_inputs)
                                    : float_body<Make, ScalarFloat16>(op, n_inputs);
}

template <class Make>
typename Make::Body float8_body(DataType type, ReduceOp op, int n_inputs) {
  return type == DataType::float8e5m2 ? float_body<Make, ScalarFloat8e5m2>(op, n_inputs)
                                      : float_body<Make, ScalarFloat8e4m3>(op, n_inputs);
}

template <class Make>
typename Make::Body scale_body_of(DataType type) {
  switch (type) {
    case DataType::float16: return Make::template scale<ScalarFloat16, scalar::Prod>();
    case DataType::float8e4m3: return Make::template scale<ScalarFloat8e4m3, scalar::Prod>();
    case DataType::float8e5m2: return Make::template scale<ScalarFloat8e5m2, scalar::Prod>();
    default: return plain_scale_body<Make>(type);
  }
}

template <class Make, class In, class Out>
typename Make::Body cast_body() {
  if constexpr (std::is_same_v<In, Out>) return {};
  else return Make::template reduce<In, Out, scalar::Sum, kernel_inputs_max, 1>();
}

template <class Make, class In>
typename Make::Body cast_body(DataType to) {
  switch (to) {
    case DataType::float32: return cast_body<Make, In, PlainElement<float>>();
    case DataType::float16: return cast_body<Make, In, ScalarFloat16>();
    case DataType::bfloat16: return cast_body<Make, In, ScalarBfloat16>();
    case DataType::float8e4m3: return cast_body<Make, In, ScalarFloat8e4m3>();
    case DataType::float8e5m2: return cast_body<Make, In, ScalarFloat8e5m2>();
    default: return {};
  }
}

// Sums of floats of up to 32 bits, joined in float, as elements of another such type.
template <class Make>
typename Make::Body cast_body(DataType from, DataType to) {
  switch (from) {
    case DataType::float32: return cast_body<Make, PlainElement<float>>(to);
    case DataType::float16: return cast_body<Make, ScalarFloat16>(to);
    case DataType::bfloat16: return cast_body<Make, ScalarBfloat16>(to);
    case DataType::float8e4m3: return cast_body<Make, ScalarFloat8e4m3>(to);
    case DataType::float8e5m2: return cast_body<Make, ScalarFloat8e5m2>(to);
    default: return {};
  }
}

}  // namespace tutti
