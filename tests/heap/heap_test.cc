// The heap of libtutti_malloc.so as a class: blocks, what is kept of them, limits and forks.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "heap/arena.h"
#include "heap/child.h"
#include "heap/heap.h"
#include "heap/heap_limits.h"
#include "memory/memory_file.h"
#include "sanitizer.h"

namespace tutti {
namespace {

constexpr size_t mib = size_t{1} << 20;

// A heap has no destructor: what a test leaves is gone when its process ends.
std::unique_ptr<Heap> make_heap(size_t kept_bytes_max = Heap::kept_bytes_default, bool huge_pages = false) {
  auto heap = std::make_unique<Heap>();
  heap->begin(kept_bytes_max, huge_pages);
  return heap;
}

std::byte* allocate(Heap& heap, size_t bytes, size_t alignment = 0, bool zeroed = false) {
  auto* const block = static_cast<std::byte*>(heap.allocate(bytes, alignment, zeroed));
  EXPECT_NE(block, nullptr) << bytes;
  return block;
}

bool all_are(const std::byte* block, size_t bytes, int value) {
  return std::all_of(block, block + bytes, [value](std::byte b) { return b == std::byte(value); });
}

size_t bytes_held(const LentRegion& region) {
  struct stat about {};
  ::fstat(region.fd, &about);
  return size_t(about.st_blocks) * 512;
}

size_t address_space() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

TEST(Heap, GivesAtLeastWhatIsAskedFor) {
  const auto heap = make_heap();
  for (const size_t bytes : {mib, 3 * mib + 5, 64 * mib, 70 * mib}) {
    std::byte* const block = allocate(*heap, bytes);
    EXPECT_GE(heap->usable(block), bytes);
    EXPECT_EQ(heap->usable(block + 16), 0u) << "inside is nobody's beginning";
  }
}

TEST(Heap, ARegionIsTheBlockSeenThroughItsFile) {
  const auto heap = make_heap();
  for (const size_t bytes : {2 * mib, 80 * mib}) {
    std::byte* const block = allocate(*heap, bytes);
    const LentRegion* const region = heap->region(block + bytes - 1);
    ASSERT_NE(region, nullptr);
    EXPECT_TRUE(region->holds(block, bytes));
    EXPECT_TRUE(is_memory_file(region->fd, region->file_bytes));
    const Mapping other(region->fd, 0, region->file_bytes, "test");
    block[bytes - 1] = std::byte{9};
    EXPECT_EQ(other.at(size_t(block - region->begin))[bytes - 1], std::byte{9});
  }
  int local = 0;
  EXPECT_EQ(heap->region(&local), nullptr);
  EXPECT_EQ(heap->region(nullptr), nullptr);
}

TEST(Heap, BlocksDoNotOverlapAndKeepWhatIsWrittenToThem) {
  const auto heap = make_heap(8 * mib);
  std::mt19937 random{5};
  struct Block {
    size_t bytes;
    int value;
  };
  std::map<std::byte*, Block> blocks;
  const auto ends = [](std::byte* block, size_t bytes) { return std::array{block, block + bytes - 1}; };
  for (int i = 0; i < 1500; ++i) {
    const unsigned what = random() % 4;
    if (what < 2 || blocks.empty()) {
      const size_t bytes = 1 + random() % (random() % 16 == 0 ? 90 * mib : 3 * mib);
      const size_t alignment = size_t{1} << random() % 23;
      std::byte* const block = allocate(*heap, bytes, alignment);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
      for (std::byte* end : ends(block, bytes)) *end = std::byte(i);
      ASSERT_TRUE(blocks.emplace(block, Block{bytes, i & 255}).second);
      continue;
    }
    const auto any = std::next(blocks.begin(), random() % blocks.size());
    for (std::byte* end : ends(any->first, any->second.bytes)) ASSERT_EQ(*end, std::byte(any->second.value));
    if (what == 2) {
      ASSERT_TRUE(heap->free(any->first));
      blocks.erase(any);
      continue;
    }
    Block block = any->second;
    std::byte* const old = any->first;
    const size_t bytes = 1 + random() % (2 * block.bytes);
    auto* const resized = static_cast<std::byte*>(heap->resize(old, bytes));
    if (resized == nullptr) continue;
    ASSERT_EQ(resized[0], std::byte(block.value));
    if (bytes >= block.bytes) {
      ASSERT_EQ(resized[block.bytes - 1], std::byte(block.value));
    }
    blocks.erase(any);
    for (std::byte* end : ends(resized, bytes)) *end = std::byte(block.value);
    blocks[resized] = {bytes, block.value};
  }
  std::byte* end = nullptr;
  for (const auto& [block, about] : blocks) {
    EXPECT_GE(block, end);
    end = block + about.bytes;
  }
  for (const auto& [block, about] : blocks) EXPECT_TRUE(heap->free(block));
}

TEST(Heap, ZeroedIsZeroedWhateverLayThereBefore) {
  const auto heap = make_heap();
  for (const size_t bytes : {5 * mib, 70 * mib}) {
    std::byte* const block = allocate(*heap, bytes);
    std::memset(block, 7, bytes);
    heap->free(block);
    std::byte* const again = allocate(*heap, bytes, 0, true);
    EXPECT_EQ(again, block) << "what was freed is used again";
    EXPECT_TRUE(all_are(again, bytes, 0));
    // Of a mixture of dirty and clean granules too.
    std::memset(again, 7, bytes);
    heap->free(again);
    std::byte* const larger = allocate(*heap, bytes + mib, 0, true);
    EXPECT_TRUE(all_are(larger, bytes + mib, 0));
    heap->free(larger);
  }
}

TEST(Heap, KeepsFreedPagesUpToItsLimitAndGivesTheRestBack) {
  const auto heap = make_heap(16 * mib);
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 10; ++i) {
    blocks.push_back(allocate(*heap, 4 * mib));
    std::memset(blocks.back(), 1, 4 * mib);
  }
  const LentRegion& region = *heap->region(blocks[0]);
  EXPECT_GE(bytes_held(region), 40 * mib);
  for (int i = 0; i < 4; ++i) heap->free(blocks[size_t(i)]);
  EXPECT_GE(bytes_held(region), 40 * mib) << "kept";
  for (int i = 4; i < 9; ++i) heap->free(blocks[size_t(i)]);
  EXPECT_LE(bytes_held(region), 20 * mib) << "more than 16 MiB and the block in use";
  EXPECT_TRUE(all_are(blocks[9], 4 * mib, 1));
  EXPECT_TRUE(heap->trim());
  EXPECT_LE(bytes_held(region), 5 * mib);
  EXPECT_FALSE(heap->trim());
  heap->free(blocks[9]);
}

TEST(Heap, PagesOfALargeBlockGoBackThoughAPeerMapsThem) {
  const auto heap = make_heap(mib);
  std::byte* const block = allocate(*heap, 70 * mib);
  const LentRegion region = *heap->region(block);
  const Mapping peer(region.fd, 0, region.file_bytes, "test");
  const Fd file(::dup(region.fd));
  std::memset(block, 1, 70 * mib);
  heap->free(block);
  struct stat about {};
  ASSERT_EQ(::fstat(file.get(), &about), 0);
  EXPECT_EQ(about.st_blocks, 0);
  EXPECT_TRUE(all_are(peer.data(), 4096, 0));
}

TEST(Heap, ALargeBlockGrowsWithoutACopy) {
  const auto heap = make_heap();
  std::byte* block = allocate(*heap, 65 * mib);
  const LentRegion before = *heap->region(block);
  std::memset(block, 3, 65 * mib);
  const size_t held = bytes_held(before);
  block = static_cast<std::byte*>(heap->resize(block, 200 * mib));
  ASSERT_NE(block, nullptr);
  const LentRegion* const after = heap->region(block + 200 * mib - 1);
  ASSERT_NE(after, nullptr);
  EXPECT_EQ(after->number, before.number) << "the same file";
  EXPECT_EQ(bytes_held(*after), held) << "no page was added";
  EXPECT_TRUE(all_are(block, 65 * mib, 3));
  block = static_cast<std::byte*>(heap->resize(block, 10 * mib));
  ASSERT_NE(block, nullptr);
  EXPECT_LE(bytes_held(*heap->region(block)), 10 * mib + 65536) << "what shrinks gives pages back";
  EXPECT_TRUE(all_are(block, 10 * mib, 3));
  heap->free(block);
}

TEST(Heap, FreeingWhatIsNoBlockEndsTheProcessWithASentence) {
  const auto heap = make_heap();
  std::byte* const block = allocate(*heap, 2 * mib);
  EXPECT_DEATH(heap->free(block + 4096), "no block of malloc begins at this pointer");
  int local = 0;
  EXPECT_FALSE(heap->free(&local)) << "the C library's";
  ASSERT_TRUE(heap->free(block));
  EXPECT_DEATH(heap->free(block), "freed before");
}

TEST(Heap, ThreadsAllocateResizeFindAndFreeAtOnce) {
  const auto heap = make_heap(8 * mib);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&heap, t] {
      std::mt19937 random{unsigned(t)};
      for (int i = 0; i < 200; ++i) {
        const size_t bytes = mib + random() % (2 * mib);
        std::byte* block = allocate(*heap, bytes);
        block[0] = block[bytes - 1] = std::byte(t + 1);
        EXPECT_TRUE(heap->region(block)->holds(block, bytes));
        if (auto* const resized = static_cast<std::byte*>(heap->resize(block, 2 * bytes))) block = resized;
        EXPECT_EQ(block[0], std::byte(t + 1));
        EXPECT_EQ(block[bytes - 1], std::byte(t + 1));
        EXPECT_TRUE(heap->free(block));
      }
    });
}

