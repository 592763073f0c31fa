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
    : options_(options), rank_(rank),
      send_(options.operation == Operation::barrier ? 0 : options.max_bytes),
      recv_(options.operation == Operation::barrier ? 0 : options.max_bytes) {}

// In place: the data lie in the receive buffer, which is then both.
Measurement::Place Measurement::prepare(const Case& what, bool in_place, uint64_t seed) {
  if (options_.operation == Operation::barrier) return {nullptr, nullptr};
  const std::span<std::byte> send = send_.use(what.bytes), recv = recv_.use(what.bytes);
  const Period input = input_period(what.type, what.op, rank_.ranks(), rank_.rank(), seed);
  fill(in_place ? recv : send, input);
  if (!in_place && !recv.empty()) std::memset(recv.data(), 0x5A, recv.size());
  return {in_place ? recv.data() : send.data(), recv.data()};
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
    case Operation::barrier: return check(tuttiBarrier(comm, stream), "tuttiBarrier", comm);
    case Operation::sendrecv: break;
  }
  // To the next rank, from the one before.
  const int next = (rank_.rank() + 1) % rank_.ranks();
  const int before = (rank_.rank() + rank_.ranks() - 1) % rank_.ranks();
  check(tuttiGroupStart(), "tuttiGroupStart");
  check(tuttiSend(place.send, what.count, type, next, comm, stream), "tuttiSend", comm);
  check(tuttiRecv(place.recv, what.count, type, before, comm, stream), "tuttiRecv", comm);
  check(tuttiGroupEnd(), "tuttiGroupEnd", comm);
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
  rank_.barrier();
  const TimeNs begin = now_ns();
  for (int i = 0; i < iterations; ++i) call_grouped(what, place);
  rank_.synchronize();
  return elapsed_us(begin) / iterations / options_.grouped;
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

// Compares what lies in the buffers with what must; also that the input is as it was, and that nothing was written
// beyond the ends.
size_t Measurement::count_wrong_here(const Case& what, bool in_place, uint64_t seed) {
  const auto input_of = [&](int rank) { return input_period(what.type, what.op, rank_.ranks(), rank, seed); };
  const int n = rank_.ranks(), me = rank_.rank();
  Period expected;
  if (options_.operation == Operation::all_reduce) expected = reduced_period(what.type, *what.op, n, seed);
  else if (options_.operation == Operation::broadcast) expected = input_of(what.root);
  else expected = input_of((me + n - 1) % n);

  size_t wrong = send_.count_touched() + recv_.count_touched();
  const auto compare = [&](const WatchedBuffer& buffer, const Period& wanted) {
    return count_wrong(buffer.look(), wanted, what.type.bytes);
  };
  wrong += compare(recv_, expected);
  if (!in_place) wrong += compare(send_, input_of(me));
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
    const std::string collective(name(options_.operation));
    check(tuttiCommAlgorithm(rank_.comm(), collective.c_str(), what.bytes, &algorithm), "tuttiCommAlgorithm");
    row.algorithm = algorithm;
  }
  row.out_of_place = measure_half(what, false, row.iterations);
  int unused = 0;
  const bool has_in_place = options_.operation == Operation::all_reduce || options_.operation == Operation::broadcast;
  if (has_in_place) row.in_place = measure_half(what, true, unused);
  return row;
}

}  // namespace tutti::perf
