// Blocks of shared memory: disjoint, zeroed, found by any address inside, freed once and only when nobody uses them.
#include "memory/shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

std::byte* allocate(SharedMemory& memory, size_t bytes) { return static_cast<std::byte*>(memory.allocate(bytes)); }

bool all_are(const std::byte* data, size_t bytes, int value) {
  return std::all_of(data, data + bytes, [=](std::byte b) { return b == std::byte(value); });
}

void expect_refused(const std::function<void()>& body, Code code, const std::string& words) {
  try {
    body();
    FAIL() << "no error: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

// Pages of a region that the system holds memory for.
size_t pages_held(const SharedRegion& region) {
  struct stat about {};
  return ::fstat(region.fd(), &about) == 0 ? size_t(about.st_blocks) * 512 / page_bytes() : 0;
}

TEST(SharedMemory, BlocksAreZeroedDisjointAndFoundByAnyAddressInside) {
  std::mt19937 random(7);
  SharedMemory memory;
  std::map<std::byte*, size_t> blocks;
  for (int round = 0; round < 2000; ++round) {
    const bool large = random() % 64 == 0;
    const size_t bytes = 1 + random() % (large ? SharedMemory::small_bytes_max * 2 : 100'000);
    if (blocks.size() < 40 || random() % 2 == 0) {
      std::byte* const block = allocate(memory, bytes);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % page_bytes(), 0u);
      ASSERT_TRUE(all_are(block, bytes, 0)) << bytes;
      std::memset(block, 1, bytes);
      const auto after = blocks.lower_bound(block);
      ASSERT_TRUE(after == blocks.end() || block + bytes <= after->first);
      ASSERT_TRUE(after == blocks.begin() || std::prev(after)->first + std::prev(after)->second <= block);
      blocks[block] = bytes;
    } else {
      const auto any = std::next(blocks.begin(), long(random() % blocks.size()));
      memory.free(any->first);
      ASSERT_EQ(memory.find(any->first, 1), nullptr);
      blocks.erase(any);
    }
  }
  for (const auto& [block, bytes] : blocks) {
    ASSERT_TRUE(all_are(block, bytes, 1)) << "written by another block";
    const auto found = memory.find(block + bytes - 1, 1);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->data(), block);
    EXPECT_EQ(found->region->data() + found->offset, block);
    EXPECT_GE(found->bytes, bytes);
    EXPECT_EQ(memory.find(block, found->bytes), found);
    EXPECT_EQ(memory.find(block, found->bytes + 1), nullptr);
    EXPECT_EQ(memory.find(block + 1, found->bytes), nullptr);
  }
  for (const auto& [block, bytes] : blocks) memory.free(block);
}

TEST(SharedMemory, NothingIsFoundWhereNothingIs) {
  SharedMemory memory;
  int local = 0;
  EXPECT_EQ(memory.find(&local, sizeof local), nullptr);
  EXPECT_EQ(memory.find(nullptr, 0), nullptr);
  std::byte* const block = allocate(memory, 1);
  EXPECT_EQ(memory.find(&local, sizeof local), nullptr);
  EXPECT_EQ(memory.find(block - 1, 1), nullptr);
  EXPECT_NE(memory.find(block, 0), nullptr);
  EXPECT_EQ(memory.find(block, ~size_t{0}), nullptr);
  EXPECT_EQ(memory.find(block + page_bytes(), 0), nullptr);
  memory.free(block);
}

TEST(SharedMemory, ARegionIsSeenThroughItsDescriptorAndItsNumberIsItsOwn) {
  SharedMemory memory;
  std::byte* const block = allocate(memory, 3 * page_bytes());
  const std::shared_ptr<const SharedBlock> found = memory.find(block, 1);
  const SharedRegion& region = *found->region;
  EXPECT_TRUE(is_memory_file(region.fd(), region.bytes()));
  const Mapping other(region.fd(), 0, region.bytes(), "test");
  block[5] = std::byte{9};
  EXPECT_EQ(other.at(found->offset)[5], std::byte{9});
  std::byte* const large = allocate(memory, SharedMemory::small_bytes_max + 1);
  EXPECT_NE(memory.find(large, 1)->region->number(), region.number());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % (size_t{2} << 20), 0u);
}

