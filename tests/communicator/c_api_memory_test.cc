// Memory of tuttiMemAlloc through the C and C++ interfaces.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory_resource>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/c_api.h"
#include "communicator/registrations.h"
#include "tutti/tutti.hpp"

namespace tutti {
namespace {

std::string last_error() { return tuttiGetLastError(nullptr); }

void expect_refused(tuttiResult_t result, tuttiResult_t code, const char* words) {
  EXPECT_EQ(result, code);
  EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
}

TEST(MemAlloc, GivesZeroedPagesThatCanBeFreedOnce) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{100'001}, size_t{9} << 20}) {
    void* memory = nullptr;
    ASSERT_EQ(tuttiMemAlloc(&memory, bytes), tuttiSuccess) << last_error();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
    const std::vector<char> zeros(bytes);
    EXPECT_EQ(std::memcmp(memory, zeros.data(), bytes), 0);
    std::memset(memory, 1, bytes);
    EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess) << last_error();
    expect_refused(tuttiMemFree(memory), tuttiInvalidArgument, "it was freed");
  }
}

TEST(MemAlloc, WrongArgumentsAreNamed) {
  expect_refused(tuttiMemAlloc(nullptr, 1), tuttiInvalidArgument, "pointer is NULL");
  void* memory = &memory;
  expect_refused(tuttiMemAlloc(&memory, size_t{1} << 62), tuttiInvalidArgument, "bytes is 4611686018427387904");
  EXPECT_EQ(memory, nullptr);
  memory = &memory;
  EXPECT_EQ(tuttiMemAlloc(&memory, 0), tuttiSuccess);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(tuttiMemFree(nullptr), tuttiSuccess);
  int local = 0;
  expect_refused(tuttiMemFree(&local), tuttiInvalidArgument, "no memory of tuttiMemAlloc");
}

TEST(MemAlloc, AForkedChildSharesTheMemoryButDoesNotFreeIt) {
  void* memory = nullptr;
  ASSERT_EQ(tuttiMemAlloc(&memory, 4096), tuttiSuccess);
  EXPECT_NE(process_memory().find(memory, 4096), nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::strcpy(static_cast<char*>(memory), "from the child");
    void* own = nullptr;
    const bool right = tuttiMemFree(memory) == tuttiInvalidUsage && last_error().find("forked") != std::string::npos &&
                       tuttiMemAlloc(&own, 10) == tuttiSuccess && tuttiMemFree(own) == tuttiSuccess;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(static_cast<char*>(memory), "from the child");
  EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess);
}

