// The measurement of tutti-perf over MPI: same options, sizes, iterations, clock, checks and output, other library.
#include <mpi.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "bench/perf/bind.h"
#include "bench/perf/options.h"
#include "bench/perf/pattern.h"
#include "bench/perf/report.h"

namespace tutti::perf {
namespace {

constexpr double wanted_us = 20'000;  // as in bench/perf/measure.cc
constexpr int iterations_min = 20, iterations_max = 20'000, warmup_cycles_max = 200;

MPI_Datatype mpi_type(const Type& type) {
  switch (type.type) {
    case tuttiInt8: return MPI_INT8_T;
    case tuttiUint8: return MPI_UINT8_T;
    case tuttiInt32: return MPI_INT32_T;
    case tuttiUint32: return MPI_UINT32_T;
    case tuttiInt64: return MPI_INT64_T;
    case tuttiUint64: return MPI_UINT64_T;
    case tuttiFloat32: return MPI_FLOAT;
    case tuttiFloat64: return MPI_DOUBLE;
    default: throw UsageError(fmt::format("-d {}: MPI has no such type", type.name));
  }
}

MPI_Op mpi_op(const Operator& op) {
  switch (op.op) {
    case tuttiSum: return MPI_SUM;
    case tuttiProd: return MPI_PROD;
    case tuttiMax: return MPI_MAX;
    case tuttiMin: return MPI_MIN;
    default: throw UsageError(fmt::format("-o {}: MPI has no such operator", op.name));
  }
}

double reduce(double value, MPI_Op op) {
  double result = 0;
  MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
  return result;
}

class Measurement {
 public:
  explicit Measurement(const Options& options)
      : options_(options), send_(options.max_bytes), recv_(options.max_bytes) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }

  Row measure(const Case& what) {
    Row row;
    row.what = what;
    row.out_of_place = measure_half(what, false, row.iterations);
    int unused = 0;
    if (options_.operation == Operation::all_reduce) row.in_place = measure_half(what, true, unused);
    return row;
  }

 private:
  void prepare(const Case& what, bool in_place, uint64_t seed) {
    if (options_.operation == Operation::barrier) return;
    const std::span<std::byte> send = send_.use(what.bytes), recv = recv_.use(what.bytes);
    const Period input = input_period(what.type, what.op, ranks_, rank_, seed);
    // MPI_Bcast has one buffer only, which is in place at the root.
    const bool into_recv = in_place || options_.operation == Operation::broadcast;
    if (!in_place && !recv.empty()) std::memset(recv.data(), 0x5A, recv.size());
    fill(send, input);
    if (into_recv) fill(recv, input);
  }

  void call(const Case& what, bool in_place) {
    void* send = const_cast<std::byte*>(send_.look().data());
    void* recv = const_cast<std::byte*>(recv_.look().data());
    const int count = int(what.count);
    switch (options_.operation) {
      case Operation::all_reduce:
        MPI_Allreduce(in_place ? MPI_IN_PLACE : send, recv, count, mpi_type(what.type), mpi_op(*what.op),
                      MPI_COMM_WORLD);
        return;
      case Operation::broadcast: MPI_Bcast(recv, count, mpi_type(what.type), what.root, MPI_COMM_WORLD); return;
      case Operation::barrier: MPI_Barrier(MPI_COMM_WORLD); return;
      case Operation::sendrecv: break;
      default: throw UsageError("mpi_perf measures all_reduce, broadcast, sendrecv and barrier only");
    }
    MPI_Sendrecv(send, count, mpi_type(what.type), (rank_ + 1) % ranks_, 0, recv, count, mpi_type(what.type),
                 (rank_ + ranks_ - 1) % ranks_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

  double mean_us(const Case& what, bool in_place, int iterations) {
    MPI_Barrier(MPI_COMM_WORLD);
    const TimeNs begin = now_ns();
    for (int i = 0; i < iterations; ++i) call(what, in_place);
    return double(now_ns() - begin) / double(ns_per_us) / iterations;
  }

  int choose_iterations(const Case& what, bool in_place) {
    int iterations = std::max(options_.warmup, 1);
    if (options_.iterations > 0) {
      mean_us(what, in_place, iterations);
      return options_.iterations;
    }
    double us = 0;
    for (int cycle = 0; cycle < warmup_cycles_max; ++cycle) {
      us = std::max(reduce(mean_us(what, in_place, iterations), MPI_MAX), 1e-3);
      if (us * iterations >= wanted_us / 20 || iterations >= iterations_max / 10) break;
      iterations *= 2;
    }
    return int(std::clamp(wanted_us / us, double(iterations_min), double(iterations_max)));
  }

  size_t count_wrong_here(const Case& what, uint64_t seed) {
    Period expected;
    if (options_.operation == Operation::all_reduce) expected = reduced_period(what.type, *what.op, ranks_, seed);
    else {
      const int from = options_.operation == Operation::broadcast ? what.root : (rank_ + ranks_ - 1) % ranks_;
      expected = input_period(what.type, what.op, ranks_, from, seed);
    }
    return count_wrong(recv_.look(), expected, what.type.bytes) + recv_.count_touched();
  }

  Result measure_half(const Case& what, bool in_place, int& iterations) {
    Result result;
    result.present = true;
    prepare(what, in_place, 1);
    iterations = choose_iterations(what, in_place);
    result.time_us = reduce(mean_us(what, in_place, iterations), MPI_MAX);
    rate(result, options_.operation, what.bytes, ranks_);
    if (options_.checks == 0 || options_.operation == Operation::barrier) return result;
    prepare(what, in_place, 2);
    call(what, in_place);
    result.wrong = int64_t(reduce(double(count_wrong_here(what, 2)), MPI_SUM));
    return result;
  }

  const Options& options_;
  int rank_ = 0, ranks_ = 1;
  WatchedBuffer send_, recv_;
};

int run(const Options& options) {
  int rank = 0, ranks = 1, length = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  MPI_Get_library_version(version.data(), &length);
  const std::string first_line(version.data(), std::strcspn(version.data(), "\n"));
  const std::vector<Case> cases = make_cases(options, ranks);
  Measurement measurement(options);
  Heading heading;
  heading.ranks = ranks;
  if (rank == 0) fmt::print("# {}, {} ranks\n", first_line, ranks);
  std::vector<Row> rows;
  for (const Case& what : cases) {
    rows.push_back(measurement.measure(what));
    if (rank == 0) fmt::print("{}", row_text(options, rows.back())), std::fflush(stdout);
  }
  if (rank == 0) {
    fmt::print("{}", summary_text(rows));
    if (!options.json_file.empty()) write_file(options.json_file, json_text(options, heading, rows));
  }
  return total_wrong(rows) > 0 ? 1 : 0;
}

// Before MPI_Init, so that its memory lies near the core.
void bind_as_launched() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK"})
    if (const char* value = std::getenv(name)) return bind_to_core(std::atoi(value));
}

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  try {
    std::string text;
    const std::optional<tutti::perf::Options> options = tutti::perf::parse_options(argc, argv, text);
    if (!options) return fmt::print("{}", text), 0;
    if (options->bind) tutti::perf::bind_as_launched();
    MPI_Init(&argc, &argv);
    const int code = tutti::perf::run(*options);
    MPI_Finalize();
    return code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "mpi_perf: {}\n", error.what());
    return 2;
  }
}
