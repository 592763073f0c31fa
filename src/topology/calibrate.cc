// A short calibration: memory, cache lines between cores, hand-over on a core, TCP over the loopback.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "topology/cost.h"
#include "topology/system.h"

namespace tutti {
namespace {

// The best of as many runs as fit before `until`, in ns; up to `latest` where they were fewer than `runs_min`; nullopt
// where the first fails. The best, because whatever else runs on this machine only ever adds.
template <class Run>
std::optional<double> best_of(TimeNs until, int runs_min, TimeNs latest, const Run& run) {
  std::optional<double> best;
  int runs = 0;
  do {
    const TimeNs start = now_ns();
    if (!run()) break;
    const double took = double(now_ns() - start);
    best = best ? std::min(*best, took) : took;
    ++runs;
  } while (now_ns() < (runs < runs_min ? latest : until));
  return best;
}

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core >= CPU_SETSIZE) return;
  CPU_SET(size_t(core), &set);
  // A refusal leaves the thread where it is: the measurement is then of that place.
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

// --- Memory

void measure_memory(MachineCosts& costs, TimeNs until) {
  constexpr size_t bytes = 2 << 20;  // beyond most second-level caches, as the slots of a channel together are
  constexpr size_t count = bytes / sizeof(float);
  constexpr int memory_runs_min = 8;  // about 0.1 ms each; on a busy machine the first may be the only one in time
  std::vector<float> a(count, 1.0f), b(count, 2.0f);
  const TimeNs start = now_ns(), half = start + (until - start) / 2;
  const auto copied_near = best_of(start + (until - start) / 8, memory_runs_min, until, [&] {
    std::memcpy(a.data(), b.data(), shm_near_bytes);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return true;
  });
  const auto copied = best_of(half, memory_runs_min, until, [&] {
    std::memcpy(a.data(), b.data(), bytes);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler must not drop a copy that nobody reads
    return true;
  });
  const auto reduced = best_of(until, memory_runs_min, 2 * until - half, [&] {
    for (size_t i = 0; i < count; ++i) a[i] += b[i];
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return true;
  });
  costs.copy_byte_ns = *copied / bytes;
  costs.reduce_byte_ns = *reduced / (2.0 * bytes);
  // Both wait for the same memory, so they are alike; where one is far above, it never had the core to itself.
  constexpr double ratio_max = 4;
  costs.copy_byte_ns = std::min(costs.copy_byte_ns, ratio_max * costs.reduce_byte_ns);
  costs.reduce_byte_ns = std::min(costs.reduce_byte_ns, ratio_max * costs.copy_byte_ns);
  costs.near_copy_byte_ns = std::min(*copied_near / double(shm_near_bytes), costs.copy_byte_ns);
}

// --- Two threads that throw a ball to and fro

struct alignas(64) Line {
  std::atomic<uint32_t> ball{0};
};

// One way between `first` and `second` core, in ns. Threads on one core must yield to each other.
std::optional<double> throw_ns(int first, int second, TimeNs until) {
  constexpr uint32_t throws = 16;  // to and fro, per run: short, so that a run fits between other threads' turns
  constexpr uint32_t stop = ~0u;
  Line there, back;
  const bool one_core = first == second;
  // A thread that waits for long may wait for one that has no core: it yields now and then, and ends by the clock.
  const auto await = [&](const std::atomic<uint32_t>& ball, uint32_t wanted) {
    for (uint32_t spins = 1;; ++spins) {
      const uint32_t seen = ball.load(std::memory_order_acquire);  // pairs with the other thread's store
      if (seen == wanted || seen == stop) return seen == wanted;
      if (one_core || spins % 4096 == 0) {
        ::sched_yield();
        if (now_ns() > until) return false;
      }
    }
  };
  std::thread answering([&] {
    pin_to(second);
    for (uint32_t ball = 1; await(there.ball, ball); ++ball) back.ball.store(ball, std::memory_order_release);
  });
  std::optional<double> best;
  std::thread asking([&] {
    pin_to(first);
    uint32_t ball = 0;
    best = best_of(until, 1, until, [&] {
      for (uint32_t i = 0; i < throws; ++i) {
        there.ball.store(++ball, std::memory_order_release);
        if (!await(back.ball, ball)) return false;
      }
      return true;
    });
    there.ball.store(stop, std::memory_order_release);
  });
  asking.join();
  answering.join();
  if (!best) return std::nullopt;
  return *best / (2.0 * throws);
}

bool share_cache(const Host& host, int a, int b) {
  const auto has = [](const std::vector<int>& cores, int core) {
    return std::binary_search(cores.begin(), cores.end(), core);
  };
  return std::any_of(host.caches.begin(), host.caches.end(),
                     [&](const Cache& cache) { return has(cache.cores, a) && has(cache.cores, b); });
}

bool same_physical_core(const Host& host, int a, int b) {
  return std::any_of(host.physical_cores.begin(), host.physical_cores.end(), [&](const std::vector<int>& threads) {
    return std::binary_search(threads.begin(), threads.end(), a) &&
           std::binary_search(threads.begin(), threads.end(), b);
  });
}

// The first allowed core and one that shares a cache with it, or none with it; -1 where there is no such core.
struct Partners {
  int core = -1;
  int near = -1;
  int far = -1;
};

Partners partners_of(const std::vector<int>& allowed, const Host* host) {
  Partners found;
  if (allowed.empty()) return found;
  found.core = allowed[0];
  for (size_t i = 1; i < allowed.size(); ++i) {
    const int other = allowed[i];
    if (host != nullptr && same_physical_core(*host, found.core, other)) continue;
    const bool near = host == nullptr || host->caches.empty() || share_cache(*host, found.core, other);
    int& place = near ? found.near : found.far;
    if (place < 0) place = other;
  }
  return found;
}

void measure_hops(MachineCosts& costs, const Host* host, TimeNs until) {
  const Partners partners = partners_of(thread_affinity(), host);
  if (partners.core < 0) return;
  const TimeNs start = now_ns(), part = (until - start) / 3;
  if (partners.near >= 0)
    if (const auto ns = throw_ns(partners.core, partners.near, start + part)) {
      costs.hop_ns = *ns;
      costs.far_hop_ns = 2 * *ns;
    }
  if (partners.far >= 0)
    if (const auto ns = throw_ns(partners.core, partners.far, start + 2 * part)) costs.far_hop_ns = *ns;
  if (const auto ns = throw_ns(partners.core, partners.core, until)) costs.hand_over_ns = *ns;
}

// --- TCP

struct Connection {
  Fd mine, other;
};

sockaddr_in own_address(int fd) {
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  return address;
}

// Two ends of a connection over 127.0.0.1, none of whose calls blocks for longer than `patience_ms`.
std::optional<Connection> connect_to_self(int patience_ms) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Connection connection{Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), Fd()};
  if (!listener.valid() || !connection.mine.valid()) return std::nullopt;
  const timeval patience{patience_ms / 1000, patience_ms % 1000 * 1000};
  for (int fd : {listener.get(), connection.mine.get()}) {
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return std::nullopt;
  address = own_address(listener.get());
  if (::listen(listener.get(), 1) != 0) return std::nullopt;
  if (::connect(connection.mine.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return std::nullopt;
  sockaddr_in peer{};
  socklen_t bytes = sizeof peer;
  connection.other = Fd(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&peer), &bytes, SOCK_CLOEXEC));
  // A stranger may have been faster than we were.
  if (!connection.other.valid() || peer.sin_port != own_address(connection.mine.get()).sin_port) return std::nullopt;
  const int on = 1;
  for (int fd : {connection.mine.get(), connection.other.get()}) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }
  return connection;
}

