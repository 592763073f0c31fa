// machine-limits: what two cores of this machine can do at best, as JSON: what measured libraries are held against.
// Usage: machine-limits [--copies|--memory] [CORE CORE]; by default the first two cores that are allowed. Takes about a second.
// --copies, in place of all that: {bytes: µs} of plain copying by both cores at once, each between two buffers of its own that
// are as the last copy left them. Where the caches end, twice the bytes take more than twice as long. Takes about five seconds.
// --memory: what memory can do at the time, both cores together: of nine runs not the best but the median, as of what is
// measured before and after it. Takes half a second.
#include <arpa/inet.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/fd.h"
#include "bench/micro/line_exchange.h"

namespace tutti {
namespace {

struct alignas(128) Ball {
  std::atomic<uint32_t> number{0};
};

// One way, in ns: two threads throw a ball to and fro; `wait(ball, number)` returns when it has come, `wake(ball)` follows
// each throw.
template <class Wait, class Wake>
double throw_ns(int core_a, int core_b, const Wait& wait, const Wake& wake) {
  constexpr uint32_t rounds = 200;
  std::array<Ball, 2> balls;
  std::array<uint32_t, 2> last{};
  return least_run_ns(core_a, core_b, 50, [&](int side) {
    Ball &mine = balls[size_t(side)], &theirs = balls[size_t(1 - side)];
    uint32_t& k = last[size_t(side)];
    for (uint32_t i = 0; i < rounds; ++i) {
      ++k;
      if (side == 1) wait(theirs, k);
      mine.number.store(k, std::memory_order_release);  // pairs with the other side's load
      wake(mine);
      if (side == 0) wait(theirs, k);
    }
  }) / (2.0 * rounds);
}

double yield_ns(int core) {
  return throw_ns(core, core,
                  [](Ball& ball, uint32_t number) {
                    while (ball.number.load(std::memory_order_acquire) != number) ::sched_yield();
                  },
                  [](Ball&) {});
}

double futex_ns(int core_a, int core_b) {
  const auto futex = [](Ball& ball, int operation, uint32_t value) {
    ::syscall(SYS_futex, &ball.number, operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
  };
  return throw_ns(core_a, core_b,
                  [&](Ball& ball, uint32_t number) {
                    for (uint32_t seen; (seen = ball.number.load(std::memory_order_acquire)) != number;)
                      futex(ball, FUTEX_WAIT, seen);
                  },
                  [&](Ball& ball) { futex(ball, FUTEX_WAKE, 1); });
}

// Past the caches where the processor can.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__x86_64__)
  for (size_t i = 0; i < bytes; i += 64)
    for (size_t j = 0; j < 64; j += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + j),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + i + j)));
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

// Through the caches, whatever the size.
void plain_copy(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__x86_64__)
  for (size_t i = 0; i < bytes; i += 64)
    for (size_t j = 0; j < 64; j += 16)
      _mm_store_si128(reinterpret_cast<__m128i*>(to + i + j), _mm_load_si128(reinterpret_cast<const __m128i*>(from + i + j)));
#else
  std::memcpy(to, from, bytes);
#endif
}

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
std::unique_ptr<std::byte, Free> touched_memory(size_t bytes) {
  std::unique_ptr<std::byte, Free> memory(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
  std::memset(memory.get(), 1, bytes);
  return memory;
}

// Which of several runs counts, and of how many of memory's.
using OfRuns = double (*)(int, int, int, const std::function<void(int)>&);
constexpr int memory_runs = 9;

// Bytes read and written in a ns, by both cores together or the first alone.
double copy_gbps(int core_a, int core_b, bool both, OfRuns of_runs) {
  constexpr size_t bytes = 64 << 20;
  std::array<std::unique_ptr<std::byte, Free>, 4> memory;
  for (auto& one : memory) one = touched_memory(bytes);
  const double ns = of_runs(core_a, core_b, memory_runs, [&](int side) {
    if (side == 0 || both) stream_copy(memory[size_t(2 * side)].get(), memory[size_t(2 * side + 1)].get(), bytes);
  });
  return (both ? 2.0 : 1.0) * 2 * bytes / ns;
}

double copy_us(int core_a, int core_b, size_t bytes) {
  std::array<std::unique_ptr<std::byte, Free>, 4> memory;
  for (auto& one : memory) one = touched_memory(bytes);
  const int times = int(std::clamp<size_t>((size_t{512} << 20) / bytes, 12, 1000));
  return least_run_ns(core_a, core_b, times, [&](int side) {
    plain_copy(memory[size_t(2 * side)].get(), memory[size_t(2 * side + 1)].get(), bytes);
  }) / 1e3;
}

void stream_fill(std::byte* to, size_t bytes) {
#if defined(__x86_64__)
  const __m128i value = _mm_set1_epi8(1);
  for (size_t i = 0; i < bytes; i += 16) _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), value);
  _mm_sfence();
#else
  std::memset(to, 1, bytes);
#endif
}

// Bytes written in a ns by both cores together, none read: what reading and writing in equal parts does not show.
double write_gbps(int core_a, int core_b, OfRuns of_runs) {
  constexpr size_t bytes = 64 << 20;
  std::array<std::unique_ptr<std::byte, Free>, 2> memory;
  for (auto& one : memory) one = touched_memory(bytes);
  return 2.0 * bytes / of_runs(core_a, core_b, memory_runs, [&](int side) { stream_fill(memory[size_t(side)].get(), bytes); });
}

