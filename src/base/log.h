// Log lines to stderr or TUTTI_LOG_FILE, at the level of TUTTI_LOG. Control path only; thread-safe.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"

namespace tutti {

enum class LogLevel : int { off = 0, error, warn, info, debug };

// Hangs on a communicator; copies share one sink.
class Log {
 public:
  // Level and file as the environment says; `who` stands before each line ("rank 3 of 8"). Throws Error where
  // TUTTI_LOG is no level or the file cannot be opened.
  explicit Log(std::string who);

  bool enabled(LogLevel level) const noexcept { return level <= level_; }
  void write(LogLevel level, const std::string& line) const noexcept;
  void error(const std::string& line) const noexcept { write(LogLevel::error, line); }
  void warn(const std::string& line) const noexcept { write(LogLevel::warn, line); }
  void info(const std::string& line) const noexcept { write(LogLevel::info, line); }
  void debug(const std::string& line) const noexcept { write(LogLevel::debug, line); }

 private:
  std::string who_;
  LogLevel level_ = LogLevel::warn;
  std::shared_ptr<Fd> file_;  // null: standard error
};

}  // namespace tutti
