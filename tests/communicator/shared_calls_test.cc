// Calls through the memory of all ranks beside everything that may stand around them: any number of ranks, groups, streams,
// prepared calls, sub-communicators, windows, forks, traces, determinism, memory that comes and goes, ranks that die.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <latch>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/c_api.h"
#include "communicator/communicator.h"
#include "communicator/ranks.h"
#include "memory/memory_file.h"
#include "sanitizer.h"

namespace tutti {
namespace {

using test::RanksOptions;

constexpr size_t count = 100'003;  // floats: pages and a part, that no number of ranks divides

class Floats {
 public:
  explicit Floats(size_t n = count) : n_(n) {
    void* memory = nullptr;
    EXPECT_EQ(tuttiMemAlloc(&memory, n * sizeof(float)), tuttiSuccess);
    data_ = static_cast<float*>(memory);
  }
  ~Floats() { EXPECT_EQ(tuttiMemFree(data_), tuttiSuccess) << tuttiGetLastError(nullptr); }
  Floats(const Floats&) = delete;
  float* data() const { return data_; }
  // Exact in any order: small whole numbers, divided by 8.
  void fill(int rank, int call) const {
    for (size_t i = 0; i < n_; ++i) data_[i] = given(rank, call, i);
  }
  static float given(int rank, int call, size_t i) { return float((i * 7 + size_t(rank) * 13 + size_t(call)) % 1021) / 8; }
  // Elements that are not the sum over `ranks`.
  size_t wrong(const std::vector<int>& ranks, int call) const {
    size_t differ = 0;
    for (size_t i = 0; i < n_; ++i) {
      float sum = 0;
      for (const int rank : ranks) sum += given(rank, call, i);
      differ += data_[i] != sum;
    }
    return differ;
  }

 private:
  size_t n_;
  float* data_ = nullptr;
};

size_t direct_calls(tuttiComm_t comm) { return communicator_of(comm).shared_path()->direct_calls(); }

// The greatest is the same in any order, so that calls go this way whatever the number of ranks.
tuttiResult_t greatest(const float* input, float* output, tuttiComm_t comm, tuttiStream_t stream = nullptr, size_t n = count) {
  return tuttiAllReduce(input, output, n, tuttiFloat32, tuttiMax, comm, stream);
}

class SharedCalls : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("TUTTI_IN_PLACE_BYTES", "64", 1); }
  void TearDown() override { ::unsetenv("TUTTI_IN_PLACE_BYTES"); }
};

size_t wrong_greatest(const Floats& found, int n, int call, size_t elements = count) {
  size_t differ = 0;
  for (size_t i = 0; i < elements; ++i) {
    float most = 0;
    for (int r = 0; r < n; ++r) most = std::max(most, Floats::given(r, call, i));
    differ += found.data()[i] != most;
  }
  return differ;
}

TEST_F(SharedCalls, ServeEveryNumberOfRanksSomeOfThemInPlace) {
  for (int n = 2; n <= (test::sanitized ? 5 : 8); ++n)
    test::run_threads(n, {}, [n](int rank, tuttiComm_t comm) {
      Floats input, output;
      for (int call = 0; call < 1 << std::min(n, 3); ++call) {
        const bool in_place = rank < 3 && (call >> rank & 1) != 0;
        (in_place ? output : input).fill(rank, call);
        EXPECT_EQ(greatest(in_place ? output.data() : input.data(), output.data(), comm), tuttiSuccess) << tuttiGetLastError(comm);
        EXPECT_EQ(wrong_greatest(output, n, call), 0u) << "rank " << rank << " of " << n << ", call " << call;
      }
      EXPECT_EQ(direct_calls(comm), size_t{1} << std::min(n, 3));
    });
}

