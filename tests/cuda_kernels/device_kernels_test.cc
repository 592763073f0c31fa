// What a device computes, against the host, bit for bit: on whatever platform TUTTI_DEVICE names. In every build on the
// simulated device; on a machine with a GPU, by ./dev gpu, on that.
#include <array>
#include <atomic>
#include <utility>
#include <random>

#include <gtest/gtest.h>

#include "../reduce/cases.h"
#include "algorithms/catalog.h"
#include "device/linked_call.h"
#include "device/platform.h"
#include "reduce/scale.h"
#include "schedule/verbs.h"

namespace tutti {
namespace {

Platform& platform() { return *find_platform().platform; }

void must(const Outcome& outcome) { ASSERT_EQ(outcome.code, Code::success) << outcome.sentence; }

// Bytes on device 0, `shift` after a multiple of 256.
class OnDevice {
 public:
  OnDevice(const std::vector<uint8_t>& data, size_t bytes, size_t shift) : bytes_(bytes), shift_(shift) {
    must(device().allocate(bytes + shift + 1, &memory_));
    if (bytes > 0) must(device().copy(nullptr, begin(), data.data(), bytes));
    must(device().wait_stream(nullptr));
  }
  OnDevice(OnDevice&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_), shift_(other.shift_) {}
  ~OnDevice() { must(device().free(memory_)); }

