// Takes data out of all caches, so that a measurement begins with cold buffers.
#pragma once

#include <cstddef>
#include <span>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace tutti::perf {

#if defined(__x86_64__)
inline constexpr bool can_flush = true;

// Written back to memory and out of every core's caches when it returns.
inline void flush(std::span<const std::byte> data) {
  constexpr size_t line_bytes = 64;
  for (size_t at = 0; at < data.size(); at += line_bytes) _mm_clflush(data.data() + at);
  if (!data.empty()) _mm_clflush(data.data() + data.size() - 1);
  _mm_mfence();
}
#else
inline constexpr bool can_flush = false;
inline void flush(std::span<const std::byte>) {}
#endif

}  // namespace tutti::perf
