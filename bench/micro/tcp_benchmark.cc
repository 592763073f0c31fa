// Micro-benchmarks of the TCP transport, each beside the same traffic by hand over plain loopback sockets: a round trip
// of 8 bytes, and both directions of one connection at once. Two threads, each of which spins.
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "transport/tcp_loopback.h"

namespace tutti {
namespace {

constexpr size_t volume_bytes = 16 << 20;  // each way, of one iteration

// One thread to a core, else two that spin may share one and wait for each other's time slice.
void pin(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  ::sched_setaffinity(0, sizeof cores, &cores);
}

// --- By hand.

// Moves what can move; true once all bytes of this turn are through.
struct RawWay {
  size_t done = 0;

  bool send(const Fd& fd, const std::byte* data, size_t bytes, size_t at_once) {
    if (done == bytes) return true;
    const ssize_t n = ::send(fd.get(), data + done, std::min(at_once, bytes - done), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) done += size_t(n);
    return done == bytes;
  }
  bool recv(const Fd& fd, std::byte* data, size_t bytes, size_t at_once) {
    if (done == bytes) return true;
    const ssize_t n = ::recv(fd.get(), data + done, std::min(at_once, bytes - done), MSG_DONTWAIT);
    if (n > 0) done += size_t(n);
    return done == bytes;
  }
};

void raw_round_trip(benchmark::State& state) {
  pin(0);
  const size_t bytes = size_t(state.range(0));
  auto [mine, theirs] = loopback_pair();
  std::atomic<bool> stop = false;
  std::jthread echo([&, fd = std::move(theirs)] {
    pin(1);
    std::vector<std::byte> data(bytes);
    while (!stop.load(std::memory_order_relaxed)) {  // a hint: pairs with nothing
      RawWay in, out;
      while (!in.recv(fd, data.data(), bytes, bytes))
        if (stop.load(std::memory_order_relaxed)) return;
      while (!out.send(fd, data.data(), bytes, bytes)) {}
    }
  });
  std::vector<std::byte> data(bytes);
  for (auto _ : state) {
    RawWay out, in;
    while (!out.send(mine, data.data(), bytes, bytes)) {}
    while (!in.recv(mine, data.data(), bytes, bytes)) {}
  }
  stop = true;
}

void raw_both_ways(benchmark::State& state) {
  pin(0);
  const size_t at_once = size_t(state.range(0));
  auto [mine, theirs] = loopback_pair();
  std::atomic<uint64_t> rounds = 0;
  std::atomic<bool> stop = false;
  const auto round = [&](const Fd& fd, std::vector<std::byte>& to, const std::vector<std::byte>& from) {
    RawWay out, in;
    for (bool sent = false, received = false; !sent || !received;) {
      sent = out.send(fd, from.data(), volume_bytes, at_once);
      received = in.recv(fd, to.data(), volume_bytes, at_once);
    }
  };
  std::jthread other([&, fd = std::move(theirs)] {
    pin(1);
    std::vector<std::byte> from(volume_bytes, std::byte{1}), to(volume_bytes);
    for (uint64_t mine_done = 0; !stop.load(std::memory_order_acquire);)  // pairs with the release below
      if (rounds.load(std::memory_order_acquire) > mine_done) round(fd, to, from), ++mine_done;
  });
  std::vector<std::byte> from(volume_bytes, std::byte{1}), to(volume_bytes);
  for (auto _ : state) {
    rounds.fetch_add(1, std::memory_order_release);  // pairs with the other thread's acquire
    round(mine, to, from);
  }
  stop.store(true, std::memory_order_release);
  state.SetBytesProcessed(int64_t(state.iterations()) * 2 * int64_t(volume_bytes));
}

// --- By the transport.

bool send(Endpoint& to, const std::byte* data, size_t bytes, size_t& done) {
  return to.send(data, bytes, 1, done) == Status::done;
}
bool recv(Endpoint& from, std::byte* data, size_t bytes, size_t& done) {
  return from.recv(data, bytes, 1, done) == Status::done;
}

void tcp_round_trip(benchmark::State& state) {
  pin(0);
  const size_t bytes = size_t(state.range(0));
  const auto transports = connected_tcp(2, {});
  std::atomic<bool> stop = false;
  std::jthread echo([&] {
    pin(1);
    Transport& transport = *transports[1];
    Endpoint& peer = *transport.endpoint(0, 0);
    std::vector<std::byte> data(bytes);
    while (!stop.load(std::memory_order_relaxed)) {  // a hint: pairs with nothing
      size_t in = 0, out = 0;
      while (!recv(peer, data.data(), bytes, in)) {
        transport.progress();
        if (stop.load(std::memory_order_relaxed)) return;
      }
      while (!send(peer, data.data(), bytes, out)) transport.progress();
    }
  });
  Transport& transport = *transports[0];
  Endpoint& peer = *transport.endpoint(1, 0);
  std::vector<std::byte> data(bytes);
  for (auto _ : state) {
    size_t in = 0, out = 0;
    while (!send(peer, data.data(), bytes, out)) transport.progress();
    while (!recv(peer, data.data(), bytes, in)) transport.progress();
  }
  stop = true;
}

// Message by message, send then receive, as a ring does on one channel.
void exchange(Transport& transport, int peer, size_t message, bool by_view, std::vector<std::byte>& to,
              const std::vector<std::byte>& from) {
  Endpoint& endpoint = *transport.endpoint(peer, 0);
  for (size_t first = 0; first < volume_bytes; first += message) {
    const size_t bytes = std::min(message, volume_bytes - first);
    size_t out = 0, in = 0;
    while (!send(endpoint, from.data() + first, bytes, out)) transport.progress();
    const std::byte* place = nullptr;
    if (by_view) {
      while (endpoint.view(bytes, 1, place) != Status::done) transport.progress();
      endpoint.release();
    } else {
      while (!recv(endpoint, to.data() + first, bytes, in)) transport.progress();
    }
  }
}

void tcp_both_ways(benchmark::State& state, bool by_view) {
  pin(0);
  const size_t message = size_t(state.range(0));
  TcpOptions options;
  options.message_bytes_max = message;
  const auto transports = connected_tcp(2, options);
  std::atomic<uint64_t> rounds = 0;
  std::atomic<bool> stop = false;
  std::jthread other([&] {
    pin(1);
    std::vector<std::byte> from(volume_bytes, std::byte{1}), to(volume_bytes);
    for (uint64_t mine_done = 0; !stop.load(std::memory_order_acquire);)  // pairs with the release below
      if (rounds.load(std::memory_order_acquire) > mine_done)
        exchange(*transports[1], 0, message, by_view, to, from), ++mine_done;
  });
  std::vector<std::byte> from(volume_bytes, std::byte{1}), to(volume_bytes);
  for (auto _ : state) {
    rounds.fetch_add(1, std::memory_order_release);  // pairs with the other thread's acquire
    exchange(*transports[0], 1, message, by_view, to, from);
  }
  stop.store(true, std::memory_order_release);
  state.SetBytesProcessed(int64_t(state.iterations()) * 2 * int64_t(volume_bytes));
}

BENCHMARK(raw_round_trip)->Arg(8)->UseRealTime();
BENCHMARK(tcp_round_trip)->Arg(8)->UseRealTime();
BENCHMARK(raw_both_ways)->RangeMultiplier(2)->Range(64 << 10, 1 << 20)->UseRealTime();
BENCHMARK_CAPTURE(tcp_both_ways, recv, false)->RangeMultiplier(2)->Range(64 << 10, 1 << 20)->UseRealTime();
BENCHMARK_CAPTURE(tcp_both_ways, view, true)->RangeMultiplier(2)->Range(64 << 10, 1 << 20)->UseRealTime();

}  // namespace
}  // namespace tutti

BENCHMARK_MAIN();
