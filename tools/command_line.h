// What tools with subcommands share: exit codes, errors told in one line, and files written whole.
#pragma once

#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/error.h"

namespace tutti {

inline constexpr int exit_failed = 1;     // what was asked does not hold, or this machine refused
inline constexpr int exit_arguments = 2;  // an argument cannot be what it is

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) throw system_error("cannot write " + path.string(), errno);
}

// Parses the command line and calls `chosen(subcommand's name)`. Returns the program's exit status.
template <class Chosen>
int run_tool(CLI::App& app, int argc, char** argv, Chosen chosen) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_arguments;
  }
  try {
    chosen(app.get_subcommands().front()->get_name());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), error.what());
    const Error* const known = dynamic_cast<const Error*>(&error);
    return known != nullptr && known->code() == Code::invalid_argument ? exit_arguments : exit_failed;
  }
  return 0;
}

}  // namespace tutti
