// Exact sums of floats: of any number of inputs, rounded once. So they depend neither on the order nor on the grouping.
#pragma once

#include "reduce/reduce.h"

namespace tutti {

// Inputs of one sum, at most.
inline constexpr int exact_inputs_max = 1 << 16;

// output[i] = (inputs[0][i] + … + inputs[n - 1][i]) / divisor, exactly, then rounded once to nearest even. A
// ReduceFunction but for three things: n_inputs goes up to exact_inputs_max; one input alone is rounded too (which
// makes -0 into +0 and a NaN canonical); divisor 1 is as none.
//
// NaN where an input is one, or infinities of both signs are; an infinity where one is; a sum that is nothing is +0; a
// sum beyond the largest number is an infinity, or, of 8-bit floats, the largest number. Of complex numbers, both
// parts.
//
// Null where the type is no float and no complex number.
ReduceFunction exact_sum_function(DataType type) noexcept;

}  // namespace tutti
