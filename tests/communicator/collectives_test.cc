// Every type, operator, algorithm and transport against a naive reference, by ranks that are threads and processes.
// With TUTTI_TEST_EVERYTHING, all types for all numbers of ranks from 1 to 9, as threads and as processes; without, all
// types for up to 4 ranks as threads, and float32 and bfloat16 for the others; operators of other than numbers in
// all_reduce only, by the algorithm that is chosen, since the engine's tests have them all.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "algorithms/catalog.h"
#include "base/types.h"
#include "communicator/every_collective.h"
#include "communicator/ranks.h"
#include "sanitizer.h"

namespace tutti {
namespace {

using test::EveryCall;
using test::EveryCase;
using test::RanksOptions;

const bool everything = std::getenv("TUTTI_TEST_EVERYTHING") != nullptr;

// Under a sanitizer everything takes ten times as long: fewer numbers of ranks, all types on fewer, shorter buffers.
constexpr int ranks_max = test::sanitized ? 5 : 9;
constexpr int ranks_step = test::sanitized ? 4 : 1;
constexpr int ranks_max_of_all_types = test::sanitized ? 1 : 4;
constexpr size_t large_count = test::sanitized ? 500'011 : 5'000'011;

constexpr DataType some_types[] = {DataType::float32, DataType::bfloat16};

bool wanted(DataType type, bool all_types) {
  return all_types || std::find(std::begin(some_types), std::end(some_types), type) != std::end(some_types);
}

void check(int n, int rank, tuttiComm_t comm, const EveryCase& c) { EveryCall(n, rank, c).run(comm); }

// What to check on one communicator: everything, or, where one algorithm is forced, the kinds that have it.
struct Extent {
  bool all_types;
  std::string algorithm;

  bool has(Collective kind) const {
    return algorithm == "chosen" || find_algorithm(kind, algorithm) != nullptr;
  }
};

void check_reductions(int n, int rank, tuttiComm_t comm, const Extent& extent) {
  for (const Collective kind : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter,
                                Collective::scan, Collective::exscan}) {
    if (!extent.has(kind)) continue;
    for (const DataTypeInfo& row : data_types)
      for (size_t op = 0; op < reduce_op_names.size(); ++op) {
        if (!wanted(row.type, extent.all_types) || !defined(ReduceOp(op), row.type)) continue;
        const bool of_numbers = ReduceOp(op) <= ReduceOp::avg && row.type < DataType::boolean;
        const bool chosen = extent.algorithm == "chosen" && kind == Collective::all_reduce;
        if (!everything && !chosen && !of_numbers) continue;
        for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}}) {
          const int root = int(count + op) % n;
          check(n, rank, comm, {kind, row.type, ReduceOp(op), count, root, (count + op) % 2 == 0});
        }
        if (testing::Test::HasFatalFailure()) return;
      }
    check(n, rank, comm, {kind, DataType::float32, ReduceOp::sum, 150007, n - 1, false});
    check(n, rank, comm, {kind, DataType::int64, ReduceOp::max, 70003, 0, true});
  }
}

// Kinds that move data and add nothing: types differ in their size only.
void check_moves(int n, int rank, tuttiComm_t comm, const Extent& extent) {
  for (const Collective kind : {Collective::all_gather, Collective::all_to_all, Collective::broadcast,
                                Collective::gather, Collective::scatter}) {
    if (!extent.has(kind)) continue;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{33}, size_t{70001}})
      for (const bool in_place : {false, true}) {
        const DataType type = count == 33 ? DataType::uint8 : count == 1 ? DataType::float64 : DataType::int32;
        for (int root = 0; root < (meaning(kind).rooted ? n : 1); ++root)
          if (!meaning(kind).rooted || in_place == ((root + int(count)) % 2 == 0))
            check(n, rank, comm, {kind, type, ReduceOp::sum, count, root, in_place});
        if (testing::Test::HasFatalFailure()) return;
      }
  }
}

void check_everything(int n, int rank, tuttiComm_t comm, const Extent& extent) {
  check_reductions(n, rank, comm, extent);
  check_moves(n, rank, comm, extent);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(tuttiBarrier(comm, nullptr), tuttiSuccess) << tuttiGetLastError(comm);
}

// Transport, algorithm.
class Collectives : public ::testing::TestWithParam<std::tuple<const char*, std::string>> {
 protected:
  RanksOptions options() {
    RanksOptions options;
    options.transport = std::get<0>(GetParam());
    algorithm_ = std::get<1>(GetParam());
    options.algorithm = algorithm_ == "chosen" ? nullptr : algorithm_.c_str();
    return options;
  }

  std::string algorithm_;
};

