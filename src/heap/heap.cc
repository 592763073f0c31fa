// Where blocks are put, what is kept of freed ones, and what a fork does.
#include "heap/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include "heap/heap_limits.h"

namespace tutti {
namespace {

size_t round_up(size_t bytes, size_t unit) noexcept { return (bytes + unit - 1) / unit * unit; }

bool is_aligned(const std::byte* place, size_t alignment) noexcept {
  return alignment == 0 || reinterpret_cast<uintptr_t>(place) % alignment == 0;
}

// A heap that goes on after this would give one memory to two processes, or one block twice.
[[noreturn]] void give_up(const char* sentence) noexcept {
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, sentence, std::strlen(sentence));
  std::abort();
}

}  // namespace

class Heap::Lock {
 public:
  explicit Lock(const Heap& heap) noexcept : mutex_(heap.mutex_) { ::pthread_mutex_lock(&mutex_); }
  ~Lock() { ::pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

void Heap::begin(size_t kept_bytes_max, bool huge_pages) noexcept {
  kept_bytes_max_ = kept_bytes_max;
  huge_pages_ = huge_pages;
}

// The first arena that ends behind data.
size_t Heap::place(const void* data) const noexcept {
  const auto end_of = [](const Arena* arena) { return arena->begin() + arena->bytes(); };
  const auto found = std::partition_point(arenas_.begin(), arenas_.begin() + n_arenas_, [&](const Arena* arena) {
    return end_of(arena) <= static_cast<const std::byte*>(data);
  });
  return size_t(found - arenas_.begin());
}

Arena* Heap::arena_of(const void* data) const noexcept {
  const size_t at = place(data);
  return at < n_arenas_ && arenas_[at]->holds(data) ? arenas_[at] : nullptr;
}

void Heap::insert(Arena* arena) noexcept {
  const size_t at = place(arena->begin());
  std::copy_backward(arenas_.begin() + at, arenas_.begin() + n_arenas_, arenas_.begin() + n_arenas_ + 1);
  arenas_[at] = arena;
  ++n_arenas_;
  const auto begin = reinterpret_cast<uintptr_t>(arena->begin());
  lowest_.store(std::min(lowest_.load(std::memory_order_relaxed), begin), std::memory_order_relaxed);
  highest_.store(std::max(highest_.load(std::memory_order_relaxed), begin + arena->bytes()), std::memory_order_relaxed);
}

void Heap::erase(const Arena* arena) noexcept {
  const auto end = std::remove(arenas_.begin(), arenas_.begin() + n_arenas_, arena);
  n_arenas_ = size_t(end - arenas_.begin());
}

// A single block's file is longer than it where that costs nothing: pages that nobody touches are none.
Arena* Heap::make(size_t bytes, size_t alignment, bool single) noexcept {
  constexpr size_t growth = 4;
  const HeapLimits limits = heap_limits();
  if (!limits.allowed || n_arenas_ >= std::min(arenas_max, limits.files_max)) return nullptr;
  if (limits.file_bytes_max < shared_arena_bytes) single = true;
  Arena::Shape shape{.number = next_number_, .single = single, .huge_pages = huge_pages_};
  shape.bytes = single ? round_up(bytes, granule_bytes) : shared_arena_bytes;
  if (shape.bytes > limits.file_bytes_max) return nullptr;
  shape.file_bytes = single ? std::min(growth * shape.bytes, limits.file_bytes_max) : shape.bytes;
  const bool from_huge_page = !single || (huge_pages_ && bytes >= huge_page_bytes);
  shape.alignment = std::max(alignment, from_huge_page ? huge_page_bytes : 0);
  Arena* const arena = Arena::make(shape);
  if (arena == nullptr) return nullptr;
  ++next_number_;
  insert(arena);
  return arena;
}

// From the first arena that has room.
Heap::Placed Heap::cut(size_t bytes, size_t alignment) noexcept {
  const size_t n = round_up(bytes, granule_bytes) / granule_bytes;
  if (huge_pages_ && bytes >= huge_page_bytes) alignment = std::max(alignment, huge_page_bytes);
  const size_t step = std::max<size_t>(alignment / granule_bytes, 1);
  for (size_t i = 0; i < n_arenas_; ++i) {
    Arena& arena = *arenas_[i];
    if (arena.single() || !arena.shared() || !is_aligned(arena.begin(), alignment)) continue;
    Runs::Dirty dirty;
    const size_t dirty_before = arena.runs.dirty_free() * granule_bytes;
    const size_t first = arena.runs.take(n, step, dirty);
    if (first == Runs::none) continue;
    kept_bytes_ -= dirty_before - arena.runs.dirty_free() * granule_bytes;
    return {arena.begin() + first * granule_bytes, arena.begin() + dirty.first * granule_bytes,
            dirty.count * granule_bytes};
  }
  return {};
}

// A freed single block of about that size.
Heap::Placed Heap::reuse(size_t bytes, size_t alignment) noexcept {
  for (size_t i = 0; i < n_arenas_; ++i) {
    Arena& arena = *arenas_[i];
    const size_t most = bytes + bytes / 4 + granule_bytes;
    if (arena.used || arena.bytes() < bytes || arena.bytes() > most || !is_aligned(arena.begin(), alignment)) continue;
    arena.used = true;
    kept_bytes_ -= arena.bytes();
    return {arena.begin(), arena.begin(), bytes};
  }
  return {};
}

Heap::Placed Heap::put(size_t bytes, size_t alignment) noexcept {
  const bool to_cut = bytes <= cut_bytes_max;
  if (to_cut)
    if (const Placed placed = cut(bytes, alignment); placed.block != nullptr) return placed;
  if (const Placed placed = reuse(bytes, alignment); placed.block != nullptr) return placed;
  const Arena* const arena = make(bytes, alignment, !to_cut);
  if (arena == nullptr) return {};
  return arena->single() ? Placed{.block = arena->begin()} : cut(bytes, alignment);
}

void* Heap::allocate(size_t bytes, size_t alignment, bool zeroed) noexcept {
  constexpr size_t bytes_max = size_t{1} << 46;
  if (bytes == 0 || bytes > bytes_max || alignment > alignment_max) return nullptr;
  Placed placed;
  {
    const Lock lock(*this);
    placed = put(bytes, alignment);
  }
  if (zeroed && placed.dirty_bytes > 0) std::memset(placed.dirty, 0, placed.dirty_bytes);
  return placed.block;
}

// Without the lock, for the many blocks of the C library.
bool Heap::may_hold(const void* block) const noexcept {
  constexpr uintptr_t page_bytes_min = 4096;
  const auto at = reinterpret_cast<uintptr_t>(block);
  return at % page_bytes_min == 0 && at >= lowest_.load(std::memory_order_relaxed) &&
         at < highest_.load(std::memory_order_relaxed);
}

Heap::Found Heap::find(const void* block) const noexcept {
  Arena* const arena = arena_of(block);
  if (arena == nullptr) return {};
  const auto offset = size_t(static_cast<const std::byte*>(block) - arena->begin());
  size_t bytes = 0;
  if (arena->single()) bytes = offset == 0 && arena->used ? arena->bytes() : 0;
  else if (offset % granule_bytes == 0) bytes = arena->runs.used_at(offset / granule_bytes) * granule_bytes;
  if (bytes == 0) give_up("libtutti_malloc: no block of malloc begins at this pointer, or it was freed before\n");
  return {arena, offset, bytes};
}

size_t Heap::usable(const void* block) const noexcept {
  if (!may_hold(block)) return 0;
  const Lock lock(*this);
  return find(block).bytes;
}

bool Heap::free(void* block) noexcept {
  if (!may_hold(block)) return false;
  const Lock lock(*this);
  const Found found = find(block);
  if (found.arena == nullptr) return false;
  Arena& arena = *found.arena;
  const size_t before = kept(arena);
  if (arena.single()) arena.used = false;
  else arena.runs.give(found.offset / granule_bytes);
  keep(arena, found.offset, found.bytes, before);
  return true;
}

size_t Heap::kept(const Arena& arena) const noexcept {
  if (arena.single()) return arena.used ? 0 : arena.bytes();
  return arena.runs.dirty_free() * granule_bytes;
}

// After something was freed: it is kept, and where that is too much, whatever was kept before it goes back first.
void Heap::keep(Arena& arena, size_t offset, size_t bytes, size_t kept_before) noexcept {
  if (!arena.shared()) {
    if (arena.single() || arena.runs.used() == 0) {
      erase(&arena);
      Arena::destroy(&arena);
    } else {
      arena.discard(offset, bytes);
      arena.runs.clean([](size_t, size_t) {});
    }
    return;
  }
  kept_bytes_ += kept(arena) - kept_before;
  if (kept_bytes_ <= kept_bytes_max_) return;
  trim_all(bytes <= kept_bytes_max_ ? &arena : nullptr);
  if (kept_bytes_ > kept_bytes_max_) trim_all(nullptr);
}

bool Heap::trim() noexcept {
  const Lock lock(*this);
  return trim_all(nullptr);
}

bool Heap::trim_all(const Arena* except) noexcept {
  const size_t before = kept_bytes_;
  const size_t arenas_before = n_arenas_;
  for (size_t i = n_arenas_; i-- > 0;) {
    Arena* const arena = arenas_[i];
    if (arena == except || !arena->shared()) continue;
    kept_bytes_ -= kept(*arena);
    if (arena->single() ? !arena->used : arena->runs.used() == 0) {
      erase(arena);
      Arena::destroy(arena);
    } else if (!arena->single()) {
      arena->runs.clean([&](size_t first, size_t n) { arena->discard(first * granule_bytes, n * granule_bytes); });
    }
  }
  return kept_bytes_ < before || n_arenas_ < arenas_before;
}

void* Heap::resize(void* block, size_t bytes) noexcept {
  const Lock lock(*this);
  const Found found = find(block);
  Arena* const arena = found.arena;
  const size_t whole = round_up(bytes, granule_bytes);
  if (arena == nullptr || bytes == 0 || whole < bytes) return nullptr;
  if (arena->single()) {
    if (whole == arena->bytes()) return block;
    erase(arena);
    const bool resized = arena->resize(whole);
    insert(arena);
    return resized ? arena->begin() : nullptr;
  }
  const size_t first = found.offset / granule_bytes;
  const size_t n = whole / granule_bytes, old = found.bytes / granule_bytes, before = kept(*arena);
  if (n > old) {
    if (!arena->shared() || !arena->runs.grow(first, n)) return nullptr;
    kept_bytes_ += kept(*arena) - before;
  } else if (n < old) {
    arena->runs.shrink(first, n);
    keep(*arena, (first + n) * granule_bytes, (old - n) * granule_bytes, before);
  }
  return block;
}

const LentRegion* Heap::region(const void* data) const noexcept {
  const auto at = reinterpret_cast<uintptr_t>(data);
  if (at < lowest_.load(std::memory_order_relaxed) || at >= highest_.load(std::memory_order_relaxed)) return nullptr;
  const Lock lock(*this);
  const Arena* const arena = arena_of(data);
  return arena == nullptr || !arena->shared() ? nullptr : &arena->lent();
}

// --- Forks

void Heap::before_fork() noexcept {
  ::pthread_mutex_lock(&mutex_);
  const auto in_use = [](const Arena* arena) {
    return arena->shared() && (arena->single() ? arena->used : arena->runs.used() > 0);
  };
  child_copies_ = std::any_of(arenas_.begin(), arenas_.begin() + n_arenas_, in_use);
  if (!child_copies_ || ::pipe2(pipe_, O_CLOEXEC) == 0) return;
  pipe_[0] = pipe_[1] = -1;
  void* const word = ::mmap(nullptr, sizeof *copied_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (word == MAP_FAILED) give_up("libtutti_malloc: fork(): no descriptors and no memory to wait for the child with\n");
  copied_ = new (word) std::atomic<uint32_t>(0);
}

// A pipe ends in every case, be it that fork() failed. The word does not: a child that dies while it copies, in a
// process without descriptors, costs the longest wait.
void Heap::wait_for_child() noexcept {
  if (pipe_[0] >= 0) {
    ::close(pipe_[1]);
    char nothing = 0;
    while (::read(pipe_[0], &nothing, 1) < 0 && errno == EINTR) continue;
    ::close(pipe_[0]);
    return;
  }
  constexpr timespec pause{0, 1'000'000};
  constexpr int pauses_max = 10'000;
  for (int i = 0; i < pauses_max && copied_->load(std::memory_order_acquire) == 0; ++i) ::nanosleep(&pause, nullptr);
  ::munmap(copied_, sizeof *copied_);
}

void Heap::after_fork_in_parent() noexcept {
  const int error = errno;
  if (child_copies_) wait_for_child();
  errno = error;
  ::pthread_mutex_unlock(&mutex_);
}

void Heap::after_fork_in_child() noexcept {
  const int error = errno;
  for (size_t i = n_arenas_; i-- > 0;) {
    Arena* const arena = arenas_[i];
    if (!arena->shared()) continue;
    if (arena->single() ? !arena->used : arena->runs.used() == 0) {
      erase(arena);
      Arena::forget(arena);
    } else if (!arena->make_private()) {
      give_up("libtutti_malloc: fork(): no memory for the child's copies\n");
    }
  }
  kept_bytes_ = 0;
  if (child_copies_ && pipe_[0] >= 0) {
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  } else if (child_copies_) {
    copied_->store(1, std::memory_order_release);  // for the load of wait_for_child
    ::munmap(copied_, sizeof *copied_);
  }
  errno = error;
  ::pthread_mutex_unlock(&mutex_);
}

}  // namespace tutti