  static Device& device() { return platform().device(0); }
  std::byte* begin() const { return static_cast<std::byte*>(memory_) + shift_; }
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> there(bytes_);
    if (bytes_ > 0) must(device().copy(nullptr, there.data(), begin(), bytes_));
    must(device().wait_stream(nullptr));
    return there;
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_, shift_;
};

class DeviceKernels : public ::testing::TestWithParam<DataType> {};
std::string type_of(const ::testing::TestParamInfo<DataType>& info) { return std::string(name(info.param)); }
std::vector<DataType> every_type() {
  std::vector<DataType> types;
  for (const DataTypeInfo& row : data_types) types.push_back(row.type);
  return types;
}
INSTANTIATE_TEST_SUITE_P(Every, DeviceKernels, ::testing::ValuesIn(every_type()), type_of);

TEST_P(DeviceKernels, ReduceWithTheBitsOfTheHost) {
  const DataType type = GetParam();
  const size_t width = element_bytes(type), most = 20000 / width;
  std::mt19937_64 random(seed);
  for (const ReduceOp op : ops_of(type)) {
    ASSERT_TRUE(platform().supports(type, op)) << name(op);
    for (const int n : {1, 2, 3, 8})
      for (const size_t count : {size_t{0}, size_t{1}, size_t{37}, size_t{1031}, most})
        for (int turn = 0; turn < (count < 1000 ? 3 : 1) + (count == most); ++turn) {
          const size_t unit = turn == 0 ? 256 : turn == 1 ? width : 1;
          std::vector<OnDevice> inputs;
          std::vector<std::vector<uint8_t>> data;
          DeviceReduction r{type, op, n, {}, nullptr, count, op == ReduceOp::avg ? uint32_t(n) : 0};
          std::array<const void*, 8> host{};
          for (int k = 0; k < n; ++k) {
            data.push_back(mixed_elements(type, count, random));
            inputs.emplace_back(data.back(), count * width, random() % 64 / unit * unit);
            r.inputs[size_t(k)] = inputs.back().begin();
          }
          for (size_t k = 0; k < size_t(n); ++k) host[k] = data[k].data();
          OnDevice output(std::vector<uint8_t>(count * width), count * width, random() % 64 / unit * unit);
          const bool in_place = random() % 3 == 0;
          const OnDevice& result = in_place ? inputs[random() % size_t(n)] : output;
          r.output = result.begin();
          std::vector<uint8_t> expected(count * width);
          reduce_function(type, op)(expected.data(), host.data(), n, count, r.divisor, Store::cached);
          must(OnDevice::device().reduce(nullptr, r));
          ASSERT_EQ(result.bytes(), expected) << name(op) << " of " << n << " inputs, " << count << " elements, turn " << turn
                                              << ", seed " << seed;
        }
  }
}

TEST_P(DeviceKernels, ScaleWithTheBitsOfTheHost) {
  const DataType type = GetParam();
  const size_t width = element_bytes(type);
  std::mt19937_64 random(seed + 1);
  const std::vector<uint8_t> data = mixed_elements(type, 1031, random), scalar = mixed_elements(type, 1, random);
  OnDevice buffer(data, data.size(), width);
  const Outcome outcome = OnDevice::device().scale(nullptr, type, scalar.data(), buffer.begin(), buffer.begin(), 1031);
  if (!defined(ReduceOp::premulsum, type)) {
    EXPECT_EQ(outcome.code, Code::unsupported);
    return;
  }
  must(outcome);
  std::vector<uint8_t> expected(data.size());
  scale(type, scalar.data(), data.data(), expected.data(), 1031);
  EXPECT_EQ(buffer.bytes(), expected) << "seed " << seed;
}

// A whole collective as one launch. Types that have no such kernel on this device say so.
TEST_P(DeviceKernels, RunLinkedPlansWithTheBitsOfTheHost) {
  const DataType type = GetParam();
  if (!defined(ReduceOp::sum, type)) return;
  const size_t width = element_bytes(type);
  std::mt19937_64 random(seed + 2);
  for (const std::string_view algorithm_name : {"one_shot", "two_shot", "ring", "tree"})
    for (const int n : {2, 3, 8})
      for (const bool in_place : {false, true}) {
        const Algorithm* const algorithm = find_algorithm(Collective::all_reduce, algorithm_name);
        ASSERT_NE(algorithm, nullptr) << algorithm_name;
        std::vector<Plan> plans;
        for (int rank = 0; rank < n; ++rank) {
          const Group group{.rank = rank, .n = n, .root = 0, .pipeline = 1, .host_of = {}};
          Schedule schedule;
          Recorder recorder(schedule);
          algorithm->record(recorder, group);
          plans.push_back(lower(schedule, algorithm->shape(group), algorithm_name, in_place));
        }
        constexpr bool yes[] = {true, true, true, true, true, true, true, true}, no[linked_ranks_max] = {};
        LinkedPlan plan;
        if (!link(Collective::all_reduce, plans, 0, std::span(in_place ? yes : no).first(size_t(n)), &plan)) continue;
        const size_t count = 1 + random() % 9000;
        LinkedCall call{&plan, type, ReduceOp::sum, count, 0, {}, {}, {}, 7, {}}, host = call;
        std::vector<OnDevice> inputs, outputs;
        std::vector<std::vector<uint8_t>> in, out;
        for (int k = 0; k < n; ++k) {
          in.push_back(mixed_elements(type, count, random));
          out.push_back(in.back());
          inputs.emplace_back(in.back(), count * width, 0);
          outputs.emplace_back(in.back(), count * width, 0);
        }
        for (size_t k = 0; k < size_t(n); ++k) {
          call.outputs[k] = outputs[k].begin(), host.outputs[k] = out[k].data();
          call.inputs[k] = in_place ? call.outputs[k] : inputs[k].begin();
          host.inputs[k] = in_place ? host.outputs[k] : in[k].data();
        }
        const std::vector<uint8_t> zeros(size_t(n) * linked_workspace_bytes(plan, type, count));
        OnDevice workspace(zeros, zeros.size(), 0);
        std::vector<uint8_t> host_workspace = zeros;
        share_workspace(call, workspace.begin()), share_workspace(host, host_workspace.data());
        run_linked_on_host(host);
        const Outcome outcome = OnDevice::device().run_linked(nullptr, call);
        if (outcome.code == Code::unsupported) {
          EXPECT_NE(outcome.sentence.find("no kernel"), std::string::npos) << outcome.sentence;
          return;
        }
        must(outcome);
        for (size_t k = 0; k < size_t(n); ++k)
          ASSERT_EQ(outputs[k].bytes(), out[k]) << algorithm_name << " of " << n << (in_place ? " in place" : "");
      }
}

TEST(DeviceMemory, SaysWhereItLies) {
  const OnDevice buffer(std::vector<uint8_t>(1000), 1000, 0);
  const Location there = platform().locate(buffer.begin() + 10);
  EXPECT_EQ(there.kind, MemoryKind::device);
  EXPECT_EQ(there.device, 0);
  EXPECT_EQ(there.base, buffer.begin());
  EXPECT_GE(there.bytes, 1000u);
  int on_host = 0;
  EXPECT_EQ(platform().locate(&on_host).kind, MemoryKind::unknown);
  void* pinned = nullptr;
  must(platform().allocate_host(4096, &pinned));
  EXPECT_EQ(platform().locate(pinned).kind, MemoryKind::registered);
  EXPECT_EQ(*static_cast<uint8_t*>(pinned), 0);
  must(platform().free_host(pinned));
}

TEST(DeviceMemory, ThatIsNotThereIsAnErrorAndTheDeviceGoesOn) {
  void* pointer = nullptr;
  const Outcome outcome = OnDevice::device().allocate(size_t{1} << 50, &pointer);
  EXPECT_EQ(outcome.code, Code::device_error);
  EXPECT_NE(outcome.sentence.find(std::to_string(size_t{1} << 50)), std::string::npos) << outcome.sentence;
  EXPECT_FALSE(OnDevice::device().is_lost());
  const OnDevice buffer({1, 2, 3}, 3, 0);
  EXPECT_EQ(buffer.bytes(), (std::vector<uint8_t>{1, 2, 3}));
}

// Two streams in a ring of events: what one writes the other reads, a thousand times.
TEST(DeviceStreams, AreOrderedByEventsAndFlags) {
  Device& device = OnDevice::device();
  DeviceStream streams[2] = {};
  DeviceEvent events[2] = {};
  for (int i = 0; i < 2; ++i) {
    must(device.create_stream(&streams[i]));
    must(device.create_event(false, &events[i]));
  }
  const std::vector<uint8_t> one = {1, 0, 0, 0}, zero(4);
  const OnDevice sum(zero, 4, 0), step(one, 4, 0);
  void* flags = nullptr;
  must(platform().allocate_host(4096, &flags));
  auto* const flag = static_cast<uint32_t*>(flags);
  device.prepare(DataType::int32, ReduceOp::sum);  // loaded beside a stream that waits, the kernel might wait for it
  must(device.wait_flag(streams[0], flag, 5));
  for (int turn = 0; turn < 1000; ++turn) {
    const int i = turn % 2;
    if (turn > 0) must(device.wait_event(streams[i], events[1 - i]));
    DeviceReduction r{DataType::int32, ReduceOp::sum, 2, {sum.begin(), step.begin()}, sum.begin(), 1, 0};
    must(device.reduce(streams[i], r));
    must(device.record_event(events[i], streams[i]));
  }
  EXPECT_EQ(device.query_event(events[1]).code, Code::in_progress);  // the flag has not been set
  must(device.write_flag(streams[1], flag + 1, 9));
  std::atomic_ref(*flag).store(5, std::memory_order_release);
  must(device.wait_stream(streams[1]));
  EXPECT_EQ(std::atomic_ref(flag[1]).load(std::memory_order_acquire), 9u);
  EXPECT_EQ(sum.bytes(), (std::vector<uint8_t>{0xe8, 3, 0, 0}));
  for (int i = 0; i < 2; ++i) {
    must(device.destroy_event(events[i]));
    must(device.destroy_stream(streams[i]));
  }
  must(platform().free_host(flags));
}

}  // namespace
}  // namespace tutti
