// What came of something that does not throw.
#pragma once

#include <string>

#include "base/error.h"

namespace tutti {

// A code, and its sentence where it is an error.
struct Outcome {
  Code code = Code::success;
  std::string sentence;

  bool ok() const noexcept { return code == Code::success; }
};

}  // namespace tutti
