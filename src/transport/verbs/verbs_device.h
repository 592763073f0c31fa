// Devices, their ports and GIDs, and what is registered with them. Included inside the verbs transport alone.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "memory/lent_region.h"
#include "transport/verbs/verbs.h"
#include "transport/verbs/verbs_library.h"
#include "transport/verbs/verbs_routes.h"

namespace tutti {

struct VerbsDeleter {
  const VerbsLibrary* library = nullptr;
  void operator()(ibv_context* c) const noexcept { library->close_device(c); }
  void operator()(ibv_pd* p) const noexcept { library->dealloc_pd(p); }
  void operator()(ibv_comp_channel* c) const noexcept { library->destroy_comp_channel(c); }
  void operator()(ibv_cq* c) const noexcept { library->destroy_cq(c); }
  void operator()(ibv_qp* q) const noexcept { library->destroy_qp(q); }
};
template <class T>
using VerbsOwner = std::unique_ptr<T, VerbsDeleter>;

// Memory registered with one device, counted.
class VerbsMemory {
 public:
  VerbsMemory() = default;
  // Throws Error(system_error) with the remedy.
  VerbsMemory(const VerbsLibrary& library, ibv_pd* pd, void* data, size_t bytes, int access, VerbsCounters& counters);
  // Of a file of a device's memory (a dmabuf). Throws Error(system_error).
  VerbsMemory(const VerbsLibrary& library, VerbsRegisterFile* register_file, ibv_pd* pd, const LentRegion& file,
              VerbsCounters& counters);
  VerbsMemory(VerbsMemory&& other) noexcept { *this = std::move(other); }
  VerbsMemory& operator=(VerbsMemory&& other) noexcept;
  ~VerbsMemory() { reset(); }
  uint32_t lkey() const noexcept { return region_->lkey; }
  uint32_t rkey() const noexcept { return region_->rkey; }
  bool valid() const noexcept { return region_ != nullptr; }

 private:
  void reset() noexcept;
  const VerbsLibrary* library_ = nullptr;
  ibv_mr* region_ = nullptr;
  VerbsCounters* counters_ = nullptr;
};

// An open device: its protection domain, and one completion queue with a channel to sleep on.
class VerbsDevice {
 public:
  // Throws Error(system_error).
  VerbsDevice(const VerbsLibrary& library, VerbsOwner<ibv_context> context, std::string name);

  const VerbsLibrary& library() const noexcept { return library_; }
  const std::string& name() const noexcept { return name_; }
  ibv_context* context() const noexcept { return context_.get(); }
  ibv_pd* pd() const noexcept { return pd_.get(); }
  ibv_cq* cq() const noexcept { return cq_.get(); }
  int channel_fd() const noexcept { return channel_->fd; }
  int async_fd() const noexcept { return context_->async_fd; }
  // For so many completions at a time. Throws Error(system_error).
  void make_queue(size_t completions);
  // Data path: every later completion makes channel_fd() readable.
  void arm() noexcept;
  void drain_channel() noexcept;

 private:
  const VerbsLibrary& library_;
  std::string name_;
  VerbsOwner<ibv_context> context_;
  VerbsOwner<ibv_pd> pd_;
  VerbsOwner<ibv_comp_channel> channel_;
  VerbsOwner<ibv_cq> cq_;

 public:
  VerbsMemory rings;  // what this rank publishes and stages; goes first
};

// The devices with a port that is up, and those ports, as the options allow. What cannot be used is logged.
// device_index counts the devices. In the order in which this rank prefers them.
struct VerbsHardware {
  std::vector<std::unique_ptr<VerbsDevice>> devices;
  std::vector<VerbsPort> ports;
};
VerbsHardware open_verbs_hardware(const VerbsLibrary& library, const VerbsOptions& options, const Log& log);

// Memory of callers that is registered when it is first lent and stays so, for it is mostly lent again. What was freed,
// or whose pages were given back meanwhile, is let go: LentRegion::changes tells.
class VerbsRegions {
 public:
  static constexpr size_t regions_max = 64;  // the one that was not used for the longest time goes first
  using Keys = std::array<uint32_t, 8>;      // by device
  // Written by peers; of_device: sent, and `fd` is of a device's memory.
  enum class Use : uint8_t { sent, written, of_device };

  VerbsRegions(const std::vector<std::unique_ptr<VerbsDevice>>& devices, VerbsCounters& counters)
      : devices_(devices), counters_(counters) {}
  // Null: devices' memory cannot be registered at all.
  void set_register_file(VerbsRegisterFile* function) noexcept { register_file_ = function; }
  // Whether memory of devices may be registered: until it is refused.
  bool takes_devices() const noexcept { return register_file_ != nullptr; }
  const std::string& why_no_devices() const noexcept { return why_no_devices_; }  // "": nothing was refused
  // Local keys of what is sent, remote keys of what peers write. Null: it cannot be registered. Mostly a comparison or two;
  // else system calls and allocation.
  const Keys* find(const LentRegion& region, Use use = Use::sent) noexcept;
  // From now on, no device writes there for a peer.
  void withdraw() noexcept;
  // What can no longer be lent is let go.
  void sweep() noexcept;
  size_t size() const noexcept { return entries_.size(); }

 private:
  struct Entry {
    uint64_t number;
    Use use;
    uint64_t change;
    std::shared_ptr<const std::atomic<uint64_t>> changes;
    std::vector<VerbsMemory> memory;
    Keys keys;
  };
  const Keys* add(const LentRegion& region, Use use, uint64_t change);

  const std::vector<std::unique_ptr<VerbsDevice>>& devices_;
  VerbsCounters& counters_;
  VerbsRegisterFile* register_file_ = nullptr;
  std::string why_no_devices_;
  std::list<Entry> entries_;  // the last used one first
  uint64_t refused_ = 0;      // the last region that could not be registered
};

}  // namespace tutti
