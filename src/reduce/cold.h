// Whether memory lies in the caches now.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti {

// Smaller outputs are not looked at: what looking costs would show.
inline constexpr size_t cold_bytes_min = size_t{32} << 10;

// Whether `memory`, of 4 KiB or more that may be read, lies in no cache nearby, by how long loads of lines here
// and there in it take, one after the other: some 20 ns if it does, 0.15 us a line if not. One line that is in a cache says
// that all are; surely: whether four must be in none to say that all are, else one. The lines looked at are in the caches
// afterwards. False where can_tell_cold() is.
bool in_no_cache(const void* memory, size_t bytes, bool surely) noexcept;

// From how many ticks on a load is taken to come from memory: three quarters of the least that was measured. Memory is never
// much faster than at its best, but often slower, for as long as a neighbour of this virtual machine keeps it busy. So it is
// measured anew now and then. Any thread may ask.
class TicksOfMemory {
 public:
  using Measure = uint64_t (*)() noexcept;
  static constexpr uint64_t cannot_tell = ~uint64_t{0};
  static constexpr uint32_t measured_every = 512;  // times that it is asked for: measuring takes some 5 us

  explicit TicksOfMemory(Measure measure) noexcept : measure_(measure), least_(measure()) {}

  uint64_t most_of_others() noexcept {
    uint64_t least = least_.load(std::memory_order_relaxed);
    if (least == cannot_tell) return cannot_tell;
    if (asked_.fetch_add(1, std::memory_order_relaxed) % measured_every == measured_every - 1) {
      least = std::min(least, measure_());
      least_.store(least, std::memory_order_relaxed);  // of two threads one is lost, and measured again
    }
    return least / 4 * 3;
  }

 private:
  const Measure measure_;
  std::atomic<uint64_t> least_;
  std::atomic<uint32_t> asked_{0};
};

// Whether loads from memory can be told from others here: by a clock that is fine and fast enough (known on x86), and caches.
bool can_tell_cold() noexcept;

}  // namespace tutti
