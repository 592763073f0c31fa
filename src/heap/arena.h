// An arena: one memory file as this process maps it, that blocks of malloc are cut from, or that is a single block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "heap/runs.h"
#include "memory/lent_region.h"

namespace tutti {

inline constexpr size_t granule_bytes = size_t{64} << 10;
inline constexpr size_t huge_page_bytes = size_t{2} << 20;

// Not thread-safe. It lies in pages of its own, so that the C library's heap is never asked. Nothing throws.
class Arena {
 public:
  struct Shape {
    uint64_t number = 0;    // the region's
    size_t bytes = 0;       // whole granules
    size_t file_bytes = 0;  // at least as many: how far a single block may grow
    size_t alignment = 0;
    bool single = false;    // one block, which is all of it
    bool huge_pages = false;
  };

  // Null: the system refuses.
  static Arena* make(const Shape& shape) noexcept;
  // Its pages go back to the system, though peers still map them.
  static void destroy(Arena* arena) noexcept;
  // Unmaps what a forked child has no use for; the pages stay the parent's.
  static void forget(Arena* arena) noexcept;

  std::byte* begin() const noexcept { return begin_; }
  size_t bytes() const noexcept { return bytes_; }
  bool holds(const void* data) const noexcept {
    return static_cast<const std::byte*>(data) >= begin_ && static_cast<const std::byte*>(data) < begin_ + bytes_;
  }
  bool single() const noexcept { return single_; }
  // Whether others can map it; a forked child has private copies of its parent's.
  bool shared() const noexcept { return shared_; }
  const LentRegion& lent() const noexcept { return lent_; }

  // Blocks by granules. Of a single block: only whether it is used.
  Runs runs;
  bool used = true;

  // Pages of free memory go back, and read as 0.
  void discard(size_t offset, size_t bytes) noexcept;
  // A single block becomes longer or shorter, maybe elsewhere. False: it is as it was.
  bool resize(size_t bytes) noexcept;
  // In a forked child: private memory of the same content takes the place of what is used. False: there is no memory.
  bool make_private() noexcept;

 private:
  Arena(const Shape& shape, int fd, std::byte* begin) noexcept;
  bool copy_by_file(size_t offset, size_t bytes) noexcept;
  bool copy_by_memory() noexcept;
  bool owns_descriptor() const noexcept;
  void tell_place() noexcept;

  std::byte* begin_;
  size_t bytes_, file_bytes_;
  int fd_;
  bool single_, shared_ = true;
  LentRegion lent_;
};

}  // namespace tutti
