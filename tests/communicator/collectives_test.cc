// Every type, operator, algorithm and transport against a naive reference, by ranks that are threads and processes.
// With TUTTI_TEST_EVERYTHING, all types for all numbers of ranks from 1 to 9, as threads and as processes; without, all
// types for up to 4 ranks as threads, and float32 and bfloat16 for the others.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "algorithms/catalog.h"
#include "base/types.h"
#include "communicator/ranks.h"
#include "reduce/reference.h"
#include "sanitizer.h"

namespace tutti {
namespace {

using test::RanksOptions;

constexpr std::byte guard{0xa5};
const bool everything = std::getenv("TUTTI_TEST_EVERYTHING") != nullptr;

// Under a sanitizer everything takes ten times as long: fewer numbers of ranks, all types on fewer, shorter buffers.
constexpr int ranks_max = test::sanitized ? 5 : 9;
constexpr int ranks_step = test::sanitized ? 4 : 1;
constexpr int ranks_max_of_all_types = test::sanitized ? 1 : 4;
constexpr size_t large_count = test::sanitized ? 500'011 : 5'000'011;

// Small integers, whose sums and products of up to 9 ranks are exact in every type (float8e5m2 has three bits) in any
// order: 0 and 1, or 0 and 2, for sums; powers of two for products, of which few are not 1.
double input_value(ReduceOp op, int rank, size_t i) {
  const size_t k = size_t(rank) * 7 + i;
  switch (op) {
    case ReduceOp::prod: return (size_t(rank) + i) % 5 == 0 ? 2 : 1;
    case ReduceOp::sum: return double(k % 2);
    case ReduceOp::avg: return double(k % 2) * 2;
    case ReduceOp::min:
    case ReduceOp::max: return double(k % 13);
  }
  return 0;
}

// One buffer with guard bytes around it, at an offset from alignment.
class Guarded {
 public:
  Guarded(size_t bytes, size_t offset) : bytes_(bytes), offset_(64 + offset), store_(bytes + 192, guard) {}
  std::byte* data() { return store_.data() + offset_; }
  void expect_guards(const std::string& what) const {
    const auto clean = [](std::byte b) { return b == guard; };
    EXPECT_TRUE(std::all_of(store_.begin(), store_.begin() + long(offset_), clean)) << what;
    EXPECT_TRUE(std::all_of(store_.begin() + long(offset_ + bytes_), store_.end(), clean)) << what;
  }

