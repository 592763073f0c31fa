// staging: what an exchange and an all_reduce of two processes can take at best in memory that is not shared: by way of
// memory that is, and by way of the kernel (process_vm_readv), with the library's copies and sums and nothing around them.
// Prints medians in us. Usage: staging [huge]: with "huge", buffers are advised to be of huge pages. On cores 0 and 1.
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "bench/micro/line_exchange.h"
#include "reduce/reduce.h"

namespace tutti {
namespace {

constexpr size_t buffer_bytes = size_t{64} << 20;
constexpr size_t message_bytes_max = size_t{256} << 10;
constexpr size_t block_bytes = size_t{8} << 10;       // sums are answered by so much
constexpr size_t kernel_bytes = size_t{64} << 10;     // what is to be summed is fetched by so much

const ReduceFunction add = reduce_function(DataType::float32, ReduceOp::sum);

// What both processes see.
struct Shared {
  struct alignas(128) Flag {
    std::atomic<uint64_t> number{0};
  };
  struct Side {
    Flag flag;
    pid_t pid;
    std::byte *input, *output;
  };
  Side sides[2];
  alignas(4096) std::byte places[2][message_bytes_max];  // each is written by who has read it last, as in the library
};

std::byte* map(size_t bytes, int flags) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
  if (at == MAP_FAILED) std::perror("mmap"), std::exit(1);
  return static_cast<std::byte*>(at);
}

class Process {
 public:
  Process(Shared& shared, int rank, bool huge)
      : mine_(shared.sides[rank]), theirs_(shared.sides[1 - rank]), places_(shared.places), rank_(rank), own_place_(rank),
        stage_(message_bytes_max) {
    pin_to_core(rank);
    mine_.pid = ::getpid();
    for (std::byte** const buffer : {&mine_.input, &mine_.output}) {
      *buffer = map(buffer_bytes + (size_t{2} << 20), MAP_PRIVATE);
      *buffer += -reinterpret_cast<uintptr_t>(*buffer) % (size_t{2} << 20);
      if (huge) ::madvise(*buffer, buffer_bytes, MADV_HUGEPAGE);
      std::memset(*buffer, 0, buffer_bytes);
    }
    meet();
  }

  void meet() {
    mine_.flag.number.store(++number_, std::memory_order_release);  // pairs with the other side's load
    while (theirs_.flag.number.load(std::memory_order_acquire) < number_) {}
  }

  void exchange_staged(size_t bytes) {
    const size_t message = std::min(bytes, message_bytes_max);
    for (size_t at = 0; at < bytes; at += message) {
      copy_bytes(places_[own_place_], mine_.input + at, message, Store::cached);
      meet();
      own_place_ = 1 - own_place_;
      copy_bytes(mine_.output + at, places_[own_place_], message, Store::cached);
    }
  }

  void exchange_by_kernel(size_t bytes) {
    meet();
    fetch(mine_.output, theirs_.input, bytes);
    meet();
  }

  // Each adds one half, and gives it to the other.
  void all_reduce_staged(size_t bytes) {
    const size_t half = bytes / 2, message = std::min(half, message_bytes_max);
    const size_t my_half = size_t(rank_) * half, their_half = half - my_half;
    for (size_t at = 0; at < half; at += message) {
      copy_bytes(places_[own_place_], mine_.input + their_half + at, message, Store::cached);
      meet();
      std::byte* const answered = places_[1 - own_place_];
      for (size_t i = 0; i < message; i += block_bytes) {
        const size_t n = std::min(block_bytes, message), place = my_half + at + i;
        sum(mine_.output + place, answered + i, mine_.input + place, n);
        copy_bytes(answered + i, mine_.output + place, n, Store::cached);
      }
      meet();
      copy_bytes(mine_.output + their_half + at, places_[own_place_], message, Store::cached);
    }
  }

  void all_reduce_by_kernel(size_t bytes) {
    const size_t half = bytes / 2, part = std::min(half, kernel_bytes);
    const size_t my_half = size_t(rank_) * half, their_half = half - my_half;
    meet();
    for (size_t at = my_half; at < my_half + half; at += part) {
      fetch(stage_.data(), theirs_.input + at, part);
      sum(mine_.output + at, stage_.data(), mine_.input + at, part);
    }
    meet();
    fetch(mine_.output + their_half, theirs_.output + their_half, half);
    meet();
  }

  double median_us(void (Process::*body)(size_t), size_t bytes) {
    const size_t times = std::clamp<size_t>((size_t{200} << 20) / bytes, 20, 3000);
    std::vector<double> us;
    for (size_t i = 0; i < times; ++i) {
      const TimeNs start = now_ns();
      (this->*body)(bytes);
      if (i >= times / 4) us.push_back(double(now_ns() - start) / 1e3);  // those before warm up
    }
    std::nth_element(us.begin(), us.begin() + long(us.size() / 2), us.end());
    return us[us.size() / 2];
  }

 private:
  static void sum(std::byte* result, const std::byte* a, const std::byte* b, size_t bytes) {
    const void* const inputs[] = {a, b};
    add(result, inputs, 2, bytes / sizeof(float), 0, Store::cached);
  }
  void fetch(std::byte* to, std::byte* from, size_t bytes) const {
    const iovec here{to, bytes}, there{from, bytes};
    if (::process_vm_readv(theirs_.pid, &here, 1, &there, 1, 0) != ssize_t(bytes)) std::perror("process_vm_readv"), std::exit(1);
  }

  Shared::Side &mine_, &theirs_;
  std::byte (&places_)[2][message_bytes_max];
  const int rank_;
  int own_place_;
  std::vector<std::byte> stage_;
  uint64_t number_ = 0;
};

void run(bool huge) {
  const double line_ns = line_exchange_ns(0, 1);
  auto* const shared = new (map(sizeof(Shared), MAP_SHARED)) Shared;
  const pid_t child = ::fork();
  if (child < 0) std::perror("fork"), std::exit(1);
  Process process(*shared, child == 0 ? 1 : 0, huge);
  if (child != 0)
    std::printf("%.1f ns between the cores, us:\n%10s %18s %18s %18s %18s\n", line_ns, "bytes", "exchange, staged",
                "by the kernel", "all_reduce, staged", "by the kernel");
  for (size_t bytes = size_t{16} << 10; bytes <= size_t{16} << 20; bytes *= 2) {
    const double us[] = {process.median_us(&Process::exchange_staged, bytes), process.median_us(&Process::exchange_by_kernel, bytes),
                         process.median_us(&Process::all_reduce_staged, bytes),
                         process.median_us(&Process::all_reduce_by_kernel, bytes)};
    if (child != 0) std::printf("%10zu %18.2f %18.2f %18.2f %18.2f\n", bytes, us[0], us[1], us[2], us[3]);
  }
  if (child == 0) std::exit(0);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  const bool huge = argc == 2 && argv[1] == std::string_view("huge");
  if (argc > 1 && !huge) return std::fprintf(stderr, "usage: staging [huge]\n"), 2;
  tutti::run(huge);
  return 0;
}
