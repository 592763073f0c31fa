// How a case is timed and checked.
#include "bench/perf/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"

namespace tutti::perf {
namespace {

constexpr double wanted_us = 20'000;  // of one timed loop, where the number of iterations is chosen
constexpr int iterations_min = 20, iterations_max = 200'000;
constexpr int warmup_cycles_max = 200;

double elapsed_us(TimeNs begin) { return double(now_ns() - begin) / double(ns_per_us); }

}  // namespace

Measurement::Measurement(const Options& options, Rank& rank)
    : options_(options), rank_(rank), means_(meaning(collective_of(options.operation))),
      send_(options.operation == Operation::barrier ? 0 : options.max_bytes, options.shared_memory),
      recv_(options.operation == Operation::barrier ? 0 : options.max_bytes, options.shared_memory) {}

Measurement::Parts Measurement::parts_of(const Case& what) const {
  const size_t me = size_t(rank_.rank());
  const bool is_root = rank_.rank() == std::max(what.root, 0);
  if (!means_.blocks) return {means_.input_of(is_root), means_.output_of(is_root), what.bytes, 0};
  const Blocks blocks = blocks_of(what, rank_.rank());
  return {means_.input_of(is_root), means_.output_of(is_root), blocks.counts[me] * what.type.bytes,
          blocks.firsts[me] * what.type.bytes};
}

// Of v-forms, blocks are as 1 to 2 to 3 … to n; of an alltoall_v, what two ranks give each other is alike, and all ranks
// have one of each size.
Measurement::Blocks Measurement::blocks_of(const Case& what, int rank) const {
  const size_t n = size_t(rank_.ranks()), total = what.bytes / what.type.bytes;
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
  return input_period(what.type, what.op, rank_.ranks(), alike ? 0 : rank, seed);
}

Period Measurement::result_of(const Case& what, uint64_t seed) const {
  if (means_.joins != Joins::all && what.op->op == tuttiAvg) return input_of(what, 0, seed);
  const uint32_t joined = means_.joined(uint32_t(rank_.rank()), uint32_t(rank_.ranks()));
  return reduced_period(what.type, *what.op, rank_.ranks(), seed, int(joined));
}

// In place: the data lie in the receive buffer, which is then both; or in the send buffer where the result is a block.
Measurement::Place Measurement::prepare(const Case& what, bool in_place, uint64_t seed) {
  if (options_.operation == Operation::barrier) return {nullptr, nullptr};
  const Parts parts = parts_of(what);
  if (means_.blocks) blocks_ = blocks_of(what, rank_.rank());
  const auto bytes = [&](Part part) {
    return part == Part::all ? what.bytes : part == Part::own ? parts.block_bytes : 0;
  };
  const bool both = parts.one_buffer(in_place), in_send = parts.in_send(in_place);
  const std::span<std::byte> send = send_.use(both && !in_send ? 0 : bytes(parts.input));
  const std::span<std::byte> recv = recv_.use(in_send ? 0 : bytes(parts.output));
  if (!recv.empty()) std::memset(recv.data(), 0x5A, recv.size());
  const size_t own_at = parts.input == parts.output ? 0 : parts.own_at;
  const std::span<std::byte> input = both && !in_send ? recv.subspan(own_at, bytes(parts.input)) : send;
  fill(input, input_of(what, rank_.rank(), seed));
  return {input.data(), in_send ? send.data() + own_at : recv.data()};
}

void Measurement::call(const Case& what, const Place& place) {
  const tuttiDataType_t type = what.type.type;
  const tuttiComm_t comm = rank_.comm();
  const tuttiStream_t stream = rank_.stream();
  switch (options_.operation) {
    case Operation::all_reduce:
      return check(tuttiAllReduce(place.send, place.recv, what.count, type, what.op->op, comm, stream),
                   "tuttiAllReduce", comm);
    case Operation::broadcast:
      return check(tuttiBroadcast(place.send, place.recv, what.count, type, what.root, comm, stream),
                   "tuttiBroadcast", comm);
    case Operation::reduce:
      return check(tuttiReduce(place.send, place.recv, what.count, type, what.op->op, what.root, comm, stream),
                   "tuttiReduce", comm);
    case Operation::all_gather:
      return check(tuttiAllGather(place.send, place.recv, what.count, type, comm, stream), "tuttiAllGather", comm);
    case Operation::reduce_scatter:
      return check(tuttiReduceScatter(place.send, place.recv, what.count, type, what.op->op, comm, stream),
                   "tuttiReduceScatter", comm);
    case Operation::gather:
      return check(tuttiGather(place.send, place.recv, what.count, type, what.root, comm, stream), "tuttiGather", comm);
    case Operation::scatter:
      return check(tuttiScatter(place.send, place.recv, what.count, type, what.root, comm, stream), "tuttiScatter",
                   comm);
    case Operation::alltoall:
      return check(tuttiAlltoAll(place.send, place.recv, what.count, type, comm, stream), "tuttiAlltoAll", comm);
    case Operation::scan:
      return check(tuttiScan(place.send, place.recv, what.count, type, what.op->op, comm, stream), "tuttiScan", comm);
    case Operation::exscan:
      return check(tuttiExScan(place.send, place.recv, what.count, type, what.op->op, comm, stream), "tuttiExScan",
                   comm);
    case Operation::barrier: return check(tuttiBarrier(comm, stream), "tuttiBarrier", comm);
    case Operation::sendrecv: break;
    default: return call_v_form(what, place);
  }
  // To the next rank, from the one before.
  const int next = (rank_.rank() + 1) % rank_.ranks();
  const int before = (rank_.rank() + rank_.ranks() - 1) % rank_.ranks();
  check(tuttiGroupStart(), "tuttiGroupStart");
  check(tuttiSend(place.send, what.count, type, next, comm, stream), "tuttiSend", comm);
  check(tuttiRecv(place.recv, what.count, type, before, comm, stream), "tuttiRecv", comm);
  check(tuttiGroupEnd(), "tuttiGroupEnd", comm);
}

void Measurement::call_v_form(const Case& what, const Place& place) {
  const tuttiDataType_t type = what.type.type;
  const tuttiComm_t comm = rank_.comm();
  const tuttiStream_t stream = rank_.stream();
  const size_t* const counts = blocks_.counts.data();
  const size_t* const firsts = blocks_.firsts.data();
  const size_t own = counts[rank_.rank()];
  switch (options_.operation) {
    case Operation::all_gather_v:
      return check(tuttiAllGatherV(place.send, own, place.recv, counts, firsts, type, comm, stream), "tuttiAllGatherV",
                   comm);
    case Operation::reduce_scatter_v:
      return check(tuttiReduceScatterV(place.send, counts, firsts, place.recv, own, type, what.op->op, comm, stream),
                   "tuttiReduceScatterV", comm);
    case Operation::gather_v:
      return check(tuttiGatherV(place.send, own, place.recv, counts, firsts, type, what.root, comm, stream),
                   "tuttiGatherV", comm);
    case Operation::scatter_v:
      return check(tuttiScatterV(place.send, counts, firsts, place.recv, own, type, what.root, comm, stream),
                   "tuttiScatterV", comm);
    default:
      return check(tuttiAlltoAllV(place.send, counts, firsts, place.recv, counts, firsts, type, comm, stream),
                   "tuttiAlltoAllV", comm);
  }
}

void Measurement::call_grouped(const Case& what, const Place& place) {
  if (options_.grouped == 1) {
    call(what, place);
  } else {
    check(tuttiGroupStart(), "tuttiGroupStart");
    for (int i = 0; i < options_.grouped; ++i) call(what, place);
    check(tuttiGroupEnd(), "tuttiGroupEnd", rank_.comm());
  }
  if (options_.blocking) rank_.synchronize();
}

double Measurement::averaged(double value) {
  switch (options_.average) {
    case Average::rank_0: return rank_.from_rank_0(value);
    case Average::mean: return rank_.reduce(value, tuttiSum) / rank_.ranks();
    case Average::min: return rank_.reduce(value, tuttiMin);
    case Average::max: return rank_.reduce(value, tuttiMax);
  }
  return value;
}

// Of one operation, on this rank.
double Measurement::mean_us(const Case& what, const Place& place, int iterations) {
  if (options_.apart) return mean_apart_us(what, place, iterations);
  rank_.barrier();
  const TimeNs begin = now_ns();
  for (int i = 0; i < iterations; ++i) call_grouped(what, place);
  rank_.synchronize();
  return elapsed_us(begin) / iterations / options_.grouped;
}

// The same, of operations that all ranks begin at about one time.
double Measurement::mean_apart_us(const Case& what, const Place& place, int iterations) {
  double us = 0;
  for (int i = 0; i < iterations; ++i) {
    rank_.even_barrier();
    const TimeNs begin = now_ns();
    call_grouped(what, place);
    rank_.synchronize();
    us += elapsed_us(begin);
  }
  return us / iterations / options_.grouped;
}

// Warms up and looks how many iterations fill the wanted time. All ranks get the same number.
int Measurement::choose_iterations(const Case& what, const Place& place) {
  int iterations = std::max(options_.warmup, 1);
  if (options_.iterations > 0) {
    if (options_.warmup > 0) mean_us(what, place, options_.warmup);
    return options_.iterations;
  }
  double us = 0;
  // Doubled until a twentieth of the wanted time is measured: a single short loop is mostly the barrier's echo.
  for (int cycle = 0; cycle < warmup_cycles_max; ++cycle) {
    us = std::max(rank_.reduce(mean_us(what, place, iterations), tuttiMax) * options_.grouped, 1e-3);
    if (us * iterations >= wanted_us / 20 || iterations >= iterations_max / 10) break;
    iterations *= 2;
  }
  return int(std::clamp(wanted_us / us, double(iterations_min), double(iterations_max)));
}

void Measurement::measure_single(const Case& what, const Place& place, int iterations, Result& result) {
  std::vector<double> times(static_cast<size_t>(iterations));
  rank_.barrier();
  for (double& time : times) {
    const TimeNs begin = now_ns();
    call_grouped(what, place);
    rank_.synchronize();
    time = elapsed_us(begin) / options_.grouped;
  }
  rank_.reduce(times, tuttiMax);
  std::sort(times.begin(), times.end());
  result.min_us = times.front();
  result.median_us = percentile(times, 0.5);
  result.p99_us = percentile(times, 0.99);
}

// `output` is all that this rank has of it.
size_t Measurement::count_wrong_output(const Case& what, std::span<const std::byte> output, uint64_t seed) {
  const int n = rank_.ranks(), me = rank_.rank();
  const Parts parts = parts_of(what);
  const size_t width = what.type.bytes;
  // `first`: the element of what was given at which these begin.
  const auto wrong_in = [&](std::span<const std::byte> bytes, const Period& wanted, size_t first) {
    return count_wrong(bytes, shifted(wanted, first, width), width);
  };
  const size_t own_first = parts.output == Part::own ? parts.own_at / width : 0;
  if (means_.reduces) return wrong_in(output, result_of(what, seed), own_first);
  if (options_.operation == Operation::sendrecv) return wrong_in(output, input_of(what, (me + n - 1) % n, seed), 0);
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
  size_t wrong = send_.count_touched() + recv_.count_touched();
  if (parts.output != Part::none) {
    const auto output = in_send ? send_.look().subspan(parts.own_at, parts.block_bytes) : recv_.look();
    wrong += count_wrong_output(what, output, seed);
  }
  const Period input = input_of(what, rank_.rank(), seed);
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
  rate(result, options_.operation, what.bytes, rank_.ranks());
  if (options_.checks == 0 || options_.operation == Operation::barrier) return result;

  // Out of place the inputs are as they were, so what the timed loop left behind must be right as well.
  size_t wrong = in_place ? 0 : count_wrong_here(what, in_place, seed);
  for (int i = 0; i < options_.checks; ++i) {
    ++seed;
    const Place fresh = prepare(what, in_place, seed);
    rank_.barrier();
    call(what, fresh);
    rank_.synchronize();
    wrong += count_wrong_here(what, in_place, seed);
  }
  wrong_here_ += int64_t(wrong);
  result.wrong = int64_t(rank_.reduce(double(wrong), tuttiSum));
  return result;
}

Row Measurement::measure(const Case& what) {
  Row row;
  row.what = what;
  const char* algorithm = nullptr;
  if (options_.operation != Operation::sendrecv) {
    const std::string collective(tutti::name(collective_of(options_.operation)));
    check(tuttiCommAlgorithm(rank_.comm(), collective.c_str(), what.bytes, &algorithm), "tuttiCommAlgorithm");
    row.algorithm = algorithm;
  }
  row.out_of_place = measure_half(what, false, row.iterations);
  int unused = 0;
  const bool has_in_place = options_.operation != Operation::sendrecv && options_.operation != Operation::barrier;
  if (has_in_place) row.in_place = measure_half(what, true, unused);
  return row;
}

}  // namespace tutti::perf
