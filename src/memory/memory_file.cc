// Making, sealing and mapping memory files.
#include "memory/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {

size_t page_bytes() noexcept { return size_t(::sysconf(_SC_PAGESIZE)); }

size_t whole_pages(size_t bytes) noexcept {
  const size_t page = page_bytes();
  return (bytes + page - 1) / page * page;
}

Fd make_memory_file(const char* name, size_t bytes, const std::string& what, const std::string& remedy) {
  constexpr unsigned noexec_seal = 8;  // MFD_NOEXEC_SEAL, since Linux 6.3
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(::memfd_create(name, flags | noexec_seal));
  if (!fd.valid() && errno == EINVAL) fd.reset(::memfd_create(name, flags));
  if (!fd.valid()) {
    const char* help = errno == EMFILE || errno == ENFILE ? "; too many open files: raise `ulimit -n`"
                       : errno == ENOSYS || errno == EPERM
                           ? "; the sandbox forbids memfd_create: allow it, or use TUTTI_TRANSPORT=tcp"
                           : "";
    throw system_error(fmt::format("{}: memfd_create{}", what, help), errno);
  }
  if (::ftruncate(fd.get(), off_t(bytes)) != 0)
    throw system_error(fmt::format("{}: cannot make a memory file of {} bytes{}", what, bytes, remedy), errno);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw system_error(what + ": cannot seal a memory file", errno);
  return fd;
}

bool is_memory_file(int fd, size_t bytes) noexcept {
  struct stat about {};
  const int seals = ::fcntl(fd, F_GET_SEALS);  // -1 where the file has none
  return ::fstat(fd, &about) == 0 && size_t(about.st_size) == bytes && seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

// An aligned place is cut from a larger one.
Mapping::Mapping(int fd, size_t at, size_t bytes, const std::string& what, const std::string& remedy,
                 size_t alignment)
    : bytes_(bytes) {
  const bool aligned = alignment > page_bytes();
  const size_t space = aligned ? bytes + alignment : bytes;
  void* const start = aligned ? ::mmap(nullptr, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                              : nullptr;
  void* place = MAP_FAILED;
  if (start != MAP_FAILED) {
    const auto first = reinterpret_cast<uintptr_t>(start);
    const size_t before = aligned ? (alignment - first % alignment) % alignment : 0;
    std::byte* const wanted = static_cast<std::byte*>(start) + before;
    place = ::mmap(aligned ? wanted : nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (aligned ? MAP_FIXED : 0),
                   fd, off_t(at));
    const int error = errno;
    if (aligned && place == MAP_FAILED) ::munmap(start, space);
    if (aligned && place != MAP_FAILED && before > 0) ::munmap(start, before);
    if (aligned && place != MAP_FAILED) ::munmap(wanted + whole_pages(bytes), space - before - whole_pages(bytes));
    errno = error;
  }
  if (place == MAP_FAILED)
    throw system_error(fmt::format("{}: cannot map {} bytes; raise `ulimit -v` or vm.max_map_count{}", what, bytes,
                                   remedy), errno);
  place_ = static_cast<std::byte*>(place);
}

Mapping::~Mapping() {
  if (place_ != nullptr) ::munmap(place_, bytes_);
}

void Mapping::touch([[maybe_unused]] size_t offset, [[maybe_unused]] size_t bytes) const noexcept {
#ifdef MADV_POPULATE_WRITE
  ::madvise(place_ + offset, bytes, MADV_POPULATE_WRITE);
#endif
}

}  // namespace tutti
