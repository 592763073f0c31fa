// Reductions and copies on host memory: one pass over up to eight inputs, SIMD chosen at run time.
//
// Arithmetic. Inputs are folded left to right: ((i0 op i1) op i2) … , element by element, so the order given is the
// order of addition and every SIMD width gives the same bits. 8- and 16-bit floats are folded in float32 and rounded
// once at the end (to nearest even); fp8 saturates as tutti.h says. Integers wrap. Floating min and max give NaN where
// any input is NaN, and take -0 as less than +0. A NaN result is the canonical quiet NaN of the type, whichever
// inputs it came from: sign 0, the highest mantissa bit alone (e4m3, which has one NaN: 0x7f). `divisor` > 1 divides
// the folded value before rounding (integers: truncating; floats: by the divisor as a float32, float64 by it exactly).
//
// Complex numbers are their two parts: (a + bi)(c + di) = (ac - bd) + (ad + bc)i, each operation rounded. Truth values
// (see gives_truth()): any element that is not 0 counts as true, results are 0 and 1; on bool sum and max are lor, prod
// and min are land, and the bitwise operators speak of truth values too. minloc and maxloc take the pair with the least
// or greatest value in the order of min and max; among equals the least index; a NaN before all numbers, made canonical.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"
#include "reduce/copy.h"

namespace tutti {

inline constexpr int reduce_inputs_max = 8;

// output[i] = fold(inputs[0][i], …, inputs[n_inputs - 1][i]) / divisor for i < count. 1 <= n_inputs <= 8. With one
// input and no divisor it copies bit for bit. Any alignment. `output` may be exactly one of the inputs; no other
// overlap. divisor 0 or 1: none; only sum and avg take more, and op avg behaves as sum: the division is the divisor's.
// Where a result is a truth value, nothing is divided, but any divisor from 1 on makes it one where there is one input
// too.
using ReduceFunction = void (*)(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t divisor,
                                Store store) noexcept;

// Null where defined() says no, and for a caller's own operators; premulsum's is that of sum. Constant for the life of
// the process; look up once per plan or call.
ReduceFunction reduce_function(DataType type, ReduceOp op) noexcept;

// The same to 2 to 8 outputs at once: the inputs are read once, and every output gets the same bits as by the function
// above. An output may be exactly one of the inputs. What is stored past the caches may pass later stores until
// stream_end().
using PutFunction = void (*)(void* const* outputs, int n_outputs, const void* const* inputs, int n_inputs, size_t count,
                             uint32_t divisor, Store store) noexcept;

// Null but for sums and means of float64, float32, float16 and bfloat16: what is joined otherwise goes by way of a stage.
PutFunction put_function(DataType type, ReduceOp op) noexcept;

// The instruction set in use, as Highway names it ("AVX3", "AVX2", "SSE4", "NEON", "SCALAR").
const char* reduce_target() noexcept;

}  // namespace tutti