// Who has pinned a region's pages must know when they are no longer the ones that are read.
TEST(SharedMemory, FreeingMemoryChangesItsRegionAndSoDoesItsEnd) {
  SharedMemory memory;
  std::byte* const small = allocate(memory, page_bytes());
  std::byte* const large = allocate(memory, SharedMemory::small_bytes_max + 1);
  const auto changes_of = [&](const std::byte* data) { return memory.find(data, 1)->region->lent().changes; };
  const auto of_small = changes_of(small), of_large = changes_of(large);
  const uint64_t small_before = *of_small, large_before = *of_large;
  std::byte* const neighbour = allocate(memory, page_bytes());
  EXPECT_EQ(*of_small, small_before) << "nothing was freed yet";
  memory.free(neighbour);
  EXPECT_NE(*of_small, small_before);
  EXPECT_EQ(*of_large, large_before);
  memory.free(large);
  EXPECT_NE(*of_large, large_before);
  memory.free(small);
}

TEST(SharedMemory, SmallBlocksShareDescriptorsAndFreedPagesGoBackToTheSystem) {
  SharedMemory memory;
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 1000; ++i) {
    blocks.push_back(allocate(memory, 5000));
    std::memset(blocks.back(), 1, 5000);
    ASSERT_EQ(memory.find(blocks.back(), 1)->region, memory.find(blocks[0], 1)->region);
  }
  const auto region = memory.find(blocks[0], 1)->region;
  EXPECT_GE(pages_held(*region), 1000u);
  for (std::byte* const block : blocks) memory.free(block);
  EXPECT_EQ(pages_held(*region), 0u);
  // Blocks of all sizes up to all of it find room where the many were.
  EXPECT_EQ(memory.find(allocate(memory, SharedMemory::small_bytes_max), 1)->region, region);
}

TEST(SharedMemory, PagesOfAFreedBlockGoBackAlthoughOthersMapThem) {
  SharedMemory memory;
  const size_t bytes = SharedMemory::small_bytes_max + page_bytes();
  std::byte* const block = allocate(memory, bytes);
  const auto region = memory.find(block, 1)->region;
  const Mapping other(region->fd(), 0, bytes, "test");
  std::memset(block, 1, bytes);
  EXPECT_TRUE(all_are(other.data(), bytes, 1));
  memory.free(block);
  EXPECT_EQ(pages_held(*region), 0u);
  EXPECT_TRUE(all_are(other.data(), page_bytes(), 0));
}

