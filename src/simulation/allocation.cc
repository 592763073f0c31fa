// operator new, with a counter in front.
#include "simulation/allocation.h"

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace tutti {
namespace {

// The one mutable global of the simulator: operator new is global too. Below 0: nothing fails.
constinit int allocations_left = -1;
constinit bool has_failed = false;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (allocations_left >= 0 && allocations_left-- == 0) {
    has_failed = true;
    throw std::bad_alloc();
  }
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = alignment <= alignof(std::max_align_t) ? std::malloc(bytes == 0 ? 1 : bytes)
                                                              : std::aligned_alloc(alignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void fail_allocation(int before) noexcept {
  allocations_left = before;
  has_failed = false;
}

bool allow_allocations() noexcept {
  allocations_left = -1;
  return std::exchange(has_failed, false);
}

}  // namespace tutti

void* operator new(std::size_t bytes) { return tutti::allocate(bytes, 1); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return ::operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(std::size_t bytes, std::align_val_t alignment) { return tutti::allocate(bytes, std::size_t(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
