// How a receiver copies large messages to where they go: by the way that suits where that lies. Learned from the places
// before it.
//
// What goes to places one after another belongs together, as the tiles of a call's output do. Where that is more than a core's
// own caches hold, copy_passing is right, else copy_memory.
#pragma once

#include <algorithm>
#include <cstddef>

#include "reduce/copy.h"

namespace tutti {

class ShmReads {
 public:
  explicit ShmReads(size_t own_cache_bytes) : own_cache_bytes_(own_cache_bytes) {}

  void read(std::byte* data, const std::byte* place, size_t bytes) noexcept {
    if (passes(data, bytes)) copy_passing(data, place, bytes);
    else copy_memory(data, place, bytes);
  }

  // Whether what is to be written there next belongs to more than the caches hold, as this or the last output tells.
  bool passes(const std::byte* data, size_t bytes) noexcept {
    if (data != end_) {
      before_ = together_;
      together_ = 0;
    }
    end_ = data + bytes;
    together_ += bytes;
    return std::max(together_, before_) > own_cache_bytes_;
  }

 private:
  const size_t own_cache_bytes_;
  const std::byte* end_ = nullptr;    // of the last place
  size_t together_ = 0, before_ = 0;  // bytes of the places up to there without a gap, and of those before them
};

}  // namespace tutti
