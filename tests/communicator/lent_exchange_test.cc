// Sends and receives in memory of the library: read where they lie in a group, copied where a send stands alone that may end
// before its receiver comes.
#include <csignal>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/ranks.h"
#include "sanitizer.h"
#include "topology/topology.h"
#include "tutti/tutti.hpp"

namespace tutti {
namespace {

using Shared = std::vector<int32_t, Allocator<int32_t>>;

int32_t value(int from, int to, size_t i, int turn) { return int32_t(from * 1'000'003 + to * 10'007 + turn * 101) + int32_t(i); }

// The file that lies at an address of this process; 0: none.
uint64_t file_at(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    uint64_t inode = 0;
    char dash = 0;
    std::string rights, offset, device;
    std::istringstream(line) >> std::hex >> begin >> dash >> end >> rights >> offset >> device >> std::dec >> inode;
    if (begin <= reinterpret_cast<uintptr_t>(address) && reinterpret_cast<uintptr_t>(address) < end) return inode;
  }
  return 0;
}

bool maps_file(uint64_t wanted) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t inode = 0;
    std::string range, rights, offset, device;
    std::istringstream(line) >> range >> rights >> offset >> device >> inode;
    if (inode == wanted) return true;
  }
  return false;
}

// Round the ranks, in one group, with blocks for the next rank and for the one after it. Inputs change between calls as soon
// as these return.
void shift(int n, int rank, size_t count, tuttiComm_t comm) {
  const int next = (rank + 1) % n, after = (rank + 2) % n, before = (rank + n - 1) % n, second = (rank + n - 2) % n;
  Shared in(2 * count + 1), out(2 * count + 1);
  for (int turn = 0; turn < 6; ++turn) {
    for (size_t i = 0; i < count; ++i) {
      in[1 + i] = value(rank, next, i, turn);
      in[1 + count + i] = value(rank, after, i, turn);
    }
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    ASSERT_EQ(tuttiSend(&in[1], count, tuttiInt32, next, comm, nullptr), tuttiSuccess);
    ASSERT_EQ(tuttiSend(&in[1 + count], count, tuttiInt32, after, comm, nullptr), tuttiSuccess);
    ASSERT_EQ(tuttiRecv(&out[0], count, tuttiInt32, before, comm, nullptr), tuttiSuccess);
    ASSERT_EQ(tuttiRecv(&out[count], count, tuttiInt32, second, comm, nullptr), tuttiSuccess);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(out[i], value(before, rank, i, turn)) << "turn " << turn << " count " << count << " element " << i;
      ASSERT_EQ(out[count + i], value(second, rank, i, turn)) << "turn " << turn << " count " << count << " element " << i;
    }
  }
}

