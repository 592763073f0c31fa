// Reduction kernels beside their limits: the same run measures copying and reading of the same memory.
//
// Rows: type_op/inputs/where/store. Columns: GBps is the traffic, read and written; of_copy is that traffic over the
// traffic of copy_bytes with the same store in the same cache level; of_read is the inputs' bytes alone over plain
// reading. The limit is 1 in whichever is nearer: one core reads and writes memory at once, so a copy is bound by both
// and many inputs by reading alone. Reductions and limits take turns, and the lower quartile of each counts, so that a
// disturbed machine disturbs neither much. The time column means nothing.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "reduce/reduce.h"

namespace tutti {
namespace {

struct Level {
  const char* name;
  size_t working_set_bytes;  // inputs and output together; 0: every buffer far larger than the caches
};
constexpr std::array<Level, 3> levels = {{{"L1", 24 << 10}, {"L2", 512 << 10}, {"memory", 0}}};
constexpr size_t memory_buffer_bytes = 64 << 20;
constexpr size_t piece_bytes = 512 << 10;

struct Case {
  DataType type;
  ReduceOp op;
  int n_inputs;
  Level level;
  Store store;
};

// Zeroed memory that begins `shift` bytes after a cache line.
class Buffer {
 public:
  Buffer(size_t bytes, size_t shift) : storage_(bytes + 64 + shift) {
    begin_ = storage_.data() + (64 - reinterpret_cast<uintptr_t>(storage_.data()) % 64) + shift;
  }
  uint8_t* data() { return begin_; }

 private:
  std::vector<uint8_t> storage_;
  uint8_t* begin_;
};

// Times of one kind of work, in pieces so short that most are not interrupted.
class Times {
 public:
  template <typename Work>
  void take(size_t repeats, Work work) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < repeats; ++i) work();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    seconds_.push_back(taken.count() / double(repeats));
  }
  // The lower quartile.
  double typical() {
    const auto quartile = seconds_.begin() + ptrdiff_t(seconds_.size() / 4);
    std::nth_element(seconds_.begin(), quartile, seconds_.end());
    return *quartile;
  }

 private:
  std::vector<double> seconds_;
};

typedef uint64_t Line __attribute__((vector_size(64)));

// Loads with as little else as possible.
__attribute__((target_clones("avx512f", "avx2", "default"))) void read_bytes(const uint8_t* from, size_t bytes) {
  Line a{}, b{}, c{}, d{};
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    Line next[4];
    std::memcpy(next, from + i, sizeof next);
    a |= next[0];
    b |= next[1];
    c |= next[2];
    d |= next[3];
  }
  Line all = a | b | c | d;
  benchmark::DoNotOptimize(all);
}

void run(benchmark::State& state, const Case& row) {
  const size_t buffers = size_t(row.n_inputs) + 1;
  const bool in_cache = row.level.working_set_bytes > 0;
  size_t bytes = in_cache ? row.level.working_set_bytes / buffers : memory_buffer_bytes;
  bytes -= bytes % 256;
  std::vector<Buffer> memory;
  for (size_t k = 0; k < buffers; ++k) memory.emplace_back(bytes, 320 * k);  // not all at one offset in a page
  uint8_t* output = memory.back().data();
  const ReduceFunction reduce = reduce_function(row.type, row.op);
  const size_t piece = std::min(bytes, piece_bytes), repeats = in_cache ? (1 << 19) / bytes + 1 : 1;

  Times reduced, copied, read;
  for (auto _ : state)
    for (size_t at = 0; at + piece <= bytes; at += piece) {
      std::array<const void*, reduce_inputs_max> inputs;
      for (int k = 0; k < row.n_inputs; ++k) inputs[size_t(k)] = memory[size_t(k)].data() + at;
      reduced.take(repeats, [&] {
        reduce(output + at, inputs.data(), row.n_inputs, piece / element_bytes(row.type), 0, row.store);
        benchmark::ClobberMemory();
      });
      // Half a buffer away, where nothing has been of late.
      const size_t away = in_cache ? at : (at + bytes / 2) % bytes;
      copied.take(repeats, [&] {
        copy_bytes(output + away, memory[0].data() + away, piece, row.store);
        benchmark::ClobberMemory();
      });
      read.take(repeats, [&] { read_bytes(memory[1].data() + away, piece); });
    }
  const double traffic = double(buffers * piece) / reduced.typical();
  state.counters["GBps"] = traffic / 1e9;
  state.counters["of_copy"] = traffic / (double(2 * piece) / copied.typical());
  state.counters["of_read"] = traffic * row.n_inputs / double(buffers) / (double(piece) / read.typical());
}

// One call on the bytes of a small operation: two inputs, eight bytes.
void run_small(benchmark::State& state) {
  const float a[2] = {1, 2}, b[2] = {3, 4};
  float output[2];
  const void* inputs[] = {a, b};
  const ReduceFunction reduce = reduce_function(DataType::float32, ReduceOp::sum);
  for (auto _ : state) {
    reduce(output, inputs, 2, size_t(state.range(0)), 0, Store::cached);
    benchmark::ClobberMemory();
  }
}

void add(const Case& row) {
  const std::string title = fmt::format("{}_{}/{}/{}/{}", name(row.type), name(row.op), row.n_inputs, row.level.name,
                                        row.store == Store::cached ? "cached" : "streaming");
  benchmark::RegisterBenchmark(title.c_str(), [row](benchmark::State& state) { run(state, row); })
      ->Iterations(row.level.working_set_bytes == 0 ? 2 : 200);
}

void add_all() {
  benchmark::RegisterBenchmark("small_float32_sum/2/count", run_small)->Arg(1)->Arg(2);
  for (const Level& level : levels)
    for (const Store store : {Store::cached, Store::streaming}) {
      if (store == Store::streaming && level.working_set_bytes != 0) continue;
      for (int n_inputs = 2; n_inputs <= reduce_inputs_max; ++n_inputs)
        add({DataType::float32, ReduceOp::sum, n_inputs, level, store});
      for (const DataTypeInfo& row : data_types)
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::max})
          if (defined(op, row.type) && (row.type != DataType::float32 || op != ReduceOp::sum))
            add({row.type, op, 2, level, store});
    }
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("instruction set", tutti::reduce_target());
  tutti::add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
