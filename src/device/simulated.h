// The simulated device: what a device does, done by threads of this process on memory that the host cannot touch, so
// that order, staging, access and errors are tested where there is no device. Its kernels are the host's own loops.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "device/simulated_memory.h"
#include "device/simulated_stream.h"

namespace tutti {

struct SimulatedOptions {
  int devices = 1;                     // 1 to 16
  size_t memory_bytes = size_t{1} << 30;  // of each, for each process
  bool peer_access = true;             // between all of them
  bool exports = true;                 // memory and events, to other processes
  bool imports = true;                 // that what others export can be opened
  int delay_us = 0;                    // before each piece of work, at random up to this
  uint64_t seed = 1;                   // of the delays
};
// "devices=2,memory=64M,peers=0,exports=0,delay_us=50,seed=7"; "" for the defaults. Throws Error(invalid_usage).
SimulatedOptions parse_simulated(std::string_view text);

// What shall go wrong on a device, once. Any thread. Negative: nothing; n: after n more that go well.
struct SimulatedFaults {
  std::atomic<int> allocation{-1};  // allocate says out of memory
  std::atomic<int> launch{-1};      // copy, reduce or scale is refused
  std::atomic<int> loss{-1};        // a copy, reduction or scaling that runs ends the device
  std::atomic<int> slowness_ms{0};  // not once, but of all that runs: how much longer it takes
};

class SimulatedPlatform final : public Platform {
 public:
  // Throws Error.
  explicit SimulatedPlatform(const SimulatedOptions& options);
  ~SimulatedPlatform() override;

  const char* name() const noexcept override { return "simulated"; }
  int count() const noexcept override { return int(devices_.size()); }
  Device& device(int number) noexcept override;
  int current_device() const noexcept override { return current_.load(std::memory_order_relaxed); }
  Location locate(const void* pointer) const noexcept override;
  Outcome describe_stream(DeviceStream stream, StreamInfo* info) noexcept override;
  bool has_peer_access(int device, int peer) const noexcept override;
  Outcome enable_peer_access(int device, int peer) noexcept override;
  bool supports(DataType type, ReduceOp op) const noexcept override;
  bool links(DataType type, ReduceOp op) const noexcept override { return supports(type, op); }
  Outcome allocate_host(size_t bytes, void** pointer) noexcept override;
  Outcome free_host(void* pointer) noexcept override;
  Outcome register_host(void* pointer, size_t bytes) noexcept override;
  Outcome unregister_host(void* pointer) noexcept override;

  // --- For tests.
  void set_current_device(int number) noexcept { current_.store(number, std::memory_order_relaxed); }
  void* allocate_managed(int device, size_t bytes) { return memory_.allocate_managed(device, bytes); }
  // That only its device may touch, as that of a pool.
  void* allocate_apart(int device, size_t bytes) { return memory_.allocate(device, bytes, options_.memory_bytes, false); }
  // As if the stream were being captured into a graph. Null: some stream that the default stream orders itself with.
  void set_capturing(DeviceStream stream, bool capturing);
  SimulatedFaults& faults(int device) noexcept;
  void lose(int device, const std::string& why) noexcept;
  SimulatedCounts counts() const;
  // Copies, reductions, scalings and linked calls that have run on a device so far.
  uint64_t works_done(int device) const noexcept;
  // Copies between host and device that began while one in the other direction ran.
  uint64_t copies_both_ways(int device) const noexcept;
  // How often locate() was asked.
  uint64_t times_located() const noexcept { return times_located_.load(std::memory_order_relaxed); }

 private:
  class SimulatedDevice;
  friend class SimulatedDevice;
  void add(SimulatedStream* stream);
  bool remove(DeviceStream stream);
  bool is_capturing(DeviceStream stream) const;

  const SimulatedOptions options_;
  SimulatedMemory memory_;
  std::vector<std::unique_ptr<SimulatedDevice>> devices_;
  std::atomic<int> current_{0};
  mutable std::mutex mutex_;
  std::set<DeviceStream> streams_, capturing_;  // alive
  std::atomic<size_t> events_{0};
  mutable std::atomic<uint64_t> times_located_{0};
  std::atomic<uint64_t> streams_made_{0};
};

}  // namespace tutti
