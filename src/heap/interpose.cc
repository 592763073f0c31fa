// libtutti_malloc.so: malloc and its relatives, in front of the C library's. Small blocks are the C library's, large
// ones the heap's; who frees or resizes a block finds out whose it is.
#include "heap/interpose.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "base/parse_bytes.h"
#include "heap/heap.h"
#include "heap/heap_limits.h"

#define TUTTI_INTERPOSED [[gnu::visibility("default")]]

// The C library's own, which need no search that would itself allocate.
extern "C" {
void* __libc_malloc(size_t bytes);
void __libc_free(void* block);
void* __libc_calloc(size_t n, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
}

namespace {

using tutti::Heap;

constexpr size_t threshold_default = size_t{1} << 20;
constexpr size_t threshold_min = tutti::granule_bytes;

constinit Heap heap;
// Smallest block that is the heap's; before begin() ran, none is.
constinit std::atomic<size_t> threshold{~size_t{0}};

void say(const char* sentence) noexcept {
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, sentence, std::strlen(sentence));
}

const char* value_of(const char* name, char** environment) noexcept {
  const size_t length = std::strlen(name);
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry)
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  return nullptr;
}

size_t chosen_threshold(char** environment) noexcept {
  const char* const text = value_of("TUTTI_MALLOC_THRESHOLD", environment);
  if (text == nullptr || *text == '\0') return threshold_default;
  const auto bytes = tutti::parse_bytes(text);
  if (bytes && *bytes >= threshold_min) return *bytes;
  say("libtutti_malloc: TUTTI_MALLOC_THRESHOLD is no number of bytes from 64K on, such as 256K or 4M: taken as 1M\n");
  return threshold_default;
}

// First of all constructors (-z initfirst): so a forked child copies before other libraries' handlers run there, and a
// parent locks after theirs. The C library has not set `environ` by then, but hands it over.
[[gnu::constructor]] void begin(int, char**, char** environment) {
  heap.begin(Heap::kept_bytes_default, tutti::shared_memory_has_huge_pages());
  const int error = ::pthread_atfork([] { heap.before_fork(); }, [] { heap.after_fork_in_parent(); },
                                     [] { heap.after_fork_in_child(); });
  if (error == 0) threshold.store(chosen_threshold(environment), std::memory_order_relaxed);
}

// Null: it is too small, or the heap has no room.
void* from_heap(size_t bytes, size_t alignment, bool zeroed) noexcept {
  if (bytes < threshold.load(std::memory_order_relaxed)) [[likely]] return nullptr;
  const int error = errno;
  void* const block = heap.allocate(bytes, alignment, zeroed);
  errno = error;
  return block;
}

// Where the C library has no memory left, there may be some in what the heap keeps. Null is a failure here, with errno
// set.
template <class Allocate>
void* from_library(const Allocate& allocate) noexcept {
  void* const block = allocate();
  if (block != nullptr || errno != ENOMEM || !heap.trim()) [[likely]] return block;
  return allocate();
}

template <class Function>
Function* of_library(const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

size_t usable_in_library(void* block) noexcept {
  static constinit std::atomic<size_t (*)(void*)> found{nullptr};
  auto* function = found.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = of_library<size_t(void*)>("malloc_usable_size");
    found.store(function, std::memory_order_relaxed);
  }
  return function == nullptr || block == nullptr ? 0 : function(block);
}

void* aligned(size_t alignment, size_t bytes) noexcept {
  const bool is_power = alignment != 0 && (alignment & (alignment - 1)) == 0;
  if (void* const block = is_power ? from_heap(bytes, alignment, false) : nullptr; block != nullptr) return block;
  return from_library([&] { return __libc_memalign(alignment, bytes); });
}

// A block of `old` bytes goes elsewhere; it stays where there is no room.
template <class Allocate>
void* move(void* block, size_t old, size_t bytes, const Allocate& allocate) noexcept {
  void* const moved = allocate();
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, old < bytes ? old : bytes);
  ::free(block);
  return moved;
}

