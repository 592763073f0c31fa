// The memory of tuttiMemAlloc: blocks of whole pages that other processes of this host can map too.
//
// A large block is a memory file of its own; small ones share files, since every file costs a descriptor. Pages that
// nobody has touched cost nothing, and those of a freed block go back to the system at once, whoever still maps them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <sys/types.h>

#include "memory/lent_region.h"
#include "memory/memory_file.h"

namespace tutti {

// A memory file that is mapped whole.
class SharedRegion {
 public:
  // huge_pages: asked for, and begun at one. Throws Error(system_error).
  SharedRegion(uint64_t number, size_t bytes, bool huge_pages);
  ~SharedRegion() { changes_->fetch_add(1, std::memory_order_release); }  // pairs with who looks before lending

  uint64_t number() const noexcept { return lent_.number; }
  int fd() const noexcept { return file_.get(); }
  // As peers are told of it; lives as long as this.
  const LentRegion& lent() const noexcept { return lent_; }
  // Some of its pages are this process's alone since: see SharedMemory::take_back().
  bool is_taken_back() const noexcept { return taken_back_.load(std::memory_order_relaxed); }
  std::byte* data() const noexcept { return mapping_.data(); }
  size_t bytes() const noexcept { return mapping_.bytes(); }
  // Gives the pages back to the system; they read as 0 from then on, in every process.
  void discard(size_t offset, size_t bytes) const noexcept;
  // [at, at + bytes), whole pages, has from now on pages that no other process has, with what was there. False: the
  // system refused.
  bool take_back(std::byte* at, size_t bytes) const noexcept;

 private:
  mutable std::atomic<bool> taken_back_{false};
  Fd file_;
  Mapping mapping_;
  std::shared_ptr<std::atomic<uint64_t>> changes_ = std::make_shared<std::atomic<uint64_t>>(0);
  LentRegion lent_;
};

// What one allocation holds. Whoever keeps a pointer to it uses its memory, which is not freed meanwhile.
struct SharedBlock {
  std::shared_ptr<const SharedRegion> region;
  size_t offset = 0;  // in the region
  size_t bytes = 0;   // whole pages
  size_t asked_bytes = 0;  // of them
  mutable std::atomic<int> registrations{0};
  mutable std::atomic<int> windows{0};  // that are open on it

  std::byte* data() const noexcept { return region->data() + offset; }
};

// All blocks of a process. Thread-safe. Errors are thrown with the sentences of the C interface.
class SharedMemory {
 public:
  // Larger blocks have a region of their own; smaller ones share regions of so many bytes.
  static constexpr size_t shared_region_bytes = size_t{64} << 20;
  static constexpr size_t small_bytes_max = size_t{4} << 20;

  // At least `bytes` bytes, all 0, from a page's start, of large blocks from a huge page's; null for 0 bytes.
  // Throws Error: invalid_argument (more than the host has), system_error.
  void* allocate(size_t bytes);
  // `pointer` is what allocate() gave; null: nothing happens. Throws Error: invalid_argument (no block begins there, or
  // no longer), invalid_usage (in use by a call, registered, or allocated before a fork by the parent).
  void free(void* pointer);

  // The block in which all of [data, data + bytes) lies; null: there is none. bytes 0 counts as 1.
  std::shared_ptr<const SharedBlock> find(const void* data, size_t bytes) const noexcept;
  // As find(), where peers may write to [data, data + bytes) as well, and it can be taken back from them whole: its first
  // and last pages hold nothing else of the caller's, and no window is open on its block.
  std::shared_ptr<const SharedBlock> find_whole(const void* data, size_t bytes) const noexcept;
  // Makes the pages of what find_whole() found this process's alone, their content as it is: what other processes still
  // write there goes elsewhere. Its region is lent to nobody from then on. False: the system refused.
  bool take_back(const void* data, size_t bytes) const noexcept;

  // Around a fork: nothing changes while a process is copied. What the parent allocated is not the child's to free, and
  // there counts as any other memory.
  void before_fork() { mutex_.lock(); }
  void after_fork(bool in_child);

 private:
  // A region that blocks share, and what of it is free: bytes by offset.
  struct Carved {
    std::shared_ptr<const SharedRegion> region;
    std::map<size_t, size_t> free;
  };

  std::shared_ptr<SharedBlock> whole(size_t bytes);
  std::shared_ptr<SharedBlock> carve(size_t bytes);
  void give_back(const SharedBlock& block);
  void check_may_free(const void* pointer) const;

  mutable std::mutex mutex_;
  uint64_t next_number_ = 1;
  std::map<uintptr_t, std::shared_ptr<SharedBlock>> blocks_;  // by address
  std::vector<Carved> carved_;
  // The parent's, in a child: never unmapped.
  std::map<uintptr_t, std::shared_ptr<SharedBlock>> inherited_;
  std::vector<Carved> inherited_carved_;
};

}  // namespace tutti
