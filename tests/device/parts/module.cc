// libtutti_cuda.so for tests: the devices of another module, of which each is three. So launches that wait for each other's
// packets and counters meet on a machine with one GPU too. TUTTI_TEST_CUDA_MODULE names the other module.
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace tutti {
namespace {

constexpr int parts_each = 3;

// Which part a pointer or a stream is of: no driver knows.
class Owners {
 public:
  void add(const void* begin, size_t bytes, int part) {
    const std::lock_guard lock(mutex_);
    all_[static_cast<const std::byte*>(begin)] = {bytes, part};
  }
  void remove(const void* begin) {
    const std::lock_guard lock(mutex_);
    all_.erase(static_cast<const std::byte*>(begin));
  }
  int of(const void* pointer, int otherwise) const {
    const std::lock_guard lock(mutex_);
    const auto* const at = static_cast<const std::byte*>(pointer);
    auto next = all_.upper_bound(at);
    if (next == all_.begin()) return otherwise;
    const auto& [begin, owned] = *--next;
    return at < begin + owned.bytes ? owned.part : otherwise;
  }

 private:
  struct Owned {
    size_t bytes;
    int part;
  };
  mutable std::mutex mutex_;
  std::map<const std::byte*, Owned> all_;
};

class Part final : public Device {
 public:
  Part(Device& whole, int number, Owners& memory, Owners& streams)
      : whole_(whole), number_(number), memory_(memory), streams_(streams), info_(whole.info()) {
    info_.uuid.back() = std::byte(unsigned(info_.uuid.back()) + unsigned(number % parts_each));
    info_.blocks_at_once /= parts_each;
  }

  int number() const noexcept override { return number_; }
  const DeviceInfo& info() const noexcept override { return info_; }
  bool is_lost() const noexcept override { return whole_.is_lost(); }

  Outcome allocate(size_t bytes, void** pointer) noexcept override {
    Outcome outcome = whole_.allocate(bytes, pointer);
    if (outcome.ok()) memory_.add(*pointer, bytes, number_);
    return outcome;
  }
  Outcome free(void* pointer) noexcept override {
    memory_.remove(pointer);
    return whole_.free(pointer);
  }
  Outcome create_stream(DeviceStream* stream, bool urgent) noexcept override {
    Outcome outcome = whole_.create_stream(stream, urgent);
    if (outcome.ok()) streams_.add(*stream, 1, number_);
    return outcome;
  }
  Outcome destroy_stream(DeviceStream stream) noexcept override {
    streams_.remove(stream);
    return whole_.destroy_stream(stream);
  }
  Outcome wait_stream(DeviceStream s) noexcept override { return whole_.wait_stream(s); }
  Outcome query_stream(DeviceStream s) noexcept override { return whole_.query_stream(s); }

  Outcome create_event(bool shared, DeviceEvent* e) noexcept override { return whole_.create_event(shared, e); }
  Outcome destroy_event(DeviceEvent e) noexcept override { return whole_.destroy_event(e); }
  Outcome record_event(DeviceEvent e, DeviceStream s) noexcept override { return whole_.record_event(e, s); }
  Outcome wait_event(DeviceStream s, DeviceEvent e) noexcept override { return whole_.wait_event(s, e); }
  Outcome query_event(DeviceEvent e) noexcept override { return whole_.query_event(e); }
  Outcome wait_flag(DeviceStream s, const uint32_t* flag, uint32_t value) noexcept override { return whole_.wait_flag(s, flag, value); }
  Outcome write_flag(DeviceStream s, uint32_t* flag, uint32_t value) noexcept override { return whole_.write_flag(s, flag, value); }

  void prepare(DataType type, ReduceOp op) noexcept override { whole_.prepare(type, op); }
  Outcome copy(DeviceStream s, void* to, const void* from, size_t bytes) noexcept override { return whole_.copy(s, to, from, bytes); }
  Outcome reduce(DeviceStream s, const DeviceReduction& r) noexcept override { return whole_.reduce(s, r); }
  Outcome scale(DeviceStream s, DataType type, const void* scalar, const void* input, void* output, size_t count) noexcept override {
    return whole_.scale(s, type, scalar, input, output, count);
  }
  Outcome run_linked(DeviceStream s, const LinkedCall& call) noexcept override { return whole_.run_linked(s, call); }

  Outcome export_memory(const void* pointer, ExportedMemory* e) noexcept override { return whole_.export_memory(pointer, e); }
  Outcome import_memory(const ExportedMemory& e, void** begin) noexcept override { return whole_.import_memory(e, begin); }
  Outcome close_memory(void* begin) noexcept override { return whole_.close_memory(begin); }
  Outcome export_file(const void* pointer, DeviceFile* file) noexcept override { return whole_.export_file(pointer, file); }
  Outcome export_event(DeviceEvent event, ExportedEvent* e) noexcept override { return whole_.export_event(event, e); }
  Outcome import_event(const ExportedEvent& e, DeviceEvent* event) noexcept override { return whole_.import_event(e, event); }

 private:
  Device& whole_;
  const int number_;
  Owners &memory_, &streams_;
  DeviceInfo info_;
};

class PartsPlatform final : public Platform {
 public:
  explicit PartsPlatform(Platform& whole) : whole_(whole) {
    for (int i = 0; i < whole.count() * parts_each; ++i)
      parts_.push_back(std::make_unique<Part>(whole.device(i / parts_each), i, memory_, streams_));
  }

  const char* name() const noexcept override { return whole_.name(); }
  int count() const noexcept override { return int(parts_.size()); }
  Device& device(int number) noexcept override { return *parts_[size_t(number)]; }
  int current_device() const noexcept override { return whole_.current_device() * parts_each; }

  Location locate(const void* pointer) const noexcept override {
    Location location = whole_.locate(pointer);
    if (location.device >= 0) location.device = memory_.of(pointer, location.device * parts_each);
    return location;
  }
  Outcome describe_stream(DeviceStream stream, StreamInfo* info) noexcept override {
    Outcome outcome = whole_.describe_stream(stream, info);
    if (outcome.ok()) info->device = streams_.of(stream, info->device * parts_each);
    return outcome;
  }
  bool has_peer_access(int device, int peer) const noexcept override {
    return whole_.has_peer_access(device / parts_each, peer / parts_each);
  }
  Outcome enable_peer_access(int device, int peer) noexcept override {
    return whole_.enable_peer_access(device / parts_each, peer / parts_each);
  }
  bool supports(DataType type, ReduceOp op) const noexcept override { return whole_.supports(type, op); }
  bool links(DataType type, ReduceOp op) const noexcept override { return whole_.links(type, op); }

  Outcome allocate_host(size_t bytes, void** pointer) noexcept override { return whole_.allocate_host(bytes, pointer); }
  Outcome free_host(void* pointer) noexcept override { return whole_.free_host(pointer); }
  Outcome register_host(void* pointer, size_t bytes) noexcept override { return whole_.register_host(pointer, bytes); }
  Outcome unregister_host(void* pointer) noexcept override { return whole_.unregister_host(pointer); }

 private:
  Platform& whole_;
  Owners memory_, streams_;
  std::vector<std::unique_ptr<Part>> parts_;
};

// Never destroyed: streams may outlive main.
const DeviceModule& module_of(uint32_t version) {
  static DeviceModule& module = *new DeviceModule();
  const char* const path = std::getenv("TUTTI_TEST_CUDA_MODULE");
  void* const handle = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  const auto function = handle == nullptr ? nullptr : reinterpret_cast<DeviceModuleFunction>(::dlsym(handle, device_module_name));
  if (function == nullptr) {
    module.why_not = "TUTTI_TEST_CUDA_MODULE names no module of devices";
    return module;
  }
  const DeviceModule& whole = *function(version);
  if (whole.platform != nullptr) module.platform = new PartsPlatform(*whole.platform);
  else module.why_not = whole.why_not;
  return module;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const DeviceModule* tutti_device_module(uint32_t version) noexcept {
  static const DeviceModule& module = module_of(version);
  return &module;
}

}  // namespace tutti
