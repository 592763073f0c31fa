// Element types and reduction operators: the one table of their names, sizes and families.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

// Values are those of tuttiDataType_t.
enum class DataType : uint8_t {
  int8 = 0, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16, float8e4m3, float8e5m2
};
// Values are those of tuttiRedOp_t.
enum class ReduceOp : uint8_t { sum = 0, prod, max, min, avg };

struct DataTypeInfo {
  DataType type;
  std::string_view name;
  uint8_t bytes;
  bool is_float;
};

inline constexpr std::array<DataTypeInfo, 12> data_types = {{
    {DataType::int8, "int8", 1, false},
    {DataType::uint8, "uint8", 1, false},
    {DataType::int32, "int32", 4, false},
    {DataType::uint32, "uint32", 4, false},
    {DataType::int64, "int64", 8, false},
    {DataType::uint64, "uint64", 8, false},
    {DataType::float16, "float16", 2, true},
    {DataType::float32, "float32", 4, true},
    {DataType::float64, "float64", 8, true},
    {DataType::bfloat16, "bfloat16", 2, true},
    {DataType::float8e4m3, "float8e4m3", 1, true},
    {DataType::float8e5m2, "float8e5m2", 1, true},
}};

inline constexpr std::array<std::string_view, 5> reduce_op_names = {"sum", "prod", "max", "min", "avg"};

constexpr const DataTypeInfo& info(DataType type) { return data_types[static_cast<size_t>(type)]; }
constexpr size_t element_bytes(DataType type) { return info(type).bytes; }
constexpr std::string_view name(DataType type) { return info(type).name; }
constexpr std::string_view name(ReduceOp op) { return reduce_op_names[static_cast<size_t>(op)]; }

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
