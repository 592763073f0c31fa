// Windows through the C and C++ interfaces: what is refused, and what a window's end leaves.
#include <array>
#include <string>
#include <vector>

#include "communicator/ranks.h"
#include "tutti/tutti.hpp"

namespace tutti {
namespace {

using test::run_threads;

std::string last_error() { return tuttiGetLastError(nullptr); }

void expect_refused(tuttiResult_t result, tuttiResult_t code, const char* words) {
  EXPECT_EQ(result, code) << words;
  EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
}

TEST(Window, WrongArgumentsAreNamedAndNothingIsDone) {
  run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    std::array<char, 16> memory{};
    tuttiWindow_t window = nullptr, none = nullptr;
    expect_refused(tuttiCommWindowRegister(comm, memory.data(), 16, nullptr), tuttiInvalidArgument, "window is NULL");
    expect_refused(tuttiCommWindowRegister(nullptr, memory.data(), 16, &window), tuttiInvalidArgument, "comm is NULL");
    expect_refused(tuttiCommWindowRegister(comm, nullptr, 16, &window), tuttiInvalidArgument, "buffer is NULL");
    ASSERT_EQ(tuttiCommWindowRegister(comm, memory.data(), 8 + size_t(rank) * 8, &window), tuttiSuccess) << last_error();

    char byte = 'x';
    expect_refused(tuttiPut(&byte, 1, 0, 0, none), tuttiInvalidArgument, "window is NULL");
    expect_refused(tuttiPut(&byte, 1, 2, 0, window), tuttiInvalidArgument, "peer is 2, outside the ranks 0 to 1");
    expect_refused(tuttiPut(nullptr, 1, 0, 0, window), tuttiInvalidArgument, "source is NULL");
    expect_refused(tuttiPut(&byte, 1, 0, 8, window), tuttiInvalidArgument,
                   "offset is 8 and bytes 1, but rank 0 opened 8 bytes");
    expect_refused(tuttiPut(memory.data(), 9, 1, 8, window), tuttiInvalidArgument, "but rank 1 opened 16 bytes");
    expect_refused(tuttiGet(&byte, 1, 0, ~size_t{0}, window), tuttiInvalidArgument, "offset is 18446744073709551615");
    expect_refused(tuttiGet(nullptr, 1, 0, 0, window), tuttiInvalidArgument, "target is NULL");
    expect_refused(tuttiGet(&byte, 1, -1, 0, window), tuttiInvalidArgument, "peer is -1");
    expect_refused(tuttiSignal(7, window), tuttiInvalidArgument, "peer is 7");
    expect_refused(tuttiWaitSignal(-3, 1, window), tuttiInvalidArgument, "peer is -3");
    expect_refused(tuttiWaitSignal(0, 0, window), tuttiInvalidArgument, "count is 0, below 1");
    expect_refused(tuttiWindowFlush(2, window), tuttiInvalidArgument, "peer is 2");
    expect_refused(tuttiCommWindowDeregister(nullptr, window), tuttiInvalidArgument, "comm is NULL");
    EXPECT_EQ(tuttiCommWindowDeregister(comm, nullptr), tuttiSuccess);

    ASSERT_EQ(tuttiCommWindowDeregister(comm, window), tuttiSuccess) << last_error();
    expect_refused(tuttiCommWindowDeregister(comm, window), tuttiInvalidArgument, "it was deregistered");
    expect_refused(tuttiSignal(0, window), tuttiInvalidArgument, "it was deregistered");
    EXPECT_EQ(memory, (std::array<char, 16>{}));
  });
}

