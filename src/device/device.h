// What Tutti asks of machines with memory of their own: the device interface. Three answer it: none (there is none),
// CUDA (libtutti_cuda.so, a module that is loaded where a driver is found) and the simulated device of the tests.
//
// A Platform speaks for all devices of one kind in this process; a Device for one of them, by number. Any thread may call
// any function at any time, whatever device it worked with before; none changes what the caller's own code sees (the
// current device of CUDA is put back). No function throws. An Outcome that is no success has a sentence that names the
// call, the value and the device's own words for the reason. Nothing but wait_stream, free and the functions that make or
// import something blocks.
//
// Streams. What is put on a stream runs in its order; on two streams in any. wait_event and wait_flag order streams:
// nothing on a device ever spins on another process's work. A failure of what is on a stream (a launch, a lost device) is
// told by query_event, wait_stream and every later call of that device: it is final for the device where `code` is
// device_error and is_lost() says so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/outcome.h"
#include "base/types.h"

namespace tutti {

// Handles of the platform's own; null is never one that was made. CUDA: cudaStream_t and cudaEvent_t.
using DeviceStream = struct DeviceStreamTag*;
using DeviceEvent = struct DeviceEventTag*;

// Where memory lies.
enum class MemoryKind : uint8_t {
  unknown,     // memory of the host, as far as the platform knows
  device,      // only its device, and peers with access, may touch it
  managed,     // moves between host and device; both may touch it
  registered,  // the host's, pinned, and reachable by devices at the same address: allocate_host or register_host
  freed        // was the device's once; told where it can be known
};

struct Location {
  MemoryKind kind = MemoryKind::unknown;
  int device = -1;          // device and managed: whose it is; else -1
  const std::byte* base = nullptr;  // device only: of the allocation
  size_t bytes = 0;         // device only: of the allocation
  uint64_t allocation = 0;  // device only: another number for every allocation of this process
  bool for_peers = true;    // device only: peers that have access to the device reach it (not memory of a pool, say)
};

struct DeviceInfo {
  std::string name;                       // "NVIDIA H100 80GB HBM3"
  std::string bus;                        // PCI address "0000:65:00.0", or ""
  std::array<std::byte, 16> uuid{};       // the same in all processes that see the same device, another for any other
  uint64_t memory_bytes = 0;
  int major = 0, minor = 0;               // compute capability; 0 where there is none
  bool exports_memory = false;            // export_memory and export_event work
  uint32_t blocks_at_once = 0;            // of kernels of linked plans, if nothing else runs; 0: it runs none
};

// Memory of a device as another process of the host may import it. Plain bytes, to be sent.
struct ExportedMemory {
  std::array<std::byte, 64> handle{};
  uint64_t offset = 0;      // of the exported address from where an import begins
  uint64_t bytes = 0;       // of the allocation
  uint64_t allocation = 0;  // Location::allocation of the exporter
};
// Memory of a device as a file (a dmabuf) that network cards of the machine can be told of. Who asked for it closes it; the
// memory stays, be it freed, as long as somebody has the file.
struct DeviceFile {
  int fd = -1;
  const std::byte* begin = nullptr;  // the file is of the memory from here on
  size_t bytes = 0;
};
struct ExportedEvent {
  std::array<std::byte, 64> handle{};
};

// output[i] = fold(inputs[0][i], …, inputs[n_inputs - 1][i]) / divisor for i < count, with the bits that the host's
// reduce_function(type, op) gives, NaNs included, and all its terms: 1 to 8 inputs, any alignment, output exactly one of
// the inputs or apart from all, divisor 0 or 1 for none. Inputs and output: of the device, of a peer that it has access
// to (also imported), managed or registered.
struct DeviceReduction {
  static constexpr int inputs_max = 8;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  int n_inputs = 0;
  std::array<const void*, inputs_max> inputs{};
  void* output = nullptr;
  size_t count = 0;
  uint32_t divisor = 0;
};

struct LinkedCall;  // device/linked_call.h

// A stretch of memory that a kernel touches.
struct DeviceExtent {
  const void* data = nullptr;
  size_t bytes = 0;
};
// A kernel that is a function of the host: told where the device's threads find each extent.
using HostKernel = std::function<void(std::span<std::byte* const> places)>;

class Device {
 public:
  virtual ~Device() = default;

