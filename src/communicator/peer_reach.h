// Whether ranks reach each other's devices: what they tell each other when they join, and what each then tries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"

namespace tutti {

// What a rank says of its device when it joins.
struct DeviceCard {
  int32_t number = -1;  // -1: it has named none
  int32_t process = 0;
  uint64_t process_token = 0;  // equal with equal `process` alone: one process
  std::array<std::byte, 16> uuid{};
  std::array<char, 16> platform{};
  uint64_t machine = 0;        // equal on one kernel
  uint8_t exports = 0;

  static DeviceCard of(Platform& platform, int number, uint64_t machine);
};

// Whether the ranks of two cards are threads of one process.
bool one_process(const DeviceCard& a, const DeviceCard& b);

// Whether ranks with these cards reach each other's memory, as this rank sees it; "" or why not.
std::string why_no_peers(Platform& platform, std::span<const DeviceCard> cards, int rank);

// Whether processes can really open each other's memory, as they cannot across some containers: each exports a little, and opens
// that of all others. Throws no error.
class PeerProbe {
 public:
  explicit PeerProbe(Device& device) noexcept;
  // Gives all back, which may wait for all streams of the device.
  ~PeerProbe();
  PeerProbe(const PeerProbe&) = delete;
  // To be told to all. Of no bytes: it cannot be exported.
  const ExportedMemory& card() const noexcept { return card_; }
  // "" or why the memory of some rank of another process cannot be opened.
  std::string open(std::span<const DeviceCard> cards, std::span<const ExportedMemory> all, int rank);

 private:
  Device& device_;
  void* memory_ = nullptr;
  ExportedMemory card_;
  std::vector<void*> opened_;
};

}  // namespace tutti
