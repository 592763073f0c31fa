// overlap: what an asynchronous all_reduce of two ranks costs a computation on another core, and the other way round. The
// ranks' streams share one core; the computation, which stays in registers, has the other one and is about as long. Prints
// ms of each alone and of both together: the median of the rounds, each of which measures all three.
// Usage: overlap [MIB [ROUNDS]], 64 and 9 by default; on the first two cores.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
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

volatile uint64_t computed;

void compute(uint64_t steps) {
  uint64_t x = 1;
  for (uint64_t i = 0; i < steps; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
  computed = x;
}

double since_ms(tutti::TimeNs start) { return double(tutti::now_ns() - start) / 1e6; }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const long mib = argc > 1 ? std::atol(argv[1]) : 64, rounds = argc > 2 ? std::atol(argv[2]) : 9;
  if (argc > 3 || mib < 1 || rounds < 1) {
    std::fprintf(stderr, "usage: overlap [MIB [ROUNDS]]\n");
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
  uint64_t steps = 1'000'000;
  for (int i = 0; i < 3; ++i) {
    const tutti::TimeNs start = tutti::now_ns();
    compute(steps);
    steps = uint64_t(double(steps) * target_ms / since_ms(start));
  }
  std::vector<double> communication, computation, beside, both;
  for (long i = 0; i < rounds; ++i) {
    communication.push_back(alone());
    tutti::TimeNs start = tutti::now_ns();
    compute(steps);
    computation.push_back(since_ms(start));
    start = tutti::now_ns();
    all_reduce.start();
    const tutti::TimeNs begun = tutti::now_ns();
    compute(steps);
    beside.push_back(since_ms(begun));
    all_reduce.wait();
    both.push_back(since_ms(start));
  }
  const double longer = std::max(median(communication), median(computation));
  std::printf("%d all_reduces of %ld MiB %.1f ms, computation %.1f ms; beside each other the computation %.1f ms (%.2f of alone), "
              "both %.1f ms (%.2f of the longer)\n",
              calls, mib, median(communication), median(computation), median(beside), median(beside) / median(computation),
              median(both), median(both) / longer);
  return 0;
}
