// Anonymous memory files (memfd) and their mappings: memory without a name that a descriptor passes to others.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/fd.h"

namespace tutti {

// Bytes of a page of this system.
size_t page_bytes() noexcept;
// `bytes` in whole pages.
size_t whole_pages(size_t bytes) noexcept;

// A memory file of `bytes` bytes, all 0, sealed: its size never changes, so that nobody's accesses can fault. `what`
// stands in the sentences of errors, `remedy` ("; raise this, or lower that") where its size is refused.
// Throws Error(system_error).
Fd make_memory_file(const char* name, size_t bytes, const std::string& what, const std::string& remedy = "");

// Whether this is a file of so many bytes that can never shrink, as make_memory_file's are.
bool is_memory_file(int fd, size_t bytes) noexcept;

// A shared mapping of part of a memory file.
class Mapping {
 public:
  Mapping() = default;
  // [at, at + bytes) of the file, at in whole pages. From a multiple of `alignment` (a power of two) on, where that is
  // more than a page. Throws Error(system_error).
  Mapping(int fd, size_t at, size_t bytes, const std::string& what, const std::string& remedy = "",
          size_t alignment = 0);
  Mapping(Mapping&& other) noexcept
      : place_(std::exchange(other.place_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(place_, other.place_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  bool valid() const noexcept { return place_ != nullptr; }
  std::byte* data() const noexcept { return place_; }
  std::byte* at(size_t offset) const noexcept { return place_ + offset; }
  size_t bytes() const noexcept { return bytes_; }
  // Makes the pages present, so that the first access takes no fault. Only a favour: where the system refuses, nothing
  // happens.
  void touch(size_t offset, size_t bytes) const noexcept;

 private:
  std::byte* place_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tutti
