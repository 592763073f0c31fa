// The memory of simulated devices: addresses that the host cannot touch, and another mapping of the same memory files
// that the devices' threads read and write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/fd.h"
#include "device/device.h"
#include "memory/memory_file.h"

namespace tutti {

// How many of each the process has made and not given back.
struct SimulatedCounts {
  size_t allocations = 0, imports = 0, host_blocks = 0, registrations = 0, streams = 0, events = 0;
  friend bool operator==(const SimulatedCounts&, const SimulatedCounts&) = default;
};

// Thread-safe. All throw Error.
class SimulatedMemory {
 public:
  SimulatedMemory();

  // Of a device, whose allocations of this process together stay below `limit`. Not for_peers: only it may touch it.
  void* allocate(int device, size_t bytes, size_t limit, bool for_peers = true);
  // Memory that both sides may touch.
  void* allocate_managed(int device, size_t bytes);
  void free(int device, void* pointer);

  void* allocate_host(size_t bytes);
  void free_host(void* pointer);
  void register_host(void* pointer, size_t bytes);
  void unregister_host(void* pointer);

  Location locate(const void* pointer) const;
  // Where the threads of `device` find `bytes` bytes from `pointer` on. What the device cannot reach throws, with
  // `what` in the sentence. peers: bit d is set where the device has access to memory of device d. `any_host`: also
  // host memory that is not pinned.
  std::byte* reach(const char* what, int device, const void* pointer, size_t bytes, uint64_t peers, bool any_host) const;

  ExportedMemory export_memory(int device, const void* pointer) const;
  DeviceFile export_file(int device, const void* pointer) const;
  void* import_memory(int device, const ExportedMemory& exported);
  void close_memory(void* begin);

  size_t used(int device) const;
  void count(SimulatedCounts& counts) const;

 private:
  enum class State : uint8_t { allocated, managed, imported, host, registered, freed };
  struct Block {
    State state = State::allocated;
    int device = -1;
    size_t bytes = 0;
    bool for_peers = true;
    uint64_t number = 0;
    Fd file;
    Mapping shadow;  // of the device's threads; empty where the address itself will do
  };
  using Blocks = std::map<uintptr_t, Block>;

  std::byte* take_addresses(size_t bytes);
  Block& add(uintptr_t address, Block block);
  // Null: none lies there.
  const Blocks::value_type* find(const void* pointer) const;

  mutable std::shared_mutex mutex_;
  Blocks blocks_;  // freed ones too, since their addresses are never used again
  Mapping reserved_;
  std::byte* next_ = nullptr;  // of the reserved addresses
  std::byte* end_ = nullptr;
  uint64_t last_number_ = 0;
};

}  // namespace tutti
