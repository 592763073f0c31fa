// lone-message: what one large message takes that stands alone, as a tensor does that its size went before, or what one stage of a
// pipeline gives the next. Rank 1 says that it is ready, rank 0 when it will send; then the message goes to rank 1, which sends on
// what it has received. Prints µs from rank 0's begin to rank 1's end, and from there to rank 0's, medians; with buffers as the last
// message left them, and with inputs, outputs or both in no cache.
// Usage, of a launcher's two ranks on one host: tutti-run -n 2 lone-message
//
// For the same of an MPI: mpicxx -DRANKS_OF_MPI -DMPICH_SKIP_MPICXX -O2 -std=c++20 lone_message.cc -o lone-message-mpi; mpirun -n 2
// ./lone-message-mpi
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "../perf/flush.h"
#include "ranks.h"

namespace {

// Of the host's clock, which all ranks have.
double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double>& us) {
  std::nth_element(us.begin(), us.begin() + long(us.size() / 2), us.end());
  return us[us.size() / 2];
}

void measure(Ranks& ranks, size_t bytes, bool cold_inputs, bool cold_outputs) {
  constexpr int messages = 300;
  constexpr double ahead_us = 5;
  std::vector<std::byte> input(bytes, std::byte{1}), output(bytes, std::byte{2});
  std::vector<double> there, back;
  for (int i = 0; i < messages; ++i) {
    if (cold_inputs) tutti::perf::flush(input);
    if (cold_outputs) tutti::perf::flush(output);
    double begin = 0, arrived = 0;
    if (ranks.rank() == 0) {
      ranks.receive(&begin, sizeof begin, 1);
      begin = now_us() + ahead_us;
      ranks.send(&begin, sizeof begin, 1);
      while (now_us() < begin) {
      }
      ranks.send(input.data(), bytes, 1);
      ranks.receive(output.data(), bytes, 1);
      const double end = now_us();
      ranks.receive(&arrived, sizeof arrived, 1);
      there.push_back(arrived - begin);
      back.push_back(end - arrived);
    } else {
      ranks.send(&begin, sizeof begin, 0);
      ranks.receive(&begin, sizeof begin, 0);
      ranks.receive(output.data(), bytes, 0);
      arrived = now_us();
      ranks.send(output.data(), bytes, 0);
      ranks.send(&arrived, sizeof arrived, 0);
    }
  }
  if (ranks.rank() == 0)
    std::printf("%9zu  %-6s  %-7s  %9.2f  %9.2f\n", bytes, cold_inputs ? "cold" : "hot", cold_outputs ? "cold" : "hot",
                median(there), median(back));
}

}  // namespace

int main() {
  Ranks ranks;
  if (ranks.size() != 2) {
    if (ranks.rank() == 0) std::fprintf(stderr, "lone-message: %d ranks; it is of two\n", ranks.size());
    return 2;
  }
  stay_on_own_core(ranks);
  if (ranks.rank() == 0) std::printf("%9s  %-6s  %-7s  %9s  %9s\n", "bytes", "inputs", "outputs", "there", "back");
  for (const bool cold_outputs : {false, true})
    for (const bool cold_inputs : {false, true})
      for (const size_t bytes : {size_t{16} << 10, size_t{64} << 10, size_t{256} << 10, size_t{1} << 20})
        measure(ranks, bytes, cold_inputs, cold_outputs);
}
