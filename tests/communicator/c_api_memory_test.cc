// Memory of tuttiMemAlloc through the C and C++ interfaces.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <numeric>
#include <string>
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
  EXPECT_THROW((void)shared.allocate(16, 8192), std::bad_alloc);
}

}  // namespace
}  // namespace tutti