 private:
  size_t bytes_, offset_;
  std::vector<std::byte> store_;
};

std::vector<uint8_t> input_of(DataType type, ReduceOp op, int rank, size_t count) {
  std::vector<uint8_t> input(count * element_bytes(type));
  for (size_t i = 0; i < count; ++i)
    element_from_double(type, input_value(op, rank, i), input.data() + i * element_bytes(type));
  return input;
}

struct Case {
  DataType type;
  ReduceOp op;
  size_t count;
  bool in_place;
};

void check_all_reduce(int n, int rank, tuttiComm_t comm, const Case& c) {
  const size_t size = element_bytes(c.type), bytes = c.count * size;
  const std::string what = std::string(name(c.type)) + " " + std::string(name(c.op)) + " count " +
                           std::to_string(c.count) + (c.in_place ? " in place" : "") + " rank " + std::to_string(rank) +
                           " of " + std::to_string(n);
  std::vector<std::vector<uint8_t>> inputs;
  for (int r = 0; r < n; ++r) inputs.push_back(input_of(c.type, c.op, r, c.count));
  const std::vector<uint8_t> expected = reference_reduce(c.type, c.op, inputs, c.op == ReduceOp::avg ? uint32_t(n) : 0);

  Guarded input(bytes, size * (c.count % 3)), output(bytes, size);
  std::copy_n(reinterpret_cast<const std::byte*>(inputs[size_t(rank)].data()), bytes, input.data());
  std::byte* const target = c.in_place ? input.data() : output.data();
  ASSERT_EQ(tuttiAllReduce(input.data(), target, c.count, tuttiDataType_t(c.type), tuttiRedOp_t(c.op), comm, nullptr),
            tuttiSuccess)
      << what << ": " << tuttiGetLastError(comm);
  ASSERT_TRUE(bytes == 0 || std::memcmp(target, expected.data(), bytes) == 0) << what;
  if (!c.in_place && bytes != 0) {
    EXPECT_EQ(std::memcmp(input.data(), inputs[size_t(rank)].data(), bytes), 0) << what;
  }
  input.expect_guards(what);
  output.expect_guards(what);
}

void check_broadcast(int n, int rank, tuttiComm_t comm, DataType type, size_t count, int root, bool in_place) {
  const size_t bytes = count * element_bytes(type);
  std::vector<std::byte> expected(bytes);
  for (size_t i = 0; i < bytes; ++i) expected[i] = std::byte(i * 31 + size_t(root) + size_t(n));
  Guarded input(bytes, 1), output(bytes, 3);
  if (rank == root) std::copy(expected.begin(), expected.end(), input.data());
  std::byte* const target = in_place ? input.data() : output.data();
  const void* source = rank == root ? input.data() : in_place ? target : nullptr;
  ASSERT_EQ(tuttiBroadcast(source, target, count, tuttiDataType_t(type), root, comm, nullptr), tuttiSuccess)
      << tuttiGetLastError(comm);
  ASSERT_TRUE(bytes == 0 || std::memcmp(target, expected.data(), bytes) == 0)
      << "root " << root << " rank " << rank << " of " << n << " count " << count;
  input.expect_guards("broadcast");
  output.expect_guards("broadcast");
}

void check_everything(int n, int rank, tuttiComm_t comm, bool all_types) {
  for (const DataTypeInfo& row : data_types)
    for (size_t op = 0; op < reduce_op_names.size(); ++op) {
      if (!all_types && row.type != DataType::float32 && row.type != DataType::bfloat16) continue;
      for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}})
        check_all_reduce(n, rank, comm, {row.type, ReduceOp(op), count, (count + op) % 2 == 0});
      if (testing::Test::HasFatalFailure()) return;
    }
  check_all_reduce(n, rank, comm, {DataType::float32, ReduceOp::sum, 300007, false});
  check_all_reduce(n, rank, comm, {DataType::int64, ReduceOp::max, 100003, true});
  for (int root = 0; root < n; ++root)
    for (const size_t count : {size_t{0}, size_t{1}, size_t{33}, size_t{70001}})
      check_broadcast(n, rank, comm, DataType::int32, count, root, (root + int(count)) % 2 == 0);
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

 private:
  std::string algorithm_;
};

TEST_P(Collectives, AgreeWithTheReferenceForOneToNineRanksAsThreads) {
  for (int n = 1; n <= ranks_max; n += ranks_step) {
    test::run_threads(n, options(), [n](int rank, tuttiComm_t comm) {
      check_everything(n, rank, comm, everything || n <= ranks_max_of_all_types);
    });
    if (HasFailure()) return;
  }
}

TEST_P(Collectives, AgreeWithTheReferenceForRanksAsProcesses) {
  for (int n = 1; n <= 9; ++n) {
    if (!everything && n != 2 && n != 3 && n != 5) continue;
    test::run_processes(n, options(), [n](int rank, tuttiComm_t comm) { check_everything(n, rank, comm, everything); });
    if (HasFailure()) return;
  }
}

std::vector<std::string> algorithms() {
  std::vector<std::string> names = {"chosen"};
  for (const Algorithm& row : catalog())
    if (std::find(names.begin(), names.end(), row.name) == names.end()) names.emplace_back(row.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Collectives,
                         ::testing::Combine(::testing::Values("shm", "tcp"), ::testing::ValuesIn(algorithms())),
                         [](const auto& p) { return std::string(std::get<0>(p.param)) + "_" + std::get<1>(p.param); });

TEST(CollectivesLarge, MoreThanOneChannelAndManyTilesGiveTheSameBits) {
  for (const int channels : {1, 2, 3}) {
    RanksOptions options;
    options.channels = channels;
    test::run_threads(3, options, [](int rank, tuttiComm_t comm) {
      check_all_reduce(3, rank, comm, {DataType::float32, ReduceOp::sum, large_count, false});
      check_broadcast(3, rank, comm, DataType::uint8, 2 * large_count, 1, false);
    });
  }
}

}  // namespace
}  // namespace tutti
