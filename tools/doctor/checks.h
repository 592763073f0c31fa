// What can be wrong with a machine or an environment before any communicator exists, each with its remedy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

// problem: Tutti will not work, or not as meant. note: worth knowing.
enum class Severity : uint8_t { ok, note, problem };
const char* name(Severity severity) noexcept;

struct Finding {
  std::string check;
  Severity severity = Severity::ok;
  std::string sentence;
  std::string fix;  // "" where there is nothing to do
};

// Runs all checks on this machine; nothing is changed. Never throws for what a check finds.
std::vector<Finding> examine();

}  // namespace tutti
