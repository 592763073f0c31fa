// How elements are divided among chunks and tiles.
#include "schedule/chunks.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

// Whatever a buffer's size, no tile is longer than may be, none is needless, and the last is about as long as the others.
TEST(Chunks, TilesAreAlike) {
  constexpr size_t message_bytes_max = 64 * 1024;
  for (const uint32_t n : {1u, 2u, 3u, 7u, 8u, 64u})
    for (const size_t element_bytes : {size_t{1}, size_t{2}, size_t{4}, size_t{12}, size_t{16}}) {
      const size_t tile_max = tile_elements_max(n, 1, element_bytes, message_bytes_max);
      const size_t unit = std::max<size_t>(1, chunk_unit_bytes / element_bytes);
      for (const size_t count : {tile_max - 1, tile_max, tile_max + 1, tile_max + 77, tile_max * 3 / 2, 2 * tile_max - 1,
                                 2 * tile_max, 5 * tile_max / 2, 10 * tile_max + 1, 100 * tile_max - 3}) {
        SCOPED_TRACE(testing::Message() << count << " elements of " << element_bytes << " bytes in " << n << " chunks");
        const size_t tile = even_tile_elements(count, n, element_bytes, tile_max);
        ASSERT_LE(tile, tile_max);
        ASSERT_LE(Chunks(tile, n, element_bytes).per_chunk() * element_bytes, message_bytes_max);
        const size_t tiles = (count + tile - 1) / tile;
        ASSERT_EQ(tiles, (count + tile_max - 1) / tile_max);
        if (tiles == 1) continue;
        const size_t last = count - (tiles - 1) * tile;
        EXPECT_LE(tile - last, tiles * n * unit) << "but for whole units of every chunk";
      }
    }
}

}  // namespace
}  // namespace tutti
