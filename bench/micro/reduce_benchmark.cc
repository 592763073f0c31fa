// Reduction kernels beside their limits: the same run measures copying and reading of the same memory.
//
// Rows: type_op/inputs/where/store. Columns: GBps is the traffic, read and written; of_copy is that traffic over the
// traffic of copy_bytes with the same store in the same memory; of_read is what has to be read over plain reading of
// the same memory: the inputs, and the output's lines too where stores are usual ones, for those are fetched before
// they are stored to. (In caches a line stored to takes as long as a line read: the rows "limits" show it.) The
// limit is 1 in whichever is nearer: one core reads and writes memory at once, so a copy is bound by both and many
// inputs by reading alone. Reductions and limits take turns on pieces so short that most are not interrupted; of
// every turn the ratio is taken, and the median of all turns is told, so that neither a disturbance nor a change of
// the machine's state counts for much. The time column means nothing.
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

template <typename Work>
double seconds(size_t repeats, Work work) {
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < repeats; ++i) work();
  benchmark::ClobberMemory();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / double(repeats);
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// At any place.
typedef uint64_t Line __attribute__((vector_size(64), aligned(1), may_alias));

// Loads with as little else as possible. (Copied into a Line by memcpy, they would pass through the stack.)
__attribute__((target_clones("avx512f", "avx2", "default"))) void read_bytes(const uint8_t* from, size_t bytes) {
  const Line* line = reinterpret_cast<const Line*>(from);
  Line a{}, b{}, c{}, d{};
  for (const Line* const end = line + bytes / 256 * 4; line != end; line += 4) {
    a |= line[0];
    b |= line[1];
    c |= line[2];
    d |= line[3];
  }
  Line all = a | b | c | d;
  benchmark::DoNotOptimize(all);
}

// Stores with as little else as possible.
__attribute__((target_clones("avx512f", "avx2", "default"))) void write_bytes(uint8_t* to, size_t bytes) {
  Line* line = reinterpret_cast<Line*>(to);
  for (const Line* const end = line + bytes / 256 * 4; line != end; line += 4) {
    line[0] = Line{};
    line[1] = Line{};
    line[2] = Line{};
    line[3] = Line{};
  }
}

// As many buffers as there are inputs and outputs, and the ways to go through them piece by piece.
class Memory {
 public:
  Memory(const Level& level, size_t buffers) : in_cache_(level.working_set_bytes > 0) {
    bytes_ = in_cache_ ? level.working_set_bytes / buffers : memory_buffer_bytes;
    bytes_ -= bytes_ % 256;
    for (size_t k = 0; k < buffers; ++k) buffers_.emplace_back(bytes_, 320 * k);  // not all at one offset in a page
    piece_ = std::min(bytes_, piece_bytes);
    repeats_ = in_cache_ ? (1 << 19) / bytes_ + 1 : 1;
  }

  size_t bytes() const { return bytes_; }
  size_t piece() const { return piece_; }
  size_t repeats() const { return repeats_; }
  uint8_t* buffer(size_t k) { return buffers_[k].data(); }

  // Seconds per byte, each of all the buffers where they are in a cache, else of a place where nothing has been of late.
  double copying(size_t at, Store store) {
    const size_t pairs = in_cache_ ? buffers_.size() / 2 : 1, place = away(at, 2);
    const double taken = seconds(repeats_, [&] {
      for (size_t k = 0; k < 2 * pairs; k += 2) copy_bytes(buffer(k + 1) + place, buffer(k) + place, piece_, store);
    });
    return taken / double(2 * pairs * piece_);
  }
  double reading(size_t at) {
    return plain(away(at, 2), [this](uint8_t* place) { read_bytes(place, piece_); });
  }
  double writing(size_t at) {
    return plain(away(at, 4), [this](uint8_t* place) { write_bytes(place, piece_); });
  }

 private:
  template <typename Work>
  double plain(size_t place, Work work) {
    const size_t first = in_cache_ ? 0 : buffers_.size() - 1;
    const double taken = seconds(repeats_, [&] {
      for (size_t k = first; k < buffers_.size(); ++k) work(buffer(k) + place);
    });
    return taken / double((buffers_.size() - first) * piece_);
  }
  // A part of a buffer further on, where they are out of the caches.
  size_t away(size_t at, size_t parts) const { return in_cache_ ? at : (at + bytes_ / parts) % bytes_; }

  const bool in_cache_;
  size_t bytes_, piece_, repeats_;
  std::vector<Buffer> buffers_;
};

void run(benchmark::State& state, const Case& row) {
  const size_t n_inputs = size_t(row.n_inputs);
  Memory memory(row.level, n_inputs + 1);
  const ReduceFunction reduce = reduce_function(row.type, row.op);
  const double moved = double((n_inputs + 1) * memory.piece());
  const double read = row.store == Store::cached ? moved : double(n_inputs * memory.piece());

  std::vector<double> speeds, of_copy, of_read;
  for (auto _ : state)
    for (size_t at = 0; at + memory.piece() <= memory.bytes(); at += memory.piece()) {
      std::array<const void*, reduce_inputs_max> inputs;
      for (size_t k = 0; k < n_inputs; ++k) inputs[k] = memory.buffer(k) + at;
      uint8_t* const output = memory.buffer(n_inputs) + at;
      const double reducing = seconds(memory.repeats(), [&] {
        reduce(output, inputs.data(), row.n_inputs, memory.piece() / element_bytes(row.type), 0, row.store);
      });
      speeds.push_back(moved / reducing);
      of_copy.push_back(moved / reducing * memory.copying(at, row.store));
      of_read.push_back(read / reducing * memory.reading(at));
    }
  state.counters["GBps"] = median(speeds) / 1e9;
  state.counters["of_copy"] = median(of_copy);
  state.counters["of_read"] = median(of_read);
}

// What is the most that the columns above can be: GB/s of copying, and of reading and writing plainly.
void run_limits(benchmark::State& state, const Level& level, Store store) {
  Memory memory(level, 3);
  std::vector<double> copies, reads, writes;
  for (auto _ : state)
    for (size_t at = 0; at + memory.piece() <= memory.bytes(); at += memory.piece()) {
      copies.push_back(1e-9 / memory.copying(at, store));
      reads.push_back(1e-9 / memory.reading(at));
      writes.push_back(1e-9 / memory.writing(at));
    }
  state.counters["copy_GBps"] = median(copies);
  state.counters["read_GBps"] = median(reads);
  state.counters["write_GBps"] = median(writes);
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

template <typename Run>
void add(const std::string& title, const Level& level, Store store, Run run_it) {
  const std::string name = fmt::format("{}/{}/{}", title, level.name, store == Store::cached ? "cached" : "streaming");
  benchmark::RegisterBenchmark(name.c_str(), run_it)->Iterations(level.working_set_bytes == 0 ? 2 : 200);
}

void add(const Case& row) {
  add(fmt::format("{}_{}/{}", name(row.type), name(row.op), row.n_inputs), row.level, row.store,
      [row](benchmark::State& state) { run(state, row); });
}

void add_all() {
  benchmark::RegisterBenchmark("small_float32_sum/2/count", run_small)->Arg(1)->Arg(2);
  for (const Level& level : levels)
    for (const Store store : {Store::cached, Store::streaming}) {
      if (store == Store::streaming && level.working_set_bytes != 0) continue;
      add("limits", level, store, [level, store](benchmark::State& state) { run_limits(state, level, store); });
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
