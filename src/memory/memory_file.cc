// Making, sealing and mapping memory files.
#include "memory/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "base/error.h"
#include "memory/raw_memory_file.h"

namespace tutti {

size_t page_bytes() noexcept { return size_t(::sysconf(_SC_PAGESIZE)); }

size_t whole_pages(size_t bytes) noexcept {
  const size_t page = page_bytes();
  return (bytes + page - 1) / page * page;
}

Fd make_memory_file(const char* name, size_t bytes, const std::string& what, const std::string& remedy) {
  MemoryFileStep failed{};
  Fd fd(raw_memory_file(name, bytes, failed));
  if (fd.valid()) return fd;
  const int error = errno;
  if (failed == MemoryFileStep::size)
    throw system_error(fmt::format("{}: cannot make a memory file of {} bytes{}", what, bytes, remedy), error);
  if (failed == MemoryFileStep::seal) throw system_error(what + ": cannot seal a memory file", error);
  const char* help = error == EMFILE || error == ENFILE ? "; too many open files: raise `ulimit -n`"
                     : error == ENOSYS || error == EPERM
                         ? "; the sandbox forbids memfd_create: allow it, or use TUTTI_TRANSPORT=tcp"
                         : "";
  throw system_error(fmt::format("{}: memfd_create{}", what, help), error);
}

bool is_memory_file(int fd, size_t bytes) noexcept {
  struct stat about {};
  const int seals = ::fcntl(fd, F_GET_SEALS);  // -1 where the file has none
  return ::fstat(fd, &about) == 0 && size_t(about.st_size) == bytes && seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

Mapping::Mapping(int fd, size_t at, size_t bytes, const std::string& what, const std::string& remedy,
                 size_t alignment)
    : place_(map_shared(fd, at, bytes, alignment)), bytes_(bytes) {
  if (place_ == nullptr)
    throw system_error(fmt::format("{}: cannot map {} bytes; raise `ulimit -v` or vm.max_map_count{}", what, bytes,
                                   remedy), errno);
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
