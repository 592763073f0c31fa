// Which devices this process has: found once, when it is first asked.
#pragma once

#include <string>

#include "device/device.h"

namespace tutti {

struct FoundPlatform {
  Platform* platform = nullptr;  // null: this process has none. Lives as long as the process
  std::string why_not;           // where there is none: what is missing, or was asked for so
};

// As TUTTI_DEVICE says. The same answer for the life of the process. Throws Error, each time: invalid_usage where
// TUTTI_DEVICE means nothing, unsupported where it names what cannot be had.
const FoundPlatform& find_platform();

// Of this process where it has been found and there is one; else null. Costs a load.
Platform* process_platform() noexcept;

}  // namespace tutti
