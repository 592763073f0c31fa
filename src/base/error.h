// Errors of the control path: a code of the C interface and one sentence for a person.
#pragma once

#include <stdexcept>
#include <string>

namespace tutti {

// Values are those of tuttiResult_t.
enum class Code : int {
  success = 0, device_error, system_error, internal_error, invalid_argument, invalid_usage, remote_error, in_progress,
  timeout, mismatch, aborted, unsupported
};

// Thrown on the control path, caught once at the C border. what() is a whole sentence that names the argument, rank,
// step or system call and the value or reason.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

// A short English phrase for a code; never null.
const char* phrase(Code code) noexcept;

// An Error of kind system_error: "<what>: <strerror(error_number)> (errno N)".
Error system_error(const std::string& what, int error_number);

// Programmers' errors: ends the process with file, line and sentence. Stays on in release builds; control path only.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace tutti

#define TUTTI_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::tutti::assertion_failed(#condition, __FILE__, __LINE__))
