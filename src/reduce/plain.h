// Reductions as plain loops, which the compiler may vectorize: for types and operators whose speed matters little.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "reduce/reduce.h"

namespace tutti {

// A ReduceFunction. `Op` says how two elements of type T are joined, apply(a, b), and what becomes of a result,
// finished(a). Block by block over a stage that stays in the first cache, so that memory is only ever copied and may lie
// anywhere. One input alone is copied bit for bit, unless `finishes_alone` and there is a divisor, which Op ignores.
template <class T, class Op, bool finishes_alone = false>
void reduce_plain(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t divisor,
                  Store store) noexcept {
  if (n_inputs == 1 && !(finishes_alone && divisor > 0)) return copy_bytes(output, inputs[0], count * sizeof(T), store);
  constexpr size_t row = std::max<size_t>(1, 64 / sizeof(T)), block = 2048 / sizeof(T) / row * row;
  alignas(64) T folded[block] = {}, more[block] = {};
  for (size_t first = 0; first < count; first += block) {
    const size_t n = std::min(block, count - first), offset = first * sizeof(T), bytes = n * sizeof(T);
    const size_t rows = (n + row - 1) / row;
    std::memcpy(folded, static_cast<const std::byte*>(inputs[0]) + offset, bytes);
    for (int k = 1; k < n_inputs; ++k) {
      std::memcpy(more, static_cast<const std::byte*>(inputs[k]) + offset, bytes);
      for (size_t r = 0; r < rows; ++r)
        for (size_t i = r * row; i < r * row + row; ++i) folded[i] = Op::apply(folded[i], more[i]);
    }
    for (size_t i = 0; i < rows * row; ++i) folded[i] = Op::finished(folded[i]);
    copy_bytes(static_cast<std::byte*>(output) + offset, folded, bytes, store);
  }
}

}  // namespace tutti
