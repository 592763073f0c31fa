// What the system lets a process have, as far as it bears on memory files.
#pragma once

#include <cstddef>

namespace tutti {

struct HeapLimits {
  bool allowed = true;       // false: all is left to the C library
  size_t file_bytes_max = 0;
  size_t files_max = 0;      // a share of the descriptors
};

// As they are now: a program may change them. A few system calls.
HeapLimits heap_limits() noexcept;

// Whether shared memory gets huge pages where it is asked for.
bool shared_memory_has_huge_pages() noexcept;

}  // namespace tutti
