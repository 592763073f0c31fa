// What the engine and the planner cost beside the transport: ns a small call, ns a step, ns a plan-table hit.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "algorithms/catalog.h"
#include "engine/engine.h"
#include "engine/planner.h"
#include "reduce/reduce.h"

namespace tutti {
namespace {

// A link that is always ready and moves nothing: what is left is the engine's own time.
class ReadyEndpoint final : public Endpoint {
 public:
  Status send(const std::byte*, size_t bytes, uint64_t, size_t& bytes_done) noexcept override {
    bytes_done = bytes;
    return Status::done;
  }
  std::byte* reserve(size_t) noexcept override { return place_.data(); }
  void commit(size_t, uint64_t) noexcept override {}
  Status flush() noexcept override { return Status::done; }
  Status recv(std::byte*, size_t bytes, uint64_t, size_t& bytes_done) noexcept override {
    bytes_done = bytes;
    return Status::done;
  }
  Status view(size_t, uint64_t, const std::byte*& data) noexcept override {
    data = place_.data();
    return Status::done;
  }
  Status release() noexcept override { return Status::done; }
  const Fault& fault() const noexcept override { return fault_; }

 private:
  alignas(64) std::array<std::byte, 4096> place_{};
  Fault fault_;
};

PlannerOptions options_of(int n, std::string_view forced) {
  PlannerOptions options;
  options.n = n;
  options.costs.n = n;
  options.costs.classes = {LinkCost{200, 50, 0.1}};
  options.costs.link_class.assign(size_t(n) * size_t(n), 0);
  options.host_of.assign(size_t(n), 0);
  options.forced = forced;
  return options;
}

// One call of 8 bytes, from the plan table to the result, on links that are always ready.
void run_call(benchmark::State& state, int n, std::string_view algorithm) {
  Planner planner(options_of(n, algorithm));
  ReadyEndpoint ready;
  const std::vector<Endpoint*> endpoints(size_t(n), &ready);
  const Engine engine(n, endpoints, 256 * 1024);
  Operation operation;
  std::vector<uint64_t> input(64), output(64);
  Work work;
  work.plan = &planner.plan(Collective::all_reduce, 8, 0, false);
  work.input = reinterpret_cast<const std::byte*>(input.data());
  work.output = reinterpret_cast<std::byte*>(output.data());
  work.count = 1;
  work.element_bytes = 8;
  work.reduce = reduce_function(DataType::uint64, ReduceOp::sum);
  for (auto _ : state) {
    work.plan = &planner.plan(Collective::all_reduce, 8, 0, false);
    engine.start(operation, work, 0, 1);
    benchmark::DoNotOptimize(engine.progress(operation));
    benchmark::ClobberMemory();
  }
  const double steps = double(work.plan->steps.size());
  state.counters["steps"] = steps;
  state.counters["per_step"] = benchmark::Counter(
      steps, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void one_shot_of_two(benchmark::State& state) { run_call(state, 2, "one_shot"); }
void doubling_of_64(benchmark::State& state) { run_call(state, 64, "recursive_doubling"); }
void ring_of_64(benchmark::State& state) { run_call(state, 64, "ring"); }

void plan_table_hit(benchmark::State& state) {
  Planner planner(options_of(8, ""));
  size_t bytes = 1;
  for (auto _ : state) {
    benchmark::DoNotOptimize(&planner.plan(Collective::all_reduce, bytes, 0, false));
    bytes = bytes < (size_t{1} << 30) ? bytes * 2 : 1;
  }
}

// The first all_reduce of a communicator: its algorithms are priced. (Nothing is when a planner is made.)
void pricing(benchmark::State& state) {
  for (auto _ : state) {
    Planner planner(options_of(int(state.range(0)), ""));
    benchmark::DoNotOptimize(&planner.plan(Collective::all_reduce, 1 << 20, 0, false));
  }
}

void reduce_one_element(benchmark::State& state) {
  const ReduceFunction reduce = reduce_function(DataType::uint64, ReduceOp::sum);
  uint64_t a = 1, b = 2, sum = 0;
  for (auto _ : state) {
    const void* inputs[] = {&a, &b};
    reduce(&sum, inputs, 2, 1, 0, Store::cached);
    benchmark::ClobberMemory();
  }
}

BENCHMARK(one_shot_of_two);
BENCHMARK(reduce_one_element);
BENCHMARK(doubling_of_64);
BENCHMARK(ring_of_64);
BENCHMARK(plan_table_hit);
BENCHMARK(pricing)->Arg(2)->Arg(4)->Arg(8)->Arg(16)->Arg(64)->Arg(256)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tutti

BENCHMARK_MAIN();
