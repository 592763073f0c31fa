// Multiplication of a buffer by one scalar.
#include "reduce/scale.h"

#include <algorithm>
#include <cstring>

#include "reduce/reduce.h"

namespace tutti {

void scale(DataType type, const void* scalar, const void* input, void* output, size_t count) noexcept {
  constexpr size_t block_bytes = 2048;
  const size_t width = element_bytes(type);
  const size_t block = std::min(count, block_bytes / width);  // NOLINT(clang-analyzer-core.DivideZero): none is opaque
  alignas(64) std::byte scalars[block_bytes];
  for (size_t i = 0; i < block; ++i) std::memcpy(scalars + i * width, scalar, width);
  const ReduceFunction multiply = reduce_function(type, ReduceOp::prod);
  for (size_t first = 0; first < count; first += block) {
    const size_t offset = first * width;
    const void* const inputs[] = {static_cast<const std::byte*>(input) + offset, scalars};
    multiply(static_cast<std::byte*>(output) + offset, inputs, 2, std::min(block, count - first), 0, Store::cached);
  }
}

}  // namespace tutti
