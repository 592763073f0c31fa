// Events by which ranks of one process wait for each other's devices, and who is at a rank's buffers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "device/device.h"

namespace tutti {

// What stands for the input of a rank, and for its first and second part of a call. In one process its peers own it
// too: one that has left may be slower to be waited for than to go.
struct PeerEvents {
  explicit PeerEvents(Device& of);
  ~PeerEvents();
  PeerEvents(const PeerEvents&) = delete;
  // Those of a rank of this process; null: it has gone.
  static std::shared_ptr<PeerEvents> numbered(uint64_t number);
  // Lets numbered() find them as long as they live.
  static uint64_t publish(const std::shared_ptr<PeerEvents>& events);

  // A peer whose device shall reach this rank's buffers enters before, and leaves once its device has passed. False:
  // the rank has failed, and its buffers are its caller's again.
  bool enter() noexcept;
  void leave() noexcept { visitors_.fetch_sub(1, std::memory_order_release); }  // pairs with the load in close
  // Nobody enters any more; waits until all have left. False: some have not by `until`.
  bool close(TimeNs until) noexcept;

  Device& device;
  DeviceEvent ready = nullptr, first = nullptr, second = nullptr;

 private:
  static constexpr uint32_t closed = uint32_t{1} << 31;
  std::atomic<uint32_t> visitors_{0};  // and `closed`
};

}  // namespace tutti