  virtual int number() const noexcept = 0;
  virtual const DeviceInfo& info() const noexcept = 0;
  // The device will do nothing more for this process.
  virtual bool is_lost() const noexcept = 0;

  // At least 256-byte aligned. Errors: device_error (out of memory: the sentence gives both sizes).
  virtual Outcome allocate(size_t bytes, void** pointer) noexcept = 0;
  // May wait for all that the device does (as cudaFree), so it is never called while a call runs. Null does nothing.
  virtual Outcome free(void* pointer) noexcept = 0;

  // A stream that orders itself with no other. `urgent`: what is on it goes first where not all can, and does not queue
  // behind streams that wait and are not. Destroying one lets what is on it end.
  virtual Outcome create_stream(DeviceStream* stream, bool urgent = false) noexcept = 0;
  virtual Outcome destroy_stream(DeviceStream stream) noexcept = 0;
  // Blocks until everything on it is done. Null: the device's default stream.
  virtual Outcome wait_stream(DeviceStream stream) noexcept = 0;
  // success: nothing is on it; in_progress; else the error of what was. Null as above.
  virtual Outcome query_stream(DeviceStream stream) noexcept = 0;

  // An event; `shared`: that export_event may be asked for. An event that was never recorded counts as done.
  virtual Outcome create_event(bool shared, DeviceEvent* event) noexcept = 0;
  virtual Outcome destroy_event(DeviceEvent event) noexcept = 0;
  // The event stands for all that is on the stream now. The stream may be null: the default stream. Errors: unsupported (the
  // default stream, while another one that it orders itself with is captured into a graph; the capture goes on).
  virtual Outcome record_event(DeviceEvent event, DeviceStream stream) noexcept = 0;
  // Later work on the stream waits for the event as it was last recorded before this call, by any device or process.
  virtual Outcome wait_event(DeviceStream stream, DeviceEvent event) noexcept = 0;
  // success: done; in_progress; else the error of what it stands for.
  virtual Outcome query_event(DeviceEvent event) noexcept = 0;

  // Later work on the stream waits until int32_t(*flag - value) >= 0. The host, or write_flag, sets it. `flag` lies in
  // memory of Platform::allocate_host. Where the device can only do so by a kernel, it is one of one thread that watches
  // the host's word.
  virtual Outcome wait_flag(DeviceStream stream, const uint32_t* flag, uint32_t value) noexcept = 0;
  // *flag = value, once all before it on the stream is done and visible to the host.
  virtual Outcome write_flag(DeviceStream stream, uint32_t* flag, uint32_t value) noexcept = 0;

  // Loads what calls of this type and operator launch, once. Loading may wait for all that the device has to do, so this
  // comes before a stream is made to wait for such a call.
  virtual void prepare(DataType, ReduceOp) noexcept {}

  // Between any two addresses of this process: device, peer (with access or without), imported, managed, registered, or
  // any host memory (then it may block until the memory is read or written).
  virtual Outcome copy(DeviceStream stream, void* to, const void* from, size_t bytes) noexcept = 0;
  // One launch. Errors: unsupported (no such type and operator on the device: see supports).
  virtual Outcome reduce(DeviceStream stream, const DeviceReduction& reduction) noexcept = 0;
  // output[i] = input[i] × scalar as the host's scale(). `scalar`: one element on the host, read before it returns.
  virtual Outcome scale(DeviceStream stream, DataType type, const void* scalar, const void* input, void* output,
                        size_t count) noexcept = 0;

  // A collective of several ranks that all use this device, as one launch; or of ranks of several devices of this process,
  // which reach each other's memory, the part of those of this one. Errors: unsupported (it has no such launches, or the
  // operator no kernel for the type).
  virtual Outcome run_linked(DeviceStream, const LinkedCall&) noexcept {
    return {Code::unsupported, "this device runs no linked plans"};
  }

  // A kernel of the caller's own. Errors: unsupported (all but simulated devices, whose kernels are the host's).
  // NOLINTNEXTLINE(performance-unnecessary-value-param): whoever runs it keeps it
  virtual Outcome run_on_host(DeviceStream, std::span<const DeviceExtent>, HostKernel) noexcept {
    return {Code::unsupported, "this device runs no functions of the host"};
  }