void shift_all(int n, int rank, tuttiComm_t comm) {
  for (const int count : {0, 1, 16'383, 16'384, 70'001, 1'000'003})
    if (count <= 70'001 || !test::sanitized) shift(n, rank, size_t(count), comm);
}

TEST(LentExchange, IsRightAsThreads) {
  for (const int n : {2, 3, 5, 7}) test::run_threads(n, {}, [n](int rank, tuttiComm_t comm) { shift_all(n, rank, comm); });
}

TEST(LentExchange, IsRightAsProcesses) {
  for (const int n : {2, 3, 6}) test::run_processes(n, {}, [n](int rank, tuttiComm_t comm) { shift_all(n, rank, comm); });
}

TEST(LentExchange, IsRightOverOtherTransports) {
  test::RanksOptions options;
  options.transport = "tcp";
  test::run_threads(3, options, [](int rank, tuttiComm_t comm) { shift_all(3, rank, comm); });
}

// One after the other: rank 0 sends first.
void send_and_receive(int rank, Shared& in, Shared& out, size_t count, tuttiComm_t comm) {
  for (const bool sends : {rank == 0, rank == 1})
    ASSERT_EQ(sends ? tuttiSend(in.data(), count, tuttiInt32, 1 - rank, comm, nullptr)
                    : tuttiRecv(out.data(), count, tuttiInt32, 1 - rank, comm, nullptr), tuttiSuccess);
}

// The receiver comes to map the sender's memory by an exchange in a group, or by tuttiSendRecv; not by a send that stands
// alone, of so little that it may end before its receiver comes.
TEST(LentExchange, ReadsTheSendersMemoryWhereItLies) {
  for (const bool in_group : {false, true}) {
    test::RanksOptions options;
    options.transport = "shm";
    test::run_processes(2, options, [in_group](int rank, tuttiComm_t comm) {
      const size_t count = size_t{512} << 10;
      const int peer = 1 - rank;
      Shared in(count, rank), out(count, -1);
      const uint64_t mine = file_at(in.data());
      ASSERT_NE(mine, 0u);
      uint64_t files[2] = {};
      ASSERT_EQ(tuttiAllGather(&mine, files, 1, tuttiUint64, comm, nullptr), tuttiSuccess);
      send_and_receive(rank, in, out, count, comm);
      EXPECT_EQ(out, Shared(count, peer));
      EXPECT_FALSE(maps_file(files[peer]));
      if (in_group) {
        ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
        ASSERT_EQ(tuttiSend(in.data(), count, tuttiInt32, peer, comm, nullptr), tuttiSuccess);
        ASSERT_EQ(tuttiRecv(out.data(), count, tuttiInt32, peer, comm, nullptr), tuttiSuccess);
        ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
      } else {
        ASSERT_EQ(tuttiSendRecv(in.data(), count, peer, out.data(), count, peer, tuttiInt32, comm, nullptr), tuttiSuccess);
      }
      EXPECT_TRUE(maps_file(files[peer]));
      EXPECT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
    });
  }
}

// Of 4 MiB and more, while a cache may hold two like it, it is read where it lies; of more it is not.
TEST(LentExchange, ReadsALargeSendAloneWhereItLies) {
  const size_t cache_bytes = cache_sizes(discover_host()).last_bytes;
  constexpr size_t least = size_t{4} << 20;
  if (cache_bytes < 6 * least) GTEST_SKIP() << "the last cache, of " << cache_bytes << " bytes, does not hold two like the least";
  test::RanksOptions options;
  options.transport = "shm";
  for (const size_t bytes : {least, cache_bytes}) {
    test::run_processes(2, options, [=](int rank, tuttiComm_t comm) {
      const size_t count = bytes / sizeof(int32_t);
      Shared in(count, rank), out(count, -1);
      const uint64_t mine = file_at(in.data());
      uint64_t files[2] = {};
      ASSERT_EQ(tuttiAllGather(&mine, files, 1, tuttiUint64, comm, nullptr), tuttiSuccess);
      send_and_receive(rank, in, out, count, comm);
      EXPECT_EQ(out, Shared(count, 1 - rank));
      EXPECT_EQ(maps_file(files[1 - rank]), bytes == least);
      EXPECT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
    });
  }
}

TEST(LentExchange, ASendAloneDoesNotWaitForItsReceiver) {
  test::run_processes(2, {}, [](int rank, tuttiComm_t comm) {
    const size_t count = 16'384;  // of 64 KiB, which messages on their way have room for
    Shared data(count, 7 + rank);
    if (rank == 0) {
      ASSERT_EQ(tuttiSend(data.data(), count, tuttiInt32, 1, comm, nullptr), tuttiSuccess);
    }
    ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
    if (rank == 1) {
      ASSERT_EQ(tuttiRecv(data.data(), count, tuttiInt32, 0, comm, nullptr), tuttiSuccess);
      EXPECT_EQ(data, Shared(count, 7));
    }
  });
}

// A rank is killed in the midst of exchanges: the others learn of it, and none waits for ever.
TEST(LentExchange, WithARankThatWasKilledIsAnErrorAndNoHang) {
  test::RanksOptions options;
  options.timeout_ms = 60'000;
  test::Processes processes(3, options, [](int rank, tuttiComm_t comm) {
    const size_t count = 300'000;
    Shared in(count), out(count);
    for (int turn = 0;; ++turn) {
      if (rank == 2 && turn == 20) ::raise(SIGKILL);
      const tuttiResult_t result = tuttiSendRecv(in.data(), count, (rank + 1) % 3, out.data(), count, (rank + 2) % 3,
                                                 tuttiInt32, comm, nullptr);
      if (result == tuttiSuccess) continue;
      EXPECT_EQ(result, tuttiRemoteError) << tuttiGetLastError(comm);
      EXPECT_NE(std::string(tuttiGetLastError(comm)).find("rank 2"), std::string::npos) << tuttiGetLastError(comm);
      return;
    }
  });
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(1), 0);
}

}  // namespace
}  // namespace tutti