// Bits, not only values: sums of floats that no order but the canonical one adds alike.
TEST_F(SharedCalls, GiveTheBitsOfMessagesWhateverTheDeterminism) {
  for (const int determinism : {0, 1, 2})
    for (const int n : {2, 3, 6}) {
      RanksOptions options;
      options.determinism = determinism;
      test::run_threads(n, options, [&](int rank, tuttiComm_t comm) {
        Floats input, output;
        for (const tuttiRedOp_t op : {tuttiSum, tuttiAvg}) {
          for (size_t i = 0; i < count; ++i)
            input.data()[i] = std::ldexp(1.0f + float(i % 8191) / 8192, int((i * 31 + size_t(rank) * 17) % 40) - 20);
          std::vector<float> ordinary(input.data(), input.data() + count), expected(count);
          EXPECT_EQ(tuttiAllReduce(ordinary.data(), expected.data(), count, tuttiFloat32, op, comm, nullptr), tuttiSuccess);
          const size_t before = direct_calls(comm);
          EXPECT_EQ(tuttiAllReduce(input.data(), output.data(), count, tuttiFloat32, op, comm, nullptr), tuttiSuccess);
          EXPECT_EQ(std::memcmp(output.data(), expected.data(), count * sizeof(float)), 0) << n << " ranks, " << determinism;
          const bool same_way = communicator_of(comm).algorithm_for(Collective::all_reduce, count * 4) == "two_shot";
          EXPECT_EQ(direct_calls(comm) - before, determinism != 2 && (n == 2 || same_way) ? 1u : 0u) << n << " " << determinism;
        }
      });
    }
}

TEST_F(SharedCalls, OfTwoCommunicatorsAndMessagesProgressInOneGroup) {
  test::run_processes(3, {}, [](int rank, tuttiComm_t comm) {
    tuttiComm_t other = nullptr;
    ASSERT_EQ(tuttiCommSplit(comm, 0, -rank, &other, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
    Floats a, b, c, out;
    std::vector<int> sent(1000, rank), received(1000, -1);
    for (int call = 0; call < 4; ++call) {
      a.fill(rank, call), b.fill(rank, call + 50), c.fill(rank, call + 90);
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      // In orders that differ between ranks.
      if (rank == 1) {
        EXPECT_EQ(greatest(b.data(), b.data(), other), tuttiSuccess);
      }
      EXPECT_EQ(tuttiRecv(received.data(), 1000, tuttiInt32, (rank + 2) % 3, comm, nullptr), tuttiSuccess);
      EXPECT_EQ(greatest(a.data(), out.data(), comm), tuttiSuccess);
      EXPECT_EQ(tuttiSend(sent.data(), 1000, tuttiInt32, (rank + 1) % 3, comm, nullptr), tuttiSuccess);
      EXPECT_EQ(greatest(c.data(), c.data(), comm), tuttiSuccess);
      if (rank != 1) {
        EXPECT_EQ(greatest(b.data(), b.data(), other), tuttiSuccess);
      }
      ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(comm);
      EXPECT_EQ(wrong_greatest(out, 3, call) + wrong_greatest(b, 3, call + 50) + wrong_greatest(c, 3, call + 90), 0u);
      EXPECT_EQ(received, std::vector<int>(1000, (rank + 2) % 3));
    }
    EXPECT_EQ(direct_calls(comm), 8u);
    EXPECT_EQ(direct_calls(other), 4u);
    EXPECT_EQ(tuttiCommDestroy(other), tuttiSuccess);
  });
}

TEST_F(SharedCalls, OnStreamsAndPreparedFollowEachOther) {
  test::run_threads(3, {}, [](int rank, tuttiComm_t comm) {
    tuttiStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), tuttiSuccess);
    Floats first, second, third;
    first.fill(rank, 1);
    // Each reads what the one before it wrote.
    EXPECT_EQ(greatest(first.data(), second.data(), comm, stream), tuttiSuccess);
    EXPECT_EQ(greatest(second.data(), third.data(), comm, stream), tuttiSuccess);
    EXPECT_EQ(greatest(third.data(), third.data(), comm, stream), tuttiSuccess);
    EXPECT_EQ(tuttiStreamSynchronize(stream), tuttiSuccess) << tuttiGetLastError(comm);
    EXPECT_EQ(wrong_greatest(third, 3, 1), 0u);
    tuttiPrepared_t prepared = nullptr;
    ASSERT_EQ(tuttiPrepareStart(), tuttiSuccess);
    EXPECT_EQ(greatest(first.data(), second.data(), comm), tuttiSuccess);
    ASSERT_EQ(tuttiPrepareEnd(&prepared), tuttiSuccess);
    for (int call = 0; call < 4; ++call) {
      first.fill(rank, call);
      EXPECT_EQ(tuttiPreparedStart(prepared, call % 2 == 0 ? nullptr : stream), tuttiSuccess) << tuttiGetLastError(comm);
      EXPECT_EQ(tuttiStreamSynchronize(stream), tuttiSuccess);
      EXPECT_EQ(wrong_greatest(second, 3, call), 0u) << call;
    }
    EXPECT_EQ(direct_calls(comm), 7u);
    EXPECT_EQ(tuttiPreparedDestroy(prepared), tuttiSuccess);
    EXPECT_EQ(tuttiStreamDestroy(stream), tuttiSuccess);
  });
}

