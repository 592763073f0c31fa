// overlap: what an asynchronous all_reduce of two ranks costs a computation on another core, and the other way round. The
// ranks' streams share one core; the computation has the other one and is about as long. Prints ms of each alone and of both
// together, and of the computation beside a core that does nothing but copy memory: the median of the rounds, each of which
// measures all of these.
// Usage: overlap [MIB [ROUNDS [registers|memory]]], 64, 9 and registers by default: where the computation's data lie; on the
// first two cores.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/micro/line_exchange.h"
#include "tutti/tutti.hpp"

namespace {

constexpr int communicating = 0, computing = 1;
constexpr int calls = 10;  // one after the other: a round is longer than what a scheduler decides on

void check(tuttiResult_t result) {
  if (result == tuttiSuccess) return;
  std::fprintf(stderr, "overlap: %s\n", tuttiGetLastError(nullptr));
  std::exit(1);
}

// Two ranks of this process, their streams, and buffers that each other reaches.
class AllReduce {
 public:
  explicit AllReduce(size_t bytes) : bytes_(bytes) {
    tutti::pin_to_core(communicating);  // the streams' threads inherit it
    check(tuttiCommInitAll(ranks_.data(), 2, nullptr));
    for (size_t r = 0; r < 2; ++r) {
      check(tuttiStreamCreate(&streams_[r]));
      check(tuttiMemAlloc(&memory_[r], bytes));
      std::fill_n(static_cast<float*>(memory_[r]), bytes / sizeof(float), 0.0f);
    }
    tutti::pin_to_core(computing);
  }
  void start() {
    for (int i = 0; i < calls; ++i)
      for (size_t r = 0; r < 2; ++r)
        check(tuttiAllReduce(memory_[r], memory_[r], bytes_ / sizeof(float), tuttiFloat32, tuttiSum, ranks_[r], streams_[r]));
  }
  void wait() {
    for (const tuttiStream_t stream : streams_) check(tuttiStreamSynchronize(stream));
  }
  ~AllReduce() {
    for (size_t r = 0; r < 2; ++r) {
      check(tuttiStreamDestroy(streams_[r]));
      check(tuttiCommDestroy(ranks_[r]));
      check(tuttiMemFree(memory_[r]));
    }
  }

 private:
  size_t bytes_;
  std::array<tuttiComm_t, 2> ranks_{};
  std::array<tuttiStream_t, 2> streams_{};
  std::array<void*, 2> memory_{};
};

// What is computed: a step is one of a chain of multiplications, or a pass over one block of what is far more than a cache.
class Computation {
 public:
  explicit Computation(bool in_memory) : data_(in_memory ? blocks * block_floats : 0, 1.0f) {}

  void run(uint64_t steps) {
    if (data_.empty()) return multiply(steps);
    for (; steps > 0; --steps) {
      float* const block = &data_[at_ * block_floats];
      for (size_t i = 0; i < block_floats; ++i) block[i] = block[i] * 0.5f + 1.0f;
      at_ = (at_ + 1) % blocks;
    }
  }

 private:
  static constexpr size_t block_floats = 1024, blocks = 65536;  // 256 MiB
  void multiply(uint64_t steps) {
    uint64_t x = 1;
    for (uint64_t i = 0; i < steps; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
    computed_ = x;
  }

  std::vector<float> data_;
  size_t at_ = 0;
  volatile uint64_t computed_ = 0;
};

// Copies memory on the core of the all_reduce while it exists.
class Copier {
 public:
  Copier() : thread_([this] { run(); }) {
    while (!runs_.load()) std::this_thread::yield();
  }
  ~Copier() {
    ends_.store(true);
    thread_.join();
  }

 private:
  static constexpr size_t bytes = size_t{64} << 20;
  void run() {
    tutti::pin_to_core(communicating);
    const std::vector<std::byte> from(bytes, std::byte{1});
    std::vector<std::byte> to(bytes);
    while (!ends_.load()) {
      std::memcpy(to.data(), from.data(), bytes);
      runs_.store(true);
    }
  }

  std::atomic<bool> runs_{false}, ends_{false};
  std::thread thread_;
};

double since_ms(tutti::TimeNs start) { return double(tutti::now_ns() - start) / 1e6; }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const long mib = argc > 1 ? std::atol(argv[1]) : 64, rounds = argc > 2 ? std::atol(argv[2]) : 9;
  const std::string_view where = argc > 3 ? argv[3] : "registers";
  if (argc > 4 || mib < 1 || rounds < 1 || (where != "registers" && where != "memory")) {
    std::fprintf(stderr, "usage: overlap [MIB [ROUNDS [registers|memory]]]\n");
    return 2;
  }
  AllReduce all_reduce(size_t(mib) << 20);
  const auto alone = [&] {
    const tutti::TimeNs start = tutti::now_ns();
    all_reduce.start();
    all_reduce.wait();
    return since_ms(start);
  };
  alone();
  const double target_ms = alone();
  Computation work(where == "memory");
  uint64_t steps = 20'000;
  const auto compute_ms = [&] {
    const tutti::TimeNs start = tutti::now_ns();
    work.run(steps);
    return since_ms(start);
  };
  for (int i = 0; i < 4; ++i) steps = uint64_t(double(steps) * target_ms / compute_ms());
  std::vector<double> communication, computation, beside, both, beside_copy;
  for (long i = 0; i < rounds; ++i) {
    communication.push_back(alone());
    computation.push_back(compute_ms());
    const tutti::TimeNs start = tutti::now_ns();
    all_reduce.start();
    beside.push_back(compute_ms());
    all_reduce.wait();
    both.push_back(since_ms(start));
    const Copier copier;
    beside_copy.push_back(compute_ms());
  }
  const double longer = std::max(median(communication), median(computation));
  std::printf("%d all_reduces of %ld MiB %.1f ms, computation %.1f ms; beside each other the computation %.1f ms (%.2f of alone), "
              "both %.1f ms (%.2f of the longer); beside a core that copies, the computation %.1f ms (%.2f)\n",
              calls, mib, median(communication), median(computation), median(beside), median(beside) / median(computation),
              median(both), median(both) / longer, median(beside_copy), median(beside_copy) / median(computation));
  return 0;
}