constexpr size_t burst_bytes = 1 << 20;

// Answers one byte to each byte, or to each burst, until the other side ends.
void answer(int fd, size_t message_bytes, std::vector<char>& buffer) {
  size_t got = 0;
  for (;;) {
    const ssize_t n = ::recv(fd, buffer.data(), std::min(buffer.size(), message_bytes - got), 0);
    if (n <= 0) return;
    got += size_t(n);
    if (got < message_bytes) continue;
    got = 0;
    if (::send(fd, buffer.data(), 1, MSG_NOSIGNAL) != 1) return;
  }
}

bool send_all(int fd, const char* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::send(fd, data + done, bytes - done, MSG_NOSIGNAL);
    if (n <= 0) return false;
    done += size_t(n);
  }
  return true;
}

// The best time of a message and its answer, and the least time that its send alone took.
struct RoundTrip {
  double ns = 0;
  double send_ns = 0;
};

std::optional<RoundTrip> round_trip(size_t message_bytes, TimeNs until) {
  constexpr int patience_ms = 20;
  auto connection = connect_to_self(patience_ms);
  if (!connection) return std::nullopt;
  std::vector<char> data(message_bytes), buffer(message_bytes);
  std::thread answering([&] { answer(connection->other.get(), message_bytes, buffer); });
  const int fd = connection->mine.get();
  double send_ns = 1e18;
  const auto best = best_of(until, 1, until, [&] {
    const TimeNs start = now_ns();
    if (!send_all(fd, data.data(), data.size())) return false;
    send_ns = std::min(send_ns, double(now_ns() - start));
    char reply = 0;
    return ::recv(fd, &reply, 1, 0) == 1;
  });
  ::shutdown(fd, SHUT_RDWR);
  answering.join();
  if (!best) return std::nullopt;
  return RoundTrip{*best, send_ns};
}

void measure_tcp(MachineCosts& costs, TimeNs until) {
  const TimeNs half = (now_ns() + until) / 2;
  const auto small = round_trip(1, half);
  const auto large = round_trip(burst_bytes, until);
  if (!small) return;
  // On a crowded core the reader runs before the send returns: then the send is not all of the way.
  costs.tcp_message_ns = std::min(small->send_ns, small->ns / 3);
  costs.tcp_receive_ns = costs.tcp_message_ns;
  costs.loopback_latency_ns = std::max(0.0, small->ns / 2 - costs.tcp_message_ns - costs.tcp_receive_ns);
  costs.network_latency_ns = std::max(costs.network_latency_ns, 2 * costs.loopback_latency_ns);
  if (large && large->ns > small->ns) costs.loopback_byte_ns = (large->ns - small->ns) / burst_bytes;
}

}  // namespace

MachineCosts calibrate(int budget_ms, const Host* host) {
  MachineCosts costs;
  const TimeNs start = now_ns(), budget = budget_ms * ns_per_ms;
  measure_memory(costs, start + budget / 5);
  measure_hops(costs, host, start + budget / 2);
  measure_tcp(costs, start + budget * 9 / 10);
  // No machine is ten times slower or faster than a common server; a measurement that says so was disturbed.
  constexpr double factor_max = 10;
  const MachineCosts common;
  for (const MachineCostRow& row : machine_cost_rows())
    costs.*row.value = std::clamp(costs.*row.value, common.*row.value / factor_max, common.*row.value * factor_max);
  return costs;
}

}  // namespace tutti
