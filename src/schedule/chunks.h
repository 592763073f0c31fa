// The only place where elements are divided among chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tutti {

// `count` elements over `n` chunks, as even as whole units of 64 bytes allow; small counts divide by elements. Later
// chunks may be shorter or empty. The same on every rank: it depends on count, n and the element size only.
class Chunks {
 public:
  constexpr Chunks(size_t count, uint32_t n, size_t element_bytes) : count_(count) {
    // Divisions cost more than the rest of a small call.
    per_chunk_ = n == 1 ? count : (count + n - 1) / n;
    if (per_chunk_ * element_bytes < 256) return;
    const size_t unit = std::max<size_t>(1, 64 / element_bytes);
    per_chunk_ = (per_chunk_ + unit - 1) / unit * unit;
  }

  // First element of chunk i; the number of elements of chunks [i, i + n).
  constexpr size_t first(uint32_t i) const { return std::min(count_, i * per_chunk_); }
  constexpr size_t size(uint32_t i, uint32_t n = 1) const { return first(i + n) - first(i); }
  // Elements of the largest chunk.
  constexpr size_t per_chunk() const { return per_chunk_; }

 private:
  size_t count_;
  size_t per_chunk_;
};

// Elements of the longest tile, divided into `n` chunks, whose largest message, of message_chunks_max chunks, fits into
// message_bytes_max. A whole number of chunks that Chunks() does not round up; at least one element each.
constexpr size_t tile_elements_max(uint32_t n, uint32_t message_chunks_max, size_t element_bytes,
                                   size_t message_bytes_max) {
  const size_t unit = std::max<size_t>(1, 64 / element_bytes);
  size_t per_chunk = std::max<size_t>(1, message_bytes_max / (message_chunks_max * element_bytes));
  if (per_chunk >= 4 * unit) per_chunk -= per_chunk % unit;
  return per_chunk * n;
}

}  // namespace tutti
