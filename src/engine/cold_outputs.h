// Which outputs that would fit the caches are stored past them all the same.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "reduce/cold.h"

namespace tutti {

// An output that is in no cache when it is written, time after time, is not used soon. Stored past the caches it is not read
// from memory first, and drives nothing out: with both ends cold, 512 KiB are copied in two thirds of the time. But where it
// would have been in a cache it takes twice as long or more, and once it is stored so it is in none the next time either,
// whether or not it is used between. So it must have been stored to the caches and be gone `patience` times in a row (the first
// five calls of a loop miss caches that hold it later, on a Xeon); and then there are trials, which grow rarer while they fail.
//
// Nor is it stored so where what was stored there the last time was the input of a call since, as of a rank that passes on what it
// receives: that would read from memory what was just written there.
//
// Any thread may ask at any time; what threads that ask at once make of one entry is a matter of speed alone.
class ColdOutputs {
 public:
  static constexpr uint64_t streamed_max = 32;  // between two trials
  using Look = bool (*)(const void* memory, size_t bytes, bool surely) noexcept;

  explicit ColdOutputs(Look in_none = in_no_cache, uint64_t patience = 8) : in_none_(in_none), patience_(patience) {}

  // Whether what is about to be written at `output` should go past the caches. Looks at it: cold_bytes_min bytes or more, which
  // may be read. Who has found it gone often enough looks less closely.
  bool past_caches(const void* output, size_t bytes) noexcept;

  // Whether what was written there the last time went past them, or was a trial: at no look.
  bool went_past_caches(const void* output) const noexcept;

  // A call begins that reads this input, which an earlier one may have put out.
  void call_reads(const void* input) noexcept;
  // A call begins that writes to `output`. True: what lies there was read so.
  bool call_writes(const void* output) noexcept;

 private:
  // An entry: the output's address; how often in a row it was gone; how many of its stores go past the caches until the next
  // one that is a trial, and that one. 0: none.
  static constexpr uint64_t count_bits = 6, count_mask = (1u << count_bits) - 1;
  static_assert(streamed_max < count_mask);
  static uint64_t key(const void* output) noexcept {
    return reinterpret_cast<uintptr_t>(output) >> count_bits << 2 * count_bits;
  }

  static size_t place_of(uint64_t key) noexcept { return key * 0x9E3779B97F4A7C15u >> 56; }  // addresses are often large powers of two

  const Look in_none_;
  const uint64_t patience_;
  std::array<std::atomic<uint64_t>, 256> entries_{};
  std::array<std::atomic<uintptr_t>, 256> written_{};  // outputs; the last bit is set where they have been read since
};

inline void ColdOutputs::call_reads(const void* input) noexcept {
  const uintptr_t mine = reinterpret_cast<uintptr_t>(input) & ~uintptr_t{1};
  std::atomic<uintptr_t>& place = written_[place_of(key(input))];
  if (place.load(std::memory_order_relaxed) == mine) place.store(mine | 1, std::memory_order_relaxed);
}

inline bool ColdOutputs::call_writes(const void* output) noexcept {
  const uintptr_t mine = reinterpret_cast<uintptr_t>(output) & ~uintptr_t{1};
  std::atomic<uintptr_t>& place = written_[place_of(key(output))];
  const uintptr_t before = place.load(std::memory_order_relaxed);
  if (before != mine) place.store(mine, std::memory_order_relaxed);
  return before == (mine | 1);
}

inline bool ColdOutputs::went_past_caches(const void* output) const noexcept {
  const uint64_t mine = key(output), entry = entries_[place_of(mine)].load(std::memory_order_relaxed);
  return (entry ^ mine) >> 2 * count_bits == 0 && (entry >> count_bits & count_mask) >= patience_;
}

inline bool ColdOutputs::past_caches(const void* output, size_t bytes) noexcept {
  const uint64_t mine = key(output);
  std::atomic<uint64_t>& place = entries_[place_of(mine)];
  const uint64_t entry = place.load(std::memory_order_relaxed);
  const bool known = (entry ^ mine) >> 2 * count_bits == 0;
  uint64_t gone = known ? entry >> count_bits & count_mask : 0;
  uint64_t left = known ? entry & count_mask : 0;
  if (!in_none_(output, bytes, left == 0)) {
    if (known) place.store(0, std::memory_order_relaxed);
    return false;
  }
  if (left > 0) {
    --left;
  } else {
    gone = std::min(gone + 1, count_mask);
    if (gone >= patience_) left = std::min(uint64_t{4} << std::min(gone - patience_, uint64_t{5}), streamed_max);
  }
  place.store(mine | gone << count_bits | left, std::memory_order_relaxed);
  return left > 0;
}

}  // namespace tutti
