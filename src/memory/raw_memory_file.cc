// The system calls that make and map a memory file.
#include "memory/raw_memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

int raw_memory_file(const char* name, size_t bytes, MemoryFileStep& failed) noexcept {
  constexpr unsigned noexec_seal = 8;  // MFD_NOEXEC_SEAL, since Linux 6.3
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  failed = MemoryFileStep::create;
  int fd = ::memfd_create(name, flags | noexec_seal);
  if (fd < 0 && errno == EINVAL) fd = ::memfd_create(name, flags);
  if (fd < 0) return -1;
  failed = MemoryFileStep::size;
  if (::ftruncate(fd, off_t(bytes)) == 0) {
    failed = MemoryFileStep::seal;
    if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) return fd;
  }
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

std::byte* map_shared(int fd, size_t at, size_t bytes, size_t alignment) noexcept {
  const auto page = size_t(::sysconf(_SC_PAGESIZE));
  constexpr int access = PROT_READ | PROT_WRITE;
  if (alignment <= page) {
    void* const place = ::mmap(nullptr, bytes, access, MAP_SHARED, fd, off_t(at));
    return place == MAP_FAILED ? nullptr : static_cast<std::byte*>(place);
  }
  const size_t whole = (bytes + page - 1) / page * page, space = whole + alignment;
  void* const start = ::mmap(nullptr, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  const size_t before = (alignment - reinterpret_cast<uintptr_t>(start) % alignment) % alignment;
  std::byte* const wanted = static_cast<std::byte*>(start) + before;
  if (::mmap(wanted, bytes, access, MAP_SHARED | MAP_FIXED, fd, off_t(at)) == MAP_FAILED) {
    const int error = errno;
    ::munmap(start, space);
    errno = error;
    return nullptr;
  }
  if (before > 0) ::munmap(start, before);
  ::munmap(wanted + whole, space - before - whole);
  return wanted;
}

}  // namespace tutti
