// Memory of libtutti_malloc.so, where a process has it preloaded.
#pragma once

#include "memory/lent_region.h"

namespace tutti {

// What libtutti_malloc.so exports, of type PreloadedRegion*; its number changes with LentRegion.
inline constexpr const char* preloaded_region_name = "tutti_malloc_region_1";
using PreloadedRegion = const LentRegion*(const void* data);

// The region that `data` lies in; null: it is not in one, or no such heap is loaded. The region lives as long as the
// block of malloc that data lies in.
const LentRegion* preloaded_region(const void* data) noexcept;

}  // namespace tutti
