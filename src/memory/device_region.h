// Memory of a device as the network cards of its machine may reach it.
#pragma once

#include <cstddef>

#include "memory/lent_region.h"

namespace tutti {

// The host cannot touch it: `memory.begin` is an address of the device, and `memory.fd` a file (a dmabuf) of all of it, with
// which a network card is told of it.
struct DeviceRegion {
  LentRegion memory;
  // Copies to the host, and blocks; for who can no longer have a card read it. False: the device failed.
  bool (*fetch)(void* device, std::byte* to, const std::byte* from, size_t bytes) noexcept = nullptr;
  void* device = nullptr;
};

}  // namespace tutti
