// Words of pinned memory on which streams of devices wait. A stream may still look at one when its communicator is
// gone, so they belong to the process, and only ever count upwards.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace tutti {

// Of all platforms of a process; thread-safe.
class DeviceFlags {
 public:
  static DeviceFlags& of_process();

  // Throws Error.
  uint32_t* take(Platform& platform);
  void give(Platform& platform, uint32_t* flag) noexcept;

 private:
  std::mutex mutex_;
  std::map<Platform*, std::vector<uint32_t*>> idle_;
};

}  // namespace tutti
