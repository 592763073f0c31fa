// Reductions by a caller's own function.
#include "reduce/custom.h"

#include <algorithm>
#include <cstring>

#include "base/types.h"

namespace tutti {
namespace {

// The function sees aligned copies only, of so many bytes at once, which stay in the first cache.
constexpr size_t stage_bytes = 8192;
static_assert(stage_bytes >= opaque_bytes_max);

}  // namespace

void reduce_custom(const CustomReduction& custom, void* output, const void* const* inputs, int n_inputs,
                   size_t count) noexcept {
  alignas(64) std::byte stages[2][stage_bytes];
  const size_t block = stage_bytes / custom.element_bytes;
  for (size_t first = 0; first < count; first += block) {
    const size_t n = std::min(block, count - first), offset = first * custom.element_bytes;
    const size_t bytes = n * custom.element_bytes;
    std::memcpy(stages[0], static_cast<const std::byte*>(inputs[0]) + offset, bytes);
    for (int k = 1; k < n_inputs; ++k) {
      // What has been folded so far stands left, and the next input takes the result.
      std::byte* const next = stages[k % 2];
      std::memcpy(next, static_cast<const std::byte*>(inputs[k]) + offset, bytes);
      custom.function(stages[(k - 1) % 2], next, n, custom.context);
    }
    std::memcpy(static_cast<std::byte*>(output) + offset, stages[(n_inputs - 1) % 2], bytes);
  }
}

}  // namespace tutti
