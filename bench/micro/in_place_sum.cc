// in-place-sum: what an all_reduce of two ranks can take at best, where each reaches the memory of both: two threads add
// halves of two large vectors by ways of their own. Prints ms beside the time of copying as many bytes.
// Usage: in-place-sum [MIB], 64 by default; on the first two cores that are allowed.
#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "bench/micro/line_exchange.h"
#include "memory/memory_file.h"
#include "reduce/reduce.h"

namespace tutti {
namespace {

constexpr size_t floats(size_t bytes) { return bytes / sizeof(float); }

class Vectors {
 public:
  explicit Vectors(size_t bytes)
      : bytes_(bytes), file_(make_memory_file("in-place-sum", 4 * bytes, "vectors", "")), memory_(file_.get(), 0, 4 * bytes, "vectors") {
    memory_.touch(0, 4 * bytes);
  }
  std::byte* input(int rank) const { return memory_.data() + size_t(rank) * bytes_; }
  std::byte* output(int rank) const { return memory_.data() + size_t(2 + rank) * bytes_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  Fd file_;
  Mapping memory_;
};

const ReduceFunction add = reduce_function(DataType::float32, ReduceOp::sum);

// The sum of a half goes by way of a stage that stays in the cache to both results.
void put(const Vectors& v, int rank, size_t stage_bytes, bool in_place, Store store) {
  alignas(64) static thread_local std::byte stage[size_t{1} << 20];
  const size_t half = v.bytes() / 2;
  for (size_t at = size_t(rank) * half; at < size_t(rank + 1) * half; at += stage_bytes) {
    const void* inputs[] = {v.input(0) + at, v.input(1) + at};
    add(stage, inputs, 2, floats(stage_bytes), 0, Store::cached);
    for (int r = 0; r < 2; ++r) copy_bytes((in_place ? v.input(r) : v.output(r)) + at, stage, stage_bytes, store);
  }
}

// The sum of a half goes from registers to both results.
void put_directly(const Vectors& v, int rank, bool in_place, Store store) {
  static const PutFunction put_sum = put_function(DataType::float32, ReduceOp::sum);
  const size_t half = v.bytes() / 2, block = size_t{64} << 10;
  for (size_t at = size_t(rank) * half; at < size_t(rank + 1) * half; at += block) {
    const void* inputs[] = {v.input(0) + at, v.input(1) + at};
    void* outputs[] = {(in_place ? v.input(0) : v.output(0)) + at, (in_place ? v.input(1) : v.output(1)) + at};
    put_sum(outputs, 2, inputs, 2, floats(std::min(block, half)), 0, store);
  }
  stream_end();
}

// Each adds everything, for itself.
void add_all(const Vectors& v, int rank, size_t block) {
  for (size_t at = 0; at < v.bytes(); at += block) {
    const void* inputs[] = {v.input(0) + at, v.input(1) + at};
    add(v.output(rank) + at, inputs, 2, floats(block), 0, Store::streaming);
  }
}

void run(size_t bytes) {
  const Vectors v(bytes);
  const auto time = [&](const char* what, const std::function<void(int)>& body) {
    std::printf("%-44s %8.3f\n", what, least_run_ns(0, 1, 12, body) / 1e6);
  };
  std::printf("%.1f ns between the cores; %zu KiB, ms:\n", line_exchange_ns(0, 1), bytes >> 10);
  time("each copies its input to its output", [&](int r) { copy_bytes(v.output(r), v.input(r), bytes, Store::streaming); });
  for (const size_t stage : {size_t{4096}, size_t{16384}, size_t{65536}, size_t{262144}}) {
    char name[64];
    std::snprintf(name, sizeof name, "put by a stage of %zu KiB", stage >> 10);
    time(name, [&](int r) { put(v, r, stage, false, Store::streaming); });
    std::snprintf(name, sizeof name, "  in place");
    time(name, [&](int r) { put(v, r, stage, true, Store::streaming); });
    std::snprintf(name, sizeof name, "  out of place, cached");
    time(name, [&](int r) { put(v, r, stage, false, Store::cached); });
    std::snprintf(name, sizeof name, "  in place, cached");
    time(name, [&](int r) { put(v, r, stage, true, Store::cached); });
  }
  time("put from registers", [&](int r) { put_directly(v, r, false, Store::streaming); });
  time("  in place", [&](int r) { put_directly(v, r, true, Store::streaming); });
  time("  out of place, cached", [&](int r) { put_directly(v, r, false, Store::cached); });
  time("  in place, cached", [&](int r) { put_directly(v, r, true, Store::cached); });
  time("each adds everything, out of place", [&](int r) { add_all(v, r, size_t{256} << 10); });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  const size_t kib = argc > 1 ? size_t(std::atol(argv[1])) : 64 << 10;
  tutti::run(kib << 10);
  return 0;
}