  // Memory and events of other processes. `pointer`: anywhere in an allocation of this device. Imports may be counted:
  // each is closed once. Errors: unsupported (this memory cannot be exported), invalid_argument.
  virtual Outcome export_memory(const void* pointer, ExportedMemory* exported) noexcept = 0;
  virtual Outcome import_memory(const ExportedMemory& exported, void** begin) noexcept = 0;
  virtual Outcome close_memory(void* begin) noexcept = 0;
  // Errors: unsupported (the driver or the device makes no such files), invalid_argument.
  virtual Outcome export_file(const void*, DeviceFile*) noexcept {
    return {Code::unsupported, "this device's memory cannot be had as a file"};
  }
  virtual Outcome export_event(DeviceEvent event, ExportedEvent* exported) noexcept = 0;
  // To be destroyed as any other; it cannot be recorded here.
  virtual Outcome import_event(const ExportedEvent& exported, DeviceEvent* event) noexcept = 0;
};

class Platform {
 public:
  virtual ~Platform() = default;

  virtual const char* name() const noexcept = 0;  // "cuda", "simulated"
  virtual int count() const noexcept = 0;
  virtual Device& device(int number) noexcept = 0;  // 0 <= number < count()
  // Of the calling thread, as the caller's own code set it.
  virtual int current_device() const noexcept = 0;

  // Where an address lies. Cheap: it is asked for every buffer of every call.
  virtual Location locate(const void* pointer) const noexcept = 0;
  // The device of a caller's own stream, and whether it is being captured into a graph, or would get into the way of a
  // capture. Asking does no harm to a capture, as all functions here on other streams do none. Errors: invalid_argument (no
  // stream, where that can be known).
  struct StreamInfo {
    int device = -1;
    bool capturing = false;
  };
  virtual Outcome describe_stream(DeviceStream stream, StreamInfo* info) noexcept = 0;

  // Whether kernels of `device` may read and write memory of `peer`, and copies go straight. True for itself.
  virtual bool has_peer_access(int device, int peer) const noexcept = 0;
  // Makes it so in this process, once; done again it does nothing. Errors: unsupported.
  virtual Outcome enable_peer_access(int device, int peer) noexcept = 0;
  // Whether reduce() has a kernel for it. Copies take any type.
  virtual bool supports(DataType type, ReduceOp op) const noexcept = 0;
  // Whether run_linked() has one.
  virtual bool links(DataType type, ReduceOp op) const noexcept = 0;

  // Pinned host memory that all devices reach at the same address, 4096-byte aligned. Zeroed.
  virtual Outcome allocate_host(size_t bytes, void** pointer) noexcept = 0;
  virtual Outcome free_host(void* pointer) noexcept = 0;
  // Makes the caller's host memory such memory, until unregister_host. Errors: invalid_usage (registered already).
  virtual Outcome register_host(void* pointer, size_t bytes) noexcept = 0;
  virtual Outcome unregister_host(void* pointer) noexcept = 0;
};

// --- The module: a shared library with one C function, looked up by device_module_name.

// Changes whenever this header does: a module of another build is refused.
inline constexpr uint32_t device_interface_version = 6;
inline constexpr const char* device_module_name = "tutti_device_module";

struct DeviceModule {
  uint32_t version = device_interface_version;
  Platform* platform = nullptr;   // lives as long as the process; null: why_not says what is missing
  const char* why_not = nullptr;  // a constant of the module
};
// extern "C" const DeviceModule* tutti_device_module(uint32_t version) noexcept: never null. Given another version than
// its own it answers with a null platform. Makes no context on any device before one is used.
using DeviceModuleFunction = const DeviceModule* (*)(uint32_t version) noexcept;

// Tutti itself answers so too, with the platform that its communicators use: for programs that come with it and put work of
// their own on devices. (What TUTTI_DEVICE says wrongly is told as why_not.)
extern "C" __attribute__((visibility("default"))) const DeviceModule* tuttiDeviceModule(uint32_t version) noexcept;

}  // namespace tutti
