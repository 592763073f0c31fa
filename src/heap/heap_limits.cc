// Reading limits.
#include "heap/heap_limits.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string_view>

namespace tutti {
namespace {

// What fits of a small file; "" where it cannot be read.
template <size_t n>
std::string_view read_file(const char* path, char (&text)[n]) noexcept {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t bytes = ::read(fd, text, n);
  ::close(fd);
  return {text, size_t(std::max<ssize_t>(bytes, 0))};
}

rlim_t soft_limit(decltype(RLIMIT_AS) resource) noexcept {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

// mlockall(MCL_FUTURE): a new page is there before anybody touches it.
bool new_memory_is_locked() noexcept {
  const auto page = size_t(::sysconf(_SC_PAGESIZE));
  void* const probe = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) return true;
  unsigned char present = 0;
  const bool locked = ::mincore(probe, page, &present) == 0 && (present & 1) != 0;
  ::munmap(probe, page);
  return locked;
}

}  // namespace

// Without overcommit, a memory file's pages are granted when they are touched, so that too much is a SIGBUS then and
// not a null pointer before. RLIMIT_DATA counts private memory alone, which a forked child's copies become. Arenas
// take more address space than blocks, of this process and of peers that map them, and would be locked into memory
// whole.
HeapLimits heap_limits() noexcept {
  char text[16];
  HeapLimits limits;
  limits.allowed = !read_file("/proc/sys/vm/overcommit_memory", text).starts_with("2") &&
                   soft_limit(RLIMIT_DATA) == RLIM_INFINITY && soft_limit(RLIMIT_AS) == RLIM_INFINITY &&
                   !new_memory_is_locked();
  const rlim_t file_bytes = soft_limit(RLIMIT_FSIZE), files = soft_limit(RLIMIT_NOFILE);
  constexpr size_t most = std::numeric_limits<size_t>::max();
  limits.file_bytes_max = file_bytes == RLIM_INFINITY ? most : size_t(file_bytes);
  limits.files_max = files == RLIM_INFINITY ? most : size_t(files) / 8;
  return limits;
}

bool shared_memory_has_huge_pages() noexcept {
  char text[128];
  const std::string_view chosen = read_file("/sys/kernel/mm/transparent_hugepage/shmem_enabled", text);
  for (const std::string_view yes : {"[always]", "[within_size]", "[advise]", "[force]"})
    if (chosen.find(yes) != std::string_view::npos) return true;
  return false;
}

}  // namespace tutti
