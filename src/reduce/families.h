// The families of kernels behind reduce_function, one source each. Private to this room.
#pragma once

#include "reduce/reduce.h"

namespace tutti {

// Each gives the function of the best instruction set for a type of its family; op avg gives that of sum.
ReduceFunction integer_function(DataType type, ReduceOp op) noexcept;
ReduceFunction float_function(DataType type, ReduceOp op) noexcept;    // float32, float64
ReduceFunction float16_function(DataType type, ReduceOp op) noexcept;  // float16, bfloat16
ReduceFunction float8_function(DataType type, ReduceOp op) noexcept;   // float8e4m3, float8e5m2

// These are made of the above, or plain loops: null where the operator has no meaning on the type.
ReduceFunction logic_function(DataType type, ReduceOp op) noexcept;    // land and lor of integers; bool
ReduceFunction complex_function(DataType type, ReduceOp op) noexcept;
ReduceFunction pair_function(DataType type, ReduceOp op) noexcept;

// Likewise for several outputs; null where the operator has none.
PutFunction float_put(DataType type, ReduceOp op) noexcept;
PutFunction float16_put(DataType type, ReduceOp op) noexcept;

// Below this, streaming costs more than it saves, and a streaming call stores as usual.
inline constexpr size_t streaming_bytes_min = 1024;

}  // namespace tutti
