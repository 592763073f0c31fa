// What a rank tells peers of the same host of memory that they may map and read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

// A memory file as this process maps it. Slices of it are lent to peers, who map all of it.
struct LentRegion {
  uint64_t number = 0;  // no other region of this process has, had or will have it
  const std::byte* begin = nullptr;
  size_t bytes = 0;
  int fd = -1;          // sealed: its size never changes

  bool holds(const std::byte* data, size_t size) const noexcept {
    return data >= begin && size <= bytes && size_t(data - begin) <= bytes - size;
  }
};

}  // namespace tutti
