// Large calls that are made again, whose messages may be lent, and which may go through the memory of all ranks.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "communicator/ranks.h"
#include "communicator/values.h"
#include "sanitizer.h"
#include "tutti/tutti.hpp"

namespace tutti {
namespace {

using test::run_threads;

// A buffer in ordinary memory or in the library's, from malloc or new each time.
class AnyBuffer {
 public:
  AnyBuffer(size_t count, bool shared) : ordinary_(shared ? 0 : count), shared_(shared ? count : 0) {}
  int32_t* data() { return shared_.empty() ? ordinary_.data() : shared_.data(); }

 private:
  std::vector<int32_t> ordinary_;
  std::vector<int32_t, Allocator<int32_t>> shared_;
};

// Each rank's buffers lie in the one memory or the other as it likes, and each goes the short way or (with an option) the long
// one; so calls are refused the way through all ranks' memory, and served, at times that all must see alike.
void large_calls(int n, int rank, tuttiComm_t comm, size_t least = 64 << 8) {
  std::mt19937 same{uint32_t(n)}, own{uint32_t(n * 100 + rank)};  // on all ranks; of this one
  tuttiOptions_t late = TUTTI_OPTIONS_INITIALIZER;
  late.deadline_ms = 20'000;
  // What a rank gives and what must come of it: `first` and what follows, again and again.
  const auto row = [](int32_t first, size_t count, int32_t step = 1) {
    std::vector<int32_t> made(count);
    const size_t once = std::min(count, size_t{1009});
    for (size_t i = 0; i < once; ++i) made[i] = first + step * int32_t(i);
    test::repeat(std::span(reinterpret_cast<uint8_t*>(made.data()), count * sizeof(int32_t)), once * sizeof(int32_t));
    return made;
  };
  const auto value = [](int from, int turn) { return int32_t(from * 1000 + turn); };
  const auto holds = [](const int32_t* buffer, const std::vector<int32_t>& all, size_t from, size_t count) {
    return std::equal(all.begin() + long(from), all.begin() + long(from + count), buffer);
  };
  // Stretches of calls alike, so that most of them are made again; the last one so long that what is refused is tried again and
  // again.
  constexpr int stretch = 30, short_stretches = test::sanitized ? 5 : 60, all = stretch * short_stretches + (test::sanitized ? 150 : 700);
  bool all_shared = false, none_shared = false, in_place = false;
  unsigned kind = 0;
  size_t total = 0;
  for (int turn = 0; turn < all; ++turn) {
    if (turn == stretch * short_stretches) {
      all_shared = none_shared = false;
      kind = 0;
      total = least;
    } else if (turn % stretch == 0 && turn < stretch * short_stretches) {
      all_shared = same() % 3 == 0;
      none_shared = !all_shared && same() % 2 == 0;
      in_place = same() % 2 == 0;
      kind = same() % 6;
      total = least << same() % 3;  // elements
    }
    const auto is_shared = [&] { return all_shared || (!none_shared && own() % 2 == 0); };
    const bool short_way = own() % 8 != 0;
    const size_t block = total / size_t(n);
    const int root = (turn / stretch) % n;
    AnyBuffer in(total + 64, is_shared()), out(total + 64, is_shared());
    int32_t *const recv = out.data(), *const send = in_place ? recv : in.data();
    std::ranges::copy(row(value(rank, turn), total), send);
    const tuttiOptions_t* const options = short_way ? nullptr : &late;
    switch (kind) {
      case 0:
        ASSERT_EQ(short_way ? tuttiAllReduce(send, recv, total, tuttiInt32, tuttiSum, comm, nullptr)
                            : tuttiAllReduceWith(send, recv, total, tuttiInt32, tuttiSum, comm, nullptr, options), tuttiSuccess);
        ASSERT_TRUE(holds(recv, row(n * turn + 1000 * (n * (n - 1) / 2), total, n), 0, total)) << turn;
        break;
      case 1:
        ASSERT_EQ(short_way ? tuttiBroadcast(send, recv, total, tuttiInt32, root, comm, nullptr)
                            : tuttiBroadcastWith(send, recv, total, tuttiInt32, root, comm, nullptr, options), tuttiSuccess);
        ASSERT_TRUE(holds(recv, row(value(root, turn), total), 0, total)) << turn;
        break;
      case 2:
        ASSERT_EQ(short_way ? tuttiReduce(send, recv, total, tuttiInt32, tuttiMax, root, comm, nullptr)
                            : tuttiReduceWith(send, recv, total, tuttiInt32, tuttiMax, root, comm, nullptr, options), tuttiSuccess);
        ASSERT_TRUE(rank != root || holds(recv, row(value(n - 1, turn), total), 0, total)) << turn;
        break;
      case 3: {
        int32_t* const mine = in_place ? recv + block * size_t(rank) : send;
        std::ranges::copy(row(value(rank, turn), block), mine);
        ASSERT_EQ(short_way ? tuttiAllGather(mine, recv, block, tuttiInt32, comm, nullptr)
                            : tuttiAllGatherWith(mine, recv, block, tuttiInt32, comm, nullptr, options), tuttiSuccess);
        for (int from = 0; from < n; ++from)
          ASSERT_TRUE(holds(recv + size_t(from) * block, row(value(from, turn), block), 0, block)) << turn << " from " << from;
        break;
      }
      case 4:  // first to the next rank, then from the one before: so much may be under way
        if (n == 1) break;
        ASSERT_EQ(short_way ? tuttiSend(send, total, tuttiInt32, (rank + 1) % n, comm, nullptr)
                            : tuttiSendWith(send, total, tuttiInt32, (rank + 1) % n, comm, nullptr, options), tuttiSuccess);
        ASSERT_EQ(tuttiRecv(recv, total, tuttiInt32, (rank + n - 1) % n, comm, nullptr), tuttiSuccess);
        ASSERT_TRUE(holds(recv, row(value((rank + n - 1) % n, turn), total), 0, total)) << turn;
        break;
      default:
        ASSERT_EQ(short_way ? tuttiAlltoAll(send, recv, block, tuttiInt32, comm, nullptr)
                            : tuttiAlltoAllWith(send, recv, block, tuttiInt32, comm, nullptr, options), tuttiSuccess);
        for (int from = 0; from < n; ++from)
          ASSERT_TRUE(holds(recv + size_t(from) * block, row(value(from, turn), total), size_t(rank) * block, block)) << turn << " from " << from;
    }
  }
}

TEST(Repeats, LargeCallsInMemoryOfAnyKindAreRightAsThreads) {
  for (const int n : {1, 2, 3, 5}) run_threads(n, {}, [n](int rank, tuttiComm_t comm) { large_calls(n, rank, comm); });
}

TEST(Repeats, LargeCallsInMemoryOfAnyKindAreRightAsProcesses) {
  for (const int n : {2, 4}) test::run_processes(n, {}, [n](int rank, tuttiComm_t comm) { large_calls(n, rank, comm); });
}

// A send alone ends when its message is on its way, however often it is made and wherever its buffer lies.
TEST(Repeats, LargeSendsEndBeforeTheirReceiverComes) {
  std::array<std::atomic<int>, 2> sent{};
  run_threads(2, {}, [&](int rank, tuttiComm_t comm) {
    constexpr size_t count = 20'000;
    for (const bool shared : {false, true}) {
      std::vector<AnyBuffer> in;
      for (int i = 0; i < 3; ++i) in.emplace_back(count, shared);
      std::vector<int32_t> out(count);
      for (int turn = 0; turn < 12; ++turn) {
        int32_t* const data = in[size_t(turn) % 3].data();
        std::iota(data, data + count, turn + 100 * rank);
        for (const bool sends : {rank == 0, rank != 0}) {
          std::atomic<int>& ended = sent[sends ? size_t(rank) : size_t(1 - rank)];
          const int before = 12 * int(shared) + turn;
          if (sends) {
            ASSERT_EQ(tuttiSend(data, count, tuttiInt32, 1 - rank, comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
            ended = before + 1;
          } else {
            for (int i = 0; ended == before && i < 20'000; ++i) ::usleep(1000);
            ASSERT_GT(ended, before) << "a send waits for its receiver";
            ASSERT_EQ(tuttiRecv(out.data(), count, tuttiInt32, 1 - rank, comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
            for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], turn + 100 * (1 - rank) + int32_t(i));
          }
        }
      }
    }
  });
}

// Who asks for it has smaller calls go through the memory of all ranks, too.
TEST(Repeats, CallsThatAreLargeByRequestAreRight) {
  ::setenv("TUTTI_IN_PLACE_BYTES", "4096", 1);
  test::run_processes(2, {}, [](int rank, tuttiComm_t comm) { large_calls(2, rank, comm, 1024); });
  ::unsetenv("TUTTI_IN_PLACE_BYTES");
}

}  // namespace
}  // namespace tutti
