// Calls through the memory of all ranks: the same bits as by messages, nothing read or written but what the call names,
// and nobody in it once the call is over, however it ends.

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "communicator/c_api.h"
#include "communicator/communicator.h"
#include "communicator/ranks.h"
#include "memory/memory_file.h"
#include "sanitizer.h"

namespace tutti {
namespace {

using test::RanksOptions;

struct Case {
  Collective kind;
  DataType type;
  ReduceOp op;
  size_t count;
  int root;
  bool in_place;

  std::string text(int n, int rank) const {
    return fmt::format("{} {} {} count {} root {}{} rank {} of {}", name(kind), name(type), name(op), count, root,
                       in_place ? " in place" : "", rank, n);
  }
};

// Whole pages of ordinary memory, or of tuttiMemAlloc.
class Buffer {
 public:
  Buffer(size_t bytes, bool shared) : bytes_(bytes), shared_(shared) {
    if (bytes == 0) return;
    if (shared) allocate();
    else memory_ = std::aligned_alloc(4096, whole_pages(bytes));
    std::memset(memory_, 0x5a, bytes);
  }
  ~Buffer() {
    if (shared_) release();
    else std::free(memory_);
  }
  Buffer(const Buffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  std::vector<std::byte> content() const { return {data(), data() + bytes_}; }

 private:
  void allocate() { EXPECT_EQ(tuttiMemAlloc(&memory_, bytes_), tuttiSuccess); }
  void release() { EXPECT_EQ(tuttiMemFree(memory_), tuttiSuccess) << tuttiGetLastError(nullptr); }

  size_t bytes_;
  bool shared_;
  void* memory_ = nullptr;
};

// What a call leaves in both buffers of a rank.
struct Left {
  std::vector<std::byte> first, second;
};

tuttiResult_t call(const Case& c, const void* send, void* recv, tuttiComm_t comm) {
  const auto type = tuttiDataType_t(c.type);
  const auto op = tuttiRedOp_t(c.op);
  switch (c.kind) {
    case Collective::all_reduce: return tuttiAllReduce(send, recv, c.count, type, op, comm, nullptr);
    case Collective::broadcast: return tuttiBroadcast(send, recv, c.count, type, c.root, comm, nullptr);
    case Collective::reduce: return tuttiReduce(send, recv, c.count, type, op, c.root, comm, nullptr);
    case Collective::all_gather: return tuttiAllGather(send, recv, c.count, type, comm, nullptr);
    case Collective::reduce_scatter: return tuttiReduceScatter(send, recv, c.count, type, op, comm, nullptr);
    case Collective::gather: return tuttiGather(send, recv, c.count, type, c.root, comm, nullptr);
    case Collective::scatter: return tuttiScatter(send, recv, c.count, type, c.root, comm, nullptr);
    case Collective::all_to_all: return tuttiAlltoAll(send, recv, c.count, type, comm, nullptr);
    default: return tuttiInternalError;
  }
}

Left run(const Case& c, int n, int rank, tuttiComm_t comm, bool input_shared, bool output_shared) {
  const Meaning& kind = meaning(c.kind);
  const bool is_root = rank == (kind.rooted ? c.root : 0);
  const Part input = kind.input_of(is_root), output = kind.output_of(is_root);
  const size_t width = element_bytes(c.type), block = c.count * width;
  const auto bytes = [&](Part part) {
    return part == Part::none ? 0 : part == Part::all && kind.blocks ? block * size_t(n) : block;
  };
  const bool one = c.in_place && input != Part::none && output != Part::none;
  const size_t own_at = kind.blocks && input != output ? size_t(rank) * block : 0;
  Buffer first(one ? std::max(bytes(input), bytes(output)) : bytes(input), input_shared);
  Buffer second(one ? 0 : bytes(output), output_shared);
  const std::byte* send = first.data();
  std::byte* recv = second.data();
  if (one && output == Part::own) recv = first.data() + own_at;
  else if (one) recv = first.data(), send = first.data() + own_at;
  std::minstd_rand random(unsigned(rank * 977 + int(c.kind) * 31 + int(c.count)));
  for (size_t i = 0; i < bytes(input) / width; ++i) {
    // Floats of many magnitudes, so that another order of addition has other bits.
    const float value = float(random() % 100003) / float(1 + random() % 1009) - 40.0f;
    if (c.type == DataType::float32) std::memcpy(const_cast<std::byte*>(send) + 4 * i, &value, 4);
    else const_cast<std::byte*>(send)[i * width] = std::byte(random());
  }
  EXPECT_EQ(call(c, input == Part::none ? nullptr : send, output == Part::none ? nullptr : recv, comm), tuttiSuccess)
      << c.text(n, rank) << ": " << tuttiGetLastError(comm);
  return {first.content(), second.content()};
}

size_t direct_calls(tuttiComm_t comm) { return communicator_of(comm).shared_path()->direct_calls(); }

// The same by messages and through memory, beside each other.
void check(const Case& c, int n, int rank, tuttiComm_t comm, bool expect_direct) {
  const Left by_messages = run(c, n, rank, comm, false, false);
  const size_t before = direct_calls(comm);
  const Left direct = run(c, n, rank, comm, true, true);
  EXPECT_TRUE(by_messages.first == direct.first) << c.text(n, rank);
  EXPECT_TRUE(by_messages.second == direct.second) << c.text(n, rank);
  if (!expect_direct) return;
  EXPECT_EQ(direct_calls(comm), before + 1) << c.text(n, rank);
}

constexpr Collective kinds[] = {Collective::all_reduce, Collective::broadcast, Collective::reduce,
                                Collective::all_gather, Collective::gather,    Collective::scatter};

void check_all(int n, int rank, tuttiComm_t comm) {
  for (const Collective kind : kinds)
    for (const bool in_place : {false, true}) {
      const bool direct = true;
      for (const size_t count : {size_t{100'003}, size_t{65'536}}) {
        check({kind, DataType::int32, ReduceOp::sum, count, n - 1, in_place}, n, rank, comm, direct);
        check({kind, DataType::float32, ReduceOp::sum, count, 0, in_place}, n, rank, comm, direct && n == 2);
      }
      constexpr size_t large = test::sanitized ? 300'001 : 2'200'001;
      if (meaning(kind).reduces && n <= 3)
        check({kind, DataType::float32, ReduceOp::avg, large, 0, in_place}, n, rank, comm, direct && n == 2);
    }
}

class SharedPaths : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("TUTTI_IN_PLACE_BYTES", "64", 1); }
  void TearDown() override { ::unsetenv("TUTTI_IN_PLACE_BYTES"); }
};

TEST_F(SharedPaths, GiveTheBitsThatMessagesGiveAsThreads) {
  for (const int n : test::sanitized ? std::vector{2, 3} : std::vector{2, 3, 8})
    test::run_threads(n, {}, [n](int rank, tuttiComm_t comm) { check_all(n, rank, comm); });
}

TEST_F(SharedPaths, GiveTheBitsThatMessagesGiveAsProcesses) {
  for (const int n : test::sanitized ? std::vector{3} : std::vector{2, 5})
    test::run_processes(n, {}, [n](int rank, tuttiComm_t comm) { check_all(n, rank, comm); });
}

// Calls that are small enough to be remembered where they go by messages.
TEST_F(SharedPaths, SmallCallsMadeAgainGiveNewResults) {
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    for (const size_t count : {size_t{16}, size_t{700}, size_t{1024}}) {
      Buffer in(count * sizeof(float), true), out(2 * count * sizeof(float), true);
      float* const send = reinterpret_cast<float*>(in.data());
      float* const recv = reinterpret_cast<float*>(out.data());
      for (int round = 0; round < 4; ++round) {
        for (size_t i = 0; i < count; ++i) send[i] = float(i) + float(rank + 10 * round);
        ASSERT_EQ(tuttiAllReduce(send, recv, count, tuttiFloat32, tuttiSum, comm, nullptr), tuttiSuccess);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(recv[i], float(2 * i) + float(1 + 20 * round)) << count;
        ASSERT_EQ(tuttiAllGather(send, recv, count, tuttiFloat32, comm, nullptr), tuttiSuccess);
        for (size_t i = 0; i < 2 * count; ++i) ASSERT_EQ(recv[i], float(i % count) + float(int(i / count) + 10 * round));
        ASSERT_EQ(tuttiBroadcast(send, recv, count, tuttiFloat32, round % 2, comm, nullptr), tuttiSuccess);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(recv[i], float(i) + float(round % 2 + 10 * round));
      }
    }
    EXPECT_GE(direct_calls(comm), 12u);
  });
}