// --- Forks


void tell(int fd) { ASSERT_EQ(::write(fd, "x", 1), 1); }
bool hear(int fd) {
  char turn = 0;
  return ::read(fd, &turn, 1) == 1;
}

// The child looks, writes, and looks again after the parent has written; the parent looks after both have.
void expect_apart(Heap& heap, const std::vector<std::pair<std::byte*, size_t>>& blocks, bool lent = true) {
  int down[2], up[2];
  ASSERT_EQ(::pipe(down), 0);
  ASSERT_EQ(::pipe(up), 0);
  for (const auto& [block, bytes] : blocks) std::memset(block, 1, bytes);
  heap.before_fork();
  const pid_t pid = ::fork();
  if (pid == 0) {
    heap.after_fork_in_child();
    bool right = hear(down[0]);  // the parent has written 2 everywhere
    for (const auto& [block, bytes] : blocks) {
      right = right && all_are(block, bytes, 1) && heap.region(block) == nullptr;
      std::memset(block, 3, bytes);
    }
    tell(up[1]);
    right = right && hear(down[0]);
    for (const auto& [block, bytes] : blocks) right = right && all_are(block, bytes, 3) && heap.free(block);
    // What the child allocates is shared again.
    void* const own = heap.allocate(2 * mib, 0, true);
    right = right && own != nullptr && heap.region(own) != nullptr && heap.free(own);
    ::_exit(right ? 0 : 1);
  }
  heap.after_fork_in_parent();
  for (const auto& [block, bytes] : blocks) {
    EXPECT_EQ(heap.region(block) != nullptr, lent);
    std::memset(block, 2, bytes);
  }
  tell(down[1]);
  EXPECT_TRUE(hear(up[0]));
  for (const auto& [block, bytes] : blocks) EXPECT_TRUE(all_are(block, bytes, 2)) << "the child's writing shows";
  tell(down[1]);
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  for (const int fd : {down[0], down[1], up[0], up[1]}) ::close(fd);
}

