// Sends and receives at once of ordinary memory, which are cut and copied by turns: every size around those at which that
// changes, sizes that differ each way, several at once, and calls that follow each other in the same memory.
#include <algorithm>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <gtest/gtest.h>

#include "communicator/ranks.h"
#include "sanitizer.h"

namespace tutti {
namespace {

constexpr size_t in_kib = 1024 / sizeof(int32_t);

int32_t value(int from, size_t message, size_t i, int turn) { return int32_t(from * 1'000'003 + int(message) * 10'007 + turn * 101) + int32_t(i); }

// Sends peer messages of so many elements, and receives as many messages of other sizes. Inputs change as soon as calls return.
void exchange(int rank, const std::vector<size_t>& mine, const std::vector<size_t>& theirs, size_t at, tuttiComm_t comm) {
  const int peer = 1 - rank;
  std::vector<std::vector<int32_t>> in, out;
  for (const size_t count : mine) in.emplace_back(at + count);
  for (const size_t count : theirs) out.emplace_back(at + count + 1, -1);
  for (int turn = 0; turn < 3; ++turn) {
    for (size_t m = 0; m < mine.size(); ++m)
      for (size_t i = 0; i < mine[m]; ++i) in[m][at + i] = value(rank, m, i, turn);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    for (size_t m = 0; m < mine.size(); ++m)
      ASSERT_EQ(tuttiSend(in[m].data() + at, mine[m], tuttiInt32, peer, comm, nullptr), tuttiSuccess);
    for (size_t m = 0; m < theirs.size(); ++m)
      ASSERT_EQ(tuttiRecv(out[m].data() + at, theirs[m], tuttiInt32, peer, comm, nullptr), tuttiSuccess);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
    for (size_t m = 0; m < theirs.size(); ++m) {
      for (size_t i = 0; i < theirs[m]; ++i)
        ASSERT_EQ(out[m][at + i], value(peer, m, i, turn)) << "turn " << turn << " message " << m << " of " << theirs[m] << " element " << i;
      ASSERT_EQ(out[m].back(), -1) << "past the end";
    }
  }
}

void exchange_all(int rank, tuttiComm_t comm) {
  const std::vector<size_t> counts = {0, 1, 127 * in_kib, 128 * in_kib, 128 * in_kib + 1, 200 * in_kib + 3, 256 * in_kib, 256 * in_kib + 1,
                                      512 * in_kib - 1, 512 * in_kib, 512 * in_kib + 1, 768 * in_kib, 1024 * in_kib + 5, 4096 * in_kib};
  const size_t largest = test::sanitized ? 600 * in_kib : counts.back();
  for (size_t k = 0; k < counts.size() && counts[k] <= largest; ++k) {
    exchange(rank, {counts[k]}, {counts[k]}, k % 3, comm);
    const size_t other = counts[counts.size() - 1 - k] <= largest ? counts[counts.size() - 1 - k] : counts[k / 2];
    const std::vector<size_t> one = {counts[k], other, counts[k]}, few = {other, counts[k]};
    exchange(rank, {rank == 0 ? counts[k] : other}, {rank == 0 ? other : counts[k]}, 0, comm);
    exchange(rank, rank == 0 ? one : few, rank == 0 ? few : one, 1, comm);
  }
}

#if defined(__x86_64__)
void flush(const std::vector<int32_t>& data) {
  constexpr size_t in_line = 64 / sizeof(int32_t);
  for (size_t i = 0; i < data.size(); i += in_line) _mm_clflush(&data[i]);
  _mm_mfence();
}
#else
void flush(const std::vector<int32_t>&) {}
#endif

// Outputs that are in no cache, time after time: these go past the caches in the end, and come between the parts of what is sent.
void exchange_cold(int rank, tuttiComm_t comm) {
  constexpr int turns = 20;
  const int peer = 1 - rank;
  for (const size_t count : {8 * in_kib + 1, 40 * in_kib + 3, 64 * in_kib, 100 * in_kib, 256 * in_kib})
    for (const size_t other : {count, count / 2}) {
      const size_t mine = rank == 0 ? count : other, theirs = rank == 0 ? other : count;
      std::vector<int32_t> in(mine), out(theirs + 1);
      for (int turn = 0; turn < turns; ++turn) {
        for (size_t i = 0; i < mine; ++i) in[i] = value(rank, 0, i, turn);
        std::fill(out.begin(), out.end(), -1);
        flush(in);
        flush(out);
        ASSERT_EQ(tuttiSendRecv(in.data(), mine, peer, out.data(), theirs, peer, tuttiInt32, comm, nullptr), tuttiSuccess);
        for (size_t i = 0; i < theirs; ++i) ASSERT_EQ(out[i], value(peer, 0, i, turn)) << "turn " << turn << " of " << theirs << " element " << i;
        ASSERT_EQ(out.back(), -1) << "past the end";
      }
    }
}

// A lone receive, and a send that stands in a group: only one side knows of an exchange.
void half(int rank, tuttiComm_t comm) {
  for (const size_t count : {200 * in_kib, 512 * in_kib, 2048 * in_kib}) {
    std::vector<int32_t> in(count, 1 + rank), out(count, -1);
    if (rank == 0) {
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      ASSERT_EQ(tuttiSend(in.data(), count, tuttiInt32, 1, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiRecv(out.data(), count, tuttiInt32, 1, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess);
    } else {
      ASSERT_EQ(tuttiRecv(out.data(), count, tuttiInt32, 0, comm, nullptr), tuttiSuccess);
      ASSERT_EQ(tuttiSend(in.data(), count, tuttiInt32, 0, comm, nullptr), tuttiSuccess);
    }
    EXPECT_EQ(out, std::vector<int32_t>(count, 2 - rank));
  }
}

TEST(Exchange, IsRightAsThreads) { test::run_threads(2, {}, exchange_all); }

TEST(Exchange, IsRightAsProcesses) { test::run_processes(2, {}, exchange_all); }

TEST(Exchange, IsRightOverTcp) {
  test::RanksOptions options;
  options.transport = "tcp";
  test::run_threads(2, options, exchange_all);
}

TEST(Exchange, IsRightWhereOutputsAreInNoCache) { test::run_processes(2, {}, exchange_cold); }

TEST(Exchange, MayBeOneSidesAffair) { test::run_processes(2, {}, half); }

}  // namespace
}  // namespace tutti
