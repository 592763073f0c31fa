// A large message after a small one, as a tensor comes after its size, whose sender has not heard that the small one was read.
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/ranks.h"
#include "transport/held_back.h"

namespace tutti {
namespace {

TEST(AwaitedMessages, AReceiverTakesTheBeginningOfALargeMessageBeforeTheRestIsSent) {
  constexpr size_t bytes = 256 * 1024;
  constexpr uint8_t before = 0x5a;
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "one core: a receiver takes nothing while its sender runs";
  ::setenv("TUTTI_LEND", "0", 1);  // some processors would have the kernel copy it
  {
    HeldBack source(bytes);
    std::vector<uint8_t> received(bytes, before);
    std::atomic<bool> size_was_read = false, begins = false;
    std::jthread watch([&] {
      const volatile uint8_t* const first = received.data();
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (!begins && std::chrono::steady_clock::now() < until) {
        begins = *first != before;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      HeldBack::go_on();
    });
    test::run_threads(2, {.transport = "shm"}, [&](int rank, tuttiComm_t comm) {
      uint64_t size = bytes;
      if (rank == 0) {
        ASSERT_EQ(tuttiSend(&size, 1, tuttiUint64, 1, comm, nullptr), tuttiSuccess);
        while (!size_was_read) std::this_thread::yield();
        ASSERT_EQ(tuttiSend(source.data(), bytes, tuttiUint8, 1, comm, nullptr), tuttiSuccess);
      } else {
        const tuttiResult_t got = tuttiRecv(&size, 1, tuttiUint64, 0, comm, nullptr);
        size_was_read = true;
        ASSERT_EQ(got, tuttiSuccess);
        ASSERT_EQ(tuttiRecv(received.data(), bytes, tuttiUint8, 0, comm, nullptr), tuttiSuccess);
        EXPECT_EQ(std::memcmp(received.data(), source.data(), bytes), 0);
      }
    });
    EXPECT_TRUE(begins);
  }
  ::unsetenv("TUTTI_LEND");
}

}  // namespace
}  // namespace tutti
