// Phrases of error codes, system errors, and the end of a failed assertion.
#include "base/error.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

#include <fmt/format.h>

namespace tutti {

const char* phrase(Code code) noexcept {
  switch (code) {
    case Code::success: return "no error";
    case Code::device_error: return "device error";
    case Code::system_error: return "system error";
    case Code::internal_error: return "internal error";
    case Code::invalid_argument: return "invalid argument";
    case Code::invalid_usage: return "invalid usage";
    case Code::remote_error: return "remote rank failed";
    case Code::in_progress: return "in progress";
    case Code::timeout: return "deadline passed";
    case Code::mismatch: return "ranks called different operations";
    case Code::aborted: return "aborted";
    case Code::unsupported: return "not supported here";
  }
  return "unknown result code";
}

Error system_error(const std::string& what, int error_number) {
  return Error(Code::system_error,
               fmt::format("{}: {} (errno {})", what, std::generic_category().message(error_number), error_number));
}

void assertion_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "tutti: internal error: %s does not hold at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace tutti
