// malloc and its relatives with libtutti_malloc.so preloaded, as an unchanged program calls them. Run with LD_PRELOAD
// and TUTTI_MALLOC_THRESHOLD=256K.
#include <malloc.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "heap/child.h"
#include "heap/interpose.h"
#include "memory/preloaded_heap.h"

extern char** environ;

namespace tutti {
namespace {

constexpr size_t kib = 1024, mib = kib * kib, threshold = 256 * kib;

bool shared(const void* block) { return preloaded_region(block) != nullptr; }

bool all_are(const void* block, size_t bytes, int value) {
  const auto* const begin = static_cast<const unsigned char*>(block);
  return std::all_of(begin, begin + bytes, [value](unsigned char b) { return b == value; });
}

size_t address_space() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

// The optimizer knows malloc and realloc: it may drop blocks that nobody looks at.
void* (*volatile resize)(void*, size_t) = std::realloc;
void* (*volatile resize_array)(void*, size_t, size_t) = ::reallocarray;
void* volatile seen;
void* look_at(void* block) {
  seen = block;
  return seen;
}

TEST(Malloc, LargeBlocksAreSharedAndSmallOnesAreTheCLibrarys) {
  void* const small = look_at(std::malloc(threshold - 1));
  void* const large = look_at(std::malloc(threshold));
  EXPECT_FALSE(shared(small));
  EXPECT_TRUE(shared(large));
  EXPECT_TRUE(preloaded_region(large)->holds(static_cast<std::byte*>(large), threshold));
  EXPECT_GE(malloc_usable_size(small), threshold - 1);
  EXPECT_GE(malloc_usable_size(large), threshold);
  EXPECT_EQ(malloc_usable_size(nullptr), 0u);
  std::free(small);
  std::free(large);
  std::free(nullptr);
  auto* const letters = new std::string(mib, 'x');
  EXPECT_TRUE(shared(letters->data())) << "operator new asks malloc";
  delete letters;
}

TEST(Malloc, CallocIsZeroedAndRefusesWhatOverflows) {
  for (int i = 0; i < 3; ++i) {
    void* const block = look_at(std::calloc(3, mib));
    ASSERT_TRUE(shared(block));
    EXPECT_TRUE(all_are(block, 3 * mib, 0));
    std::memset(block, 1, 3 * mib);
    std::free(block);
  }
  errno = 0;
  volatile size_t many = SIZE_MAX / 2;
  EXPECT_EQ(look_at(std::calloc(many, 4)), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(Malloc, AlignmentIsKeptAndWrongOnesAreRefused) {
  for (size_t alignment = 16; alignment <= 128 * mib; alignment *= 4) {
    for (const size_t bytes : {size_t{100}, threshold, 5 * mib, 70 * mib}) {
      void* blocks[] = {look_at(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)),
                        look_at(::memalign(alignment, bytes)), nullptr};
      ASSERT_EQ(::posix_memalign(&blocks[2], alignment, bytes), 0);
      for (void* const block : blocks) {
        ASSERT_NE(block, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
        if (bytes >= threshold && alignment <= 64 * mib) {
          EXPECT_TRUE(shared(block)) << alignment << ' ' << bytes;
        }
        static_cast<char*>(block)[bytes - 1] = 1;
        std::free(block);
      }
    }
  }
  void* untouched = &untouched;
  EXPECT_EQ(::posix_memalign(&untouched, 24, mib), EINVAL);
  EXPECT_EQ(::posix_memalign(&untouched, 4, mib), EINVAL);
  EXPECT_EQ(::posix_memalign(&untouched, 0, mib), EINVAL);
  errno = 7;
  EXPECT_EQ(::posix_memalign(&untouched, 64, SIZE_MAX / 2), ENOMEM);
  EXPECT_EQ(errno, 7) << "posix_memalign leaves errno alone";
  EXPECT_EQ(untouched, &untouched);
  for (void* const block : {look_at(::valloc(mib)), look_at(::pvalloc(mib + 1))}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % size_t(::getpagesize()), 0u);
    EXPECT_TRUE(shared(block));
    std::free(block);
  }
  EXPECT_EQ(look_at(::pvalloc(SIZE_MAX)), nullptr);
}

TEST(Malloc, ErrnoIsSetByFailureAndLeftAloneOtherwise) {
  errno = 0;
  volatile size_t most = SIZE_MAX / 2;
  EXPECT_EQ(look_at(std::malloc(most)), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  errno = 5;
  for (const size_t bytes : {size_t{10}, mib, 300 * mib}) {
    void* const block = look_at(std::malloc(bytes));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(errno, 5);
    std::free(block);
    EXPECT_EQ(errno, 5);
  }
  void* const block = look_at(std::malloc(mib));
  errno = 0;
  EXPECT_EQ(look_at(resize(block, most)), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(look_at(resize_array(block, most, 3)), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_GE(malloc_usable_size(block), mib) << "what could not grow is still there";
  std::free(block);
}

TEST(Malloc, ReallocKeepsTheBytesAcrossTheThresholdBothWays) {
  const size_t sizes[] = {100,      200 * kib, 255 * kib, 256 * kib, 300 * kib, 60 * mib, 64 * mib, 65 * mib,
                          200 * mib, 500 * mib, 70 * mib,  20 * mib,  2 * mib,   200 * kib, 1000,     mib,
                          90 * mib,  10};
  std::byte* block = nullptr;
  size_t old = 0;
  for (const size_t bytes : sizes) {
    block = static_cast<std::byte*>(look_at(resize(block, bytes)));
    ASSERT_NE(block, nullptr);
    ASSERT_GE(malloc_usable_size(block), bytes);
    const size_t kept = std::min(old, bytes);
    for (size_t at = 0; at < kept; at += 4096) ASSERT_EQ(block[at], std::byte(at / 4096)) << bytes << ' ' << at;
    for (size_t at = 0; at < bytes; at += 4096) block[at] = std::byte(at / 4096);
    if (bytes >= threshold) {
      EXPECT_TRUE(shared(block)) << bytes;
    }
    if (bytes < threshold / 2) {
      EXPECT_FALSE(shared(block)) << bytes;
    }
    old = bytes;
  }
  EXPECT_EQ(look_at(resize(block, 0)), nullptr);
  block = static_cast<std::byte*>(look_at(std::malloc(mib)));
  EXPECT_EQ(look_at(resize(block, 0)), nullptr);
}

// One thread's blocks, each filled with a value of its own; some are freed by the thread after it.
struct Hammer {
  struct Block {
    unsigned char* data;
    size_t bytes;
    unsigned char value;
  };
  std::mt19937 random;
  std::vector<Block> blocks;

  size_t size() {
    switch (random() % 8) {
      case 0: return 1 + random() % (8 * mib);
      case 1: return threshold - 64 + random() % 128;
      case 2: return threshold / 2 + random() % threshold;
      default: return 1 + random() % 5000;
    }
  }

  // Both ends and some places in between; all of small ones.
  template <class Visit>
  static void each_place(const Block& block, const Visit& visit) {
    const size_t step = block.bytes > 4096 ? 4093 : 1;
    for (size_t at = 0; at < block.bytes; at += step) visit(block.data[at]);
    visit(block.data[block.bytes - 1]);
  }
  static void fill(const Block& block) {
    each_place(block, [&](unsigned char& byte) { byte = block.value; });
  }
  static bool intact(const Block& block) {
    bool right = true;
    each_place(block, [&](unsigned char byte) { right = right && byte == block.value; });
    return right;
  }

  void* fresh(size_t bytes, bool& zeroed) {
    void* block = nullptr;
    switch (random() % 9) {
      case 0: zeroed = true; return std::calloc(bytes, 1);
      case 1: return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
      case 2: return ::posix_memalign(&block, size_t{1} << (3 + random() % 12), bytes) == 0 ? block : nullptr;
      case 3: return ::memalign(4096, bytes);
      case 4: return ::valloc(bytes);
      case 5: return ::pvalloc(bytes);
      case 6: return ::reallocarray(nullptr, bytes, 1);
      default: return std::malloc(bytes);
    }
  }

  void step() {
    const unsigned what = random() % 4;
    if (blocks.size() < 4 || (what == 0 && blocks.size() < 40)) {
      Block block{nullptr, size(), static_cast<unsigned char>(random())};
      bool zeroed = false;
      block.data = static_cast<unsigned char*>(fresh(block.bytes, zeroed));
      ASSERT_NE(block.data, nullptr);
      if (zeroed) {
        ASSERT_TRUE(intact({block.data, block.bytes, 0}));
      }
      ASSERT_GE(malloc_usable_size(block.data), block.bytes);
      fill(block);
      blocks.push_back(block);
      return;
    }
    std::swap(blocks[random() % blocks.size()], blocks.back());
    Block& block = blocks.back();
    ASSERT_TRUE(intact(block));
    if (what == 1) {
      std::free(block.data);
      blocks.pop_back();
      return;
    }
    const size_t bytes = size();
    auto* const resized = static_cast<unsigned char*>(resize(block.data, bytes));
    ASSERT_NE(resized, nullptr);
    ASSERT_EQ(resized[0], block.value);
    block = {resized, bytes, block.value};
    fill(block);
  }
};

TEST(Malloc, HoldsUnderThreadsThatUseEveryEntryAndFreeEachOthersBlocks) {
  constexpr int n_threads = 4;
  std::vector<Hammer> hammers(n_threads);
  for (unsigned round = 0; round < 5; ++round) {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < n_threads; ++t)
      threads.emplace_back([&hammer = hammers[t], seed = round * n_threads + t] {
        hammer.random.seed(seed);
        for (int i = 0; i < 1500 && !::testing::Test::HasFatalFailure(); ++i) hammer.step();
      });
    threads.clear();
    std::rotate(hammers.begin(), hammers.begin() + 1, hammers.end());  // another thread goes on with them
    std::rotate(hammers[0].blocks.begin(), hammers[0].blocks.begin() + 1, hammers[0].blocks.end());
  }
  for (Hammer& hammer : hammers)
    for (const Hammer::Block& block : hammer.blocks) {
      EXPECT_TRUE(Hammer::intact(block));
      std::free(block.data);
    }
}

TEST(MallocFork, TheChildWritesAndTheParentWritesAndNeitherSeesTheOther) {
  constexpr size_t bytes = 20 * mib;
  char* const block = static_cast<char*>(look_at(std::malloc(bytes)));
  std::memset(block, 1, bytes);
  int turn[2];
  ASSERT_EQ(::pipe(turn), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    char go = 0;
    bool right = ::read(turn[0], &go, 1) == 1 && all_are(block, bytes, 1) && !shared(block);
    std::memset(block, 3, bytes);
    void* const own = look_at(std::malloc(bytes));
    right = right && shared(own);
    std::free(own);
    std::free(block);
    ::_exit(right ? 0 : 1);
  }
  std::memset(block, 2, bytes);
  ASSERT_EQ(::write(turn[1], "x", 1), 1);
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(all_are(block, bytes, 2));
  EXPECT_TRUE(shared(block)) << "the parent's is lent as before";
  std::free(block);
}

TEST(MallocFork, HoldsWhileOtherThreadsAllocate) {
  std::atomic<bool> over = false;
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < 2; ++t)
    threads.emplace_back([&over, t] {
      Hammer hammer{std::mt19937{t}, {}};
      while (!over.load()) hammer.step();
      for (const Hammer::Block& block : hammer.blocks) std::free(block.data);
    });
  char* const block = static_cast<char*>(look_at(std::malloc(2 * mib)));
  for (int i = 0; i < 30; ++i) {
    std::memset(block, i, 2 * mib);
    EXPECT_EQ(test::in_child([&] {
                void* const own = look_at(std::malloc(3 * mib));
                const bool right = all_are(block, 2 * mib, i) && own != nullptr;
                std::free(own);
                return right;
              }),
              0);
  }
  over.store(true);
  threads.clear();
  std::free(block);
}

TEST(MallocFork, ASpawnedProgramLeavesTheMemoryAsItWas) {
  char* const block = static_cast<char*>(look_at(std::malloc(2 * mib)));
  std::memset(block, 1, 2 * mib);
  char name[] = "true";
  char* arguments[] = {name, nullptr};
  pid_t pid = -1;
  ASSERT_EQ(::posix_spawnp(&pid, "true", nullptr, nullptr, arguments, environ), 0);
  block[5] = 2;
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(shared(block));
  EXPECT_EQ(std::system("exit 3"), 3 << 8);
  EXPECT_EQ(block[5], 2);
  std::free(block);
}

// --- Limits: malloc goes on as if there were no such heap

bool serves(size_t bytes) {
  char* const block = static_cast<char*>(look_at(std::malloc(bytes)));
  if (block == nullptr) return false;
  std::memset(block, 1, bytes);
  char* const larger = static_cast<char*>(look_at(resize(block, 2 * bytes)));
  const bool right = larger != nullptr && all_are(larger, bytes, 1);
  std::free(larger);
  return right;
}

TEST(MallocLimits, AFileLimit) {
  EXPECT_EQ(test::in_child([] { return test::limit(RLIMIT_FSIZE, mib) && serves(3 * mib) && serves(100 * mib); }), 0);
}
TEST(MallocLimits, NoDescriptors) {
  EXPECT_EQ(test::in_child([] { return test::limit(RLIMIT_NOFILE, 3) && serves(3 * mib) && serves(100 * mib); }), 0);
}
TEST(MallocLimits, LittlePrivateMemory) {
  EXPECT_EQ(test::in_child([] { return test::limit(RLIMIT_DATA, 512 * mib) && serves(3 * mib) && serves(100 * mib); }), 0);
}
TEST(MallocLimits, LittleAddressSpace) {
  EXPECT_EQ(test::in_child([] {
              if (!test::limit(RLIMIT_AS, address_space() + 512 * mib)) return false;
              for (int i = 0; i < 5; ++i)
                if (!serves(3 * mib) || !serves(100 * mib)) return false;
              errno = 0;
              return look_at(std::malloc(600 * mib)) == nullptr && errno == ENOMEM && serves(3 * mib);
            }),
            0);
}
// What the heap keeps is given up before malloc fails.
TEST(MallocLimits, AddressSpaceThatIsLimitedLater) {
  EXPECT_EQ(test::in_child([] {
              std::free(look_at(std::malloc(200 * mib)));
              return test::limit(RLIMIT_AS, address_space() + 300 * mib) && serves(150 * mib);
            }),
            0);
}
TEST(MallocLimits, LockedMemory) {
  EXPECT_EQ(test::in_child([] { return test::limit(RLIMIT_MEMLOCK, 256 * mib) && ::mlockall(MCL_FUTURE) == 0 && serves(mib); }), 0);
}

}  // namespace
}  // namespace tutti
