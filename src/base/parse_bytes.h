// Sizes as people write them.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

// A size as a person writes it: "64", "4K", "256KiB", "1M", "2G". nullopt where it is none. Neither allocates nor throws.
inline std::optional<uint64_t> parse_bytes(std::string_view value) noexcept {
  uint64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc()) return std::nullopt;
  const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; };
  std::string_view unit(stop, size_t(end - stop));
  if (unit.size() == 3 && upper(unit[1]) == 'I' && upper(unit[2]) == 'B') unit.remove_suffix(2);
  else if (!unit.empty() && upper(unit.back()) == 'B') unit.remove_suffix(1);
  if (unit.empty()) return number;
  constexpr std::string_view units = "KMGT";
  const size_t power = unit.size() == 1 ? units.find(upper(unit[0])) : std::string_view::npos;
  if (power == std::string_view::npos) return std::nullopt;
  const unsigned shift = 10 * unsigned(power + 1);
  if (number > (~uint64_t{0} >> shift)) return std::nullopt;
  return number << shift;
}

}  // namespace tutti
