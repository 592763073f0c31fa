// Blocks that follow each other round the circle of ranks, as slices: a slice does not wrap.
#pragma once

#include <algorithm>

#include "schedule/step.h"

namespace tutti {

// Calls use(slice) for blocks first, first + 1, …, first + count - 1, all modulo n: once, or twice where they pass n.
template <class Use>
constexpr void for_each_run(int first, int count, int n, Buffer buffer, Use use) {
  first %= n;
  const int straight = std::min(count, n - first);
  if (straight > 0) use(Slice{uint32_t(first), uint32_t(straight), buffer});
  if (count > straight) use(Slice{0, uint32_t(count - straight), buffer});
}

}  // namespace tutti