// Bytes read in a ns by both cores together, none written; each reads two streams, which is faster than one.
double read_gbps(int core_a, int core_b, OfRuns of_runs) {
  constexpr size_t words = (64 << 20) / sizeof(uint64_t), half = words / 2;
  std::array<std::unique_ptr<std::byte, Free>, 2> memory;
  for (auto& one : memory) one = touched_memory(words * sizeof(uint64_t));
  std::array<Ball, 2> sinks;
  return 2.0 * words * sizeof(uint64_t) / of_runs(core_a, core_b, memory_runs, [&](int side) {
    const auto* const data = reinterpret_cast<const uint64_t*>(memory[size_t(side)].get());
    uint64_t sums[8] = {};
    for (size_t i = 0; i < half; i += 4)
      for (size_t k = 0; k < 4; ++k) {
        sums[k] += data[i + k];
        sums[4 + k] += data[half + i + k];
      }
    sinks[size_t(side)].number = uint32_t(std::accumulate(sums, sums + 8, uint64_t{0}));
  });
}

// Bytes in a ns that one core reads of what the other has just written.
double dirty_gbps(int core_a, int core_b) {
  constexpr size_t words = (256 << 10) / sizeof(uint64_t);
  const auto memory = touched_memory(words * sizeof(uint64_t));
  auto* const data = reinterpret_cast<uint64_t*>(memory.get());
  Ball written;
  uint32_t written_rounds = 0, read_rounds = 0;
  volatile uint64_t sink = 0;
  double least = 1e300;
  least_run_ns(core_a, core_b, 200, [&](int side) {
    if (side == 1) {
      std::memset(data, int(++written_rounds), words * sizeof(uint64_t));
      written.number.store(written_rounds, std::memory_order_release);  // pairs with the reader's load
      return;
    }
    ++read_rounds;  // rounds begin together, so the other side is never a round ahead
    while (written.number.load(std::memory_order_acquire) != read_rounds) {}
    const TimeNs start = now_ns();
    sink = sink + std::accumulate(data, data + words, uint64_t{0});
    least = std::min(least, double(now_ns() - start));
  });
  return double(words * sizeof(uint64_t)) / least;
}

struct Connection {
  Fd ends[2];
};

Connection connect_to_self() {
  Connection connection;
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  connection.ends[0] = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      ::connect(connection.ends[0].get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0)
    throw std::runtime_error("no TCP connection over the loopback");
  connection.ends[1] = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int on = 1;
  for (const Fd& end : connection.ends) ::setsockopt(end.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return connection;
}

void move_all(bool out, int fd, std::vector<char>& data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const size_t some = std::min(data.size(), bytes - done);
    const ssize_t n = out ? ::send(fd, data.data(), some, MSG_NOSIGNAL) : ::recv(fd, data.data(), some, 0);
    if (n <= 0) throw std::runtime_error("the TCP connection over the loopback broke");
    done += size_t(n);
  }
}

// To and back.
double tcp_round_trip_ns(int core_a, int core_b) {
  const Connection connection = connect_to_self();
  constexpr int rounds = 200;
  return least_run_ns(core_a, core_b, 20, [&](int side) {
    std::vector<char> data(1);
    const int fd = connection.ends[side].get();
    for (int i = 0; i < rounds; ++i) {
      move_all(side == 0, fd, data, 1);
      move_all(side == 1, fd, data, 1);
    }
  }) / rounds;
}

double tcp_gbps(int core_a, int core_b) {
  const Connection connection = connect_to_self();
  constexpr size_t bytes = 64 << 20;
  const double ns = least_run_ns(core_a, core_b, 6, [&](int side) {
    std::vector<char> data(1 << 20), reply(1);
    const int fd = connection.ends[side].get();
    move_all(side == 0, fd, data, bytes);
    move_all(side == 1, fd, reply, 1);
  });
  return double(bytes) / ns;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  using namespace tutti;
  const auto first_is = [&](const char* word) { return argc > 1 && std::strcmp(argv[1], word) == 0; };
  const bool copies = first_is("--copies"), memory = first_is("--memory");
  if (copies || memory) --argc, ++argv;
  cpu_set_t allowed;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  if (argc == 3) cores = {std::atoi(argv[1]), std::atoi(argv[2])};
  if (argc == 2 || argc > 3 || cores.size() < 2 || cores[0] == cores[1]) {
    std::fprintf(stderr, "usage: machine-limits [--copies|--memory] [CORE CORE], two different cores\n");
    return 2;
  }
  const int a = cores[0], b = cores[1];
  try {
    if (copies) {
      constexpr size_t least = 64 << 10, most = 256 << 20;
      for (size_t bytes = least; bytes <= most; bytes *= 2)
        std::printf("%s\"%zu\": %.2f", bytes == least ? "{" : ", ", bytes, copy_us(a, b, bytes));
      std::printf("}\n");
      return 0;
    }
    const OfRuns of_runs = memory ? median_run_ns : least_run_ns;
    std::printf("{\"copy_2_gbps\": %.2f, \"write_2_gbps\": %.2f, \"read_2_gbps\": %.2f", copy_gbps(a, b, true, of_runs),
                write_gbps(a, b, of_runs), read_gbps(a, b, of_runs));
    if (memory) {
      std::printf("}\n");
      return 0;
    }
    std::printf(", \"line_exchange_ns\": %.1f, \"yield_ns\": %.1f, \"futex_ns\": %.1f, ", line_exchange_ns(a, b), yield_ns(a),
                futex_ns(a, b));
    std::printf("\"copy_1_gbps\": %.2f, \"dirty_gbps\": %.2f, ", copy_gbps(a, b, false, of_runs), dirty_gbps(a, b));
    std::printf("\"tcp_round_trip_ns\": %.0f, \"tcp_gbps\": %.2f}\n", tcp_round_trip_ns(a, b), tcp_gbps(a, b));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "machine-limits: %s\n", error.what());
    return 1;
  }
  return 0;
}
