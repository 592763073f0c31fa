// Looking at the caches by the time-stamp counter of x86.
#include "reduce/cold.h"

#include <algorithm>
#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tutti {

#if defined(__x86_64__)
namespace {

constexpr size_t lines = 4;

uint64_t ticks() noexcept {
  _mm_lfence();
  const uint64_t now = __rdtsc();
  _mm_lfence();
  return now;
}

// The one before it first: `at` counts on what that one loaded, which is made 0.
size_t load(const unsigned char* first, size_t at) noexcept {
  size_t loaded = 0;
  asm volatile("movzbl (%1,%2), %k0\n\tand $0, %0" : "=r"(loaded) : "r"(first), "r"(at) : "memory", "cc");
  return loaded;
}

// What a load took that came from memory; cannot_tell where it cannot be told from one that came from a cache: on an
// emulated processor, or where a hypervisor stands between this one and its time-stamp counter.
uint64_t ticks_of_memory() noexcept {
  constexpr size_t line_bytes = 64, times = 15;
  alignas(line_bytes) const unsigned char memory[times * line_bytes] = {};
  std::array<uint64_t, times> flushed, loaded_before;
  for (size_t i = 0; i < times; ++i) {
    const size_t at = i * line_bytes;
    _mm_clflush(memory + at);
    _mm_mfence();
    for (uint64_t* const took : {&flushed[i], &loaded_before[i]}) {
      const uint64_t start = ticks();
      load(memory, at);
      *took = ticks() - start;
    }
  }
  std::nth_element(flushed.begin(), flushed.begin() + times / 2, flushed.end());
  std::nth_element(loaded_before.begin(), loaded_before.begin() + times / 2, loaded_before.end());
  const uint64_t median = flushed[times / 2];
  return median >= 3 * loaded_before[times / 2] ? median : TicksOfMemory::cannot_tell;
}

uint64_t ticks_max() noexcept {
  static TicksOfMemory ticks(ticks_of_memory);
  return ticks.most_of_others();
}

}  // namespace

bool can_tell_cold() noexcept { return ticks_max() != TicksOfMemory::cannot_tell; }

bool in_no_cache(const void* memory, size_t bytes, bool surely) noexcept {
  // One line of each part, at distances that no prefetcher learns, even where areas are looked at one after the other.
  const auto* const first = static_cast<const unsigned char*>(memory);
  const size_t part = bytes / lines;
  uint64_t mixed = reinterpret_cast<uintptr_t>(memory);
  const auto place = [&](size_t i) {
    mixed = (mixed + i + 1) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 32;
    return i * part + mixed % part;
  };
  const size_t places[lines] = {place(0), place(1), place(2), place(3)};
  const uint64_t most = ticks_max(), start = ticks();
  size_t loaded = load(first, places[0]);
  const uint64_t second = ticks();
  if (second - start <= most) return false;
  if (!surely) return true;
  for (size_t i = 1; i < lines; ++i) loaded = load(first, places[i] + loaded);
  return ticks() - second > (lines - 1) * most;
}
#else
bool can_tell_cold() noexcept { return false; }
bool in_no_cache(const void*, size_t, bool) noexcept { return false; }
#endif

}  // namespace tutti
