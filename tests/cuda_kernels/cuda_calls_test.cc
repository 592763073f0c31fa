// The module's calls to CUDA, one by one, on a stand-in that ends whoever breaks CUDA's rules (stand_in/stand_in.h).
#include "cuda_kernels/cuda_platform.h"

#include <thread>

#include <gtest/gtest.h>

#include "cuda_kernels/stand_in/stand_in.h"

namespace tutti {
namespace {

void must(const Outcome& outcome) { ASSERT_TRUE(outcome.ok()) << outcome.sentence; }
cudaStream_t of(DeviceStream stream) { return reinterpret_cast<cudaStream_t>(stream); }

class CudaCalls : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(platform_.find(), ""); }
  void TearDown() override { EXPECT_EQ(stand_in::last_error(), cudaSuccess); }
  CudaPlatform platform_;
};

// First of all, while the process has used no device.
TEST_F(CudaCalls, MakeAContextOnNoDeviceButTheirs) {
  EXPECT_EQ(stand_in::contexts(), std::set<int>());
  Device& device = platform_.device(2);
  DeviceStream stream = nullptr;
  must(device.create_stream(&stream));
  void* pinned = nullptr;
  must(platform_.allocate_host(4096, &pinned));  // of no device's own
  std::vector<std::byte> mine(4096);
  must(platform_.register_host(mine.data(), mine.size()));
  EXPECT_EQ(platform_.locate(mine.data()).kind, MemoryKind::registered);
  EXPECT_EQ(platform_.register_host(mine.data(), mine.size()).code, Code::invalid_usage);
  must(platform_.unregister_host(mine.data()));
  must(platform_.free_host(pinned));
  Platform::StreamInfo info;
  must(platform_.describe_stream(stream, &info));
  EXPECT_EQ(info.device, 2);
  EXPECT_EQ(platform_.current_device(), 0) << "the caller's is as it was";
  must(device.destroy_stream(stream));
  EXPECT_NE(platform_.describe_stream(stream, &info).sentence.find("cudaStreamIsCapturing"), std::string::npos);
  EXPECT_EQ(stand_in::contexts(), std::set<int>{2});
}

TEST_F(CudaCalls, LeaveCapturesIntoGraphsAlone) {
  Device& device = platform_.device(0);
  DeviceStream stream = nullptr;
  DeviceEvent event = nullptr;
  must(device.create_stream(&stream));
  must(device.create_event(false, &event));
  stand_in::set_capturing(of(stream), true);
  Platform::StreamInfo info;
  must(platform_.describe_stream(stream, &info));
  EXPECT_TRUE(info.capturing);
  must(platform_.describe_stream(reinterpret_cast<DeviceStream>(cudaStreamLegacy), &info));
  EXPECT_TRUE(info.capturing) << "it would get into that one";
  const Outcome refused = device.record_event(event, nullptr);
  EXPECT_EQ(refused.code, Code::unsupported);
  EXPECT_NE(refused.sentence.find("capture"), std::string::npos) << refused.sentence;
  // Others' streams and memory meanwhile: in the mode that does a capture no harm.
  DeviceStream other = nullptr;
  void* memory = nullptr;
  must(device.create_stream(&other));
  must(device.allocate(100, &memory));
  must(device.record_event(event, other));
  must(device.wait_stream(other));
  must(device.free(memory));
  must(device.destroy_stream(other));
  stand_in::set_capturing(of(stream), false);
  must(device.record_event(event, nullptr));
  must(device.destroy_event(event));
  must(device.destroy_stream(stream));
}

TEST_F(CudaCalls, GiveTheLibrarysOwnStreamsAnotherPriority) {
  DeviceStream callers = nullptr, own = nullptr;
  must(platform_.device(0).create_stream(&callers));
  must(platform_.device(0).create_stream(&own, true));
  EXPECT_EQ(stand_in::priority_of(of(callers)), 0);
  EXPECT_LT(stand_in::priority_of(of(own)), 0);
  must(platform_.device(0).destroy_stream(callers));
  must(platform_.device(0).destroy_stream(own));
}

