// The only place where elements are divided among chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

// Chunks are divided at whole units of so many bytes, where elements are not larger.
inline constexpr size_t chunk_unit_bytes = 64;

// `count` elements over `n` chunks, as even as whole units allow; small counts divide by elements. Later
// chunks may be shorter or empty. The same on every rank: it depends on count, n and the element size only.
class Chunks {
 public:
  constexpr Chunks(size_t count, uint32_t n, size_t element_bytes) : count_(count) {
    // Divisions cost more than the rest of a small call.
    per_chunk_ = n == 1 ? count : (count + n - 1) / n;
    if (per_chunk_ * element_bytes < 256) return;
    const size_t unit = std::max<size_t>(1, chunk_unit_bytes / element_bytes);
    per_chunk_ = (per_chunk_ + unit - 1) / unit * unit;
  }

  // n blocks of `per_chunk` elements each, never rounded: a tile of them takes as many of each.
  static constexpr Chunks equal(size_t per_chunk, uint32_t n) {
    Chunks chunks(0, 1, 1);
    chunks.count_ = per_chunk * n;
    chunks.per_chunk_ = per_chunk;
    return chunks;
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
  const size_t unit = std::max<size_t>(1, chunk_unit_bytes / element_bytes);
  size_t per_chunk = std::max<size_t>(1, message_bytes_max / (message_chunks_max * element_bytes));
  if (per_chunk >= 4 * unit) per_chunk -= per_chunk % unit;
  return per_chunk * n;
}

// Elements of every tile but the last, which may have less, where `count` elements take tiles of at most tile_max (as above):
// alike, so that no message is much shorter than the ones before it, whose memory it then finds.
constexpr size_t even_tile_elements(size_t count, uint32_t n, size_t element_bytes, size_t tile_max) {
  if (count <= tile_max) return tile_max;
  const size_t tiles = (count + tile_max - 1) / tile_max;
  const Chunks chunks((count + tiles - 1) / tiles, n, element_bytes);
  return std::min(chunks.per_chunk() * n, tile_max);
}

// Blocks of sizes of their own in a caller's buffer: block i is sizes[i] elements from element firsts[i] on. Where the
// caller has but one of them, that one's first is 0.
struct BlockLayout {
  std::vector<size_t> sizes, firsts;

  // Beyond the last element.
  size_t end() const noexcept {
    size_t last = 0;
    for (size_t i = 0; i < sizes.size(); ++i) last = std::max(last, firsts[i] + sizes[i]);
    return last;
  }
};

// The blocks of a v-form's call, as one rank knows them.
struct Layout {
  BlockLayout input, output;  // in place, one buffer's for both
  // Only the two ranks between which a block goes know its size; else all ranks know all sizes, on both sides.
  bool of_pairs = false;
  size_t elements = 0;  // of the larger side
};

// A part of a block, counted from its first element.
struct BlockPart {
  size_t first, size;
};

// What a tile of a channel takes of a block of `size` elements, where every channel has one of `shares` even parts of
// every block, and every tile tile_max of each part at most (the last ones less, or nothing).
constexpr BlockPart tile_of_block(size_t size, uint32_t share, uint32_t shares, size_t tile, size_t tile_max,
                                  size_t element_bytes) {
  const Chunks parts(size, shares, element_bytes);
  const size_t of_share = parts.size(share), tile_elements = even_tile_elements(of_share, 1, element_bytes, tile_max);
  const size_t begin = std::min(of_share, tile * tile_elements);
  return {parts.first(share) + begin, std::min(tile_elements, of_share - begin)};
}

}  // namespace tutti
