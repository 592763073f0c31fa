// What may go wrong on a device, on whatever devices TUTTI_DEVICE names, by the public calls alone: in every build on
// simulated ones, on a machine with GPUs, by ./dev gpu, on these. After each fault the devices are as usable as before.
#include "device/platform.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "communicator/ranks.h"
#include "tutti/tutti.h"

namespace tutti {
namespace {

using test::RanksOptions;

void must(const Outcome& outcome) { ASSERT_TRUE(outcome.ok()) << outcome.sentence; }
void must(tuttiResult_t result) { ASSERT_EQ(result, tuttiSuccess) << tuttiGetLastError(nullptr); }

Platform& platform() { return *find_platform().platform; }
Device& device_of(int rank) { return platform().device(rank % platform().count()); }

// Ranks take the devices in turn; named: they say so when they join, and so reach each other's memory.
RanksOptions options(bool named, int timeout_ms = 20'000) {
  RanksOptions options;
  options.timeout_ms = timeout_ms;
  if (named) options.device = [](int rank) { return device_of(rank).number(); };
  return options;
}

class Buffer {
 public:
  Buffer(Device& device, size_t count, int value) : device_(device), count_(count) {
    void* data = nullptr;
    must(device.allocate(count * sizeof(int), &data));
    data_ = static_cast<int*>(data);
    const std::vector<int> values(count, value);
    must(device.copy(nullptr, data_, values.data(), count * sizeof(int)));
    must(device.wait_stream(nullptr));
  }
  ~Buffer() { must(device_.free(data_)); }
  Buffer(const Buffer&) = delete;
  int* data() const { return data_; }
  std::vector<int> values() const {
    std::vector<int> values(count_);
    must(device_.copy(nullptr, values.data(), data_, count_ * sizeof(int)));
    must(device_.wait_stream(nullptr));
    return values;
  }

 private:
  Device& device_;
  size_t count_;
  int* data_ = nullptr;
};

class OnStream {
 public:
  explicit OnStream(Device& device) : device_(device) { must(device.create_stream(&stream_)); }
  ~OnStream() { must(device_.destroy_stream(stream_)); }
  OnStream(const OnStream&) = delete;
  DeviceStream get() const { return stream_; }
  operator tuttiStream_t() const { return reinterpret_cast<tuttiStream_t>(stream_); }
  void wait() const { must(device_.wait_stream(stream_)); }

 private:
  Device& device_;
  DeviceStream stream_ = nullptr;
};

// A word of the host that streams wait for.
class Flag {
 public:
  Flag() {
    void* word = nullptr;
    must(platform().allocate_host(4096, &word));
    word_ = static_cast<uint32_t*>(word);
  }
  ~Flag() { must(platform().free_host(word_)); }
  Flag(const Flag&) = delete;
  const uint32_t* word() const { return word_; }
  void set() { std::atomic_ref(*word_).store(1, std::memory_order_release); }

