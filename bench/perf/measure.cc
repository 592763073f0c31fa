// How a case is timed and checked.
#include "bench/perf/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/clock.h"
#include "bench/perf/flush.h"

namespace tutti::perf {
namespace {

constexpr double wanted_us = 20'000;  // of one timed loop, where the number of iterations is chosen
constexpr int iterations_min = 20, iterations_max = 200'000;
constexpr int warmup_cycles_max = 200;

double elapsed_us(TimeNs begin) { return double(now_ns() - begin) / double(ns_per_us); }

SharedMemory memory_of(const Options& options, Library& library) {
  return options.shared_memory ? library.shared_memory() : SharedMemory{nullptr, nullptr};
}

}  // namespace

Measurement::Measurement(const Options& options, Library& library)
    : options_(options), library_(library), means_(meaning(collective_of(options.operation))),
      send_(options.operation == Operation::barrier ? 0 : options.max_bytes, memory_of(options, library)),
      recv_(options.operation == Operation::barrier ? 0 : options.max_bytes, memory_of(options, library)) {}

Measurement::Parts Measurement::parts_of(const Case& what) const {
  const size_t me = size_t(library_.rank());
  const bool is_root = library_.rank() == std::max(what.root, 0);
  if (!means_.blocks) return {means_.input_of(is_root), means_.output_of(is_root), what.bytes, 0};
  const Blocks blocks = blocks_of(what, library_.rank());
  return {means_.input_of(is_root), means_.output_of(is_root), blocks.counts[me] * what.type.bytes,
          blocks.firsts[me] * what.type.bytes};
}

// Of v-forms, blocks are as 1 to 2 to 3 … to n; of an alltoall_v, what two ranks give each other is alike, and all ranks
// have one of each size.
Measurement::Blocks Measurement::blocks_of(const Case& what, int rank) const {
  const size_t n = size_t(library_.ranks()), total = what.bytes / what.type.bytes;
  Blocks blocks;
  const size_t parts = n * (n + 1);
  // Elements of the first k sizes.
  const auto up_to = [&](size_t k) { return total / parts * (k * (k + 1)) + total % parts * (k * (k + 1)) / parts; };
  for (size_t r = 0, first = 0; r < n; first += blocks.counts[r++]) {
    const size_t k = means_.transposes ? (size_t(rank) + r) % n : r;
    blocks.counts.push_back(is_v_form(collective_of(options_.operation)) ? up_to(k + 1) - up_to(k) : what.count);
    blocks.firsts.push_back(first);
  }
  return blocks;
}

// A rank's input. Of a mean over some of the ranks, which is not exact of any values, all ranks give the same.
Period Measurement::input_of(const Case& what, int rank, uint64_t seed) const {
  const bool alike = means_.joins != Joins::all && what.op && what.op->op == tuttiAvg;
  return input_period(what.type, what.op, library_.ranks(), alike ? 0 : rank, seed);
}

Period Measurement::result_of(const Case& what, uint64_t seed) const {
  if (means_.joins != Joins::all && what.op->op == tuttiAvg) return input_of(what, 0, seed);
  const uint32_t joined = means_.joined(uint32_t(library_.rank()), uint32_t(library_.ranks()));
  return reduced_period(what.type, *what.op, library_.ranks(), seed, int(joined));
}

// In place: the data lie in the receive buffer, which is then both; or in the send buffer where the result is a block.
Place Measurement::prepare(const Case& what, bool in_place, uint64_t seed) {
  if (options_.operation == Operation::barrier) return {};
  const Parts parts = parts_of(what);
  if (means_.blocks) blocks_ = blocks_of(what, library_.rank());
  const auto bytes = [&](Part part) {
    return part == Part::all ? what.bytes : part == Part::own ? parts.block_bytes : 0;
  };
  const bool both = parts.one_buffer(in_place), in_send = parts.in_send(in_place);
  const std::span<std::byte> send = send_.use(both && !in_send ? 0 : bytes(parts.input));
  const std::span<std::byte> recv = recv_.use(in_send ? 0 : bytes(parts.output));
  if (!recv.empty()) std::memset(recv.data(), 0x5A, recv.size());
  const size_t own_at = parts.input == parts.output ? 0 : parts.own_at;
  const std::span<std::byte> input = both && !in_send ? recv.subspan(own_at, bytes(parts.input)) : send;
  fill(input, input_of(what, library_.rank(), seed));
  std::byte* const sends_at = library_.bring(send_.whole(), send.data());
  std::byte* const recvs_at = library_.bring(recv_.whole(), recv.data());
  return {both && !in_send ? recvs_at + own_at : sends_at, in_send ? sends_at + own_at : recvs_at, both, blocks_.counts,
          blocks_.firsts};
}

void Measurement::call_grouped(const Case& what, const Place& place) {
  if (options_.grouped == 1) {
    library_.call(options_.operation, what, place);
  } else {
    library_.begin_group();
    for (int i = 0; i < options_.grouped; ++i) library_.call(options_.operation, what, place);
    library_.end_group();
  }
  if (options_.blocking) library_.synchronize();
}

double Measurement::averaged(double value) {
  switch (options_.average) {
    case Average::rank_0: return library_.from_rank_0(value);
    case Average::mean: return library_.combine(value, Over::sum) / library_.ranks();
    case Average::min: return library_.combine(value, Over::min);
    case Average::max: return library_.combine(value, Over::max);
  }
  return value;
}

// Of one operation, on this rank.
double Measurement::mean_us(const Case& what, const Place& place, int iterations) {
  if (options_.apart) {
    const std::vector<double> times = single_us(what, place, iterations);
    return std::accumulate(times.begin(), times.end(), 0.0) / iterations;
  }
  library_.barrier();
  const TimeNs begin = now_ns();
  for (int i = 0; i < iterations; ++i) call_grouped(what, place);
  library_.synchronize();
  return elapsed_us(begin) / iterations / options_.grouped;
}

// Rank 0 names a moment by the host's clock, of which all others hear before it comes, unless somebody took a core away.
void Measurement::await_common_start() {
  constexpr TimeNs ahead_ns = 4000;
  const auto start = TimeNs(library_.from_rank_0(double(now_ns() + ahead_ns)));
  if (std::abs(start - now_ns()) > 10 * ns_per_s)
    throw UsageError("--by-clock: the clocks of ranks differ by more than 10 s; they are not of one host");
  while (now_ns() < start) {}
}

// Of each operation, on this rank. Apart: all ranks begin it at about one time.
std::vector<double> Measurement::single_us(const Case& what, const Place& place, int iterations) {
  std::vector<double> times(static_cast<size_t>(iterations));
  library_.barrier();
  for (double& time : times) {
    if (options_.cold) flush(send_.look()), flush(recv_.look());
    if (options_.apart) library_.even_barrier();
    if (options_.by_clock) await_common_start();
    const TimeNs begin = now_ns();
    call_grouped(what, place);
    library_.synchronize();
    time = elapsed_us(begin) / options_.grouped;
  }
  return times;
}

// Warms up and looks how many iterations fill the wanted time. All ranks get the same number.
int Measurement::choose_iterations(const Case& what, const Place& place) {
  int iterations = std::max(options_.warmup, 1);
  if (options_.iterations > 0) {
    if (options_.warmup > 0) mean_us(what, place, options_.warmup);
    return options_.iterations;
  }
  double us = 0;
  // Doubled until it takes half the wanted time: a single short loop is mostly the barrier's echo, and a library's own
  // memory, which the first calls touch page by page, is in use by then.
  for (int cycle = 0; cycle < warmup_cycles_max; ++cycle) {
    us = std::max(library_.combine(mean_us(what, place, iterations), Over::max) * options_.grouped, 1e-3);
    if (us * iterations >= wanted_us / 2 || iterations >= iterations_max / 10) break;
    iterations *= 2;
  }
  return int(std::clamp(wanted_us / us, double(iterations_min), double(iterations_max)));
}

void Measurement::measure_single(const Case& what, const Place& place, int iterations, Result& result) {
  std::vector<double> times = single_us(what, place, iterations);
  library_.combine(times, Over::max);
  std::sort(times.begin(), times.end());
  result.min_us = times.front();
  result.median_us = percentile(times, 0.5);
  result.p99_us = percentile(times, 0.99);
}

// `output` is all that this rank has of it.
size_t Measurement::count_wrong_output(const Case& what, std::span<const std::byte> output, uint64_t seed) {
  const int n = library_.ranks(), me = library_.rank();
  const Parts parts = parts_of(what);
  const size_t width = what.type.bytes;
  // `first`: the element of what was given at which these begin.
  const auto wrong_in = [&](std::span<const std::byte> bytes, const Period& wanted, size_t first) {
    return count_wrong(bytes, shifted(wanted, first, width), width);
  };
  const size_t own_first = parts.output == Part::own ? parts.own_at / width : 0;
  if (means_.reduces) return wrong_in(output, result_of(what, seed), own_first);
  if (options_.operation == Operation::sendrecv) return wrong_in(output, input_of(what, (me + n - 1) % n, seed), 0);
  if (options_.operation == Operation::pass_round) return wrong_in(output, input_of(what, 0, seed), 0);
  if (!means_.blocks || parts.output != Part::all)
    return wrong_in(output, input_of(what, std::max(what.root, 0), seed), own_first);
  size_t wrong = 0;
  const Blocks mine = blocks_of(what, me);
  for (int r = 0; r < n; ++r) {
    const size_t first = means_.transposes ? blocks_of(what, r).firsts[size_t(me)] : 0;
    wrong += wrong_in(output.subspan(mine.firsts[size_t(r)] * width, mine.counts[size_t(r)] * width),
                      input_of(what, r, seed), first);
  }
  return wrong;
}

// Compares what lies in the buffers with what must; also that the input is as it was, and that nothing was written
// beyond the ends.
size_t Measurement::count_wrong_here(const Case& what, bool in_place, uint64_t seed) {
  const Parts parts = parts_of(what);
  const bool in_send = parts.in_send(in_place);
  library_.fetch(send_.whole());
  library_.fetch(recv_.whole());
  size_t wrong = send_.count_touched() + recv_.count_touched();
  if (parts.output != Part::none) {
    const auto output = in_send ? send_.look().subspan(parts.own_at, parts.block_bytes) : recv_.look();
    wrong += count_wrong_output(what, output, seed);
  }
  const Period input = input_of(what, library_.rank(), seed);
  const auto unchanged = [&](size_t first_byte, size_t bytes) {
    const Period wanted = shifted(input, first_byte / what.type.bytes, what.type.bytes);
    return count_wrong(send_.look().subspan(first_byte, bytes), wanted, what.type.bytes);
  };
  if (in_send) {
    const size_t end = parts.own_at + parts.block_bytes;
    wrong += unchanged(0, parts.own_at) + unchanged(end, what.bytes - end);
  } else if (!parts.one_buffer(in_place)) {
    wrong += unchanged(0, send_.look().size());
  }
  return wrong;
}

Result Measurement::measure_half(const Case& what, bool in_place, int& iterations) {
  Result result;
  result.present = true;
  uint64_t seed = 1;
  const Place place = prepare(what, in_place, seed);
  iterations = choose_iterations(what, place);
  result.time_us = averaged(mean_us(what, place, iterations));
  if (options_.percentiles) measure_single(what, place, iterations, result);
  rate(result, options_.operation, what.bytes, library_.ranks());
  if (options_.checks == 0 || options_.operation == Operation::barrier) return result;

  // Out of place the inputs are as they were, so what the timed loop left behind must be right as well.
  size_t wrong = in_place ? 0 : count_wrong_here(what, in_place, seed);
  for (int i = 0; i < options_.checks; ++i) {
    ++seed;
    const Place fresh = prepare(what, in_place, seed);
    library_.barrier();
    library_.call(options_.operation, what, fresh);
    library_.synchronize();
    wrong += count_wrong_here(what, in_place, seed);
  }
  wrong_here_ += int64_t(wrong);
  result.wrong = int64_t(library_.combine(double(wrong), Over::sum));
  return result;
}

Row Measurement::measure(const Case& what) {
  Row row;
  row.what = what;
  library_.use(what.algorithm);
  row.algorithm = library_.algorithm(options_.operation, what);
  int unused = 0;
  const bool has_in_place = !is_point_to_point(options_.operation) && options_.operation != Operation::barrier;
  if (library_.offers(options_.operation, false)) row.out_of_place = measure_half(what, false, row.iterations);
  int& iterations_in_place = row.out_of_place.present ? unused : row.iterations;
  if (has_in_place && library_.offers(options_.operation, true))
    row.in_place = measure_half(what, true, iterations_in_place);
  return row;
}

}  // namespace tutti::perf
