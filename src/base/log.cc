// Levels and the sink of log lines: one write(2) a line, so that lines of several ranks do not mix.
#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/fd.h"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 5> level_names = {"off", "error", "warn", "info", "debug"};

}  // namespace

Log::Log(std::string who) : who_(std::move(who)) {
  const std::string wanted = environment_text("TUTTI_LOG").value_or("warn");
  size_t level = 0;
  while (level < level_names.size() && level_names[level] != wanted) ++level;
  if (level == level_names.size())
    throw Error(Code::invalid_usage,
                fmt::format("environment variable TUTTI_LOG={} is not off, error, warn, info or debug", wanted));
  level_ = static_cast<LogLevel>(level);
  if (const auto path = environment_text("TUTTI_LOG_FILE")) {
    Fd file(::open(path->c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
    if (!file.valid()) throw system_error("cannot open TUTTI_LOG_FILE=" + *path, errno);
    file_ = std::make_shared<Fd>(std::move(file));
  }
}

void Log::write(LogLevel level, const std::string& line) const noexcept {
  if (!enabled(level)) return;
  try {
    const auto now = std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
    const std::string text = fmt::format("{:%FT%H:%M:}{:%S}Z tutti {} [{}] {}\n", now, now.time_since_epoch(),
                                         level_names[size_t(level)], who_, line);
    const int fd = file_ ? file_->get() : STDERR_FILENO;
    if (::write(fd, text.data(), text.size()) < 0) return;  // a log line that cannot be written is lost, not fatal
  } catch (...) {  // out of memory: the line is lost
  }
}

}  // namespace tutti
