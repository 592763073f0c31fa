// Looking at the caches by the time-stamp counter of x86.
#include "reduce/cold.h"

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tutti {

#if defined(__x86_64__)
namespace {

constexpr size_t lines = 4;

// In ticks of the time-stamp counter: a last-level cache answers within 45 (a Zen 4) to 140 (large meshes), memory after 200
// to 350. Who takes memory for a cache loses little (engine/cold_outputs.h).
constexpr uint64_t ticks_max = 200;

uint64_t ticks() noexcept {
  _mm_lfence();
  const uint64_t now = __rdtsc();
  _mm_lfence();
  return now;
}

// Under some hypervisors the counter is not read by the processor itself, which takes thousands of its ticks.
bool counts_fast() noexcept {
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < 16; ++i) {
    const uint64_t start = ticks();
    least = std::min(least, ticks() - start);
  }
  return least < ticks_max / 2;
}

}  // namespace

bool can_tell_cold() noexcept {
  static const bool fast = counts_fast();
  return fast;
}

bool in_no_cache(const void* memory, size_t bytes, bool surely) noexcept {
  if (!can_tell_cold()) return false;
  // One line of each part, at distances that no prefetcher learns, even where areas are looked at one after the other.
  const auto* const first = static_cast<const unsigned char*>(memory);
  const size_t part = bytes / lines;
  uint64_t mixed = reinterpret_cast<uintptr_t>(memory);
  const auto place = [&](size_t i) {
    mixed = (mixed + i + 1) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 32;
    return i * part + mixed % part;
  };
  size_t loaded = 0;  // the next load waits for it
  const auto load = [&](size_t at) {
    asm volatile("movzbl (%1,%2), %k0\n\tand $0, %0" : "=r"(loaded) : "r"(first), "r"(at + loaded) : "memory", "cc");
  };
  const size_t places[lines] = {place(0), place(1), place(2), place(3)};
  const uint64_t start = ticks();
  load(places[0]);
  const uint64_t second = ticks();
  if (second - start <= ticks_max) return false;
  if (!surely) return true;
  for (size_t i = 1; i < lines; ++i) load(places[i]);
  return ticks() - second > (lines - 1) * ticks_max;
}
#else
bool can_tell_cold() noexcept { return false; }
bool in_no_cache(const void*, size_t, bool) noexcept { return false; }
#endif

}  // namespace tutti
