// What tutti-perf is asked to measure: options, names, and the list of cases that follows from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/tutti.h>

#include "base/signature.h"
#include "base/types.h"

namespace tutti::perf {

enum class Operation {
  all_reduce, broadcast, sendrecv, barrier, reduce, all_gather, reduce_scatter, gather, scatter, alltoall, scan, exscan,
  all_gather_v, reduce_scatter_v, gather_v, scatter_v, alltoall_v,
  pass_round  // from rank 0 from each to the next, who sends it when it has come, and back: between two, a ping-pong
};
inline bool is_point_to_point(Operation operation) { return operation == Operation::sendrecv || operation == Operation::pass_round; }
// As nccl-tests names it.
std::string_view name(Operation operation);
// What the library calls it; none for what is point to point.
Collective collective_of(Operation operation);

// An element type under nccl-tests' name (float, half, …); Tutti's own names (float32, …) are understood too. Of complex
// numbers and of pairs, what is said beyond the size is said of the first part.
struct Type {
  tuttiDataType_t type;
  std::string_view name;
  std::string_view other_name;
  size_t bytes;
  int exponent_bits, mantissa_bits;  // 0, 0 for integers
  bool is_signed;

  Family family() const { return tutti::family(DataType(type)); }
  // Of the first part.
  size_t part_bytes() const { return family() == Family::complex || family() == Family::pair ? bytes / 2 : bytes; }
};
std::span<const Type> all_types();

// A sum of inputs times a scalar of each rank, nccl-tests' mulsum: whoever calls makes the operator.
inline constexpr auto mul_sum = tuttiRedOp_t(ReduceOp::premulsum);

struct Operator {
  tuttiRedOp_t op;
  std::string_view name;
};
std::span<const Operator> all_operators();
inline bool defined(const Operator& op, const Type& type) {
  return tutti::defined(ReduceOp(op.op), DataType(type.type));
}

// Which of the ranks' times is reported: nccl-tests' -a.
enum class Average { rank_0 = 0, mean = 1, min = 2, max = 3 };

struct Options {
  Operation operation = Operation::all_reduce;
  size_t min_bytes = 8, max_bytes = 64 << 20, step_bytes = 0;  // step_bytes 0: by factor
  size_t factor = 2;
  bool shared_memory = false;  // buffers from tuttiMemAlloc
  std::vector<size_t> sizes;  // where not empty, these and no others
  int iterations = 0;  // 0: chosen for each size
  int warmup = 5;
  int grouped = 1;     // operations in one group, -m
  int checks = 1;      // checked runs for each case, 0: none
  int turns = 1;       // times that each case is measured; the least time is told
  Average average = Average::max;
  std::vector<Type> types;
  std::vector<Operator> operators;
  std::vector<std::string> algorithms{""};  // "": the library's own choice
  int root = 0;  // -1: all
  int threads = 1, local = 0;  // local 0: from the environment
  bool bind = false, line_exchange = false, stream = false, blocking = false, percentiles = false;
  std::string device = "cpu";  // where buffers lie: "cpu", "cuda" or "simulated"
  bool apart = false;  // no operation overlaps the last
  bool by_clock = false;  // then also apart, and all ranks, of one host, begin an operation at a moment agreed upon
  bool cold = false;   // buffers are in no cache when an operation begins; then also apart
  int timeout_s = 0;  // 0: the library's default
  int determinism = -1;  // a tuttiDeterminism_t; -1: the library's
  std::string json_file, csv_file, plot_file;
  double line_exchange_ns = 0;  // of the machine, measured before the ranks start; 0: not
};

// A wrong command line; what() names option and value.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// nullopt where only help or the version was asked for: `text` is then what to print.
// Throws UsageError.
std::optional<Options> parse_options(int argc, const char* const* argv, std::string& text);

// A size as nccl-tests writes it: 8, 64K, 1M, 2G (powers of 1024). nullopt where it is none.
std::optional<size_t> parse_size(std::string_view text);

// One line of the table.
struct Case {
  size_t bytes = 0, count = 0;
  Type type{};
  std::optional<Operator> op;  // for reductions
  int root = -1;               // where there is one
  std::string algorithm{};     // that is asked for; empty: the library's own choice
};

// In the order of the table: those that differ in nothing but the algorithm follow each other. Throws UsageError (a root that no rank has).
std::vector<Case> make_cases(const Options& options, int ranks);

}  // namespace tutti::perf
