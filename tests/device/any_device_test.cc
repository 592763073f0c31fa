// What may go wrong on a device, on whatever devices TUTTI_DEVICE names, by the public calls alone: in every build on
// simulated ones, on a machine with GPUs, by ./dev gpu, on these. After each fault the devices are as usable as before.
#include "device/platform.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
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
  // By a stream of its own.
  void fill(int value) const {
    const std::vector<int> values(count_, value);
    DeviceStream stream = nullptr;
    must(device_.create_stream(&stream));
    must(device_.copy(stream, data_, values.data(), count_ * sizeof(int)));
    must(device_.wait_stream(stream));
    must(device_.destroy_stream(stream));
  }
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

// What the tests' calls launch is there from here on: where a test holds a stream up, what is loaded then might wait for it.
void load_kernels(Device& device) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) device.prepare(DataType::int32, op);
}

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

// How a call has ended that has returned so: where it returned at once, it is over when a call on no stream has had its turn.
tuttiResult_t end_of(tuttiResult_t returned, tuttiComm_t comm) {
  return returned == tuttiSuccess ? tuttiBarrier(comm, nullptr) : returned;
}

// Aborts in a while.
std::jthread aborts_after(std::chrono::microseconds time, tuttiComm_t comm) {
  return std::jthread([time, comm] {
    std::this_thread::sleep_for(time);
    must(tuttiCommAbort(comm));
  });
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

TEST(AnyDeviceProcesses, EndACallThatAStreamHasNotComeTo) {
  RanksOptions two;
  two.timeout_ms = 60'000;
  two.device = [](int rank) { return device_of(rank).number(); };
  test::run_processes(2, two, [](int rank, tuttiComm_t comm) {
    Flag held;
    const OnStream stream(device_of(rank));
    const Buffer buffer(device_of(rank), 300'000, rank);
    EXPECT_EQ(all_reduce(buffer, 300'000, comm, stream), tuttiSuccess);
    if (rank == 1) must(device_of(rank).wait_flag(stream.get(), held.word(), 1));
    std::jthread aborts;
    if (rank == 0) aborts = aborts_after(std::chrono::milliseconds(50), comm);
    const auto begun_at = std::chrono::steady_clock::now();
    EXPECT_EQ(end_of(tuttiAllReduce(buffer.data(), buffer.data(), 300'000, tuttiInt32, tuttiMax, comm, stream), comm), tuttiAborted);
    EXPECT_LT(std::chrono::steady_clock::now() - begun_at, std::chrono::seconds(5));
    held.set();
    stream.wait();
    EXPECT_EQ(buffer.values(), std::vector<int>(300'000, 1)) << "as the first call left it";
  });
}

// --- Threads: by peers (true) and by way of the host (false).

class AnyDevice : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (find_platform().platform == nullptr) GTEST_SKIP() << "no device: TUTTI_DEVICE=simulated makes some";
  }
  void TearDown() override {
    if (find_platform().platform != nullptr) expect_usable(3, GetParam());
  }
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

// Whether streams wait for calls, and calls return at once.
bool streams_wait() {
  const char* const asked = std::getenv("TUTTI_DEVICE_ASYNC");
  return asked != nullptr && std::string(asked) == "1";
}

// Else a call that has returned is over, whatever stream its result is looked at on.
TEST_P(AnyDevice, ACallIsOverWhenItReturns) {
  if (streams_wait()) GTEST_SKIP() << "streams wait for calls";
  test::run_threads(3, options(GetParam()), [](int rank, tuttiComm_t comm) {
    for (const size_t count : {size_t{100}, size_t{2'000'000}}) {
      const OnStream stream(device_of(rank));
      const Buffer buffer(device_of(rank), count, rank + 1);
      must(tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiInt32, tuttiSum, comm, stream));
      EXPECT_EQ(buffer.values(), std::vector<int>(count, 6));
      must(tuttiBarrier(comm, nullptr));  // nobody gives memory back beside others' calls
    }
  });
}

// Each with a stream of its own: the group is over when all are.
TEST_P(AnyDevice, OneThreadDrivesAllRanksInAGroup) {
  constexpr int ranks = 3;
  tuttiComm_t comms[ranks] = {};
  int devices[ranks];
  for (int r = 0; r < ranks; ++r) devices[r] = device_of(r).number();
  must(tuttiCommInitAll(comms, ranks, devices));
  {
    std::vector<std::unique_ptr<OnStream>> streams;
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (int r = 0; r < ranks; ++r) {
      streams.push_back(std::make_unique<OnStream>(device_of(r)));
      buffers.push_back(std::make_unique<Buffer>(device_of(r), 5000, r + 1));
    }
    for (int turn = 0; turn < 3; ++turn) {
      must(tuttiGroupStart());
      for (size_t r = 0; r < ranks; ++r)
        must(tuttiAllReduce(buffers[r]->data(), buffers[r]->data(), 5000, tuttiInt32, turn == 0 ? tuttiSum : tuttiMax, comms[r],
                            *streams[r]));
      must(tuttiGroupEnd());
    }
    for (size_t r = 0; r < ranks; ++r) {
      streams[r]->wait();
      EXPECT_EQ(buffers[r]->values(), std::vector<int>(5000, 6)) << "rank " << r;
    }
  }
  for (const tuttiComm_t comm : comms) must(tuttiCommDestroy(comm));
}

// A call ends on all ranks although one's stream has not come to it; others' kernels, where they wait for that one inside, end
// too. When that stream goes on, nothing touches the buffers, which are their callers' again.
TEST_P(AnyDevice, AnAbortEndsACallThatAStreamHasNotComeTo) {
  for (const size_t count : {size_t{1000}, size_t{300'000}}) {
    Flag held;
    std::barrier<> all_ranks(3);
    test::run_threads(3, options(GetParam(), 60'000), [&](int rank, tuttiComm_t comm) {
      Device& device = device_of(rank);
      const OnStream stream(device);
      const Buffer buffer(device, count, rank);
      EXPECT_EQ(all_reduce(buffer, count, comm, stream), tuttiSuccess);
      all_ranks.arrive_and_wait();
      if (rank == 2) must(device.wait_flag(stream.get(), held.word(), 1));
      std::jthread aborts;
      if (rank == 0) aborts = aborts_after(std::chrono::milliseconds(50), comm);
      const auto begun_at = std::chrono::steady_clock::now();
      const tuttiResult_t result = tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiInt32, tuttiMax, comm, stream);
      EXPECT_EQ(end_of(result, comm), tuttiAborted) << tuttiGetLastError(comm);
      EXPECT_LT(std::chrono::steady_clock::now() - begun_at, std::chrono::seconds(5));
      if (rank != 2) stream.wait();  // it goes on, whatever rank 2's stream does
      buffer.fill(-7);
      all_ranks.arrive_and_wait();
      if (rank == 0) held.set();
      stream.wait();
      { const Buffer after(device, 1, 0); }  // gives memory back, which waits for all that the device does
      all_ranks.arrive_and_wait();
      EXPECT_EQ(buffer.values(), std::vector<int>(count, -7));
    });
  }
}

// Whatever the call, also without a stream, where what is on the device's default stream is waited for.
TEST_P(AnyDevice, AnAbortEndsCallsOfAnyKindThatAStreamHasNotComeTo) {
  constexpr size_t count = 1000;
  std::vector<int> of_host(2 * count, 1);
  const std::vector<size_t> counts = {count - 1, count};
  struct Buffers {
    int *in, *out;
    tuttiComm_t comm;
    tuttiStream_t stream;
    int rank;
  };
  const std::vector<std::function<tuttiResult_t(const Buffers&)>> calls = {
      [&](const Buffers& b) { return tuttiBroadcast(b.in, b.out, count, tuttiInt32, 1, b.comm, b.stream); },
      [&](const Buffers& b) { return tuttiAllGather(b.in, b.out, count, tuttiInt32, b.comm, b.stream); },
      [&](const Buffers& b) {
        return tuttiAllReduce(of_host.data() + b.rank * int(count), of_host.data() + b.rank * int(count), count, tuttiInt32,
                              tuttiMax, b.comm, b.stream);
      },
      [&](const Buffers& b) {
        return tuttiAllGatherV(b.in, counts[size_t(b.rank)], b.out, counts.data(), nullptr, tuttiInt32, b.comm, b.stream);
      },
      [&](const Buffers& b) {
        return tuttiSendRecv(b.in, count, 1 - b.rank, b.out, count, 1 - b.rank, tuttiInt32, b.comm, b.stream);
      },
      [&](const Buffers& b) {  // a copy of the rank's own
        must(tuttiGroupStart());
        EXPECT_EQ(tuttiSend(b.in, count, tuttiInt32, b.rank, b.comm, b.stream), tuttiSuccess);
        EXPECT_EQ(tuttiRecv(b.out, count, tuttiInt32, b.rank, b.comm, b.stream), tuttiSuccess);
        return tuttiGroupEnd();
      },
      [&](const Buffers& b) {
        tuttiPrepared_t prepared = nullptr;
        must(tuttiPrepareStart());
        EXPECT_EQ(tuttiAllReduce(b.in, b.out, count, tuttiInt32, tuttiMax, b.comm, nullptr), tuttiSuccess);
        must(tuttiPrepareEnd(&prepared));
        const tuttiResult_t result = tuttiPreparedStart(prepared, b.stream);
        must(tuttiPreparedDestroy(prepared));
        return result;
      },
  };
  for (const auto& call : calls)
    for (const bool on_stream : {true, false}) {
      SCOPED_TRACE(std::to_string(&call - calls.data()) + (on_stream ? " on a stream" : " on none"));
      Flag held;
      std::barrier<> both(2);
      test::run_threads(2, options(GetParam(), 60'000), [&](int rank, tuttiComm_t comm) {
        Device& device = device_of(rank);
        const OnStream stream(device);
        const Buffer in(device, count, rank), out(device, 2 * count, -3);
        load_kernels(device);
        EXPECT_EQ(all_reduce(in, count, comm, stream), tuttiSuccess);  // what a first call makes takes its time
        both.arrive_and_wait();
        must(device.wait_flag(on_stream ? stream.get() : nullptr, held.word(), 1));
        std::jthread aborts;
        if (rank == 1) aborts = aborts_after(std::chrono::milliseconds(20), comm);
        const auto begun_at = std::chrono::steady_clock::now();
        const tuttiResult_t result = call({in.data(), out.data(), comm, on_stream ? tuttiStream_t(stream) : nullptr, rank});
        // (Buffers of the host and no stream wait for nothing.)
        if (on_stream || result != tuttiSuccess) {
          EXPECT_EQ(end_of(result, comm), tuttiAborted);
        }
        EXPECT_LT(std::chrono::steady_clock::now() - begun_at, std::chrono::seconds(5));
        both.arrive_and_wait();
        held.set();
        stream.wait();
        EXPECT_EQ(out.values(), std::vector<int>(2 * count, -3));  // after the default stream too
      });
    }
}

// So does the timeout. Buffers of the host too wait for a stream of the device.
TEST_P(AnyDevice, ACallThatAStreamNeverComesToEndsAtItsDeadline) {
  for (const bool of_host : {false, true}) {
    Flag held;
    std::barrier<> both(2);
    test::run_threads(2, options(GetParam(), 300), [&](int rank, tuttiComm_t comm) {
      Device& device = device_of(rank);
      const OnStream stream(device);
      const Buffer on_device(device, 1000, rank);
      std::vector<int> here(1000, rank);
      load_kernels(device);
      both.arrive_and_wait();
      must(device.wait_flag(stream.get(), held.word(), 1));
      int* const buffer = of_host ? here.data() : on_device.data();
      EXPECT_EQ(end_of(tuttiAllReduce(buffer, buffer, 1000, tuttiInt32, tuttiMax, comm, stream), comm), tuttiTimeout);
      const std::string sentence = tuttiGetLastError(comm);
      EXPECT_NE(sentence.find("all_reduce"), std::string::npos) << sentence;
      EXPECT_NE(sentence.find(!of_host && GetParam() ? "for its own device" : "for what is before it on its device's stream"),
                std::string::npos) << sentence;
      both.arrive_and_wait();
      held.set();
      stream.wait();
      EXPECT_EQ(of_host ? here : on_device.values(), std::vector<int>(1000, rank));
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
      if (rank == 1) aborts = aborts_after(after, comm);
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
  std::barrier both(2);
  test::run_threads(2, options(GetParam()), [&](int rank, tuttiComm_t comm) {
    Device& device = device_of(rank);
    const OnStream stream(device);
    const Buffer buffer(device, count, rank);
    std::vector<void*> taken;  // before the first call, for later ones use what it had
    if (rank == 1)
      for (size_t bytes = size_t{1} << 34; bytes >= size_t{64} << 10; bytes /= 2) {
        void* more = nullptr;
        while (device.allocate(bytes, &more).ok()) taken.push_back(more);
      }
    // Inputs that are multiplied before are made aside.
    const int two = 2;
    tuttiRedOp_t doubled{};
    must(tuttiRedOpCreatePreMulSum(&doubled, const_cast<int*>(&two), tuttiInt32, tuttiScalarHostImmediate, comm));
    // From here on the other rank may make the communicator fail; a barrier of the communicator may fail with it.
    both.arrive_and_wait();
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
