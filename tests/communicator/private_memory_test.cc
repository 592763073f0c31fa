// Large calls on ordinary memory, by both ways that they may go: copied through shared memory, and lent, so that peers read
// it by way of the kernel. Calls are repeated until both have been gone.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "communicator/c_api.h"
#include "communicator/communicator.h"
#include "communicator/ranks.h"
#include "communicator/values.h"
#include "reduce/copy.h"
#include "sanitizer.h"
#include "topology/topology.h"

namespace tutti {
namespace {

using test::RanksOptions;

// On every processor.
const bool is_asked_for = ::setenv("TUTTI_LEND", "1", 1) == 0;

int calls = int(std::max(Lending::crowded.first_calls, Lending::crowded.guessed_calls) + Lending::crowded.block_calls) + 4;

// What a rank sends another in a turn.
size_t message(int from, int to, int turn) { return size_t(from * 1009 + to * 131 + turn * 17); }

template <typename T>
void fill(T* buffer, int from, int to, int turn, size_t count) {
  test::fill_with_bytes(buffer, message(from, to, turn), count * sizeof(T));
}

template <typename T>
bool holds(const T* buffer, int from, int to, int turn, size_t count) {
  return test::holds_bytes(buffer, message(from, to, turn), count * sizeof(T));
}

// Inputs change between calls, as soon as these return: what a peer has yet to read then would be seen.
void all_to_all(int n, int rank, size_t count, bool in_place, tuttiComm_t comm) {
  std::vector<int32_t> in(count * size_t(n)), out(in.size());
  for (int turn = 0; turn < calls; ++turn) {
    int32_t* const from = in_place ? out.data() : in.data();
    for (int to = 0; to < n; ++to) fill(from + size_t(to) * count, rank, to, turn, count);
    ASSERT_EQ(tuttiAlltoAll(from, out.data(), count, tuttiInt32, comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
    for (int peer = 0; peer < n; ++peer)
      ASSERT_TRUE(holds(out.data() + size_t(peer) * count, peer, rank, turn, count))
          << fmt::format("turn {} rank {} of {} block {} count {}{}", turn, rank, n, peer, count, in_place ? " in place" : "");
  }
}

void all_gather(int n, int rank, size_t count, bool in_place, tuttiComm_t comm) {
  std::vector<int32_t> in(count), out(count * size_t(n));
  for (int turn = 0; turn < calls; ++turn) {
    int32_t* const from = in_place ? out.data() + size_t(rank) * count : in.data();
    fill(from, rank, 0, turn, count);
    ASSERT_EQ(tuttiAllGather(from, out.data(), count, tuttiInt32, comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
    for (int peer = 0; peer < n; ++peer)
      ASSERT_TRUE(holds(out.data() + size_t(peer) * count, peer, 0, turn, count))
          << fmt::format("turn {} rank {} of {} block {} count {}{}", turn, rank, n, peer, count, in_place ? " in place" : "");
  }
}

void broadcast(int n, int rank, size_t count, bool in_place, tuttiComm_t comm) {
  std::vector<int32_t> in(count), out(count);
  for (int root = 0; root < n; ++root)
    for (int turn = 0; turn < calls; ++turn) {
      int32_t* const from = in_place ? out.data() : in.data();
      fill(from, rank, root, turn, count);
      ASSERT_EQ(tuttiBroadcast(from, out.data(), count, tuttiInt32, root, comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
      ASSERT_TRUE(holds(out.data(), root, root, turn, count))
          << fmt::format("turn {} rank {} of {} root {} count {}{}", turn, rank, n, root, count, in_place ? " in place" : "");
    }
}

void scatter(int n, int rank, size_t count, bool in_place, tuttiComm_t comm) {
  std::vector<int32_t> in(count * size_t(n)), out(count);
  for (const int root : {0, n - 1})
    for (int turn = 0; turn < calls; ++turn) {
      const bool sends = rank == root;
      for (int to = 0; sends && to < n; ++to) fill(in.data() + size_t(to) * count, root, to, turn, count);
      int32_t* const to = sends && in_place ? in.data() + size_t(rank) * count : out.data();
      ASSERT_EQ(tuttiScatter(sends ? in.data() : nullptr, to, count, tuttiInt32, root, comm, nullptr), tuttiSuccess)
          << tuttiGetLastError(comm);
      ASSERT_TRUE(holds(to, root, rank, turn, count))
          << fmt::format("turn {} rank {} of {} root {} count {}{}", turn, rank, n, root, count, in_place ? " in place" : "");
    }
}

void gather(int n, int rank, size_t count, bool in_place, tuttiComm_t comm) {
  std::vector<int32_t> in(count), out(count * size_t(n));
  for (const int root : {0, n - 1})
    for (int turn = 0; turn < calls; ++turn) {
      const bool receives = rank == root;
      int32_t* const from = receives && in_place ? out.data() + size_t(rank) * count : in.data();
      fill(from, rank, root, turn, count);
      ASSERT_EQ(tuttiGather(from, receives ? out.data() : nullptr, count, tuttiInt32, root, comm, nullptr), tuttiSuccess)
          << tuttiGetLastError(comm);
      for (int peer = 0; receives && peer < n; ++peer)
        ASSERT_TRUE(holds(out.data() + size_t(peer) * count, peer, root, turn, count))
            << fmt::format("turn {} rank {} of {} root {} block {} count {}{}", turn, rank, n, root, peer, count, in_place ? " in place" : "");
    }
}

// Each rank sends to the next one and receives from the one before; to those at a distance of two as well, if there are such.
void send_around(int n, int rank, size_t count, tuttiComm_t comm) {
  const int reach = n > 2 ? 2 : 1;
  std::vector<int32_t> in(count * size_t(reach)), out(in.size());
  for (int turn = 0; turn < calls; ++turn) {
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    for (int k = 0; k < reach; ++k) {
      const size_t at = size_t(k) * count;
      fill(in.data() + at, rank, k, turn, count);
      ASSERT_EQ(tuttiSend(in.data() + at, count, tuttiInt32, (rank + 1 + k) % n, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiRecv(out.data() + at, count, tuttiInt32, (rank + n - 1 - k) % n, comm, nullptr), tuttiSuccess);
    }
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
    for (int k = 0; k < reach; ++k)
      ASSERT_TRUE(holds(out.data() + size_t(k) * count, (rank + n - 1 - k) % n, k, turn, count))
          << fmt::format("turn {} rank {} of {} distance {} count {}", turn, rank, n, k + 1, count);
  }
}

// From rank to rank and around, and the other way round at every second turn; with late senders and late receivers.
void pass_on(int n, int rank, size_t count, tuttiComm_t comm) {
  std::vector<int32_t> in(count), out(count);
  for (int turn = 0; turn < calls; ++turn) {
    const int step = turn % 2 == 0 ? 1 : n - 1, to = (rank + step) % n, from = (rank + n - step) % n;
    fill(in.data(), rank, 0, turn, count);
    if (turn % 7 == rank) ::usleep(300);
    const auto send = [&] { ASSERT_EQ(tuttiSend(in.data(), count, tuttiInt32, to, comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm); };
    if (rank == 0) send();
    ASSERT_EQ(tuttiRecv(out.data(), count, tuttiInt32, from, comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
    if (rank != 0) send();
    ASSERT_TRUE(holds(out.data(), from, 0, turn, count)) << fmt::format("turn {} rank {} of {} count {}", turn, rank, n, count);
  }
}

// Blocks of unequal sizes that begin anywhere.
void all_to_all_v(int n, int rank, size_t count, tuttiComm_t comm) {
  const auto size = [&](int from, int to) { return count + size_t(from * 3 + to * 5); };
  std::vector<size_t> send_counts, recv_counts, send_at, recv_at;
  size_t sent = 1, received = 1;  // not aligned
  for (int peer = 0; peer < n; ++peer) {
    send_counts.push_back(size(rank, peer));
    recv_counts.push_back(size(peer, rank));
    send_at.push_back(sent);
    recv_at.push_back(received);
    sent += send_counts.back();
    received += recv_counts.back();
  }
  std::vector<int8_t> in(sent), out(received);
  for (int turn = 0; turn < calls; ++turn) {
    for (int to = 0; to < n; ++to) fill(in.data() + send_at[size_t(to)], rank, to, turn, send_counts[size_t(to)]);
    ASSERT_EQ(tuttiAlltoAllV(in.data(), send_counts.data(), send_at.data(), out.data(), recv_counts.data(), recv_at.data(),
                             tuttiInt8, comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
    ASSERT_EQ(out[0], 0) << "before the first block, turn " << turn;
    for (int peer = 0; peer < n; ++peer)
      ASSERT_TRUE(holds(out.data() + recv_at[size_t(peer)], peer, rank, turn, recv_counts[size_t(peer)])) << turn << " block " << peer;
  }
}

// A root's blocks, which are of unequal sizes, some of them of no elements, and begin anywhere.
struct RootBlocks {
  RootBlocks(int n, size_t count) {
    for (int peer = 0; peer < n; ++peer) {
      counts.push_back(peer % 4 == 2 ? 0 : count + size_t(peer) * 70'001);
      firsts.push_back(elements);
      elements += counts.back() + 3;
    }
  }

  // What rank `to` has of all once they are gathered: each rank's block, and between them nothing.
  bool lie_in(const std::vector<int8_t>& out, int to, int turn) const {
    size_t end = 0;
    for (size_t peer = 0; peer < counts.size(); ++peer) {
      if (!std::ranges::all_of(std::span(out).subspan(end, firsts[peer] - end), [](int8_t value) { return value == 0; })) return false;
      if (!holds(out.data() + firsts[peer], int(peer), to, turn, counts[peer])) return false;
      end = firsts[peer] + counts[peer];
    }
    return true;
  }

  std::vector<size_t> counts, firsts;
  size_t elements = 1;  // not aligned
};

void gather_v(int n, int rank, size_t count, bool in_place, tuttiComm_t comm) {
  const RootBlocks blocks(n, count);
  const size_t own = blocks.counts[size_t(rank)];
  std::vector<int8_t> in(own), out(blocks.elements);
  for (const int root : {0, n - 1})
    for (int turn = 0; turn < calls; ++turn) {
      const bool receives = rank == root;
      int8_t* const from = receives && in_place ? out.data() + blocks.firsts[size_t(rank)] : in.data();
      fill(from, rank, root, turn, own);
      ASSERT_EQ(tuttiGatherV(from, own, receives ? out.data() : nullptr, receives ? blocks.counts.data() : nullptr,
                             receives ? blocks.firsts.data() : nullptr, tuttiInt8, root, comm, nullptr), tuttiSuccess)
          << tuttiGetLastError(comm);
      ASSERT_TRUE(!receives || blocks.lie_in(out, root, turn)) << fmt::format("turn {} of {} root {}{}", turn, n, root, in_place ? " in place" : "");
    }
}

void scatter_v(int n, int rank, size_t count, bool in_place, tuttiComm_t comm) {
  const RootBlocks blocks(n, count);
  const size_t own = blocks.counts[size_t(rank)];
  std::vector<int8_t> in(blocks.elements), out(own);
  for (const int root : {0, n - 1})
    for (int turn = 0; turn < calls; ++turn) {
      const bool sends = rank == root;
      for (int peer = 0; sends && peer < n; ++peer)
        fill(in.data() + blocks.firsts[size_t(peer)], root, peer, turn, blocks.counts[size_t(peer)]);
      int8_t* const to = sends && in_place ? in.data() + blocks.firsts[size_t(rank)] : out.data();
      ASSERT_EQ(tuttiScatterV(sends ? in.data() : nullptr, sends ? blocks.counts.data() : nullptr,
                              sends ? blocks.firsts.data() : nullptr, to, own, tuttiInt8, root, comm, nullptr), tuttiSuccess)
          << tuttiGetLastError(comm);
      ASSERT_TRUE(holds(to, root, rank, turn, own)) << fmt::format("turn {} rank {} of {} root {}", turn, rank, n, root);
    }
}

void all_gather_v(int n, int rank, size_t count, bool in_place, tuttiComm_t comm) {
  const RootBlocks blocks(n, count);
  const size_t own = blocks.counts[size_t(rank)];
  std::vector<int8_t> in(own), out(blocks.elements);
  for (int turn = 0; turn < calls; ++turn) {
    int8_t* const from = in_place ? out.data() + blocks.firsts[size_t(rank)] : in.data();
    fill(from, rank, 0, turn, own);
    ASSERT_EQ(tuttiAllGatherV(from, own, out.data(), blocks.counts.data(), blocks.firsts.data(), tuttiInt8, comm, nullptr), tuttiSuccess)
        << tuttiGetLastError(comm);
    ASSERT_TRUE(blocks.lie_in(out, 0, turn)) << fmt::format("turn {} rank {} of {}{}", turn, rank, n, in_place ? " in place" : "");
  }
}

// Numbers of which eight, and three times eight, can be added up.
void fill_with_summands(std::vector<int32_t>& buffer, int rank, int turn) {
  fill(buffer.data(), rank, 0, turn, buffer.size());
  for (int32_t& value : buffer) value /= 32;
}

std::vector<int32_t> sum_of(int ranks, int turn, size_t count) {
  std::vector<int32_t> sum(count), summands(count);
  for (int rank = 0; rank < ranks; ++rank) {
    fill_with_summands(summands, rank, turn);
    std::ranges::transform(sum, summands, sum.begin(), std::plus());
  }
  return sum;
}

// Of two ranks one has the other's input, also where that is divided, by one, or multiplied, and in place. The output of rank 0 stays
// as it is, unless its input is multiplied there.
void exscan(int n, int rank, size_t count, bool in_place, tuttiComm_t comm) {
  const int32_t scalar = 3;
  tuttiRedOp_t multiplied = tuttiSum;
  ASSERT_EQ(tuttiRedOpCreatePreMulSum(&multiplied, const_cast<int32_t*>(&scalar), tuttiInt32, tuttiScalarHostImmediate, comm), tuttiSuccess);
  std::vector<int32_t> in(count), out(count);
  for (const tuttiRedOp_t op : {tuttiSum, tuttiAvg, multiplied})
    for (int turn = 0; turn < calls; ++turn) {
      std::vector<int32_t>& from = in_place ? out : in;
      fill_with_summands(from, rank, turn);
      const std::vector<int32_t> before = out;
      ASSERT_EQ(tuttiExScan(from.data(), out.data(), count, tuttiInt32, op, comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
      ASSERT_TRUE(rank > 0 || op == multiplied || out == before);
      if (rank == 0) continue;
      std::vector<int32_t> expected = sum_of(rank, turn, count);
      for (int32_t& value : expected) value = op == multiplied ? scalar * value : op == tuttiAvg ? value / rank : value;
      ASSERT_TRUE(out == expected) << fmt::format("turn {} rank {} of {} count {} operator {}", turn, rank, n, count, int(op));
    }
  ASSERT_EQ(tuttiRedOpDestroy(multiplied, comm), tuttiSuccess);
}

// To each root.
void reduce(int n, int rank, size_t count, bool in_place, tuttiComm_t comm) {
  std::vector<int32_t> in(count), out(count);
  for (int root = 0; root < n; ++root)
    for (int turn = 0; turn < calls; ++turn) {
      std::vector<int32_t>& from = in_place && rank == root ? out : in;
      fill_with_summands(from, rank, turn);
      ASSERT_EQ(tuttiReduce(from.data(), rank == root ? out.data() : nullptr, count, tuttiInt32, tuttiSum, root, comm, nullptr), tuttiSuccess)
          << tuttiGetLastError(comm);
      ASSERT_TRUE(rank != root || out == sum_of(n, turn, count)) << fmt::format("turn {} root {} of {} count {}", turn, root, n, count);
    }
}

// Blocks of 10, 24 and 64 KiB, of more than a message, and of several tiles and a rest.
const std::vector<size_t> usual_counts = test::sanitized ? std::vector<size_t>{33'333} : std::vector<size_t>{2'500, 6'001, 16'384, 33'333, 150'001};

// Of many ranks, whose calls take long, the first and the last.
std::vector<size_t> counts_of(int n) { return n <= 3 ? usual_counts : std::vector{usual_counts.front(), usual_counts.back()}; }

void check_all(int n, int rank, tuttiComm_t comm, const std::vector<size_t>& counts) {
  for (const size_t count : counts)
    for (const bool in_place : {false, true}) {
      all_to_all(n, rank, count, in_place, comm);
      all_gather(n, rank, count, in_place, comm);
      for (const size_t blocks : {1, 2}) broadcast(n, rank, blocks * count, in_place, comm);
      scatter(n, rank, count, in_place, comm);
      gather(n, rank, count, in_place, comm);
      if (!in_place) send_around(n, rank, count, comm);
      if (!in_place) pass_on(n, rank, count, comm);
      if (n == 2) exscan(n, rank, count, in_place, comm);
      if (n == 2) reduce(n, rank, count, in_place, comm);
    }
  for (const bool in_place : {false, true}) {
    gather_v(n, rank, 100'003, in_place, comm);
    scatter_v(n, rank, 100'003, in_place, comm);
    all_gather_v(n, rank, 100'003, in_place, comm);
  }
  all_to_all_v(n, rank, 100'003, comm);
}

TEST(PrivateMemory, IsReadRightAsThreads) {
  for (const int n : test::sanitized ? std::vector{2, 3} : std::vector{2, 3, 6})
    test::run_threads(n, {}, [n](int rank, tuttiComm_t comm) { check_all(n, rank, comm, counts_of(n)); });
}

TEST(PrivateMemory, IsReadRightAsProcesses) {
  for (const int n : test::sanitized ? std::vector{3} : std::vector{2, 5})
    test::run_processes(n, {}, [n](int rank, tuttiComm_t comm) { check_all(n, rank, comm, counts_of(n)); });
}

// As where ranks share no core and begin with a guess.
TEST(PrivateMemory, IsReadRightWhereItIsTriedLate) {
  const int usual = std::exchange(calls, int(Lending::lone_gather.guessed_calls + Lending::lone_gather.block_calls) + 4);
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) { check_all(2, rank, comm, {33'333}); });
  calls = usual;
}

// As on a machine with cores for all of them; what is tried depends on that.
TEST(PrivateMemory, IsReadAndWrittenRightWhereEachRankHasACore) {
  RanksOptions options;
  options.before_join = [](int) { ::setenv("HWLOC_SYNTHETIC", "pack:1 l3:1(size=33554432) l2:8(size=1048576) core:1 pu:1", 1); };
  for (const int n : test::sanitized ? std::vector{3} : std::vector{3, 4})
    test::run_processes(n, options, [n](int rank, tuttiComm_t comm) {
      const size_t count = 70'001;
      for (const bool in_place : {false, true}) {
        gather(n, rank, count, in_place, comm);
        scatter(n, rank, count, in_place, comm);
        broadcast(n, rank, count, in_place, comm);
        gather_v(n, rank, 4 * count, in_place, comm);
      }
      pass_on(n, rank, count, comm);
      send_around(n, rank, count, comm);
    });
}

TEST(PrivateMemory, IsReadRightOnSeveralChannelsAndByEveryAlgorithm) {
  using Names = std::vector<const char*>;
  for (const char* const algorithm : test::sanitized ? Names{"pairwise"} : Names{"direct", "ring", "pairwise"}) {
    RanksOptions options;
    options.channels = 3;
    options.algorithm = algorithm;
    test::run_threads(3, options, [](int rank, tuttiComm_t comm) {
      all_gather(3, rank, 100'003, false, comm);
      all_to_all(3, rank, 100'003, false, comm);
      all_gather_v(3, rank, 400'003, false, comm);
    });
  }
  for (const char* const algorithm : test::sanitized ? Names{"double_tree"} : Names{"direct", "chain", "double_tree"}) {
    RanksOptions options;
    options.channels = 2;
    options.algorithm = algorithm;
    test::run_threads(2, options, [](int rank, tuttiComm_t comm) { broadcast(2, rank, 300'007, false, comm); });
  }
  for (const int channels : test::sanitized ? std::vector{3} : std::vector{1, 3}) {
    RanksOptions options;
    options.channels = channels;
    test::run_threads(2, options, [](int rank, tuttiComm_t comm) {
      exscan(2, rank, 300'007, false, comm);
      for (const bool in_place : {false, true}) {
        gather_v(2, rank, 1'000'003, in_place, comm);
        scatter_v(2, rank, 1'000'003, in_place, comm);
      }
    });
  }
}

// Some ranks lend and some copy, and nobody minds.
TEST(PrivateMemory, IsNotReadWhereARankLendsNone) {
  RanksOptions options;
  options.before_join = [](int rank) {
    if (rank == 1) ::setenv("TUTTI_LEND", "0", 1);
  };
  for (const int n : {2, 3})
    test::run_processes(n, options, [n](int rank, tuttiComm_t comm) { check_all(n, rank, comm, counts_of(n)); });
}

// As a container's filter does; or more strictly.
void forbid(uint32_t system_call, uint32_t punishment = SECCOMP_RET_ERRNO | EPERM) {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, system_call, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, punishment),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{4, program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

TEST(PrivateMemory, IsNotReadWhereTheKernelForbidsIt) {
  RanksOptions options;
  options.before_join = [](int rank) {
    if (rank == 1) forbid(__NR_process_vm_readv);
  };
  test::run_processes(2, options, [](int rank, tuttiComm_t comm) { check_all(2, rank, comm, usual_counts); });
}

// What may be read may not be written everywhere.
TEST(PrivateMemory, IsNotWrittenWhereTheKernelForbidsIt) {
  RanksOptions options;
  options.before_join = [](int rank) {
    if (rank == 1) forbid(__NR_process_vm_writev);
  };
  test::run_processes(2, options, [](int rank, tuttiComm_t comm) { check_all(2, rank, comm, usual_counts); });
}

tuttiResult_t all_to_all_of(std::span<const std::byte> in, std::span<std::byte> out, tuttiComm_t comm) {
  int ranks = 1;
  tuttiCommCount(comm, &ranks);
  return tuttiAlltoAll(in.data(), out.data(), in.size() / size_t(ranks), tuttiInt8, comm, nullptr);
}
tuttiResult_t broadcast_of(std::span<const std::byte> in, std::span<std::byte> out, tuttiComm_t comm) {
  return tuttiBroadcast(in.data(), out.data(), in.size(), tuttiInt8, 0, comm, nullptr);
}

// Whose sender comes last, and not at once after the call before.
template <decltype(&tuttiBroadcast) call, int sender>
tuttiResult_t late_of(std::span<const std::byte> in, std::span<std::byte> out, tuttiComm_t comm) {
  int rank = 0;
  tuttiCommUserRank(comm, &rank);
  if (rank == sender) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return call(in.data(), out.data(), in.size(), tuttiInt8, 0, comm, nullptr);
}
tuttiResult_t sum_to_rank_1(const void* in, void* out, size_t count, tuttiDataType_t type, int, tuttiComm_t comm, tuttiStream_t stream) {
  return tuttiReduce(in, out, count, type, tuttiSum, 1, comm, stream);
}

tuttiResult_t scatter_of(std::span<const std::byte> in, std::span<std::byte> out, tuttiComm_t comm) {
  return tuttiScatter(in.data(), out.data(), in.size() / 2, tuttiInt8, 0, comm, nullptr);
}
tuttiResult_t gather_of(std::span<const std::byte> in, std::span<std::byte> out, tuttiComm_t comm) {
  return tuttiGather(in.data(), out.data(), in.size() / 2, tuttiInt8, 0, comm, nullptr);
}
// Between two ranks, both at once.
tuttiResult_t exchange_of(std::span<const std::byte> in, std::span<std::byte> out, tuttiComm_t comm) {
  int rank = 0;
  tuttiCommUserRank(comm, &rank);
  tuttiGroupStart();
  tuttiSend(in.data(), in.size(), tuttiInt8, 1 - rank, comm, nullptr);
  tuttiRecv(out.data(), out.size(), tuttiInt8, 1 - rank, comm, nullptr);
  return tuttiGroupEnd();
}
// There and back.
tuttiResult_t return_of(std::span<const std::byte> in, std::span<std::byte> out, tuttiComm_t comm) {
  int rank = 0;
  tuttiCommUserRank(comm, &rank);
  if (rank == 0)
    if (const tuttiResult_t sent = tuttiSend(in.data(), in.size(), tuttiInt8, 1, comm, nullptr); sent != tuttiSuccess) return sent;
  if (const tuttiResult_t got = tuttiRecv(out.data(), out.size(), tuttiInt8, 1 - rank, comm, nullptr); got != tuttiSuccess) return got;
  return rank == 0 ? tuttiSuccess : tuttiSend(in.data(), in.size(), tuttiInt8, 0, comm, nullptr);
}

tuttiResult_t exscan_of(std::span<const std::byte> in, std::span<std::byte> out, tuttiComm_t comm) {
  return tuttiExScan(in.data(), out.data(), in.size(), tuttiUint8, tuttiSum, comm, nullptr);
}
// To rank 0.
tuttiResult_t gather_v_of(std::span<const std::byte> in, std::span<std::byte> out, tuttiComm_t comm) {
  int rank = 0;
  tuttiCommUserRank(comm, &rank);
  const size_t half = in.size() / 2;
  const std::vector<size_t> counts{half - 5, half + 5};
  return tuttiGatherV(in.data(), counts[size_t(rank)], out.data(), counts.data(), nullptr, tuttiInt8, 0, comm, nullptr);
}

// All ranks on one core.
RanksOptions crowd() {
  RanksOptions options;
  options.before_join = [](int) { test::stay_on_one_core_of_two(0); };
  return options;
}

// Rank 1 is killed if it makes that system call.
bool asks_kernel(uint32_t system_call, size_t bytes, decltype(&all_to_all_of) call, RanksOptions options = {}, int ranks = 2) {
  options.timeout_ms = 60'000;
  test::Processes processes(ranks, options, [=](int rank, tuttiComm_t comm) {
    if (rank == 1) forbid(system_call, SECCOMP_RET_KILL_PROCESS);
    const std::vector<std::byte> in(bytes);
    std::vector<std::byte> out(bytes);
    // On a busy machine many an offer comes too late.
    const int turns = bytes > size_t{1} << 20 ? calls : 10 * calls;
    for (int turn = 0; turn < turns; ++turn)
      if (call(in, out, comm) != tuttiSuccess) return;
  });
  for (int rank = 0; rank < ranks; rank += rank == 0 ? 2 : 1) EXPECT_EQ(processes.wait(rank), 0);
  const int status = processes.wait(1);
  EXPECT_TRUE(status == 0 || WTERMSIG(status) == SIGSYS) << status;
  return status != 0;
}
bool is_read(size_t bytes, decltype(&all_to_all_of) call = all_to_all_of) { return asks_kernel(__NR_process_vm_readv, bytes, call); }
bool is_written(size_t bytes, decltype(&all_to_all_of) call, const RanksOptions& options = {}) {
  return asks_kernel(__NR_process_vm_writev, bytes, call, options);
}

TEST(PrivateMemory, IsReadUnaskedWhereTheKernelCopiesWell) {
  ASSERT_TRUE(is_asked_for);
  if (!is_read(size_t{1} << 20)) GTEST_SKIP() << "nothing is lent here: ranks share a core, or the kernel forbids it";
  ::unsetenv("TUTTI_LEND");
  EXPECT_EQ(is_read(size_t{1} << 20), strings_copy_well());
  EXPECT_EQ(is_read(size_t{1} << 20, exscan_of), strings_copy_well());
  ::setenv("TUTTI_LEND", "1", 1);
}

TEST(PrivateMemory, IsNotReadWhereNoCacheHoldsTheCall) {
  const size_t last_cache = cache_sizes(discover_host()).last_bytes;
  if (last_cache == 0) GTEST_SKIP() << "this machine's caches are not known";
  if (!is_read(size_t{1} << 20)) GTEST_SKIP() << "nothing is lent here: ranks share a core, or the kernel forbids it";
  EXPECT_FALSE(is_read(last_cache / 4));  // of each input and output, which together fill the cache
  EXPECT_FALSE(is_read(last_cache / 2, exchange_of));
}

TEST(PrivateMemory, IsReadWhereARootTriesIt) {
  if (!is_read(size_t{1} << 20)) GTEST_SKIP() << "nothing is lent here: ranks share a core, or the kernel forbids it";
  EXPECT_TRUE(is_read(size_t{256} << 10, broadcast_of));
  EXPECT_FALSE(is_read(size_t{4} << 10, broadcast_of));
  EXPECT_TRUE(is_read(size_t{256} << 10, scatter_of));
  EXPECT_TRUE(is_read(size_t{1} << 20, exscan_of));
  EXPECT_FALSE(is_read(size_t{4} << 10, exscan_of));
}

// Who sends waits, and who would wait otherwise reads.
TEST(PrivateMemory, IsReadByWhoWaits) {
  if (!is_read(size_t{1} << 20)) GTEST_SKIP() << "nothing is lent here: ranks share a core, or the kernel forbids it";
  if (!copies_as_library()) GTEST_SKIP() << "not on this processor";
  EXPECT_TRUE((is_read(size_t{32} << 10, late_of<tuttiBroadcast, 0>)));
  EXPECT_TRUE((is_read(size_t{8} << 10, late_of<tuttiBroadcast, 0>)));
  EXPECT_FALSE((is_read(size_t{4} << 10, late_of<tuttiBroadcast, 0>)));
  EXPECT_TRUE((is_read(size_t{32} << 10, late_of<sum_to_rank_1, 0>)));
  EXPECT_FALSE((is_read(size_t{8} << 10, late_of<sum_to_rank_1, 0>)));
}

TEST(PrivateMemory, IsReadWhereWhoSendsTriesIt) {
  if (!is_read(size_t{1} << 20)) GTEST_SKIP() << "nothing is lent here: ranks share a core, or the kernel forbids it";
  EXPECT_TRUE(is_read(size_t{256} << 10, exchange_of));
  EXPECT_TRUE(is_read(size_t{32} << 10, exchange_of));
  EXPECT_FALSE(is_read(size_t{8} << 10, exchange_of));
}

TEST(PrivateMemory, IsWrittenWhereItIsOffered) {
  if (!is_read(size_t{1} << 20)) GTEST_SKIP() << "nothing is lent here: ranks share a core, or the kernel forbids it";
  EXPECT_TRUE(is_written(size_t{512} << 10, return_of));
  EXPECT_TRUE(is_written(size_t{1} << 20, gather_of));
  EXPECT_TRUE(is_written(size_t{1} << 20, gather_v_of));
  EXPECT_FALSE(is_written(size_t{32} << 10, return_of));
  EXPECT_FALSE(is_written(size_t{1} << 20, exchange_of));
  EXPECT_FALSE(is_written(size_t{1} << 20, all_to_all_of));
}

// Where ranks share cores, who sends to a root waits for its word and lets it run.
TEST(PrivateMemory, IsWrittenInACrowdToo) {
  if (!is_read(size_t{1} << 20, scatter_of)) GTEST_SKIP() << "nothing is lent here: the kernel forbids it";
  EXPECT_TRUE(is_written(size_t{1} << 20, gather_of, crowd()));
  EXPECT_TRUE(is_written(size_t{1} << 20, gather_v_of, crowd()));
  EXPECT_FALSE(is_written(size_t{64} << 10, gather_of, crowd()));
  EXPECT_FALSE(is_written(size_t{1} << 20, all_to_all_of, crowd()));
}

TEST(PrivateMemory, IsReadInACrowdWhereMessagesThatGoBothWaysAreOfAMiddlingSize) {
  const auto is_read_in_crowd = [](size_t bytes) { return asks_kernel(__NR_process_vm_readv, bytes, exchange_of, crowd()); };
  if (!is_read_in_crowd(size_t{1} << 20)) GTEST_SKIP() << "nothing is lent here: the kernel forbids it";
  EXPECT_TRUE(is_read_in_crowd(lent_bytes_min));
  EXPECT_FALSE(is_read_in_crowd(lent_bytes_min - 64));
}

TEST(PrivateMemory, IsReadInACrowdWhereBlocksAreLarge) {
  const auto is_read_among = [](int ranks, size_t block) {
    return asks_kernel(__NR_process_vm_readv, size_t(ranks) * block, all_to_all_of, crowd(), ranks);
  };
  if (!is_read_among(2, size_t{512} << 10)) GTEST_SKIP() << "nothing is lent here: the kernel forbids it";
  EXPECT_TRUE(is_read_among(2, size_t{64} << 10));
  EXPECT_FALSE(is_read_among(2, size_t{32} << 10));
  EXPECT_TRUE(is_read_among(3, size_t{128} << 10));
  EXPECT_FALSE(is_read_among(3, size_t{64} << 10));
}

// A root that is late, in calls of which it has offered its memory for the one before: what is sent waits for it, or for some time only.
TEST(PrivateMemory, IsReadRightWhereARootIsLate) {
  test::run_threads(5, {}, [](int rank, tuttiComm_t comm) {
    constexpr size_t count = 50'001;
    std::vector<int32_t> in(count), out(5 * count);
    for (int turn = 0; turn < calls; ++turn) {
      if (rank == 0 && turn % 8 > 5) ::usleep(useconds_t(4'000 * (turn % 5)));
      fill(in.data(), rank, 0, turn, count);
      ASSERT_EQ(tuttiGather(in.data(), out.data(), count, tuttiInt32, 0, comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
      for (int peer = 0; rank == 0 && peer < 5; ++peer)
        ASSERT_TRUE(holds(out.data() + size_t(peer) * count, peer, 0, turn, count)) << "turn " << turn << " block " << peer;
    }
  });
}

// Groups.
TEST(PrivateMemory, IsReadRightInGroups) {
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    constexpr size_t count = 100'003;
    std::vector<int32_t> first(count), second(2 * count), all(2 * count), exchanged(2 * count);
    for (int turn = 0; turn < calls; ++turn) {
      fill(first.data(), rank, 2, turn, count);
      for (int to = 0; to < 2; ++to) fill(second.data() + size_t(to) * count, rank, to, turn, count);
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(tuttiAllGather(first.data(), all.data(), count, tuttiInt32, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiAlltoAll(second.data(), exchanged.data(), count, tuttiInt32, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
      for (int peer = 0; peer < 2; ++peer) {
        ASSERT_TRUE(holds(all.data() + size_t(peer) * count, peer, 2, turn, count)) << turn;
        ASSERT_TRUE(holds(exchanged.data() + size_t(peer) * count, peer, rank, turn, count)) << turn;
      }
    }
  });
}

// The last rank is killed when calls lend; the others learn of it, and none waits for ever.
TEST(PrivateMemory, OfARankThatWasKilledIsAnErrorAndNoHang) {
  RanksOptions options;
  options.timeout_ms = 60'000;
  test::Processes processes(3, options, [](int rank, tuttiComm_t comm) {
    constexpr size_t count = 300'000;
    std::vector<int32_t> in(3 * count), out(3 * count);
    for (int turn = 0;; ++turn) {
      if (rank == 2 && turn > calls) ::raise(SIGKILL);
      const tuttiResult_t result = tuttiAlltoAll(in.data(), out.data(), count, tuttiInt32, comm, nullptr);
      if (result == tuttiSuccess) continue;
      EXPECT_EQ(result, tuttiRemoteError) << tuttiGetLastError(comm);
      EXPECT_GT(turn, calls);
      return;
    }
  });
  processes.wait(2);
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(1), 0);
}

// At any moment of the kernel's copying, by whichever side that is.
TEST(PrivateMemory, OfARankThatIsKilledWhileItIsCopiedIsAnError) {
  using Call = decltype(&gather_of);
  for (const auto& [call, crowded] : {std::pair<Call, bool>{gather_of, false}, {gather_of, true}, {exchange_of, false}, {return_of, false}, {broadcast_of, false}})
    for (int round = 0; round < (test::sanitized ? 2 : 6); ++round) {
      RanksOptions options = crowded ? crowd() : RanksOptions();
      options.timeout_ms = 60'000;
      test::Processes processes(2, options, [round, call = call](int rank, tuttiComm_t comm) {
        const std::vector<std::byte> in(size_t{2} << 20);
        std::vector<std::byte> out(in.size());
        std::thread killer;
        tuttiResult_t result = tuttiSuccess;
        for (int turn = 0; result == tuttiSuccess; ++turn) {
          if (rank == 1 && turn == calls)
            killer = std::thread([=] {
              ::usleep(useconds_t(100 + 217 * round));
              ::raise(SIGKILL);
            });
          result = call(in, out, comm);
        }
        EXPECT_EQ(result, tuttiRemoteError) << tuttiGetLastError(comm);
        if (killer.joinable()) killer.join();
      });
      processes.wait(1);
      EXPECT_EQ(processes.wait(0), 0) << round;
    }
}

}  // namespace
}  // namespace tutti
