// Which granules of an arena are in use: runs of used and of free granules, one after another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

// A free granule is dirty when its pages may hold what a block left there, and clean when they are the system's zeroes.
// Plain data: no allocation, no lock.
class Runs {
 public:
  static constexpr size_t granules_max = 4096;
  static constexpr size_t none = ~size_t{0};

  // What of a block was dirty when it was taken: [first, first + count), in granules.
  struct Dirty {
    size_t first = 0, count = 0;
  };

  // granules: 1 to granules_max; all free and clean.
  explicit Runs(size_t granules) noexcept;

  // The first place that has room for n granules (n > 0) and begins at a multiple of `alignment`, a power of two, in
  // granules; none: there is none.
  size_t take(size_t n, size_t alignment, Dirty& dirty) noexcept;
  // Granules of the used run that begins there; 0: none does.
  size_t used_at(size_t first) const noexcept;
  // The used run becomes longer, where the free one behind it has room.
  bool grow(size_t first, size_t n) noexcept;
  // It becomes shorter; what it loses is free and dirty.
  void shrink(size_t first, size_t n) noexcept;
  // It becomes free and dirty.
  void give(size_t first) noexcept;

  size_t used() const noexcept { return used_; }
  size_t dirty_free() const noexcept { return dirty_free_; }

  // visit(first, count) for every used run.
  template <class Visit>
  void each_used(const Visit& visit) const {
    for (size_t at = 0; at < granules_; at += length_[at] & ~used_bit)
      if ((length_[at] & used_bit) != 0) visit(at, size_t(length_[at] & ~used_bit));
  }
  // visit(first, count) for every stretch of dirty free granules, which are clean afterwards.
  template <class Visit>
  void clean(const Visit& visit) {
    for (size_t at = 0; at < granules_; at += length_[at] & ~used_bit) {
      if ((length_[at] & used_bit) != 0) continue;
      const size_t end = at + length_[at];
      for (size_t first = at; first < end; ++first) {
        size_t last = first;
        while (last < end && is_dirty(last)) mark(last++, false);
        if (last > first) visit(first, last - first);
        first = last;
      }
    }
    dirty_free_ = 0;
  }

 private:
  static constexpr uint16_t used_bit = 0x8000;

  bool is_dirty(size_t granule) const noexcept { return (dirty_[granule / 64] >> (granule % 64) & 1) != 0; }
  void mark(size_t granule, bool dirty) noexcept;
  void set(size_t first, size_t n, bool is_used) noexcept;
  void occupy(size_t at, size_t first, size_t n, Dirty& dirty) noexcept;
  void release(size_t first, size_t n) noexcept;

  size_t granules_, used_ = 0, dirty_free_ = 0;
  std::array<uint16_t, granules_max> length_{};  // at the first granule of each run, with used_bit; 0 inside of runs
  std::array<uint16_t, granules_max> back_{};    // at its last granule; anything elsewhere
  std::array<uint64_t, granules_max / 64> dirty_{};
};

}  // namespace tutti