TEST(SharedMemory, OnlyWhatWasGivenIsFreedAndOnlyOnce) {
  SharedMemory memory;
  memory.free(nullptr);
  EXPECT_EQ(memory.allocate(0), nullptr);
  std::byte* const block = allocate(memory, 100'000);
  int local = 0;
  expect_refused([&] { memory.free(&local); }, Code::invalid_argument, "is no memory of tuttiMemAlloc");
  expect_refused([&] { memory.free(block + 16); }, Code::invalid_argument, "16 bytes after its start");
  memory.free(block);
  expect_refused([&] { memory.free(block); }, Code::invalid_argument, "it was freed, or never allocated");
}

TEST(SharedMemory, WhatIsUsedIsNotFreed) {
  SharedMemory memory;
  std::byte* const block = allocate(memory, 100);
  std::shared_ptr<const SharedBlock> use = memory.find(block, 100);
  expect_refused([&] { memory.free(block); }, Code::invalid_usage, "in use by a call");
  use->registrations.fetch_add(1);
  expect_refused([&] { memory.free(block); }, Code::invalid_usage, "has 1 registration with");
  use->registrations.fetch_sub(1);
  use.reset();
  memory.free(block);
}

TEST(SharedMemory, PagesThatAreTakenBackAreNoOtherProcesss) {
  SharedMemory memory;
  auto* const first = static_cast<std::byte*>(memory.allocate(3 * page_bytes()));
  auto* const second = static_cast<std::byte*>(memory.allocate(100));  // of the same region
  const auto block = memory.find(first, 1);
  const Mapping others(block->region->fd(), 0, block->region->bytes(), "a test");
  std::memset(first, 1, 3 * page_bytes());
  EXPECT_TRUE(memory.take_back(first + page_bytes(), page_bytes()));
  EXPECT_TRUE(block->region->is_taken_back());
  for (size_t i = 0; i < 3 * page_bytes(); ++i) ASSERT_EQ(first[i], std::byte{1});
  std::memset(others.data() + block->offset, 2, 3 * page_bytes());
  EXPECT_EQ(first[0], std::byte{2});
  EXPECT_EQ(first[page_bytes()], std::byte{1});
  EXPECT_EQ(first[2 * page_bytes()], std::byte{2});
  EXPECT_EQ(memory.find_whole(first, page_bytes()), nullptr) << "it is lent no more";
  memory.free(second);
  auto* const third = static_cast<std::byte*>(memory.allocate(page_bytes()));
  EXPECT_NE(memory.find(third, 1)->region, block->region) << "pages of its own would not be zero when they are used again";
}

TEST(SharedMemory, OnlyWholePagesMayBeWrittenByOthers) {
  SharedMemory memory;
  const size_t page = page_bytes();
  auto* const data = static_cast<std::byte*>(memory.allocate(2 * page + 100));
  EXPECT_NE(memory.find_whole(data, page), nullptr);
  EXPECT_NE(memory.find_whole(data + page, page), nullptr);
  EXPECT_NE(memory.find_whole(data, 2 * page + 100), nullptr) << "to the end of what was asked for";
  EXPECT_EQ(memory.find_whole(data, 2 * page + 99), nullptr);
  EXPECT_EQ(memory.find_whole(data + 1, page), nullptr);
  EXPECT_EQ(memory.find_whole(data, 10), nullptr);
  memory.find(data, 1)->windows.store(1);
  EXPECT_EQ(memory.find_whole(data, page), nullptr) << "a window's peers would lose it";
}

TEST(SharedMemory, MoreThanTheHostHasIsRefused) {
  SharedMemory memory;
  expect_refused([&] { memory.allocate(size_t{1} << 60); }, Code::invalid_argument, "bytes is 1152921504606846976");
  expect_refused([&] { memory.allocate(~size_t{0}); }, Code::invalid_argument, "of this host");
}

TEST(SharedMemory, ThreadsAllocateFindAndFreeAtOnce) {
  SharedMemory memory;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&memory, t] {
      std::mt19937 random{unsigned(t)};
      for (int i = 0; i < 300; ++i) {
        const size_t bytes = 1 + random() % 50'000;
        std::byte* const block = allocate(memory, bytes);
        std::memset(block, t + 1, bytes);
        EXPECT_EQ(memory.find(block + bytes / 2, 1)->data(), block);
        EXPECT_TRUE(all_are(block, bytes, t + 1));
        memory.free(block);
      }
    });
}

TEST(SharedMemory, AChildSeesTheParentsMemoryAndFreesOnlyItsOwn) {
  SharedMemory memory;
  std::byte* const block = allocate(memory, 5000);
  memory.before_fork();
  const pid_t pid = ::fork();
  memory.after_fork(pid == 0);
  if (pid == 0) {
    block[0] = std::byte{5};
    bool refused = false;
    try {
      memory.free(block);
    } catch (const Error& error) {
      refused = error.code() == Code::invalid_usage && std::string(error.what()).find("forked") != std::string::npos;
    }
    std::byte* const own = allocate(memory, 5000);
    const bool apart = own != block && memory.find(own, 1) != nullptr && memory.find(block, 1) == nullptr;
    memory.free(own);
    ::_exit(refused && apart ? 0 : 1);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(block[0], std::byte{5});
  memory.free(block);
}

}  // namespace
}  // namespace tutti
