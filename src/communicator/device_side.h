// A rank's device: which one it is, how its calls follow what is on the caller's streams, and what they need while they
// run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "communicator/stream.h"
#include "device/device.h"
#include "engine/device_work.h"
#include "memory/device_region.h"

namespace tutti {

// Events of one device that are used again and again. Thread-safe.
class EventPool {
 public:
  explicit EventPool(Device& device) : device_(device) {}
  ~EventPool();
  // Throws Error.
  DeviceEvent take();
  void give(DeviceEvent event) noexcept;
  Device& device() const noexcept { return device_; }

 private:
  Device& device_;
  std::mutex mutex_;
  std::vector<DeviceEvent> idle_;
};

// What stands on a caller's stream before a call.
class EntryEvent {
 public:
  // Records it. Throws Error.
  EntryEvent(std::shared_ptr<EventPool> pool, DeviceStream stream);
  ~EntryEvent() { pool_->give(event_); }
  EntryEvent(const EntryEvent&) = delete;
  DeviceEvent event() const noexcept { return event_; }
  // success, in_progress, or why the device failed.
  Outcome query() const noexcept { return pool_->device().query_event(event_); }

 private:
  std::shared_ptr<EventPool> pool_;
  DeviceEvent event_;
};

// The stream of a call: of the host, of a device, or neither: then it runs on the calling thread.
struct CallStream {
  Stream* host = nullptr;
  DeviceStream device = nullptr;
  int device_number = -1;  // of a device's stream, which may be null as a handle

  bool is_device() const noexcept { return device_number >= 0; }
  bool is_none() const noexcept { return host == nullptr && !is_device(); }
  friend bool operator==(const CallStream&, const CallStream&) = default;
};

// Of one communicator. bind, enter and hold are the calling thread's, the rest is of the thread that drives the
// communicator. All but those marked noexcept throw Error.
class DeviceSide final : public PinnedRanges {
 public:
  // message_bytes: the largest message. slots: memory of the transports that messages are made in.
  DeviceSide(Platform& platform, size_t message_bytes, std::vector<std::span<std::byte>> slots, Log log);
  // All operations must be over.
  ~DeviceSide() override;

  Platform& platform() const noexcept { return platform_; }
  // -1: not bound yet.
  int number() const noexcept { return device_ == nullptr ? -1 : device_->number(); }
  Device* device() const noexcept { return device_; }
  // From now on its device; nothing happens where it is already.
  void bind(int number);

  // An event that stands for what is on the stream now. Bound.
  std::shared_ptr<const EntryEvent> enter(DeviceStream stream);
  // Later work on the stream waits until the turn of this ticket has ended.
  void hold(DeviceStream stream, uint64_t ticket);
  // Runs jobs of calls on the device's streams.
  Stream& worker();

  // A call begins, after `entry` (null: at once). What is made of its input comes on making(); then lanes start.
  void begin(const EntryEvent* entry);
  DeviceStream making() const noexcept { return making_; }
  struct Task {
    DeviceWork work;
    std::vector<DeviceLane> lanes;
    bool in_use = false;
  };
  // For an operation of so many channels, by way of the host; work's lanes, device, pinned and place_bytes are set. pinned_bytes:
  // of a lane's places of the host; 0: it needs none. Slots that cannot be pinned are said in the log, once.
  DeviceWork& start(int channels, size_t pinned_bytes);
  // The allocation of this device that a pointer lies in, as network cards may be told of it; null: they may not.
  std::shared_ptr<const DeviceRegion> region_of(const std::byte* pointer);
  // The operation is over.
  void end(DeviceWork& work) noexcept;
  bool is_running() const noexcept { return running_ > 0; }
  // Waits, up to timeout_ns, for what failed operations have still on the device, and ends them. Where that is not
  // enough, what they use is never used again.
  void drain(TimeNs timeout_ns) noexcept;

  // Memory of the device that stays until more is asked for. (What is outgrown is kept to the end: giving memory back
  // may wait for all that a device does, and so for this very call.)
  std::byte* scratch(size_t bytes) { return grown(scratch_, bytes); }
  std::byte* made_input(size_t bytes) { return grown(made_input_, bytes); }
  // --- On making(). Where kernels do not reach the memory, or there is none for the type, the host does it, and they block.

  struct Scaling {
    const std::byte* input;
    std::byte* output;
    size_t count;
  };
  void scale(DataType type, const void* scalar, const Scaling& of, bool in_reach);
  // At most reduce_inputs_max inputs; output may be one of them.
  void join(DataType type, ReduceOp op, std::span<const void* const> inputs, std::byte* output, size_t count,
            bool in_reach);
  // Where the scalar lies on a device, brings it here; else false.
  bool read_scalar(const void* scalar, size_t bytes, std::span<std::byte> here);
  // Blocks until it is done.
  void copy(void* to, const void* from, size_t bytes);

  // The communicator now serves this ticket.
  void serve(uint64_t ticket) noexcept;
  bool holds(const std::byte* data, size_t bytes) const noexcept override;

 private:
  struct Room {
    void* data = nullptr;
    size_t bytes = 0;
  };
  // An allocation and its file, which the region names.
  struct File {
    uint64_t allocation = 0;
    const std::byte* base = nullptr;
    Fd file;
    std::shared_ptr<std::atomic<uint64_t>> changes;
    DeviceRegion region;
  };
  static constexpr size_t files_max = 64;
  std::shared_ptr<const File> make_file(const Location& location);
  void forget_freed_files() noexcept;
  std::byte* grown(Room& room, size_t bytes);
  std::vector<std::byte> brought(const void* from, size_t bytes);
  DeviceLane make_lane();
  void prepare(DeviceLane& lane, size_t pinned_bytes);
  void free_lane(DeviceLane& lane) noexcept;
  bool drained(Task& task, TimeNs until) noexcept;
  void register_slots();

  Platform& platform_;
  Device* device_ = nullptr;
  const size_t message_bytes_;
  std::vector<std::span<std::byte>> slots_;
  Log log_;
  bool has_registered_ = false;  // of the thread that drives the communicator, as the next
  std::map<const std::byte*, size_t> registered_;
  std::shared_ptr<EventPool> events_;
  DeviceStream making_ = nullptr;
  DeviceEvent made_ = nullptr;
  const EntryEvent* entry_ = nullptr;  // of the call that begins
  std::vector<std::unique_ptr<Task>> tasks_;
  size_t running_ = 0;
  Room scratch_, made_input_;
  std::vector<std::shared_ptr<const File>> files_;  // the last used one last
  bool makes_files_ = true;  // as far as is known
  std::vector<void*> outgrown_, outgrown_pinned_;
  std::atomic<uint32_t*> flag_{nullptr};  // how many turns have ended, from flag_base_ on; release by bind, acquire by serve
  uint32_t flag_base_ = 0;
  std::unique_ptr<Stream> worker_;
};

}  // namespace tutti
