// How a receiver copies large messages to where they go: by the way that suits where that lies. Learned from the places
// before it: where the output is more than a core's own caches hold, copy_passing is right, else copy_memory.
#pragma once

#include <cstddef>
#include <utility>

#include "reduce/copy.h"
#include "transport/shm/shm_run.h"

namespace tutti {

class ShmReads {
 public:
  explicit ShmReads(size_t own_cache_bytes) : output_(own_cache_bytes) {}

  void read(std::byte* data, const std::byte* place, size_t bytes) noexcept {
    const bool passes_here = passes(data, bytes);
    if (past_caches) {
      stream_bytes_on(data, place, bytes);
      is_unfenced_ = true;
    } else if (passes_here) {
      copy_passing(data, place, bytes);
    } else {
      copy_memory(data, place, bytes);
    }
  }

  // After the last part of a message.
  void end() noexcept {
    if (std::exchange(is_unfenced_, false)) stream_end();
  }

  bool past_caches = false;  // whoever receives knows that the output is not needed in any

  bool passes(const std::byte* data, size_t bytes) noexcept {
    output_.add(data, bytes);
    return output_.exceeds_caches();
  }

 private:
  bool is_unfenced_ = false;  // some part went past the caches, and others may not see it yet
  ShmRun output_;
};

}  // namespace tutti