TEST(Window, IsNotRegisteredInAGroupOrForAnotherCommunicator) {
  run_threads(1, {}, [](int, tuttiComm_t comm) {
    tuttiWindow_t window = nullptr;
    tuttiComm_t other = nullptr;
    ASSERT_EQ(tuttiCommDup(comm, &other, nullptr), tuttiSuccess);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    expect_refused(tuttiCommWindowRegister(comm, nullptr, 0, &window), tuttiInvalidUsage, "inside a group");
    EXPECT_EQ(tuttiGroupEnd(), tuttiInvalidUsage);
    ASSERT_EQ(tuttiCommWindowRegister(comm, nullptr, 0, &window), tuttiSuccess) << last_error();
    expect_refused(tuttiCommWindowDeregister(other, window), tuttiInvalidArgument, "another communicator");
    EXPECT_EQ(tuttiCommWindowDeregister(comm, window), tuttiSuccess);
    EXPECT_EQ(tuttiCommFinalize(other), tuttiSuccess);
    expect_refused(tuttiCommWindowRegister(other, nullptr, 0, &window), tuttiInvalidUsage, "finalized");
    EXPECT_EQ(tuttiCommDestroy(other), tuttiSuccess);
  });
}

TEST(Window, KeepsItsMemoryAndItsCommunicator) {
  run_threads(2, {}, [](int, tuttiComm_t comm) {
    void* memory = nullptr;
    tuttiWindow_t window = nullptr;
    ASSERT_EQ(tuttiMemAlloc(&memory, 10'000), tuttiSuccess);
    ASSERT_EQ(tuttiCommWindowRegister(comm, static_cast<char*>(memory) + 5000, 100, &window), tuttiSuccess);
    expect_refused(tuttiMemFree(memory), tuttiInvalidUsage, "1 registration with communicators: deregister it first");
    expect_refused(tuttiCommDestroy(comm), tuttiInvalidUsage, "has 1 open window: call tuttiCommWindowDeregister first");
    expect_refused(tuttiCommFinalize(comm), tuttiInvalidUsage, "has 1 open window");
    EXPECT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
    EXPECT_EQ(tuttiCommWindowDeregister(comm, window), tuttiSuccess);
    EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess);
  });
}

TEST(Window, EndsWithACommunicatorThatHasFailed) {
  tuttiUniqueId id;
  ASSERT_EQ(tuttiGetUniqueId(&id), tuttiSuccess);
  tuttiComm_t comm = nullptr;
  ASSERT_EQ(tuttiCommInitRank(&comm, 1, id, 0), tuttiSuccess);
  void* memory = nullptr;
  tuttiWindow_t window = nullptr;
  ASSERT_EQ(tuttiMemAlloc(&memory, 100), tuttiSuccess);
  ASSERT_EQ(tuttiCommWindowRegister(comm, memory, 100, &window), tuttiSuccess);
  ASSERT_EQ(tuttiCommAbort(comm), tuttiSuccess);
  expect_refused(tuttiSignal(0, window), tuttiAborted, "tuttiCommAbort");
  expect_refused(tuttiWaitSignal(0, 1, window), tuttiAborted, "tuttiCommAbort");
  EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess) << last_error();
  EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess) << last_error();
  expect_refused(tuttiSignal(0, window), tuttiInvalidUsage, "the communicator of the window was destroyed");
  EXPECT_EQ(tuttiCommWindowDeregister(comm, window), tuttiSuccess);
  expect_refused(tuttiSignal(0, window), tuttiInvalidArgument, "not live");
}

TEST(Cpp, WindowsPutGetAndSignal) {
  tutti::Communicator alone = std::move(tutti::Communicator::local(1)[0]);
  std::vector<int> memory(10);
  tutti::Window window(alone, std::span(memory));
  const std::array<int, 2> sent = {3, 4};
  window.put(std::span<const int>(sent), 0, 2 * sizeof(int));
  window.signal(0);
  window.wait_signal(0);
  EXPECT_EQ(memory[3], 4);
  std::array<int, 3> got{};
  window.get(std::span<int>(got), 0, sizeof(int));
  window.flush(0);
  EXPECT_EQ(got, (std::array{0, 3, 4}));
  EXPECT_THROW(window.signal(1), tutti::Failure);
  tutti::Window moved = std::move(window);
  moved.close();
  EXPECT_EQ(moved.get(), nullptr);
}

}  // namespace
}  // namespace tutti