// What several outputs get is stored past the caches where all buffers together exceed the last one. Blocks begin anywhere in a
// cache line.
TEST_F(SharedPaths, GiveTheBitsThatMessagesGivePastTheCaches) {
  test::run_processes(2, {}, [](int rank, tuttiComm_t comm) {
    for (const bool in_place : {false, true})
      check({Collective::all_gather, DataType::int8, ReduceOp::sum, 7'000'001, 0, in_place}, 2, rank, comm, true);
  });
}

// Rank 1's memory is its own: where others need only read what they reach, nothing else is asked for.
TEST_F(SharedPaths, AreTakenAsFarAsTheMemoryOfAllAllows) {
  test::run_processes(3, {}, [](int rank, tuttiComm_t comm) {
    const auto calls = [&](Collective kind, bool input_shared, bool output_shared) {
      const Case c{kind, DataType::int32, ReduceOp::sum, 50'000, 0, false};
      const Left expected = run(c, 3, rank, comm, false, false);
      const size_t before = direct_calls(comm);
      const Left found = run(c, 3, rank, comm, input_shared, output_shared);
      EXPECT_TRUE(expected.second == found.second) << c.text(3, rank);
      return direct_calls(comm) - before;
    };
    EXPECT_EQ(calls(Collective::all_reduce, true, true), 1u);
    EXPECT_EQ(calls(Collective::all_reduce, rank != 1, true), 0u);
    EXPECT_EQ(calls(Collective::all_reduce, true, rank != 1), 0u);
    EXPECT_EQ(calls(Collective::broadcast, true, rank != 1), 1u);
    EXPECT_EQ(calls(Collective::all_gather, true, rank != 1), 1u) << "inputs are read";
    EXPECT_EQ(calls(Collective::all_gather, rank != 1, true), 1u) << "outputs are written";
    EXPECT_EQ(calls(Collective::all_gather, rank != 1, rank != 1), 0u);
    EXPECT_EQ(calls(Collective::gather, true, rank != 1), 1u) << "it has no output";
    EXPECT_EQ(calls(Collective::gather, rank != 1, true), 0u);
  });
}

// What peers write into could not be taken back from them without the rest of its pages.
TEST_F(SharedPaths, WriteOnlyIntoWholePagesOfOthers) {
  test::run_threads(2, {}, [](int, tuttiComm_t comm) {
    void* memory = nullptr;
    ASSERT_EQ(tuttiMemAlloc(&memory, 2'000'000), tuttiSuccess);
    float* const floats = static_cast<float*>(memory);
    const auto calls = [&](size_t first, size_t count) {
      const size_t before = direct_calls(comm);
      EXPECT_EQ(tuttiAllReduce(floats + first, floats + first, count, tuttiFloat32, tuttiSum, comm, nullptr), tuttiSuccess);
      return direct_calls(comm) - before;
    };
    EXPECT_EQ(calls(0, 500'000), 1u);        // to the end of what was asked for
    EXPECT_EQ(calls(1024, 1024 * 64), 1u);   // from page to page
    EXPECT_EQ(calls(1, 1024 * 64), 0u);
    EXPECT_EQ(calls(0, 1024 * 64 + 1), 0u);
    EXPECT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess);
    EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess);
  });
}

TEST_F(SharedPaths, AreSeldomTriedWhereTheyWereRefusedAgainAndAgain) {
  test::run_threads(2, {}, [](int, tuttiComm_t comm) {
    std::vector<float> ordinary(100'000);
    for (int i = 0; i < 100; ++i)
      ASSERT_EQ(tuttiAllReduce(ordinary.data(), ordinary.data(), ordinary.size(), tuttiFloat32, tuttiSum, comm, nullptr),
                tuttiSuccess);
    EXPECT_EQ(direct_calls(comm), 0u);
    void* memory = nullptr;
    ASSERT_EQ(tuttiMemAlloc(&memory, 400'000), tuttiSuccess);
    std::memset(memory, 0, 400'000);
    for (int i = 0; i < 100; ++i)
      ASSERT_EQ(tuttiAllReduce(memory, memory, 100'000, tuttiFloat32, tuttiSum, comm, nullptr), tuttiSuccess);
    EXPECT_GT(direct_calls(comm), 20u);
    EXPECT_LT(direct_calls(comm), 100u);
    EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess);
  });
}

TEST_F(SharedPaths, ACallThatDiffersIsShownOnBothSides) {
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    void* memory = nullptr;
    ASSERT_EQ(tuttiMemAlloc(&memory, 4'000'000), tuttiSuccess);
    const size_t count = rank == 0 ? 1'000'000 : 999'999;
    EXPECT_EQ(tuttiAllReduce(memory, memory, count, tuttiFloat32, tuttiSum, comm, nullptr), tuttiMismatch);
    EXPECT_NE(std::string(tuttiGetLastError(comm)).find("999999"), std::string::npos) << tuttiGetLastError(comm);
    EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess) << tuttiGetLastError(nullptr);
  });
}

// One rank is stopped at a random moment of many calls. When the other's call has failed, its memory is its own: what the
// stopped one does when it goes on, it does elsewhere.
TEST_F(SharedPaths, NobodyWritesIntoTheMemoryOfACallThatHasFailed) {
  const int rounds = test::sanitized ? 2 : 8;
  for (int round = 0; round < rounds; ++round) {
    RanksOptions options;
    options.timeout_ms = 1000;
    int started[2], go_on[2];
    ASSERT_EQ(::pipe(started), 0);
    ASSERT_EQ(::pipe(go_on), 0);
    test::Processes processes(2, options, [&](int rank, tuttiComm_t comm) {
      constexpr size_t bytes = size_t{8} << 20;
      void* memory = nullptr;
      ASSERT_EQ(tuttiMemAlloc(&memory, bytes), tuttiSuccess);
      std::memset(memory, 0, bytes);
      tuttiResult_t result = tuttiSuccess;
      const auto call = [&] { result = tuttiAllReduce(memory, memory, bytes / 4, tuttiFloat32, tuttiSum, comm, nullptr); };
      for (int i = 0; i < 3; ++i) call();
      EXPECT_EQ(result, tuttiSuccess) << tuttiGetLastError(comm);
      EXPECT_GT(direct_calls(comm), 0u);
      char told = 1;
      if (rank == 0) {
        ASSERT_EQ(::write(started[1], &told, 1), 1);
      }
      while (result == tuttiSuccess) call();
      if (rank == 1) return;
      std::memset(memory, 0x77, bytes);
      ASSERT_EQ(::write(go_on[1], &told, 1), 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(150));  // the other goes on meanwhile
      const auto* const found = static_cast<const unsigned char*>(memory);
      size_t changed = 0;
      for (size_t i = 0; i < bytes; ++i) changed += found[i] != 0x77;
      EXPECT_EQ(changed, 0u) << "of " << bytes << " bytes";
      EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess) << tuttiGetLastError(nullptr);
    });
    for (const int fd : {started[1], go_on[1]}) ::close(fd);  // where a process ends early, nothing comes
    char told = 0;
    ASSERT_EQ(::read(started[0], &told, 1), 1);
    std::this_thread::sleep_for(std::chrono::microseconds(20'000 + round * 1373));
    ::kill(processes.pid(1), SIGSTOP);
    ASSERT_EQ(::read(go_on[0], &told, 1), 1);
    ::kill(processes.pid(1), SIGCONT);
    EXPECT_EQ(processes.wait(0), 0) << "round " << round;
    for (const int fd : {started[0], go_on[0]}) ::close(fd);
  }
}

}  // namespace
}  // namespace tutti