TEST(Register, KeepsMemoryFromBeingFreedUntilDeregisteredOrTheCommunicatorIsGone) {
  tuttiComm_t comm = nullptr;
  ASSERT_EQ(tuttiCommInitAll(&comm, 1, nullptr), tuttiSuccess) << last_error();
  void *memory = nullptr, *first = nullptr, *second = nullptr;
  ASSERT_EQ(tuttiMemAlloc(&memory, 10'000), tuttiSuccess);
  char* const bytes = static_cast<char*>(memory);
  ASSERT_EQ(tuttiCommRegister(comm, memory, 10'000, &first), tuttiSuccess) << last_error();
  ASSERT_EQ(tuttiCommRegister(comm, bytes + 100, 1, &second), tuttiSuccess) << last_error();
  EXPECT_NE(first, second);
  expect_refused(tuttiMemFree(memory), tuttiInvalidUsage, "has 2 registrations");
  EXPECT_EQ(tuttiCommDeregister(comm, first), tuttiSuccess);
  expect_refused(tuttiCommDeregister(comm, first), tuttiInvalidArgument, "it was deregistered");
  expect_refused(tuttiMemFree(memory), tuttiInvalidUsage, "has 1 registration ");
  ASSERT_EQ(tuttiCommDestroy(comm), tuttiSuccess) << last_error();
  EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess) << last_error();
}

TEST(Register, RegistrationsEndWithTheirOwner) {
  void* memory = process_memory().allocate(4096);
  {
    Registrations registrations;
    void* const handle = registrations.add(process_memory(), memory, 4096);
    EXPECT_THROW(registrations.add(process_memory(), memory, 4097), Error);
    registrations.remove(handle);
    EXPECT_THROW(registrations.remove(handle), Error);
    registrations.add(process_memory(), memory, 1);
    EXPECT_THROW(process_memory().free(memory), Error);
  }
  process_memory().free(memory);
}

TEST(MemAlloc, ServesContainers) {
  std::vector<double, Allocator<double>> values(10'000, 1.5);
  values.resize(20'000);
  values.resize(200'000, 2.5);
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0.0), 10'000 * 1.5 + 180'000 * 2.5);
  EXPECT_NE(process_memory().find(values.data(), values.size() * sizeof(double)), nullptr);
  Allocator<double> allocator;
  EXPECT_THROW((void)allocator.allocate(size_t{1} << 60), std::bad_alloc);
  EXPECT_THROW((void)allocator.allocate(size_t{1} << 62), std::bad_array_new_length);
  EXPECT_EQ(allocator, Allocator<int>());

  MemoryResource shared;
  std::pmr::unsynchronized_pool_resource pool(&shared);
  std::pmr::vector<std::pmr::string> words(&pool);
  for (int i = 0; i < 1000; ++i) words.emplace_back("a word that is too long to be kept inside " + std::to_string(i));
  EXPECT_NE(process_memory().find(words.back().data(), words.back().size()), nullptr);
  EXPECT_TRUE(shared.is_equal(MemoryResource()));
  EXPECT_FALSE(shared.is_equal(*std::pmr::new_delete_resource()));
  for (const size_t alignment : {size_t{8192}, size_t{1} << 16, size_t{1} << 22}) {
    void* const memory = shared.allocate(100'000, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % alignment, 0u);
    EXPECT_NE(process_memory().find(memory, 100'000), nullptr);
    shared.deallocate(memory, 100'000, alignment);
    EXPECT_EQ(process_memory().find(memory, 1), nullptr);
  }
}

TEST(Allocator, IsAllThatAContainerMayAskOf) {
  using Traits = std::allocator_traits<Allocator<double>>;
  static_assert(Traits::is_always_equal::value && Traits::propagate_on_container_move_assignment::value &&
                Traits::propagate_on_container_copy_assignment::value && Traits::propagate_on_container_swap::value);
  static_assert(std::is_same_v<Traits::rebind_alloc<int>, Allocator<int>>);
  const Allocator<double> allocator;
  EXPECT_EQ(Traits::max_size(allocator), size_t(PTRDIFF_MAX) / sizeof(double));
  std::vector<double, Allocator<double>> empty;
  EXPECT_THROW(empty.reserve(empty.max_size() + 1), std::length_error);
  EXPECT_THROW(empty.reserve(empty.max_size()), std::bad_alloc);
  EXPECT_NE(last_error(), "") << "it says why";

  std::vector<int, Allocator<int>> first(10'000, 1), second(20'000, 2);
  const int* const data = first.data();
  second = std::move(first);
  EXPECT_EQ(second.data(), data) << "moved, not copied";
  std::vector<int, Allocator<int>> third;
  third.swap(second);
  EXPECT_EQ(third.data(), data);
  std::map<int, int, std::less<int>, Allocator<std::pair<const int, int>>> nodes{{1, 2}, {3, 4}};
  EXPECT_EQ(nodes.at(3), 4);
  Allocator<int> null;
  null.deallocate(null.allocate(0), 0);
}

TEST(Allocator, OveralignedTypesAreAligned) {
  struct alignas(4096) Page {
    char bytes[4096];
  };
  std::vector<Page, Allocator<Page>> pages(5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pages.data()) % 4096, 0u);
}

TEST(MemoryResource, PoolsSmallRequestsAndGivesLargeOnesPagesOfTheirOwn) {
  std::pmr::memory_resource* const resource = memory_resource();
  EXPECT_EQ(memory_resource(), resource);
  std::set<const std::byte*> blocks;
  std::pmr::list<std::pmr::string> words(resource);
  for (int i = 0; i < 5000; ++i) {
    words.emplace_back("a word that is too long to be kept inside " + std::to_string(i));
    const auto block = process_memory().find(words.back().data(), words.back().size());
    ASSERT_NE(block, nullptr);
    blocks.insert(block->data());
  }
  EXPECT_LT(blocks.size(), 100u) << "10,000 requests";
  int i = 0;
  for (const std::pmr::string& word : words) ASSERT_TRUE(word.ends_with(" " + std::to_string(i++)));
  std::pmr::vector<float> large(1 << 20, resource);
  const auto block = process_memory().find(large.data(), large.size() * sizeof(float));
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(block->data(), reinterpret_cast<std::byte*>(large.data()));
  for (size_t bytes = 1; bytes <= size_t{1} << 20; bytes *= 2) {
    for (const size_t alignment : {size_t{16}, size_t{4096}, size_t{1} << 16}) {
      void* const memory = resource->allocate(bytes, alignment);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % alignment, 0u);
      std::memset(memory, 1, bytes);
      resource->deallocate(memory, bytes, alignment);
    }
  }
  EXPECT_THROW((void)resource->allocate(size_t{1} << 60), std::bad_alloc);
}

TEST(MemoryResource, ServesThreadsAtOnce) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      std::pmr::vector<std::pmr::string> words(memory_resource());
      for (int i = 0; i < 1000; ++i) words.emplace_back(size_t(100 + i % 300), char('a' + t));
      for (const std::pmr::string& word : words) ASSERT_EQ(word.find_first_not_of(char('a' + t)), word.npos);
    });
}

}  // namespace
}  // namespace tutti
