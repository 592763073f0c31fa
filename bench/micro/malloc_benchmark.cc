// What large blocks of malloc cost: used again, fresh, and at a fork. Run it with and without libtutti_malloc.so preloaded.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include <benchmark/benchmark.h>

namespace {

constexpr size_t page_bytes = 4096;

void touch(char* block, size_t bytes) {
  for (size_t at = 0; at < bytes; at += page_bytes) block[at] = 1;
  benchmark::ClobberMemory();
}

// A program that allocates the same thing again and again.
void allocate_again(benchmark::State& state) {
  const auto bytes = size_t(state.range(0));
  for (auto _ : state) {
    char* block = static_cast<char*>(std::malloc(bytes));
    benchmark::DoNotOptimize(block);
    touch(block, bytes);
    std::free(block);
  }
}

// Pages that the system has to give.
void allocate_fresh(benchmark::State& state) {
  const auto bytes = size_t(state.range(0));
  for (auto _ : state) {
    char* block = static_cast<char*>(std::malloc(bytes));
    benchmark::DoNotOptimize(block);
    touch(block, bytes);
    state.PauseTiming();
    std::free(block);
    ::malloc_trim(0);
    state.ResumeTiming();
  }
}

// A child that does nothing, beside a block in use.
void fork_beside(benchmark::State& state) {
  const auto bytes = size_t(state.range(0));
  char* block = static_cast<char*>(std::malloc(bytes));
  benchmark::DoNotOptimize(block);
  touch(block, bytes);
  for (auto _ : state) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(0);
    ::waitpid(pid, nullptr, 0);
  }
  std::free(block);
}

// What growing by doubling to so many bytes costs.
void grow(benchmark::State& state) {
  const auto bytes = size_t(state.range(0));
  for (auto _ : state) {
    char* block = nullptr;
    for (size_t now = page_bytes, old = 0; now <= bytes; old = now, now *= 2) {
      block = static_cast<char*>(std::realloc(block, now));
      benchmark::DoNotOptimize(block);
      touch(block + old, now - old);
    }
    std::free(block);
  }
}

BENCHMARK(allocate_again)->RangeMultiplier(4)->Range(64 << 10, 256 << 20)->Unit(benchmark::kMicrosecond);
BENCHMARK(allocate_fresh)->RangeMultiplier(4)->Range(64 << 10, 256 << 20)->Unit(benchmark::kMicrosecond);
BENCHMARK(grow)->Arg(1 << 20)->Arg(16 << 20)->Arg(256 << 20)->Unit(benchmark::kMicrosecond);
BENCHMARK(fork_beside)->Arg(1 << 20)->Arg(64 << 20)->Arg(1 << 30)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
