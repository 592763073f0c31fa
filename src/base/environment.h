// The one table of all environment variables that Tutti reads, and typed access to them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/parse_bytes.h"

namespace tutti {

enum class VariableType : uint8_t { text, integer, bytes, flag };

struct Variable {
  std::string_view name;           // TUTTI_…, or a launcher's
  VariableType type;
  std::string_view default_value;  // as one would write it; "" where unset means "decide"
  std::string_view sentence;       // what it does, one sentence
};

// In alphabetical order. docs/environment.md is printed from it.
std::span<const Variable> environment_table();

// The value in force: the environment's, else the default; nullopt where both are empty. `name` must stand in the
// table (asserted). Throws Error(invalid_usage) that names variable and value where it does not parse: integers in
// decimal; bytes with an optional K, M or G; flags as 0, 1, true, false, on, off, yes, no.
std::optional<std::string> environment_text(std::string_view name);
std::optional<int64_t> environment_integer(std::string_view name);
std::optional<uint64_t> environment_bytes(std::string_view name);
bool environment_flag(std::string_view name);

// TUTTI_* variables that are set but stand in no table, each with the nearest known name ("" where none is near).
struct UnknownVariable {
  std::string name;
  std::string nearest;
};
std::vector<UnknownVariable> unknown_environment();

// The table as Markdown, for docs/environment.md.
std::string environment_markdown();

}  // namespace tutti