TEST(HeapFork, ParentAndChildWriteToMemoryOfTheirOwn) {
  const auto heap = make_heap();
  std::vector<std::pair<std::byte*, size_t>> blocks;
  for (const size_t bytes : {mib, 5 * mib + 100, 70 * mib}) blocks.emplace_back(allocate(*heap, bytes), bytes);
  heap->free(allocate(*heap, 3 * mib));
  heap->free(allocate(*heap, 90 * mib));
  expect_apart(*heap, blocks);
  for (const auto& [block, bytes] : blocks) heap->free(block);
}

TEST(HeapFork, WhatNobodyHasTouchedCostsTheChildNothingAndStaysZero) {
  const auto heap = make_heap();
  std::byte* const block = allocate(*heap, 1000 * mib, 0, true);
  block[500 * mib] = std::byte{1};
  heap->before_fork();
  const pid_t pid = ::fork();
  if (pid == 0) {
    heap->after_fork_in_child();
    std::vector<unsigned char> present(1000 * mib / 4096);
    bool right = ::mincore(block, 1000 * mib, present.data()) == 0;
    right = right && std::count_if(present.begin(), present.end(), [](unsigned char p) { return (p & 1) != 0; }) <= 512;
    ::usleep(100'000);  // the parent writes meanwhile
    ::_exit(right && block[100] == std::byte{0} && block[500 * mib] == std::byte{1} ? 0 : 1);
  }
  heap->after_fork_in_parent();
  block[100] = std::byte{7};
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  heap->free(block);
}

TEST(HeapFork, WorksThoughTheProgramHasClosedAllDescriptors) {
  const auto heap = make_heap();
  std::vector<std::pair<std::byte*, size_t>> blocks;
  for (const size_t bytes : {2 * mib, 70 * mib}) blocks.emplace_back(allocate(*heap, bytes), bytes);
  for (const auto& [block, bytes] : blocks) ::close(heap->region(block)->fd);
  expect_apart(*heap, blocks);
  for (const auto& [block, bytes] : blocks) heap->free(block);
}

TEST(HeapFork, WorksWhereNoDescriptorIsLeftToWaitWith) {
  const auto heap = make_heap();
  std::byte* const block = allocate(*heap, 2 * mib);
  std::memset(block, 1, 2 * mib);
  EXPECT_EQ(test::in_child([&] {
              if (!test::limit(RLIMIT_NOFILE, 3)) return false;
              heap->before_fork();
              const pid_t pid = ::fork();
              if (pid == 0) {
                heap->after_fork_in_child();
                ::usleep(50'000);
                ::_exit(all_are(block, 2 * mib, 1) ? 0 : 1);
              }
              heap->after_fork_in_parent();
              std::memset(block, 2, 2 * mib);
              int status = -1;
              ::waitpid(pid, &status, 0);
              return status == 0;
            }),
            0);
  heap->free(block);
}

TEST(HeapFork, AGrandchildHasMemoryOfItsOwnToo) {
  const auto heap = make_heap();
  std::byte* const block = allocate(*heap, 3 * mib);
  std::memset(block, 1, 3 * mib);
  heap->before_fork();
  const pid_t pid = ::fork();
  if (pid == 0) {
    heap->after_fork_in_child();
    std::byte* const own = allocate(*heap, 3 * mib);
    std::memset(own, 5, 3 * mib);
    expect_apart(*heap, {{own, 3 * mib}});
    expect_apart(*heap, {{block, 3 * mib}}, false);  // a child's copies are memory like any other
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  heap->after_fork_in_parent();
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  heap->free(block);
}

TEST(HeapFork, ADeadChildIsNotWaitedFor) {
  const auto heap = make_heap();
  std::byte* const block = allocate(*heap, 3 * mib);
  heap->before_fork();
  const pid_t pid = ::fork();
  if (pid == 0) ::raise(SIGKILL);  // before it copied anything
  heap->after_fork_in_parent();
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(heap->free(block));
}

// --- Limits: the heap says no, and nothing else happens

TEST(HeapLimits, AFileLimitIsNeverRunInto) {
  EXPECT_EQ(test::in_child([] {  // SIGXFSZ would kill it
              if (!test::limit(RLIMIT_FSIZE, 8 * mib)) return false;
              const auto heap = make_heap();
              void* const small = heap->allocate(4 * mib, 0, false);
              return small != nullptr && heap->allocate(9 * mib, 0, false) == nullptr && heap->free(small);
            }),
            0);
}

TEST(HeapLimits, WithoutDescriptorsItRefuses) {
  EXPECT_EQ(test::in_child([] {
              if (!test::limit(RLIMIT_NOFILE, 4)) return false;
              return make_heap()->allocate(2 * mib, 0, false) == nullptr;
            }),
            0);
}

TEST(HeapLimits, ItTakesAnEighthOfTheDescriptorsAtMost) {
  EXPECT_EQ(test::in_child([] {
              if (!test::limit(RLIMIT_NOFILE, 64)) return false;
              const auto heap = make_heap();
              int given = 0;
              for (int i = 0; i < 20; ++i) given += heap->allocate(65 * mib, 0, false) != nullptr ? 1 : 0;
              return given == 8;
            }),
            0);
}

TEST(HeapLimits, WhereAddressSpaceIsLimitedItRefusesAndServesFromWhatItHas) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer's shadow needs all address space";
  EXPECT_EQ(test::in_child([] {
              const auto heap = make_heap();
              void* const block = heap->allocate(10 * mib, 0, false);
              if (!test::limit(RLIMIT_AS, address_space() + 512 * mib)) return false;
              void* const beside = heap->allocate(10 * mib, 0, false);
              return block != nullptr && beside != nullptr && heap->allocate(70 * mib, 0, false) == nullptr &&
                     make_heap()->allocate(2 * mib, 0, false) == nullptr;
            }),
            0);
}

TEST(HeapLimits, WhereNewMemoryIsLockedItRefuses) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer makes mlockall do nothing";
  EXPECT_EQ(test::in_child([] {
              if (!test::limit(RLIMIT_MEMLOCK, 64 * mib)) return false;
              return ::mlockall(MCL_FUTURE) == 0 && make_heap()->allocate(2 * mib, 0, false) == nullptr;
            }),
            0);
}

TEST(HeapLimits, ALimitOfPrivateMemoryLeavesAllToTheCLibrary) {
  EXPECT_EQ(test::in_child([] {
              if (!test::limit(RLIMIT_DATA, 4096 * mib)) return false;
              return make_heap()->allocate(2 * mib, 0, false) == nullptr;
            }),
            0);
}

TEST(Heap, RefusesWhatNobodyCanHave) {
  const auto heap = make_heap();
  EXPECT_EQ(heap->allocate(0, 0, false), nullptr);
  EXPECT_EQ(heap->allocate(~size_t{0}, 0, false), nullptr);
  EXPECT_EQ(heap->allocate(size_t{1} << 50, 0, false), nullptr);
  EXPECT_EQ(heap->allocate(mib, size_t{1} << 40, false), nullptr);
}

TEST(Heap, HugePagesBeginAtHugePages) {
  const auto heap = make_heap(Heap::kept_bytes_default, true);
  allocate(*heap, mib);
  for (const size_t bytes : {2 * mib, 70 * mib})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(allocate(*heap, bytes)) % huge_page_bytes, 0u);
}

}  // namespace
}  // namespace tutti
