// device-speed: what a device's kernels reach beside its own limits, measured in the same run. On whatever platform
// TUTTI_DEVICE names; numbers of the simulated one say nothing, they only show that this program works.
//
// D is the device's copy bandwidth (bytes read and written in a second by a copy from one place to another), H that of
// copies between pinned host memory and the device, one way, K the time of a launch that does nothing, issued and waited
// for. A line is an operation, its time, and what share of its limit that is.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "algorithms/catalog.h"
#include "device/linked_call.h"
#include "device/platform.h"
#include "schedule/verbs.h"
#include "tutti/tutti.h"

namespace {

using namespace tutti;

void must(const Outcome& outcome) {
  if (outcome.code != Code::success) throw std::runtime_error(outcome.sentence);
}
void must(tuttiResult_t result) {
  if (result != tuttiSuccess) throw std::runtime_error(tuttiGetLastError(nullptr));
}

// Less is measured shortly: to see that it works.
constexpr size_t few_bytes = size_t{16} << 20;

// Memory of a device, all zeros.
class Memory {
 public:
  Memory(Device& device, size_t bytes) : device_(&device) {
    must(device.allocate(bytes, &data_));
    const std::vector<std::byte> zeros(std::min<size_t>(bytes, size_t{16} << 20));
    for (size_t at = 0; at < bytes; at += zeros.size())
      must(device.copy(nullptr, begin() + at, zeros.data(), std::min(zeros.size(), bytes - at)));
    must(device.wait_stream(nullptr));
  }
  Memory(Memory&& other) noexcept : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
  ~Memory() { (void)device_->free(data_); }
  std::byte* begin() const { return static_cast<std::byte*>(data_); }

 private:
  Device* device_;
  void* data_ = nullptr;
};

class Bench {
 public:
  Bench(Platform& platform, size_t bytes) : platform_(platform), device_(platform.device(0)), bytes_(bytes), round_s_(bytes < few_bytes ? 0.0005 : 0.02) {
    must(device_.create_stream(&stream_));
  }
  ~Bench() { (void)device_.destroy_stream(stream_); }

  void run() {
    std::printf("# %s: %s, %zu MiB, %d device%s\n", platform_.name(), device_.info().name.c_str(), bytes_ >> 20,
                platform_.count(), platform_.count() == 1 ? "" : "s");
    limits();
    reductions();
    linked("two_shot", bytes_);
    linked("one_shot", 8192);
    library(8, bytes_);
    library(8, 8192);
  }

 private:
  // Seconds of one of many that follow each other on the stream; the best of five rounds.
  double seconds(const std::function<void()>& work) {
    work();
    must(device_.wait_stream(stream_));
    double best = 1e30;
    for (int round = 0; round < 5; ++round) {
      int n = 1;
      for (;; n *= 4) {
        const auto began = std::chrono::steady_clock::now();
        for (int i = 0; i < n; ++i) work();
        must(device_.wait_stream(stream_));
        const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        if (took < round_s_ && n < 10000) continue;
        best = std::min(best, took / n);
        break;
      }
    }
    return best;
  }

  static void line(const std::string& what, double took, double limit) {
    std::printf("| %-44s | %12.2f | %12.2f | %6.2f |\n", what.c_str(), took * 1e6, limit * 1e6, limit / took);
    std::fflush(stdout);
  }

  void limits() {
    const Memory from(device_, bytes_), to(device_, bytes_);
    void* pinned = nullptr;
    must(platform_.allocate_host(bytes_, &pinned));
    copy_bandwidth_ = 2.0 * double(bytes_) / seconds([&] { must(device_.copy(stream_, to.begin(), from.begin(), bytes_)); });
    const double up = double(bytes_) / seconds([&] { must(device_.copy(stream_, to.begin(), pinned, bytes_)); });
    const double down = double(bytes_) / seconds([&] { must(device_.copy(stream_, pinned, to.begin(), bytes_)); });
    must(platform_.free_host(pinned));
    const DeviceReduction least{DataType::int32, ReduceOp::sum, 2, {from.begin(), to.begin()}, to.begin(), 1, 0};
    launch_s_ = seconds([&] {
      must(device_.reduce(stream_, least));
      must(device_.wait_stream(stream_));
    });
    std::printf("# D = %.1f GB/s (read and written), H = %.1f GB/s to the device, %.1f GB/s from it, K = %.2f us\n",
                copy_bandwidth_ / 1e9, up / 1e9, down / 1e9, launch_s_ * 1e6);
    std::printf("| %-44s | %12s | %12s | %6s |\n|---|---|---|---|\n", "operation", "us", "limit, us", "share");
  }

  void reductions() {
    constexpr DataType types[] = {DataType::float32, DataType::bfloat16, DataType::float8e4m3, DataType::int8, DataType::float64};
    for (const DataType type : types)
      for (int n = 2; n <= DeviceReduction::inputs_max; ++n) {
        std::vector<Memory> inputs;
        DeviceReduction r{type, ReduceOp::sum, n, {}, nullptr, bytes_ / element_bytes(type), 0};
        for (int k = 0; k < n; ++k) {
          inputs.emplace_back(device_, bytes_);
          r.inputs[size_t(k)] = inputs.back().begin();
        }
        const Memory output(device_, bytes_);
        r.output = output.begin();
        line(fmt::format("reduce {} of {} inputs", name(type), n), seconds([&] { must(device_.reduce(stream_, r)); }),
             double(n + 1) * double(bytes_) / copy_bandwidth_);
      }
  }

