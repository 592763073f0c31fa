// Memory files as the system makes and maps them, without exceptions.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <gtest/gtest.h>

#include "base/fd.h"
#include "memory/memory_file.h"
#include "memory/preloaded_heap.h"
#include "memory/raw_memory_file.h"

namespace tutti {
namespace {

TEST(RawMemoryFile, IsSealedAndSeenThroughEveryMapping) {
  MemoryFileStep failed{};
  const Fd file(raw_memory_file("test", 3 * page_bytes(), failed));
  ASSERT_TRUE(file.valid());
  EXPECT_TRUE(is_memory_file(file.get(), 3 * page_bytes()));
  EXPECT_NE(::ftruncate(file.get(), 0), 0);
  for (const size_t alignment : {size_t{0}, size_t{1} << 21, size_t{1} << 25}) {
    std::byte* const all = map_shared(file.get(), 0, 3 * page_bytes(), alignment);
    std::byte* const last = map_shared(file.get(), 2 * page_bytes(), page_bytes(), alignment);
    ASSERT_NE(all, nullptr);
    ASSERT_NE(last, nullptr);
    if (alignment > 0) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(all) % alignment, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(last) % alignment, 0u);
    }
    std::strcpy(reinterpret_cast<char*>(all + 2 * page_bytes()), "here");
    EXPECT_STREQ(reinterpret_cast<char*>(last), "here");
    ::munmap(all, 3 * page_bytes());
    ::munmap(last, page_bytes());
  }
}

TEST(RawMemoryFile, SaysWhichStepTheSystemRefused) {
  MemoryFileStep failed{};
  EXPECT_EQ(raw_memory_file("test", size_t{1} << 63, failed), -1);
  EXPECT_EQ(failed, MemoryFileStep::size);
  EXPECT_NE(errno, 0);
  EXPECT_EQ(map_shared(-1, 0, page_bytes(), 0), nullptr);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(map_shared(-1, 0, page_bytes(), size_t{1} << 21), nullptr);
  EXPECT_EQ(errno, EBADF);
}

TEST(PreloadedHeap, IsNotThereWhereItIsNotPreloaded) {
  int local = 0;
  EXPECT_EQ(preloaded_region(&local), nullptr);
  EXPECT_EQ(preloaded_region(nullptr), nullptr);
}

}  // namespace
}  // namespace tutti
