// What ranks of one process have in common for kernels that wait for each other: a gate, a word that ends them, and room
// for them on their devices.
//
// A launch may have to wait on the host for what devices do (when memory is given back, when code is loaded). So no kernel
// begins to wait for another one before all of a call are on their streams: each stands behind a gate, which the last one
// opens. And no kernel waits for one that finds no room on its device because others wait there: who makes a call of such
// kernels has reserved room on all devices first, beside which there is nothing but kernels that end on their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"
#include "schedule/link.h"

namespace tutti {

// Of one communicator's ranks, all in this process. Thread-safe.
class PeerGroup {
 public:
  // The gate is shut for calls after `last_call`, of which there are fewer than 2^31 until the next launch. Throws Error.
  PeerGroup(Platform& platform, uint64_t last_call);
  ~PeerGroup();
  PeerGroup(const PeerGroup&) = delete;
  // As PeerEvents: who makes one publishes it, the others find it by number; null: it has gone.
  static uint64_t publish(const std::shared_ptr<PeerGroup>& group);
  static std::shared_ptr<PeerGroup> numbered(uint64_t number);

  // For Device::wait_flag, with the low bits of the call's number; and for LinkedMeeting::ended.
  const uint32_t* gate() const noexcept { return words_; }
  const uint32_t* ended() const noexcept { return words_ + 1; }
  // For Device::write_flag, before a launch of this rank's: the low bits of the call's number. The kernel looks at ended()
  // after that. So of a call that has ended it either is known to have begun, or will touch nothing.
  uint32_t* begun(int rank) const noexcept { return words_ + 16 * (1 + rank); }
  bool has_begun(int rank, uint64_t call) const noexcept;
  // The same after the one launch of a call.
  uint32_t* passed() const noexcept { return words_ + 16 * (1 + int(linked_ranks_max)); }
  bool has_passed(uint64_t call) const noexcept;

  // One more launch is on its stream. The one that makes it `all`, counted from the beginning, opens the gate of the call.
  void launched(uint64_t all, uint64_t call) noexcept;
  bool all_launched(uint64_t all) const noexcept { return launched_.load(std::memory_order_acquire) >= all; }
  // The call has failed: all that waits for others goes on, now and later, and what has not begun does nothing.
  void end(uint64_t call) noexcept;
  bool has_ended() const noexcept;

 private:
  Platform& platform_;
  uint32_t* words_ = nullptr;
  std::atomic<uint64_t> launched_{0};  // release by launched, acquire by all_launched
};

// Room for one call's kernels on devices of this process, on all of them or none, for as long as it lives.
class MeetingRoom {
 public:
  // Null: some device has no room left. One device may be named several times.
  static std::unique_ptr<MeetingRoom> reserve(Platform& platform, std::span<const int> devices);
  ~MeetingRoom();
  MeetingRoom(const MeetingRoom&) = delete;

 private:
  explicit MeetingRoom(uint64_t devices) noexcept : devices_(devices) {}
  uint64_t devices_;  // bits
};

}  // namespace tutti