// Loading waits for all streams: the test would hang.
TEST_F(CudaCalls, LaunchBesideAStreamThatWaitsWhatWasPrepared) {
  Device& device = platform_.device(1);
  DeviceStream held = nullptr, stream = nullptr;
  void *flag = nullptr, *memory = nullptr;
  must(device.create_stream(&held));
  must(device.create_stream(&stream));
  must(platform_.allocate_host(4096, &flag));
  must(device.allocate(4096, &memory));
  const std::vector<std::byte> zeros(4096);
  must(device.copy(stream, memory, zeros.data(), zeros.size()));
  constexpr std::pair<DataType, ReduceOp> calls[] = {{DataType::int32, ReduceOp::sum}, {DataType::float32, ReduceOp::avg},
                                                     {DataType::int64, ReduceOp::band}, {DataType::float16, ReduceOp::premulsum}};
  for (const auto& [type, op] : calls) device.prepare(type, op);
  must(device.wait_flag(held, static_cast<uint32_t*>(flag), 1));
  for (const auto& [type, op] : calls) {
    const ReduceOp joins = op == ReduceOp::premulsum ? ReduceOp::sum : op;
    for (const int n : {2, 3, 8})
      for (const size_t shift : {0, 1}) {
        auto* const at = static_cast<std::byte*>(memory) + shift;
        DeviceReduction r{type, joins, n, {}, at, 9, 0};
        r.inputs.fill(at);
        must(device.reduce(stream, r));
      }
    const uint64_t one[2] = {1, 0};
    if (op == ReduceOp::premulsum) must(device.scale(stream, type, one, memory, memory, 9));
  }
  must(device.wait_stream(stream));
  std::atomic_ref(*static_cast<uint32_t*>(flag)).store(1);
  must(device.wait_stream(held));  // which looks at the flag
  must(device.destroy_stream(held));
  must(device.destroy_stream(stream));
  must(device.free(memory));
  must(platform_.free_host(flag));
}

TEST_F(CudaCalls, TellWhatIsForPeersAndEnableAccessOnce) {
  Device& device = platform_.device(0);
  void* own = nullptr;
  must(device.allocate(1000, &own));
  Location at = platform_.locate(static_cast<std::byte*>(own) + 10);
  EXPECT_EQ(at.kind, MemoryKind::device);
  EXPECT_EQ(at.base, own);
  EXPECT_EQ(at.bytes, 1000u);
  EXPECT_TRUE(at.for_peers);
  void* const of_pool = stand_in::devices().allocate_apart(0, 1000);
  EXPECT_FALSE(platform_.locate(of_pool).for_peers);
  ExportedMemory exported;
  EXPECT_EQ(device.export_memory(of_pool, &exported).code, Code::unsupported);
  must(device.export_memory(static_cast<std::byte*>(own) + 10, &exported));
  EXPECT_EQ(exported.offset, 10u);
  EXPECT_TRUE(platform_.has_peer_access(0, 1));
  for (int time = 0; time < 2; ++time) must(platform_.enable_peer_access(0, 1));
  must(platform_.enable_peer_access(1, 1));
  must(device.free(own));
  must(device.free(of_pool));
}

TEST_F(CudaCalls, TellOutOfMemoryWithItsSizesAndGoOn) {
  void* memory = nullptr;
  const Outcome outcome = platform_.device(0).allocate(size_t{1} << 40, &memory);
  EXPECT_EQ(outcome.code, Code::device_error);
  EXPECT_EQ(outcome.sentence.find("CUDA device 0 is out of memory: 1099511627776 bytes were asked for"), 0u) << outcome.sentence;
  EXPECT_FALSE(platform_.device(0).is_lost());
}

TEST_F(CudaCalls, KnowALostDeviceByErrorsOfTheDriverToo) {
  Device& device = platform_.device(2);
  DeviceStream stream = nullptr;
  void* flag = nullptr;
  must(device.create_stream(&stream));
  must(platform_.allocate_host(4096, &flag));
  stand_in::fail_next_wait(CUDA_ERROR_INVALID_VALUE);
  const Outcome refused = device.wait_flag(stream, static_cast<uint32_t*>(flag), 1);
  EXPECT_EQ(refused.code, Code::device_error);
  EXPECT_NE(refused.sentence.find("cuStreamWaitValue32"), std::string::npos) << refused.sentence;
  EXPECT_NE(refused.sentence.find("CUDA device 2"), std::string::npos) << refused.sentence;
  EXPECT_FALSE(device.is_lost());
  stand_in::fail_next_wait(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(device.wait_flag(stream, static_cast<uint32_t*>(flag), 1).code, Code::device_error);
  EXPECT_TRUE(device.is_lost());
  must(device.destroy_stream(stream));
  must(platform_.free_host(flag));
}

// From any thread, for any device, the calling thread's errors and device untouched.
TEST_F(CudaCalls, WorkForAnyDeviceFromAnyThread) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        Device& device = platform_.device((t + i) % 3);
        DeviceStream stream = nullptr;
        DeviceEvent event = nullptr;
        must(device.create_stream(&stream));
        must(device.create_event(true, &event));
        must(device.record_event(event, stream));
        Outcome asked;
        while ((asked = platform_.device(i % 3).query_event(event)).code == Code::in_progress) std::this_thread::yield();
        must(asked);
        ExportedEvent exported;
        must(device.export_event(event, &exported));
        must(device.destroy_event(event));
        must(device.destroy_stream(stream));
        EXPECT_EQ(platform_.current_device(), 0);
        EXPECT_EQ(stand_in::last_error(), cudaSuccess);
      }
    });
}

}  // namespace
}  // namespace tutti
