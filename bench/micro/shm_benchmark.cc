// Shared memory between two cores: a hop, an exchange beside the hand-written one, and bandwidth beside memcpy's.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "bench/micro/line_exchange.h"
#include "transport/fake_bootstrap.h"
#include "transport/shm/shm.h"

namespace tutti {
namespace {

constexpr int core_a = 0, core_b = 1;

using Transports = std::vector<std::unique_ptr<Transport>>;

Transports connected(const ShmOptions& options) {
  const auto bootstraps = fake_bootstraps(2);
  return on_each_rank(bootstraps, [&](int rank) { return make_shm(*bootstraps[size_t(rank)], options); });
}

void need(Status status) {
  if (status == Status::failed) std::abort();
}

void send(Endpoint& endpoint, const std::byte* data, size_t bytes) {
  size_t done = 0;
  while (true) {
    const Status status = endpoint.send(data, bytes, 1, done);
    if (status == Status::done) return;
    need(status);
  }
}

void recv(Endpoint& endpoint, std::byte* data, size_t bytes) {
  size_t done = 0;
  while (true) {
    const Status status = endpoint.recv(data, bytes, 1, done);
    if (status == Status::done) return;
    need(status);
  }
}

// ns per round in which both sides send and then receive.
double exchange_ns(const Transports& transports, size_t bytes) {
  const int rounds = bytes <= 64 ? 1'000 : 100;
  return least_run_ns(core_a, core_b, 100, [&](int side) {
    Endpoint& endpoint = *transports[size_t(side)]->endpoint(1 - side, 0);
    std::vector<std::byte> out(bytes), in(bytes);
    for (int i = 0; i < rounds; ++i) {
      send(endpoint, out.data(), bytes);
      recv(endpoint, in.data(), bytes);
    }
  }) / rounds;
}

// ns of one way: half of a round trip.
double hop_ns(const Transports& transports, size_t bytes) {
  const int rounds = bytes <= 64 ? 1'000 : 100;
  return least_run_ns(core_a, core_b, 100, [&](int side) {
    Endpoint& endpoint = *transports[size_t(side)]->endpoint(1 - side, 0);
    std::vector<std::byte> data(bytes);
    for (int i = 0; i < rounds; ++i) {
      if (side == 0) send(endpoint, data.data(), bytes);
      recv(endpoint, data.data(), bytes);
      if (side == 1) send(endpoint, data.data(), bytes);
    }
  }) / rounds / 2;
}

// ms to move `bytes` from one side's memory to the other's, in messages of a slot; read in place or copied out.
double stream_ms(const Transports& transports, size_t bytes, bool copy_out) {
  const size_t slot = transports[0]->message_bytes_max();
  std::vector<std::byte> from(bytes, std::byte{1}), to(bytes, std::byte{2});
  return least_run_ns(core_a, core_b, 10, [&](int side) {
    Endpoint& endpoint = *transports[size_t(side)]->endpoint(1 - side, 0);
    for (size_t at = 0; at < bytes; at += slot) {
      if (side == 0) {
        send(endpoint, from.data() + at, slot);
      } else if (copy_out) {
        recv(endpoint, to.data() + at, slot);
      } else {
        const std::byte* data = nullptr;
        while (endpoint.view(slot, 1, data) != Status::done) {}
        endpoint.release();
      }
    }
    if (side == 1) send(endpoint, from.data(), 1);  // so that the sender's time ends with the last byte's arrival
    else recv(endpoint, to.data(), 1);
  }) / 1e6;
}

double memcpy_ms(size_t bytes) {
  std::vector<std::byte> from(bytes, std::byte{1}), to(bytes, std::byte{2});
  return least_run_ns(core_a, core_b, 10, [&](int side) {
    if (side == 0) std::memcpy(to.data(), from.data(), bytes);
  }) / 1e6;
}

int run() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Transports transports = connected({});
  const double line = line_exchange_ns(core_a, core_b);
  std::printf("hand-written exchange of two lines   %8.1f ns\n", line);
  for (const size_t bytes : {8u, 40u, 64u, 4096u, 65536u}) {
    const double exchange = exchange_ns(transports, bytes);
    std::printf("exchange of %6zu B                  %8.1f ns, %+8.1f ns\n", bytes, exchange, exchange - line);
  }
  for (const size_t bytes : {8u, 64u, 4096u})
    std::printf("one hop of %7zu B                  %8.1f ns\n", bytes, hop_ns(transports, bytes));
  const size_t bytes = 64 << 20;
  const double copy = memcpy_ms(bytes);
  std::printf("64 MiB: memcpy %.2f ms (%.1f GB/s)\n", copy, double(bytes) / copy / 1e6);
  for (const size_t slot : {16u << 10, 64u << 10, 256u << 10, 1u << 20}) {
    ShmOptions options;
    options.slot_bytes = slot;
    const Transports other = connected(options);
    std::printf("64 MiB in slots of %4zu KiB: copied out %.2f ms, only arrived %.2f ms\n", slot >> 10,
                stream_ms(other, bytes, true), stream_ms(other, bytes, false));
  }
  return 0;
}

}  // namespace
}  // namespace tutti

int main() { return tutti::run(); }