TEST_F(SharedCalls, OfSubCommunicatorsStayAmongTheirRanks) {
  test::run_processes(5, {}, [](int rank, tuttiComm_t comm) {
    tuttiComm_t part = nullptr;
    ASSERT_EQ(tuttiCommSplit(comm, rank % 2, rank, &part, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
    const std::vector<int> members = rank % 2 == 0 ? std::vector{0, 2, 4} : std::vector{1, 3};
    Floats input, output;
    for (int call = 0; call < 5; ++call) {
      input.fill(rank, call);
      EXPECT_EQ(tuttiAllReduce(input.data(), output.data(), count, tuttiFloat32, tuttiSum, part, nullptr), tuttiSuccess);
      EXPECT_EQ(output.wrong(members, call), 0u);
      EXPECT_EQ(greatest(input.data(), output.data(), comm), tuttiSuccess);
      EXPECT_EQ(wrong_greatest(output, 5, call), 0u);
    }
    EXPECT_EQ(direct_calls(comm), 5u);
    EXPECT_EQ(tuttiCommDestroy(part), tuttiSuccess);
  });
}

// Nobody but its owner writes where a window is open; what lies in no whole pages goes by messages too.
TEST_F(SharedCalls, LeaveWindowsAndPartsOfPagesAlone) {
  test::run_threads(2, {}, [](int rank, tuttiComm_t comm) {
    Floats memory;
    tuttiWindow_t window = nullptr;
    ASSERT_EQ(tuttiCommWindowRegister(comm, memory.data(), count * sizeof(float), &window), tuttiSuccess);
    memory.fill(rank, 3);
    EXPECT_EQ(greatest(memory.data(), memory.data(), comm), tuttiSuccess);
    EXPECT_EQ(wrong_greatest(memory, 2, 3), 0u);
    EXPECT_EQ(direct_calls(comm), 0u);
    EXPECT_EQ(tuttiCommWindowDeregister(comm, window), tuttiSuccess);
    memory.fill(rank, 4);
    EXPECT_EQ(greatest(memory.data(), memory.data(), comm), tuttiSuccess);
    EXPECT_EQ(wrong_greatest(memory, 2, 4), 0u);
    EXPECT_EQ(direct_calls(comm), 1u);
    memory.fill(rank, 5);
    EXPECT_EQ(greatest(memory.data() + 3, memory.data() + 3, comm, nullptr, count - 5), tuttiSuccess);
    EXPECT_EQ(memory.data()[0], Floats::given(rank, 5, 0));
    EXPECT_EQ(memory.data()[count - 1], Floats::given(rank, 5, count - 1));
    EXPECT_EQ(direct_calls(comm), 1u);
  });
}

TEST_F(SharedCalls, ReachMemoryThatComesAndGoesAndForks) {
  test::run_processes(2, {}, [](int rank, tuttiComm_t comm) {
    for (int call = 0; call < 30; ++call) {
      const size_t n = size_t{20'000} << (call % 7);  // of regions that are shared, and of their own
      Floats input(n), output(n);
      input.fill(rank, call);
      pid_t child = -1;
      if (call % 10 == 5 && (child = ::fork()) == 0) ::_exit(0);
      EXPECT_EQ(greatest(input.data(), output.data(), comm, nullptr, n), tuttiSuccess) << tuttiGetLastError(comm);
      if (child > 0) ::waitpid(child, nullptr, 0);
      ASSERT_EQ(wrong_greatest(output, 2, call, n), 0u) << call;
    }
    EXPECT_EQ(direct_calls(comm), 30u);
  });
}

TEST_F(SharedCalls, AreTraced) {
  const auto folder = std::filesystem::temp_directory_path() / ("tutti-shared-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  ::setenv("TUTTI_TRACE", (folder / "t").c_str(), 1);
  test::run_processes(3, {}, [](int rank, tuttiComm_t comm) {
    Floats memory(2'000'000);  // more than is done between two looks
    memory.fill(rank, 2);
    EXPECT_EQ(greatest(memory.data(), memory.data(), comm, nullptr, 2'000'000), tuttiSuccess);
    EXPECT_EQ(wrong_greatest(memory, 3, 2, 2'000'000), 0u);
    EXPECT_EQ(direct_calls(comm), 1u);
  });
  ::unsetenv("TUTTI_TRACE");
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files += entry.file_size() > 100;
  EXPECT_EQ(files, 3u);
  std::filesystem::remove_all(folder);
}

// Threads of one process write into each other's memory: when a call is over for one, its memory can be unmapped at once.
TEST_F(SharedCalls, ThatAreAbortedAreOverWhenTheyReturn) {
  for (int round = 0; round < (test::sanitized ? 3 : 10); ++round) {
    std::latch begun(3);  // whose first call is over: that one is not to be aborted
    test::run_threads(3, {}, [round, &begun](int rank, tuttiComm_t comm) {
      constexpr size_t n = size_t{1} << 20;
      std::jthread aborts;
      {
        Floats memory(n);
        std::memset(memory.data(), 0, n * 4);
        EXPECT_EQ(greatest(memory.data(), memory.data(), comm, nullptr, n), tuttiSuccess);
        begun.count_down();
        if (rank == 0)
          aborts = std::jthread([comm, round, &begun] {
            begun.wait();
            std::this_thread::sleep_for(std::chrono::microseconds(300 + 137 * round));
            communicator_of(comm).abort();
          });
        tuttiResult_t result = tuttiSuccess;
        while (result == tuttiSuccess) result = greatest(memory.data(), memory.data(), comm, nullptr, n);
        EXPECT_EQ(result, tuttiAborted) << tuttiGetLastError(comm);
      }
    });
  }
}

// A rank is killed somewhere in a call. The others' memory is theirs when they return, and they know soon.
TEST_F(SharedCalls, LeaveTheMemoryOfTheLivingAloneWhenARankIsKilled) {
  const int rounds = test::sanitized ? 2 : 8;
  for (int round = 0; round < rounds; ++round) {
    int started[2];
    ASSERT_EQ(::pipe(started), 0);
    test::Processes processes(4, {}, [&](int rank, tuttiComm_t comm) {
      constexpr size_t n = size_t{2} << 20;
      Floats memory(n);
      std::memset(memory.data(), 0, n * 4);
      tuttiResult_t result = greatest(memory.data(), memory.data(), comm, nullptr, n);
      char told = 1;
      if (rank == 0) {
        ASSERT_EQ(::write(started[1], &told, 1), 1);
      }
      while (result == tuttiSuccess) result = greatest(memory.data(), memory.data(), comm, nullptr, n);
      EXPECT_EQ(result, tuttiRemoteError) << tuttiGetLastError(comm);
      std::memset(memory.data(), 0x77, n * 4);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      size_t changed = 0;
      for (size_t i = 0; i < n * 4; ++i) changed += reinterpret_cast<const unsigned char*>(memory.data())[i] != 0x77;
      EXPECT_EQ(changed, 0u);
    });
    ::close(started[1]);
    char told = 0;
    ASSERT_EQ(::read(started[0], &told, 1), 1);
    std::this_thread::sleep_for(std::chrono::microseconds(1000 + round * 1373));
    ::kill(processes.pid(2), SIGKILL);
    for (const int rank : {0, 1, 3}) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank << ", round " << round;
    ::close(started[0]);
  }
}

}  // namespace
}  // namespace tutti
