// How often this program has allocated: link count_allocations.cc to replace operator new.
#pragma once

#include <cstdint>

namespace tutti {

uint64_t allocations_so_far() noexcept;

}  // namespace tutti
