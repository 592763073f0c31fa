// Multiplication of a buffer by one scalar.
#pragma once

#include <cstddef>

#include "base/types.h"

namespace tutti {

// output[i] = input[i] × scalar for i < count, as the operator prod multiplies, rounded to the type. The scalar is one
// element. Any alignment; output may be input; no other overlap. The type must have premulsum.
void scale(DataType type, const void* scalar, const void* input, void* output, size_t count) noexcept;

}  // namespace tutti
