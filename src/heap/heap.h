// The large blocks of libtutti_malloc.so: memory that the ranks of a host read in place, though an unchanged program
// allocated it.
//
// Blocks of up to 64 MiB are cut from arenas of 256 MiB; a larger one is an arena of its own, whose file is longer than
// it, so that it can grow without a copy. What is freed is kept for the next block up to a limit, since fresh pages
// cost more than what reading in place saves. Where the system refuses, allocate() gives null, and the C library's heap
// serves.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "heap/arena.h"
#include "memory/lent_region.h"

namespace tutti {

// Thread-safe, except that begin() comes first. Nothing throws; nothing asks the C library's heap for memory. It has no
// destructor: blocks are freed until a process ends.
class Heap {
 public:
  static constexpr size_t shared_arena_bytes = Runs::granules_max * granule_bytes;
  static constexpr size_t cut_bytes_max = size_t{64} << 20;    // larger blocks are arenas
  static constexpr size_t alignment_max = size_t{64} << 20;
  static constexpr size_t kept_bytes_default = size_t{256} << 20;
  static constexpr size_t arenas_max = 1024;

  constexpr Heap() noexcept = default;
  // kept_bytes_max: of freed blocks.
  void begin(size_t kept_bytes_max, bool huge_pages) noexcept;

  // zeroed: all bytes are 0. Null: the system or a limit refuses.
  void* allocate(size_t bytes, size_t alignment, bool zeroed) noexcept;
  // Usable bytes of the block that begins there; 0: none does.
  size_t usable(const void* block) const noexcept;
  // False: no block begins there, and nothing happened.
  bool free(void* block) noexcept;
  // The block, maybe elsewhere, of at least `bytes` usable bytes; null: it is as it was, and has to be copied.
  void* resize(void* block, size_t bytes) noexcept;
  // Gives all that is kept back to the system. Whether there was anything.
  bool trim() noexcept;

  // The region that data lies in; null: none that can be lent.
  const LentRegion* region(const void* data) const noexcept;

  // Around a fork. The child copies what the parent uses; the parent's memory stays shared, and after_fork_in_parent()
  // returns when the copies are made, or the child is dead.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

 private:
  class Lock;
  struct Found {
    Arena* arena = nullptr;  // null: no block begins there
    size_t offset = 0, bytes = 0;
  };
  struct Placed {
    std::byte* block = nullptr;
    std::byte* dirty = nullptr;  // what of it is not 0
    size_t dirty_bytes = 0;
  };
  bool may_hold(const void* block) const noexcept;
  Found find(const void* block) const noexcept;
  Placed put(size_t bytes, size_t alignment) noexcept;
  size_t place(const void* data) const noexcept;
  Arena* arena_of(const void* data) const noexcept;
  Placed cut(size_t bytes, size_t alignment) noexcept;
  Placed reuse(size_t bytes, size_t alignment) noexcept;
  Arena* make(size_t bytes, size_t alignment, bool single) noexcept;
  void insert(Arena* arena) noexcept;
  void erase(const Arena* arena) noexcept;
  void keep(Arena& arena, size_t offset, size_t bytes, size_t kept_before) noexcept;
  bool trim_all(const Arena* except) noexcept;
  void wait_for_child() noexcept;
  size_t kept(const Arena& arena) const noexcept;

  mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::array<Arena*, arenas_max> arenas_{};  // by address
  size_t n_arenas_ = 0;
  size_t kept_bytes_ = 0, kept_bytes_max_ = 0;
  uint64_t next_number_ = uint64_t{1} << 63;  // the other half is tuttiMemAlloc's
  bool huge_pages_ = false;
  std::atomic<uintptr_t> lowest_{~uintptr_t{0}}, highest_{0};  // all arenas that ever were lie in between
  // While a child copies: a pipe that ends when it is done or dead; without descriptors, a word of shared memory.
  int pipe_[2] = {-1, -1};
  std::atomic<uint32_t>* copied_ = nullptr;
  bool child_copies_ = false;
};

}  // namespace tutti