// A block of the heap that shrinks far below the threshold goes to the C library; so small growth and shrinkage around
// it do not copy.
void* resize_in_heap(void* block, size_t old, size_t bytes) noexcept {
  if (bytes < threshold.load(std::memory_order_relaxed) / 2)
    return move(block, old, bytes, [&] { return from_library([&] { return __libc_malloc(bytes); }); });
  const int error = errno;
  if (void* const resized = heap.resize(block, bytes); resized != nullptr) {
    errno = error;
    return resized;
  }
  return move(block, old, bytes, [&] { return ::malloc(bytes); });
}

}  // namespace

extern "C" {

TUTTI_INTERPOSED const tutti::LentRegion* tutti_malloc_region_1(const void* data) { return heap.region(data); }

TUTTI_INTERPOSED void* malloc(size_t bytes) {
  if (void* const block = from_heap(bytes, 0, false); block != nullptr) return block;
  return from_library([&] { return __libc_malloc(bytes); });
}

TUTTI_INTERPOSED void free(void* block) {
  const int error = errno;
  if (!heap.free(block)) __libc_free(block);  // NOLINT(clang-analyzer-unix.Malloc): the heap has not freed it
  errno = error;
}

TUTTI_INTERPOSED void* calloc(size_t n, size_t bytes) {
  size_t all = 0;
  if (!__builtin_mul_overflow(n, bytes, &all))
    if (void* const block = from_heap(all, 0, true); block != nullptr) return block;
  return from_library([&] { return __libc_calloc(n, bytes); });
}

TUTTI_INTERPOSED void* realloc(void* block, size_t bytes) {
  if (block == nullptr) return malloc(bytes);
  const size_t old = heap.usable(block);
  if (bytes == 0 && old == 0) return __libc_realloc(block, 0);
  if (bytes == 0) {
    free(block);
    return nullptr;
  }
  if (old > 0) return resize_in_heap(block, old, bytes);
  // A large block that the C library had to serve stays there, where it grows without a copy.
  const size_t least = threshold.load(std::memory_order_relaxed);
  const size_t in_library = bytes < least ? 0 : usable_in_library(block);
  if (bytes >= least && in_library < least) {
    void* const moved = move(block, in_library, bytes, [&] { return from_heap(bytes, 0, false); });
    if (moved != nullptr) return moved;
  }
  return from_library([&] { return __libc_realloc(block, bytes); });
}

TUTTI_INTERPOSED void* reallocarray(void* block, size_t n, size_t bytes) {
  size_t all = 0;
  if (!__builtin_mul_overflow(n, bytes, &all)) return realloc(block, all);
  errno = ENOMEM;
  return nullptr;
}

TUTTI_INTERPOSED void* memalign(size_t alignment, size_t bytes) { return aligned(alignment, bytes); }

TUTTI_INTERPOSED void* aligned_alloc(size_t alignment, size_t bytes) { return aligned(alignment, bytes); }

TUTTI_INTERPOSED int posix_memalign(void** block, size_t alignment, size_t bytes) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  const int error = errno;
  void* const made = aligned(alignment, bytes);
  errno = error;
  if (made == nullptr) return ENOMEM;
  *block = made;
  return 0;
}

TUTTI_INTERPOSED void* valloc(size_t bytes) { return aligned(size_t(::getpagesize()), bytes); }

TUTTI_INTERPOSED void* pvalloc(size_t bytes) {
  const auto page = size_t(::getpagesize());
  size_t whole = 0;
  if (__builtin_add_overflow(bytes, page - 1, &whole)) {
    errno = ENOMEM;
    return nullptr;
  }
  return aligned(page, whole / page * page);
}

TUTTI_INTERPOSED size_t malloc_usable_size(void* block) {
  const size_t bytes = heap.usable(block);
  return bytes > 0 ? bytes : usable_in_library(block);
}

TUTTI_INTERPOSED int malloc_trim(size_t pad) {
  const bool given = heap.trim();
  auto* const function = of_library<int(size_t)>("malloc_trim");
  return (function != nullptr && function(pad) != 0) || given ? 1 : 0;
}

// C23: where the C library has them, its own would not know the heap's blocks.
TUTTI_INTERPOSED void free_sized(void* block, size_t) { free(block); }
TUTTI_INTERPOSED void free_aligned_sized(void* block, size_t, size_t) { free(block); }

}  // extern "C"