 private:
  uint32_t* word_ = nullptr;
};

tuttiResult_t state_of(tuttiComm_t comm) {
  tuttiResult_t state = tuttiSuccess;
  must(tuttiCommGetAsyncError(comm, &state));
  return state;
}
// What a call's end is, once the stream has passed it.
tuttiResult_t all_reduce(const Buffer& buffer, size_t count, tuttiComm_t comm, const OnStream& stream) {
  const tuttiResult_t result = tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiInt32, tuttiMax, comm, stream);
  stream.wait();
  return result == tuttiSuccess ? state_of(comm) : result;
}
tuttiResult_t await_failure(tuttiComm_t comm) {
  for (int i = 0; i < 3000 && state_of(comm) == tuttiSuccess; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return state_of(comm);
}

// A communicator of its own, small and large sums. (Memory is had and given back while no call runs: on a device that ranks
// share, giving it back may wait for others' calls.)
void expect_usable(int ranks, bool named) {
  test::run_threads(ranks, options(named), [ranks](int rank, tuttiComm_t comm) {
    const OnStream stream(device_of(rank));
    const Buffer small(device_of(rank), 100, rank + 1), large(device_of(rank), 300'000, rank + 1);
    must(tuttiAllReduce(small.data(), small.data(), 100, tuttiInt32, tuttiSum, comm, stream));
    must(tuttiAllReduce(large.data(), large.data(), 300'000, tuttiInt32, tuttiSum, comm, stream));
    stream.wait();
    EXPECT_EQ(small.values(), std::vector<int>(100, ranks * (ranks + 1) / 2));
    EXPECT_EQ(large.values(), std::vector<int>(300'000, ranks * (ranks + 1) / 2));
  });
}

// --- Processes. First of all, while this one has not asked for a device: what is forked later could not use a GPU.

TEST(AnyDeviceProcesses, TellOfAKilledPeerAndGoOn) {
  RanksOptions three;
  three.timeout_ms = 30'000;
  three.device = [](int rank) { return device_of(rank).number(); };
  test::Processes processes(3, three, [](int rank, tuttiComm_t comm) {
    {
      const OnStream stream(device_of(rank));
      const Buffer buffer(device_of(rank), 300'000, rank);
      tuttiResult_t result = tuttiSuccess;
      for (int i = 0; result == tuttiSuccess && i < 1'000'000; ++i) {
        if (rank == 1 && i == 20) ::raise(SIGKILL);
        result = all_reduce(buffer, 300'000, comm, stream);
      }
      EXPECT_EQ(result, tuttiRemoteError);
      EXPECT_NE(std::string(tuttiGetLastError(comm)).find("rank 1"), std::string::npos) << tuttiGetLastError(comm);
    }
    EXPECT_FALSE(device_of(rank).is_lost());
    const Buffer after(device_of(rank), 10, 3);
    EXPECT_EQ(after.values(), std::vector<int>(10, 3));
  });
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(2), 0);
  EXPECT_TRUE(WIFSIGNALED(processes.wait(1)));
}

// --- Threads: by peers (true) and by way of the host (false).

class AnyDevice : public ::testing::TestWithParam<bool> {
 protected:
  void TearDown() override { expect_usable(3, GetParam()); }
};

// Sums that are right only where each call comes after the one before on its own stream.
TEST_P(AnyDevice, TwoStreamsOfTwoCommunicatorsUnderStress) {
  constexpr int rounds = 60;
  test::run_threads(3, options(GetParam(), 60'000), [](int rank, tuttiComm_t comm) {
    tuttiComm_t other = nullptr;
    must(tuttiCommSplit(comm, 0, rank, &other, nullptr));
    Device& device = device_of(rank);
    const OnStream streams[2] = {OnStream(device), OnStream(device)};
    const size_t counts[] = {60, 5'000, 200'000};
    const Buffer a(device, 200'000, 1), b(device, 200'000, 2);
    std::mt19937 same(7);  // on all ranks
    uint32_t expected[2][3] = {{1, 1, 1}, {2, 2, 2}};  // of the elements up to each count
    for (int i = 0; i < rounds; ++i) {
      const size_t which = same() % 2, size = same() % 3;
      must(tuttiAllReduce((which == 0 ? a : b).data(), (which == 0 ? a : b).data(), counts[size], tuttiInt32, tuttiSum,
                          which == 0 ? comm : other, streams[which]));
      for (size_t k = 0; k <= size; ++k) expected[which][k] *= 3;
    }
    for (const OnStream& stream : streams) stream.wait();
    for (size_t which = 0; which < 2; ++which) {
      const std::vector<int> values = (which == 0 ? a : b).values();
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t part = size_t(std::upper_bound(std::begin(counts), std::end(counts), i) - std::begin(counts));
        ASSERT_EQ(uint32_t(values[i]), expected[which][part]) << "element " << i << " of buffer " << which;
      }
    }
    EXPECT_EQ(state_of(comm), tuttiSuccess);
    must(tuttiCommDestroy(other));
  });
}

// One rank's stream is held up, so that others' kernels, where they wait for it inside, wait. As long as it is, nobody can
// know that its device will not reach their buffers: they wait for that too, up to their timeout.
TEST_P(AnyDevice, AnAbortEndsKernelsThatWaitAndFreesTheStreams) {
  for (const size_t count : {size_t{1000}, size_t{300'000}}) {
    Flag held;
    std::atomic<int> through{0};
    std::barrier<> all_begun(3);
    test::run_threads(3, options(GetParam(), 2000), [&](int rank, tuttiComm_t comm) {
      Device& device = device_of(rank);
      const OnStream stream(device);
      const Buffer buffer(device, count, rank);
      EXPECT_EQ(all_reduce(buffer, count, comm, stream), tuttiSuccess);
      all_begun.arrive_and_wait();
      if (rank == 2) must(device.wait_flag(stream.get(), held.word(), 1));
      must(tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiInt32, tuttiMax, comm, stream));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (rank == 0) must(tuttiCommAbort(comm));
      EXPECT_EQ(await_failure(comm), tuttiAborted) << tuttiGetLastError(comm);
      if (rank != 2) stream.wait();  // it goes on, whatever rank 2's stream does
      if (++through == 3) held.set();
      stream.wait();
      EXPECT_EQ(tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiInt32, tuttiMax, comm, stream), tuttiAborted);
    });
  }
}

// At any moment of a train of calls.
TEST_P(AnyDevice, AnAbortInTheMidstOfManyCallsEndsThem) {
  std::mt19937 random(11);
  for (int turn = 0; turn < 4; ++turn) {
    const auto after = std::chrono::microseconds(random() % 20'000);
    std::barrier<> all_begun(3);
    test::run_threads(3, options(GetParam()), [&](int rank, tuttiComm_t comm) {
      Device& device = device_of(rank);
      const OnStream stream(device);
      const Buffer buffer(device, 300'000, rank);
      EXPECT_EQ(all_reduce(buffer, 300'000, comm, stream), tuttiSuccess);
      all_begun.arrive_and_wait();
      std::jthread aborts;
      if (rank == 1) aborts = std::jthread([&] {
        std::this_thread::sleep_for(after);
        must(tuttiCommAbort(comm));
      });
      tuttiResult_t result = tuttiSuccess;
      for (int i = 0; i < 100'000 && result == tuttiSuccess; ++i)
        result = all_reduce(buffer, i % 2 == 0 ? 500 : 300'000, comm, stream);
      EXPECT_EQ(result, tuttiAborted) << tuttiGetLastError(comm);
      stream.wait();
    });
  }
}

// All of a device's memory is taken: a call that needs some says so on every rank, with sizes.
TEST_P(AnyDevice, OutOfMemoryIsToldWithItsSizes) {
  constexpr size_t count = 2'000'000;
  test::run_threads(2, options(GetParam()), [](int rank, tuttiComm_t comm) {
    Device& device = device_of(rank);
    const OnStream stream(device);
    const Buffer buffer(device, count, rank);
    std::vector<void*> taken;  // before the first call, for later ones use what it had
    if (rank == 1)
      for (size_t bytes = size_t{1} << 34; bytes >= size_t{64} << 10; bytes /= 2) {
        void* more = nullptr;
        while (device.allocate(bytes, &more).ok()) taken.push_back(more);
      }
    must(tuttiBarrier(comm, nullptr));
    // Inputs that are multiplied before are made aside.
    const int two = 2;
    tuttiRedOp_t doubled{};
    must(tuttiRedOpCreatePreMulSum(&doubled, const_cast<int*>(&two), tuttiInt32, tuttiScalarHostImmediate, comm));
    const tuttiResult_t result = tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiInt32, doubled, comm, stream);
    stream.wait();
    EXPECT_EQ(result == tuttiSuccess ? await_failure(comm) : result, tuttiDeviceError);
    EXPECT_NE(std::string(tuttiGetLastError(comm)).find("out of memory"), std::string::npos) << tuttiGetLastError(comm);
    for (void* pointer : taken) must(device.free(pointer));
    EXPECT_FALSE(device.is_lost());
  });
}

TEST_P(AnyDevice, WrongPointersAreNamedAndTheCommunicatorGoesOn) {
  test::run_threads(2, options(GetParam()), [](int rank, tuttiComm_t comm) {
    Device& device = device_of(rank);
    const OnStream stream(device);
    const Buffer buffer(device, 1000, rank), little(device, 10, rank);
    EXPECT_EQ(all_reduce(buffer, 1000, comm, stream), tuttiSuccess);
    const auto expect_refused = [&](int* pointer, size_t count, const std::string& words) {
      EXPECT_EQ(tuttiAllReduce(buffer.data(), pointer, count, tuttiInt32, tuttiMax, comm, stream), tuttiInvalidArgument);
      const std::string sentence = tuttiGetLastError(comm);
      EXPECT_NE(sentence.find("recvbuff"), std::string::npos) << sentence;
      EXPECT_NE(sentence.find(words), std::string::npos) << sentence;
    };
    int* freed = nullptr;
    {
      // Alone in its allocation, and large, so that the driver gives it back at once.
      const Buffer gone(device, 4 << 20, 0);
      freed = gone.data();
    }
    expect_refused(freed, 1000, "freed");
    expect_refused(little.data(), 1000, "ends beyond its allocation");
    expect_refused(reinterpret_cast<int*>(uintptr_t{64}), 1000, "neither memory of a device");
    must(tuttiBarrier(comm, nullptr));  // all have given back what they give back
    EXPECT_EQ(all_reduce(buffer, 1000, comm, stream), tuttiSuccess);
    EXPECT_EQ(buffer.values(), std::vector<int>(1000, 1));
  });
}

TEST_P(AnyDevice, APointerOfAnotherDeviceIsNamedAndTheCommunicatorGoesOn) {
  if (platform().count() < 2) GTEST_SKIP() << "there is but one device";
  test::run_threads(2, options(GetParam()), [](int rank, tuttiComm_t comm) {
    const OnStream stream(device_of(rank));
    const Buffer buffer(device_of(rank), 1000, rank), elsewhere(device_of(rank + 1), 1000, rank);
    EXPECT_EQ(all_reduce(buffer, 1000, comm, stream), tuttiSuccess);
    EXPECT_EQ(tuttiAllReduce(buffer.data(), elsewhere.data(), 1000, tuttiInt32, tuttiMax, comm, stream), tuttiInvalidArgument);
    const std::string sentence = tuttiGetLastError(comm);
    for (const int number : {device_of(rank).number(), device_of(rank + 1).number()})
      EXPECT_NE(sentence.find("device " + std::to_string(number)), std::string::npos) << sentence;
    EXPECT_EQ(all_reduce(buffer, 1000, comm, stream), tuttiSuccess);
  });
}

INSTANTIATE_TEST_SUITE_P(All, AnyDevice, ::testing::Values(false, true),
                         [](const auto& p) { return std::string(p.param ? "by_peers" : "by_the_host"); });

}  // namespace
}  // namespace tutti
