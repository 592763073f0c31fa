// Counts what the TCP data path costs: no allocation, and one system call per small message and side. It stands in for
// the C library's socket calls and operator new to count them, so it is a program of its own.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "transport/tcp_loopback.h"

namespace {
std::atomic<int> allocations = 0;
std::atomic<int> calls = 0;
}  // namespace

// Not inlined: the compiler would take the pair for mismatched.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

extern "C" {
ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  ++calls;
  return ::syscall(SYS_sendto, fd, data, bytes, flags, nullptr, 0);
}
ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  ++calls;
  return ::syscall(SYS_recvfrom, fd, data, bytes, flags, nullptr, nullptr);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  ++calls;
  return ::syscall(SYS_sendmsg, fd, message, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  ++calls;
  return ::syscall(SYS_recvmsg, fd, message, flags);
}
int epoll_wait(int fd, epoll_event* events, int n, int timeout_ms) {
  ++calls;
  return int(::syscall(SYS_epoll_pwait, fd, events, n, timeout_ms, nullptr, 0));
}
}

namespace tutti {
namespace {

class TcpCalls : public ::testing::Test {
 protected:
  TcpCalls() : transports_(connected_tcp(3, {})) {}

  // The least number of system calls of several tries: where the machine is busy, the kernel delivers late at times and
  // a receiver asks in vain.
  int calls_of(size_t bytes, int count, bool holds = false) {
    int least = exchange(bytes, count, holds);
    for (int i = 0; i < 20; ++i) least = std::min(least, exchange(bytes, count, holds));
    return least;
  }

  // Sends `count` messages from rank 0 to rank 1 and then receives them all; returns the system calls.
  int exchange(size_t bytes, int count, bool holds = false) {
    std::vector<std::byte> data(bytes);
    const int before = calls;
    const int allocations_before = allocations;
    if (holds) transports_[0]->hold_small(true);
    for (int i = 0; i < count; ++i) {
      size_t done = 0;
      while (transports_[0]->endpoint(1, 0)->send(data.data(), bytes, 1, done) == Status::again)
        for (const auto& transport : transports_) transport->progress();
    }
    if (holds) transports_[0]->hold_small(false);
    for (int i = 0; i < count; ++i) {
      size_t done = 0;
      while (transports_[1]->endpoint(0, 0)->recv(data.data(), bytes, 1, done) == Status::again)
        for (const auto& transport : transports_) transport->progress();
    }
    EXPECT_EQ(allocations, allocations_before);
    return calls - before;
  }

  std::vector<std::unique_ptr<Transport>> transports_;
};

TEST_F(TcpCalls, ASmallMessageCostsOneSystemCallOnEachSide) {
  for (const size_t bytes : {size_t{0}, size_t{8}, size_t{1000}}) EXPECT_EQ(calls_of(bytes, 1), 2) << bytes << " bytes";
}

TEST_F(TcpCalls, SmallMessagesThatWaitAreReadTogether) {
  EXPECT_LE(calls_of(8, 100), 110) << "one read serves many messages, though congestion control may space them";
}

TEST_F(TcpCalls, SmallMessagesThatAreHeldGoTogether) {
  EXPECT_EQ(calls_of(8, 20, true), 2) << "20 × 24 bytes are one write and one read";
  EXPECT_EQ(calls_of(2000, 3, true), calls_of(2000, 3)) << "larger ones are not held";
}

TEST_F(TcpCalls, AMessageOfMiddleSizeIsReadStraightIntoPlaceByOneCall) {
  EXPECT_EQ(calls_of(20'000, 1), 2);
}

TEST_F(TcpCalls, MessagesThatAreSaidToFollowAreWrittenByOneCall) {
  constexpr size_t bytes = 20'000, count = 5;
  std::vector<std::byte> data(bytes * count);
  int least = count;
  for (int i = 0; i < 20; ++i) {
    const int before = calls;
    for (size_t at = 0; at < data.size(); at += bytes) {
      size_t done = 0;
      transports_[0]->endpoint(1, 0)->may_send_on(data.size() - at - bytes);
      ASSERT_EQ(transports_[0]->endpoint(1, 0)->send(data.data() + at, bytes, 1, done), Status::done);
    }
    least = std::min(least, calls - before);
    for (size_t at = 0; at < data.size(); at += bytes) {
      size_t done = 0;
      while (transports_[1]->endpoint(0, 0)->recv(data.data() + at, bytes, 1, done) == Status::again) transports_[1]->progress();
    }
  }
  EXPECT_EQ(least, 1);
}

TEST_F(TcpCalls, ProgressAsksTheKernelSeldomWhereNothingIsWaitedFor) {
  exchange(8, 1);
  const int before = calls;
  for (int i = 0; i < 320; ++i) transports_[0]->progress();
  EXPECT_LE(calls - before, 10);
}

TEST_F(TcpCalls, AnIdleEndpointCostsNoCallOfItsOwn) {
  // Rank 0 waits for both others: the kernel is asked once per round for both.
  uint64_t value = 0;
  size_t done = 0;
  const auto ask = [&] {
    for (const int peer : {1, 2})
      EXPECT_EQ(transports_[0]->endpoint(peer, 0)->recv(reinterpret_cast<std::byte*>(&value), 8, 1, done),
                Status::again);
    transports_[0]->progress();
  };
  for (int i = 0; i < 4; ++i) ask();
  const int before = calls;
  for (int i = 0; i < 320; ++i) ask();
  EXPECT_LE(calls - before, 320 + 320 / 5);
}

TEST_F(TcpCalls, NothingIsAllocatedForAnySizeOrWay) {
  Endpoint& sender = *transports_[0]->endpoint(1, 0);
  Endpoint& receiver = *transports_[1]->endpoint(0, 0);
  const int before = allocations;
  for (size_t bytes = 1; bytes <= transports_[0]->message_bytes_max(); bytes *= 4) {
    std::byte* place = nullptr;
    while ((place = sender.reserve(bytes)) == nullptr) transports_[0]->progress();
    sender.commit(bytes, bytes);
    const std::byte* seen = nullptr;
    while (receiver.view(bytes, bytes, seen) == Status::again) {
      for (const auto& transport : transports_) transport->progress();
      transports_[1]->arm();
      transports_[1]->disarm();
    }
    receiver.release();
  }
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace tutti
