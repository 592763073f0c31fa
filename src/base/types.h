// Element types and reduction operators: the one table of their names, sizes and families, and who goes with whom.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

// Values are those of tuttiDataType_t. opaque stands for all of tuttiTypeCreate's: their size is the caller's.
enum class DataType : uint8_t {
  int8 = 0, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16, float8e4m3, float8e5m2,
  boolean, int16, uint16, complex64, complex128, float32_int32, float64_int64, int32_int32, int64_int64, opaque
};
// Values up to maxloc are those of tuttiRedOp_t. The others stand for all that callers make: a sum of inputs that each
// rank multiplies first, a caller's function, and one whose operands must stay in the order of ranks.
enum class ReduceOp : uint8_t {
  sum = 0, prod, max, min, avg, band, bor, bxor, land, lor, minloc, maxloc, premulsum, custom, custom_in_order
};

// A pair is a value and an index.
enum class Family : uint8_t { integer, floating, boolean, complex, pair, opaque };

struct DataTypeInfo {
  DataType type;
  std::string_view name;
  uint8_t bytes;
  Family family;
};

// All but opaque.
inline constexpr std::array<DataTypeInfo, 21> data_types = {{
    {DataType::int8, "int8", 1, Family::integer},
    {DataType::uint8, "uint8", 1, Family::integer},
    {DataType::int32, "int32", 4, Family::integer},
    {DataType::uint32, "uint32", 4, Family::integer},
    {DataType::int64, "int64", 8, Family::integer},
    {DataType::uint64, "uint64", 8, Family::integer},
    {DataType::float16, "float16", 2, Family::floating},
    {DataType::float32, "float32", 4, Family::floating},
    {DataType::float64, "float64", 8, Family::floating},
    {DataType::bfloat16, "bfloat16", 2, Family::floating},
    {DataType::float8e4m3, "float8e4m3", 1, Family::floating},
    {DataType::float8e5m2, "float8e5m2", 1, Family::floating},
    {DataType::boolean, "bool", 1, Family::boolean},
    {DataType::int16, "int16", 2, Family::integer},
    {DataType::uint16, "uint16", 2, Family::integer},
    {DataType::complex64, "complex64", 8, Family::complex},
    {DataType::complex128, "complex128", 16, Family::complex},
    {DataType::float32_int32, "float32_int32", 8, Family::pair},
    {DataType::float64_int64, "float64_int64", 16, Family::pair},
    {DataType::int32_int32, "int32_int32", 8, Family::pair},
    {DataType::int64_int64, "int64_int64", 16, Family::pair},
}};

// Those that need not be made.
inline constexpr std::array<std::string_view, 12> reduce_op_names = {"sum", "prod", "max",  "min", "avg",    "band",
                                                                     "bor", "bxor", "land", "lor", "minloc", "maxloc"};
inline constexpr std::array<std::string_view, 3> made_op_names = {"premulsum", "the caller's operator",
                                                                  "the caller's operator in order"};
inline constexpr size_t data_type_count = data_types.size() + 1;
inline constexpr size_t reduce_op_count = reduce_op_names.size() + made_op_names.size();

// Elements of a caller's own size: at most so large. Two of the engine's blocks of partial results hold two of them.
inline constexpr size_t opaque_bytes_max = 4096;

constexpr const DataTypeInfo& info(DataType type) { return data_types[static_cast<size_t>(type)]; }
// 0 for opaque.
constexpr size_t element_bytes(DataType type) { return type == DataType::opaque ? 0 : info(type).bytes; }
constexpr Family family(DataType type) { return type == DataType::opaque ? Family::opaque : info(type).family; }
constexpr std::string_view name(DataType type) { return type == DataType::opaque ? "opaque" : info(type).name; }
constexpr std::string_view name(ReduceOp op) {
  const size_t i = static_cast<size_t>(op), predefined = reduce_op_names.size();
  return i < predefined ? reduce_op_names[i] : made_op_names[i - predefined];
}

// Whether `op` has a meaning on elements of `type`.
constexpr bool defined(ReduceOp op, DataType type) {
  switch (op) {
    case ReduceOp::custom:
    case ReduceOp::custom_in_order: return true;
    case ReduceOp::minloc:
    case ReduceOp::maxloc: return family(type) == Family::pair;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::land:
    case ReduceOp::lor: return family(type) == Family::integer || family(type) == Family::boolean;
    case ReduceOp::max:
    case ReduceOp::min:
      return family(type) == Family::integer || family(type) == Family::floating || family(type) == Family::boolean;
    case ReduceOp::avg:
    case ReduceOp::premulsum:
      return family(type) == Family::integer || family(type) == Family::floating || family(type) == Family::complex;
    case ReduceOp::sum:
    case ReduceOp::prod: return family(type) != Family::pair && family(type) != Family::opaque;
  }
  return false;
}

// Whether the bits of a result may depend on the order in which its inputs are joined, or on where partial results are
// rounded.
constexpr bool order_matters(ReduceOp op, DataType type) {
  if (op == ReduceOp::custom || op == ReduceOp::custom_in_order) return true;
  const bool rounds = family(type) == Family::floating || family(type) == Family::complex;
  return rounds && op != ReduceOp::max && op != ReduceOp::min;
}

// Whether a result is a truth value, 0 or 1, of elements of which any that is not 0 counts as true. One input alone is
// then no result yet.
constexpr bool gives_truth(ReduceOp op, DataType type) {
  if (op == ReduceOp::land || op == ReduceOp::lor) return true;
  return type == DataType::boolean && op < ReduceOp::premulsum;
}

// From a name as printed above; nullopt where there is none.
constexpr std::optional<DataType> data_type_named(std::string_view wanted) {
  for (const DataTypeInfo& row : data_types)
    if (row.name == wanted) return row.type;
  return std::nullopt;
}
constexpr std::optional<ReduceOp> reduce_op_named(std::string_view wanted) {
  for (size_t i = 0; i < reduce_op_names.size(); ++i)
    if (reduce_op_names[i] == wanted) return static_cast<ReduceOp>(i);
  return std::nullopt;
}

}  // namespace tutti
