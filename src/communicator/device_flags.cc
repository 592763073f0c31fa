// Flags, a page of pinned memory at a time.
#include "communicator/device_flags.h"

#include "base/error.h"

namespace tutti {

DeviceFlags& DeviceFlags::of_process() {
  static DeviceFlags& flags = *new DeviceFlags();  // never destroyed: streams outlive main
  return flags;
}

uint32_t* DeviceFlags::take(Platform& platform) {
  constexpr size_t page = 4096, line = 64;  // a cache line each
  const std::lock_guard lock(mutex_);
  std::vector<uint32_t*>& idle = idle_[&platform];
  if (idle.empty()) {
    void* memory = nullptr;
    const Outcome outcome = platform.allocate_host(page, &memory);
    if (!outcome.ok()) throw Error(outcome.code, outcome.sentence);
    for (size_t at = 0; at < page; at += line)
      idle.push_back(reinterpret_cast<uint32_t*>(static_cast<std::byte*>(memory) + at));
  }
  uint32_t* const flag = idle.back();
  idle.pop_back();
  return flag;
}

void DeviceFlags::give(Platform& platform, uint32_t* flag) noexcept {
  const std::lock_guard lock(mutex_);
  idle_[&platform].push_back(flag);
}

}  // namespace tutti
