// Whether a rank's own caches hold what it reads or writes for one call: told from buffers that follow each other in memory, as
// the tiles of a call's input or output do.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tutti {

class ShmRun {
 public:
  explicit ShmRun(size_t own_cache_bytes) : own_cache_bytes_(own_cache_bytes) {}

  // The next buffer. True: it does not follow the last one.
  bool add(const std::byte* data, size_t bytes) noexcept {
    const bool begins = data != end_;
    if (begins) {
      before_ = together_;
      together_ = 0;
    }
    end_ = data + bytes;
    together_ += bytes;
    return begins;
  }
  // Whether it belongs to more than the caches hold, as this or the last run tells.
  bool exceeds_caches() const noexcept { return bytes_together() > own_cache_bytes_; }
  // Of this run so far or the last one, whichever is longer.
  size_t bytes_together() const noexcept { return std::max(together_, before_); }

 private:
  const size_t own_cache_bytes_;
  const std::byte* end_ = nullptr;    // of the last buffer
  size_t together_ = 0, before_ = 0;  // bytes of the buffers up to there without a gap, and of those before them
};

}  // namespace tutti