TEST_P(Collectives, AgreeWithTheReferenceForOneToNineRanksAsThreads) {
  for (int n = 1; n <= ranks_max; n += ranks_step) {
    const RanksOptions chosen = options();
    // Sockets make nothing of a number of ranks that memory does not: a few will do, where not everything is asked for.
    if (!everything && chosen.transport == std::string("tcp") && n != 1 && n != 2 && n != 5 && n != 7) continue;
    const Extent extent{everything || n <= ranks_max_of_all_types, algorithm_};
    test::run_threads(n, chosen, [&](int rank, tuttiComm_t comm) { check_everything(n, rank, comm, extent); });
    if (HasFailure()) return;
  }
}

TEST_P(Collectives, AgreeWithTheReferenceForRanksAsProcesses) {
  for (int n = 1; n <= 9; ++n) {
    if (!everything && n != 2 && n != 3 && n != 5) continue;
    const RanksOptions chosen = options();
    if (!everything && test::sanitized && chosen.algorithm != nullptr && n != 3) continue;
    const Extent extent{everything, algorithm_};
    test::run_processes(n, chosen, [&](int rank, tuttiComm_t comm) { check_everything(n, rank, comm, extent); });
    if (HasFailure()) return;
  }
}

// Under a sanitizer sockets serve what is chosen alone: they make nothing of an algorithm that memory does not.
std::vector<std::tuple<const char*, std::string>> ways() {
  std::vector<std::string> algorithms = {"chosen"};
  for (const Algorithm& row : catalog())
    if (std::find(algorithms.begin(), algorithms.end(), row.name) == algorithms.end()) algorithms.emplace_back(row.name);
  std::vector<std::tuple<const char*, std::string>> all;
  for (const char* transport : {"shm", "tcp"})
    for (const std::string& algorithm : algorithms)
      if (everything || !test::sanitized || transport == std::string("shm") || algorithm == "chosen")
        all.emplace_back(transport, algorithm);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Collectives, ::testing::ValuesIn(ways()),
                         [](const auto& p) { return std::string(std::get<0>(p.param)) + "_" + std::get<1>(p.param); });

// Several ranks on each of two cores, side by side and dealt out: then one of them works for all of its core.
TEST(CollectivesOfBoundRanks, AgreeWithTheReference) {
  for (const char* algorithm : {"by_core", "chosen"})
    for (const bool dealt : {false, true})
      for (int n = 2; n <= ranks_max; n += test::sanitized ? 3 : 1) {
        const auto bind = [=](int rank) { test::stay_on_one_core_of_two(dealt ? rank % 2 : 2 * rank / n); };
        RanksOptions options{.before_join = bind};
        if (algorithm != std::string("chosen")) options.algorithm = algorithm;
        const Extent extent{!test::sanitized && n == 5, algorithm};
        test::run_threads(n, options, [&](int rank, tuttiComm_t comm) {
          const char* name = nullptr;
          ASSERT_EQ(tuttiCommAlgorithm(comm, "all_reduce", 64 << 10, &name), tuttiSuccess);
          // It is chosen nowhere but where ranks are seen to share cores.
          if (options.algorithm != nullptr || n == 8) { EXPECT_STREQ(name, "by_core"); }
          check_everything(n, rank, comm, extent);
        });
        if (HasFailure()) return;
      }
}

// Kinds whose buffers exceed the last cache at this size, and others; of two ranks a tile ends together with the next one's
// beginning.
void check_large(int n, int rank, tuttiComm_t comm) {
  for (const bool in_place : {false, true})
    check(n, rank, comm, {Collective::all_reduce, DataType::float32, ReduceOp::sum, large_count, 0, in_place});
  check(n, rank, comm, {Collective::broadcast, DataType::uint8, ReduceOp::sum, 2 * large_count, 1, false});
  for (const Collective kind : {Collective::reduce, Collective::all_gather, Collective::reduce_scatter,
                                Collective::gather, Collective::scatter, Collective::all_to_all, Collective::scan,
                                Collective::exscan}) {
    const bool exchanges = !meaning(kind).rooted && kind != Collective::scan && kind != Collective::exscan;
    if (n == 2 && !exchanges) continue;
    for (const bool in_place : {false, true})
      check(n, rank, comm, {kind, DataType::float32, ReduceOp::sum, large_count / (n == 2 ? 3 : 7), n - 1, in_place});
  }
}

TEST(CollectivesLarge, MoreThanOneChannelAndManyTilesGiveTheSameBits) {
  for (const int channels : test::sanitized ? std::vector{2} : std::vector{1, 2, 3}) {
    RanksOptions options;
    options.channels = channels;
    for (const int n : {2, 3}) test::run_threads(n, options, [n](int rank, tuttiComm_t comm) { check_large(n, rank, comm); });
  }
}

TEST(CollectivesLarge, ManyTilesGiveTheSameBitsAsProcesses) {
  test::run_processes(2, {}, [](int rank, tuttiComm_t comm) { check_large(2, rank, comm); });
}

}  // namespace
}  // namespace tutti
