// The system calls behind an arena.
#include "heap/arena.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "memory/raw_memory_file.h"

namespace tutti {
namespace {

constexpr int private_memory = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// Low numbers are what programs expect to be given: they go to the upper half of what is allowed, where it is free.
int moved_up(int fd) noexcept {
  constexpr rlim_t lowest_max = 4096;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, int(std::min(limit.rlim_cur / 2, lowest_max)));
  if (moved < 0) return fd;
  ::close(fd);
  return moved;
}

}  // namespace

Arena::Arena(const Shape& shape, int fd, std::byte* begin) noexcept
    : runs(shape.single ? 1 : shape.bytes / granule_bytes),
      begin_(begin),
      bytes_(shape.bytes),
      file_bytes_(shape.file_bytes),
      fd_(fd),
      single_(shape.single) {
  struct stat about {};
  ::fstat(fd, &about);
  lent_ = {shape.number, begin, bytes_, fd, uint64_t(about.st_ino), file_bytes_};
}

Arena* Arena::make(const Shape& shape) noexcept {
  void* const place = ::mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, private_memory, -1, 0);
  if (place == MAP_FAILED) return nullptr;
  MemoryFileStep failed{};
  int fd = raw_memory_file("tutti-malloc", shape.file_bytes, failed);
  if (fd >= 0) fd = moved_up(fd);
  std::byte* const begin = fd < 0 ? nullptr : map_shared(fd, 0, shape.bytes, shape.alignment);
  if (begin == nullptr) {
    if (fd >= 0) ::close(fd);
    ::munmap(place, sizeof(Arena));
    return nullptr;
  }
  if (shape.huge_pages) ::madvise(begin, shape.bytes, MADV_HUGEPAGE);
  return new (place) Arena(shape, fd, begin);
}

void Arena::destroy(Arena* arena) noexcept {
  if (arena->shared_) arena->discard(0, arena->bytes_);
  forget(arena);
}

void Arena::forget(Arena* arena) noexcept {
  ::munmap(arena->begin_, arena->bytes_);
  if (arena->shared_ && arena->owns_descriptor()) ::close(arena->fd_);
  ::munmap(arena, sizeof(Arena));
}

// A program may have closed it, and opened another file since.
bool Arena::owns_descriptor() const noexcept {
  struct stat about {};
  return ::fstat(fd_, &about) == 0 && about.st_ino == lent_.inode;
}

void Arena::tell_place() noexcept {
  lent_.begin = begin_;
  lent_.bytes = bytes_;
}

void Arena::discard(size_t offset, size_t bytes) noexcept {
  ::madvise(begin_ + offset, bytes, shared_ ? MADV_REMOVE : MADV_DONTNEED);
}

bool Arena::resize(size_t bytes) noexcept {
  if (bytes > file_bytes_ && shared_) return false;
  if (bytes < bytes_) discard(bytes, bytes_ - bytes);
  void* const moved = ::mremap(begin_, bytes_, bytes, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) return false;
  begin_ = static_cast<std::byte*>(moved);
  bytes_ = bytes;
  tell_place();
  return true;
}

bool Arena::make_private() noexcept {
  const bool readable = owns_descriptor();
  bool done = true;
  if (!readable) {
    done = copy_by_memory();
  } else {
    done = ::mmap(begin_, bytes_, PROT_READ | PROT_WRITE, private_memory | MAP_FIXED, -1, 0) != MAP_FAILED;
    if (done && single_) done = copy_by_file(0, bytes_);
    if (done && !single_)
      runs.each_used([&](size_t first, size_t n) {
        done = done && copy_by_file(first * granule_bytes, n * granule_bytes);
      });
    ::close(fd_);
  }
  runs.clean([](size_t, size_t) {});
  shared_ = false;
  fd_ = -1;
  return done;
}

// Pages that nobody has touched are not in the file, and stay so, but for what a huge page takes with it: those make
// the copy several times as fast.
bool Arena::copy_by_file(size_t offset, size_t bytes) noexcept {
  const off_t end = off_t(offset + bytes);
  ::madvise(begin_ + offset, bytes, MADV_HUGEPAGE);
  for (off_t at = ::lseek(fd_, off_t(offset), SEEK_DATA); at >= 0 && at < end; at = ::lseek(fd_, at, SEEK_DATA)) {
    const off_t hole = std::min(::lseek(fd_, at, SEEK_HOLE), end);
    while (at < hole) {
      const ssize_t n = ::pread(fd_, begin_ + at, size_t(hole - at), at);
      if (n > 0) at += n;
      else if (n == 0 || errno != EINTR) return false;
    }
  }
  return true;
}

// Where the descriptor is lost: from the mapping that the parent left.
bool Arena::copy_by_memory() noexcept {
  void* const copy = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, private_memory, -1, 0);
  if (copy == MAP_FAILED) return false;
  if (single_) std::memcpy(copy, begin_, bytes_);
  else
    runs.each_used([&](size_t first, size_t n) {
      const size_t offset = first * granule_bytes;
      std::memcpy(static_cast<std::byte*>(copy) + offset, begin_ + offset, n * granule_bytes);
    });
  return ::mremap(copy, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, begin_) != MAP_FAILED;
}

}  // namespace tutti
