// operator new that counts; on its own, as compilers distrust a replacement that they see inlined.
#include "transport/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uint64_t> allocations{0};
}  // namespace

void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* place = std::malloc(bytes)) return place;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t unit = size_t(alignment);
  if (void* place = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return place;
  throw std::bad_alloc();
}
void operator delete(void* place) noexcept { std::free(place); }
void operator delete(void* place, size_t) noexcept { std::free(place); }
void operator delete(void* place, std::align_val_t) noexcept { std::free(place); }
void operator delete(void* place, size_t, std::align_val_t) noexcept { std::free(place); }

uint64_t tutti::allocations_so_far() noexcept { return allocations.load(std::memory_order_relaxed); }