  // All ranks' share of an all_reduce as one launch.
  void linked(std::string_view algorithm_name, size_t bytes) {
    constexpr int n = 8;
    const Algorithm& algorithm = *find_algorithm(Collective::all_reduce, algorithm_name);
    std::vector<Plan> plans;
    for (int rank = 0; rank < n; ++rank) {
      const Group group{.rank = rank, .n = n, .root = 0, .pipeline = 1, .host_of = {}};
      Schedule schedule;
      Recorder recorder(schedule);
      algorithm.record(recorder, group);
      plans.push_back(lower(schedule, algorithm.shape(group), algorithm_name, false));
    }
    constexpr bool apart[n] = {};
    LinkedPlan plan;
    if (!link(Collective::all_reduce, plans, 0, apart, &plan)) throw std::runtime_error("the plan cannot be linked");
    LinkedCall call{&plan, DataType::float32, ReduceOp::sum, bytes / 4, 0, {}, {}, {}, 1, {}};
    std::vector<Memory> memory;
    for (size_t k = 0; k < n; ++k) {
      memory.emplace_back(device_, bytes);
      call.inputs[k] = memory.back().begin();
      memory.emplace_back(device_, bytes);
      call.outputs[k] = memory.back().begin();
    }
    // Reading all inputs and writing all outputs once.
    const double limit = 2.0 * n * double(bytes) / copy_bandwidth_;
    line(fmt::format("{} of {} ranks in one launch, {} KiB", algorithm_name, n, bytes >> 10), seconds([&] {
           must(device_.run_linked(stream_, call));
           if (bytes < 65536) must(device_.wait_stream(stream_));
         }),
         bytes < 65536 ? launch_s_ + 10e-6 : limit);
  }

  // all_reduce by the library: ranks are threads of this process, all on device 0, each with a stream of its own.
  void library(int n, size_t bytes) {
    std::vector<tuttiComm_t> comms(static_cast<size_t>(n));
    const std::vector<int> devices(static_cast<size_t>(n), 0);
    must(tuttiCommInitAll(comms.data(), n, devices.data()));
    const bool small = bytes < 65536;
    const int rounds = bytes_ < few_bytes ? 2 : small ? 200 : 5;
    std::barrier together(n);
    std::vector<double> took(static_cast<size_t>(n), 1e30);
    std::vector<std::string> wrong(static_cast<size_t>(n));
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < n; ++rank)
      ranks.emplace_back([&, rank] {
        try {
          const Memory input(device_, bytes), output(device_, bytes);
          DeviceStream stream = nullptr;
          must(device_.create_stream(&stream));
          const auto on = reinterpret_cast<tuttiStream_t>(stream);
          for (int attempt = 0; attempt < 4; ++attempt) {
            together.arrive_and_wait();
            const auto began = std::chrono::steady_clock::now();
            for (int i = 0; i < rounds; ++i) {
              must(tuttiAllReduce(input.begin(), output.begin(), bytes / 4, tuttiFloat32, tuttiSum, comms[size_t(rank)], on));
              if (small) must(device_.wait_stream(stream));
            }
            must(device_.wait_stream(stream));
            const double each =
                std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() / rounds;
            if (attempt > 0) took[size_t(rank)] = std::min(took[size_t(rank)], each);
          }
          must(device_.destroy_stream(stream));
        } catch (const std::exception& error) {
          wrong[size_t(rank)] = error.what();
          must(tuttiCommAbort(comms[size_t(rank)]));
          together.arrive_and_drop();
        }
      });
    for (std::thread& rank : ranks) rank.join();
    for (const std::string& sentence : wrong)
      if (!sentence.empty()) throw std::runtime_error(sentence);
    for (const tuttiComm_t comm : comms) must(tuttiCommDestroy(comm));
    const double limit = 2.0 * n * double(bytes) / copy_bandwidth_;
    line(fmt::format("all_reduce of {} ranks, threads, {} KiB", n, bytes >> 10), *std::max_element(took.begin(), took.end()),
         small ? launch_s_ + 10e-6 : limit);
  }

  Platform& platform_;
  Device& device_;
  const size_t bytes_;
  const double round_s_;
  DeviceStream stream_ = nullptr;
  double copy_bandwidth_ = 0, launch_s_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const size_t mebibytes = argc > 1 ? size_t(std::strtoul(argv[1], nullptr, 10)) : 256;
  if (mebibytes == 0 || mebibytes > 65536 || argc > 2) {
    std::fprintf(stderr, "usage: device-speed [MEBIBYTES], 1 to 65536, 256 by default\n");
    return 2;
  }
  try {
    const FoundPlatform& found = find_platform();
    if (found.platform == nullptr) {
      std::fprintf(stderr, "device-speed: no device: %s\n", found.why_not.c_str());
      return 3;
    }
    Bench(*found.platform, mebibytes << 20).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device-speed: %s\n", error.what());
    return 1;
  }
  return 0;
}
