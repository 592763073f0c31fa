// What a rank tells peers of the same host of memory that they may map and read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti {

// A memory file as this process maps it. Slices of it are lent to peers, who map all of it. libtutti and
// libtutti_malloc.so hand these to each other: who changes it changes the name of preloaded_heap.h's function too.
struct LentRegion {
  uint64_t number = 0;  // no other region of this process has, had or will have it
  const std::byte* begin = nullptr;
  size_t bytes = 0;     // that are mapped here, from the file's beginning on
  int fd = -1;          // sealed: its size never changes. Not to be trusted: a program may have closed it
  uint64_t inode = 0;   // by which the file is known from another one that came to have this descriptor
  size_t file_bytes = 0;
  // Counts up whenever some of its pages are given back to the system or all of it ends; who has pinned pages pins anew
  // then. Null: nobody tells, so nobody may keep its pages pinned.
  std::shared_ptr<const std::atomic<uint64_t>> changes;

  // Not a file, but all memory of this process: peers read it by way of the kernel, where they may.
  static constexpr uint64_t private_number = 0;
  bool is_private() const noexcept { return number == private_number; }

  bool holds(const std::byte* data, size_t size) const noexcept {
    return data >= begin && size <= bytes && size_t(data - begin) <= bytes - size;
  }
};

// Where something lies in a region, as its owner tells peers.
struct LentPlace {
  uint64_t region = 0;                 // its number
  uint64_t offset = 0;
  const std::byte* address = nullptr;  // in the owner's process
  uint64_t more = 0;                   // bytes behind it that will be lent by later messages, and may be read already
};

}  // namespace tutti
