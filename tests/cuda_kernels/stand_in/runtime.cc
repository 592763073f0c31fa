// CUDA's runtime and driver, as far as libtutti_cuda.so calls them, on simulated devices.
#include "stand_in.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <vector>

using namespace tutti;
using namespace tutti::stand_in;

struct CUctx_st {
  int device;
};
struct CUstream_st {
  int device;
  DeviceStream stream;
  int priority;
  bool capturing = false;
};
struct CUevent_st {
  int device;
  bool interprocess;
  DeviceEvent event;
};

namespace {

constexpr int devices_max = 16;

struct Process {
  std::mutex mutex;
  std::set<int> contexts;
  std::set<CUstream_st*> streams;
  std::set<std::pair<int, int>> peers;
  int captures = 0;
  CUresult next_wait = CUDA_SUCCESS;
};
Process& process() {
  static Process& one = *new Process();
  return one;
}

CUctx_st primary[devices_max] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}};

struct ThreadState {
  std::vector<CUctx_st*> stack;
  cudaError_t last = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
};
ThreadState& here() {
  static thread_local ThreadState state;
  return state;
}

[[noreturn]] void broken(const char* function, const char* rule) {
  std::fprintf(stderr, "stand-in for CUDA: %s: %s\n", function, rule);
  std::abort();
}

// Before a function that does not ask for errors.
void enter(const char* function) {
  if (here().last != cudaSuccess) broken(function, "an error of a function before was not cleared");
}
// Before one that works in a context. The device of that.
int enter_context(const char* function) {
  enter(function);
  if (here().stack.empty()) broken(function, "no context is current: the runtime would make one");
  return here().stack.back()->device;
}
// Before one that may wait or allocate.
int enter_relaxed(const char* function) {
  const int device = enter_context(function);
  if (here().mode != cudaStreamCaptureModeRelaxed) broken(function, "it would spoil a capture of another thread");
  return device;
}
void check_stream(const char* function, cudaStream_t stream, int device) {
  if (stream == nullptr) return;
  const std::lock_guard lock(process().mutex);
  if (!process().streams.contains(stream)) broken(function, "no stream");
  if (stream->device != device) broken(function, "the stream is of another device than the current one");
  if (stream->capturing) broken(function, "the stream is captured");
}
DeviceStream stream_in(cudaStream_t stream) { return stream == nullptr ? nullptr : stream->stream; }

cudaError_t said(cudaError_t error) {
  if (error != cudaSuccess) here().last = error;
  return error;
}
cudaError_t said(const Outcome& outcome, const Device* device = nullptr) {
  if (outcome.ok()) return cudaSuccess;
  if (outcome.code == Code::in_progress) return said(cudaErrorNotReady);
  if (device != nullptr && device->is_lost()) return said(cudaErrorIllegalAddress);
  if (outcome.sentence.find("out of memory") != std::string::npos) return said(cudaErrorMemoryAllocation);
  if (outcome.code == Code::unsupported) return said(cudaErrorNotSupported);
  if (outcome.code == Code::invalid_usage) return said(cudaErrorHostMemoryAlreadyRegistered);
  return said(outcome.code == Code::invalid_argument ? cudaErrorInvalidValue : cudaErrorLaunchFailure);
}
Device& device_at(int device) { return devices().device(device); }

// Of a context (as seen with driver 580): who gives memory back waits with it for all that the device does, and so long nobody
// puts anything on a stream, or makes one. Asking an event, and waiting for a stream, go on.
std::shared_mutex context_locks[devices_max];

// Giving memory back waits for all that a device does.
void wait_for_all(int device) {
  void* memory = nullptr;
  if (device_at(device).allocate(1, &memory).ok()) (void)device_at(device).free(memory);
}
void load(StandInKernel& kernel, int device) {
  if ((kernel.loaded.fetch_or(1u << device) >> device & 1) == 0) wait_for_all(device);
}

cudaError_t launch(const char* function, const void* of, dim3 blocks, dim3 threads, void** arguments, size_t shared,
                   cudaStream_t stream) {
  const int device = enter_context(function);
  check_stream(function, stream, device);
  if (shared != 0 || threads.x != kernel_threads || threads.y * threads.z * blocks.y * blocks.z != 1 || blocks.x == 0)
    return said(cudaErrorInvalidConfiguration);
  auto& kernel = *static_cast<StandInKernel*>(const_cast<void*>(of));
  if (kernel.bytes > 32764) broken(function, "the parameters are too large");
  load(kernel, device);
  const std::shared_lock putting(context_locks[device]);
  std::vector<std::byte> copy(kernel.bytes);
  std::memcpy(copy.data(), arguments[0], kernel.bytes);
  std::vector<DeviceExtent> extents;
  kernel.visit(copy.data(), [&](std::byte*& pointer) {
    if (pointer != nullptr) extents.push_back({pointer, 1});
  });
  return said(device_at(device).run_on_host(stream_in(stream), extents,
                                            [&kernel, copy, blocks, threads](std::span<std::byte* const> places) {
                                              std::vector<std::byte> mine = copy;
                                              size_t next = 0;
                                              kernel.visit(mine.data(), [&](std::byte*& pointer) {
                                                if (pointer != nullptr) pointer = places[next++];
                                              });
                                              kernel.run(mine.data(), blocks.x, threads.x);
                                            }),
              &device_at(device));
}

}  // namespace

namespace tutti::stand_in {

SimulatedPlatform& devices() {
  static SimulatedPlatform& all = *[] {
    const char* const options = std::getenv("STAND_IN_CUDA");
    return new SimulatedPlatform(parse_simulated(options == nullptr ? "devices=3" : options));
  }();
  return all;
}

std::set<int> contexts() {
  const std::lock_guard lock(process().mutex);
  return process().contexts;
}
void set_capturing(cudaStream_t stream, bool capturing) {
  const std::lock_guard lock(process().mutex);
  process().captures += int(capturing) - int(stream->capturing);
  stream->capturing = capturing;
}
void fail_next_wait(CUresult error) { process().next_wait = error; }
cudaError_t last_error() { return here().last; }
int priority_of(cudaStream_t stream) { return stream->priority; }

}  // namespace tutti::stand_in

// --- The driver.

namespace {

CUresult retain_primary(CUcontext* context, CUdevice device) {
  *context = &primary[device];
  const std::lock_guard lock(process().mutex);
  process().contexts.insert(device);
  return CUDA_SUCCESS;
}
CUresult push_context(CUcontext context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  here().stack.push_back(context);
  return CUDA_SUCCESS;
}
CUresult pop_context(CUcontext* context) {
  enter("cuCtxPopCurrent");
  if (here().stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = here().stack.back();
  here().stack.pop_back();
  if (here().stack.empty() && here().mode != cudaStreamCaptureModeGlobal)
    broken("cuCtxPopCurrent", "the thread's mode of capture is not what it was");
  return CUDA_SUCCESS;
}
CUresult context_device(CUdevice* device) {
  *device = enter_context("cuCtxGetDevice");
  return CUDA_SUCCESS;
}
CUresult stream_context(CUstream stream, CUcontext* context) {
  const std::lock_guard lock(process().mutex);
  if (!process().streams.contains(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *context = &primary[stream->device];
  return CUDA_SUCCESS;
}
CUresult pointer_attributes(unsigned n, CUpointer_attribute* asked, void** answers, CUdeviceptr pointer) {
  const Location at = devices().locate(reinterpret_cast<const void*>(pointer));
  const bool device = at.kind == MemoryKind::device, host = at.kind == MemoryKind::registered;
  for (unsigned i = 0; i < n; ++i) switch (asked[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(answers[i]) = device ? CU_MEMORYTYPE_DEVICE : host ? CU_MEMORYTYPE_HOST : 0;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned*>(answers[i]) = at.kind == MemoryKind::managed; break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(answers[i]) = device || at.kind == MemoryKind::managed ? at.device : -2; break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<CUdeviceptr*>(answers[i]) = reinterpret_cast<CUdeviceptr>(at.base); break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<size_t*>(answers[i]) = at.bytes; break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID: *static_cast<unsigned long long*>(answers[i]) = at.allocation; break;
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:  // as the current context reaches it
        *static_cast<CUdeviceptr*>(answers[i]) = (device || host) && !here().stack.empty() ? pointer : 0;
        break;
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *static_cast<bool*>(answers[i]) = device && at.for_peers; break;
      default: broken("cuPointerGetAttributes", "an attribute that the stand-in does not know");
    }
  return CUDA_SUCCESS;
}
CUresult result_of(const Outcome& outcome) { return outcome.ok() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
CUresult wait_value(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  const int device = enter_context("cuStreamWaitValue32");
  check_stream("cuStreamWaitValue32", stream, device);
  if (flags != CU_STREAM_WAIT_VALUE_GEQ || at % 4 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult next = std::exchange(process().next_wait, CUDA_SUCCESS); next != CUDA_SUCCESS) return next;
  return result_of(device_at(device).wait_flag(stream_in(stream), reinterpret_cast<const uint32_t*>(at), value));
}
CUresult write_value(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
  const int device = enter_context("cuStreamWriteValue32");
  check_stream("cuStreamWriteValue32", stream, device);
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT || at % 4 != 0) return CUDA_ERROR_INVALID_VALUE;
  return result_of(device_at(device).write_flag(stream_in(stream), reinterpret_cast<uint32_t*>(at), value));
}
CUresult range_handle(void* handle, CUdeviceptr first, size_t bytes, CUmemRangeHandleType type, unsigned long long) {
  const int device = enter_context("cuMemGetHandleForAddressRange");
  if (first % 4096 != 0 || bytes % 4096 != 0 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) return CUDA_ERROR_INVALID_VALUE;
  DeviceFile file;
  if (!device_at(device).export_file(reinterpret_cast<const void*>(first), &file).ok()) return CUDA_ERROR_NOT_SUPPORTED;
  *static_cast<int*>(handle) = file.fd;
  return CUDA_SUCCESS;
}
CUresult error_name(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OF_SOME_KIND";
  return CUDA_SUCCESS;
}
CUresult error_text(CUresult, const char** text) {
  *text = "an error of the stand-in";
  return CUDA_SUCCESS;
}

}  // namespace

// --- The runtime.

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(here().last, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOfSomeKind";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "an error of the stand-in";
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  enter("cudaGetDriverEntryPointByVersion");
  const std::map<std::string, void*> all = {
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(retain_primary)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(push_context)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(pop_context)},
      {"cuCtxGetDevice", reinterpret_cast<void*>(context_device)},
      {"cuStreamGetCtx", reinterpret_cast<void*>(stream_context)},
      {"cuPointerGetAttributes", reinterpret_cast<void*>(pointer_attributes)},
      {"cuStreamWaitValue32", reinterpret_cast<void*>(wait_value)},
      {"cuStreamWriteValue32", reinterpret_cast<void*>(write_value)},
      {"cuMemGetHandleForAddressRange", reinterpret_cast<void*>(range_handle)},
      {"cuGetErrorName", reinterpret_cast<void*>(error_name)},
      {"cuGetErrorString", reinterpret_cast<void*>(error_text)}};
  const auto found = all.find(name);
  *function = found == all.end() ? nullptr : found->second;
  *result = found == all.end() ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, here().mode);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices().count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = here().stack.empty() ? 0 : here().stack.back()->device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const DeviceInfo& info = device_at(device).info();
  *properties = {};
  std::strncpy(properties->name, "stand-in for a GPU", sizeof properties->name - 1);
  std::memcpy(properties->uuid.bytes, info.uuid.data(), info.uuid.size());
  properties->totalGlobalMem = info.memory_bytes;
  properties->major = 9;
  properties->unifiedAddressing = 1;
  properties->ipcEventSupported = info.exports_memory;
  properties->multiProcessorCount = int(multiprocessors);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute != cudaDevAttrCanUseHostPointerForRegisteredMem) broken("cudaDeviceGetAttribute", "an attribute that the stand-in does not know");
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (device == peer) return said(cudaErrorInvalidDevice);
  *can = devices().has_peer_access(device, peer);
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  const int device = enter_relaxed("cudaDeviceEnablePeerAccess");
  if (flags != 0) return said(cudaErrorInvalidValue);
  if (peer == device) return said(cudaErrorInvalidDevice);
  {
    const std::lock_guard lock(process().mutex);
    if (!process().peers.insert({device, peer}).second) return said(cudaErrorPeerAccessAlreadyEnabled);
  }
  return said(devices().enable_peer_access(device, peer));
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  enter_context("cudaDeviceGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  const int device = enter_relaxed("cudaMalloc");
  return said(device_at(device).allocate(bytes, pointer), &device_at(device));
}
cudaError_t cudaFree(void* pointer) {
  const int device = enter_relaxed("cudaFree");
  const std::lock_guard giving(context_locks[device]);
  return said(device_at(device).free(pointer), &device_at(device));
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* all_bytes) {
  *free_bytes = 0;
  *all_bytes = device_at(enter_context("cudaMemGetInfo")).info().memory_bytes;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  enter_relaxed("cudaHostAlloc");
  if (flags != (cudaHostAllocPortable | cudaHostAllocMapped)) return said(cudaErrorInvalidValue);
  return said(devices().allocate_host(bytes, pointer));
}
cudaError_t cudaFreeHost(void* pointer) {
  const int device = enter_relaxed("cudaFreeHost");
  const std::lock_guard giving(context_locks[device]);
  wait_for_all(device);
  return said(devices().free_host(pointer));
}
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  enter_relaxed("cudaHostRegister");
  if (flags != (cudaHostRegisterPortable | cudaHostRegisterMapped)) return said(cudaErrorInvalidValue);
  return said(devices().register_host(pointer, bytes));
}
cudaError_t cudaHostUnregister(void* pointer) {
  const int device = enter_relaxed("cudaHostUnregister");
  const std::lock_guard giving(context_locks[device]);
  wait_for_all(device);
  return said(devices().unregister_host(pointer));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const int device = enter_relaxed("cudaMemcpyAsync");
  const std::shared_lock putting(context_locks[device]);
  check_stream("cudaMemcpyAsync", stream, device);
  if (kind != cudaMemcpyDefault) return said(cudaErrorInvalidMemcpyDirection);
  return said(device_at(device).copy(stream_in(stream), to, from, bytes), &device_at(device));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const int device = enter_relaxed("cudaStreamCreateWithPriority");
  const std::shared_lock putting(context_locks[device]);
  if (flags != cudaStreamNonBlocking || priority > 0 || priority < -5) return said(cudaErrorInvalidValue);
  auto* const made = new CUstream_st{device, nullptr, priority};
  const Outcome outcome = device_at(device).create_stream(&made->stream);
  if (!outcome.ok()) {
    delete made;
    return said(outcome, &device_at(device));
  }
  const std::lock_guard lock(process().mutex);
  process().streams.insert(*stream = made);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const int device = enter_relaxed("cudaStreamDestroy");
  if (stream == nullptr) return said(cudaErrorInvalidResourceHandle);
  check_stream("cudaStreamDestroy", stream, device);
  {
    const std::lock_guard lock(process().mutex);
    process().streams.erase(stream);
  }
  const Outcome outcome = device_at(device).destroy_stream(stream->stream);
  delete stream;
  return said(outcome);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const int device = enter_relaxed("cudaStreamSynchronize");
  check_stream("cudaStreamSynchronize", stream, device);
  return said(device_at(device).wait_stream(stream_in(stream)), &device_at(device));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const int device = enter_relaxed("cudaStreamQuery");
  check_stream("cudaStreamQuery", stream, device);
  return said(device_at(device).query_stream(stream_in(stream)), &device_at(device));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  enter("cudaStreamIsCapturing");
  const std::lock_guard lock(process().mutex);
  if (stream == nullptr || stream == cudaStreamLegacy) return said(process().captures > 0 ? cudaErrorStreamCaptureImplicit : cudaSuccess);
  if (!process().streams.contains(stream)) return said(cudaErrorContextIsDestroyed);
  *status = stream->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const int device = enter_relaxed("cudaEventCreateWithFlags");
  const std::shared_lock putting(context_locks[device]);
  if ((flags & cudaEventDisableTiming) == 0) return said(cudaErrorInvalidValue);
  const bool shared = (flags & cudaEventInterprocess) != 0;
  DeviceEvent made = nullptr;
  const Outcome outcome = device_at(device).create_event(shared, &made);
  if (outcome.ok()) *event = new CUevent_st{device, shared, made};
  return said(outcome, &device_at(device));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  enter_relaxed("cudaEventDestroy");
  if (event == nullptr) return said(cudaErrorInvalidResourceHandle);
  const Outcome outcome = device_at(event->device).destroy_event(event->event);
  delete event;
  return said(outcome);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const int device = enter_context("cudaEventRecord");
  const std::shared_lock putting(context_locks[device]);
  check_stream("cudaEventRecord", stream, device);
  if (event->device != device) return said(cudaErrorInvalidResourceHandle);
  if (stream == nullptr && process().captures > 0) broken("cudaEventRecord", "on the default stream it ends a capture of another one");
  return said(device_at(device).record_event(event->event, stream_in(stream)), &device_at(device));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const int device = enter_context("cudaStreamWaitEvent");
  check_stream("cudaStreamWaitEvent", stream, device);
  if (flags != 0) return said(cudaErrorInvalidValue);
  return said(device_at(device).wait_event(stream_in(stream), event->event), &device_at(device));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  enter_context("cudaEventQuery");
  return said(device_at(event->device).query_event(event->event), &device_at(event->device));
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  const int device = enter_relaxed("cudaIpcGetMemHandle");
  if (devices().locate(pointer).base != pointer) broken("cudaIpcGetMemHandle", "no beginning of an allocation");
  ExportedMemory exported;
  const Outcome outcome = device_at(device).export_memory(pointer, &exported);
  std::memcpy(handle, exported.handle.data(), sizeof *handle);
  return said(outcome);
}
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned flags) {
  const int device = enter_relaxed("cudaIpcOpenMemHandle");
  if (flags != cudaIpcMemLazyEnablePeerAccess) return said(cudaErrorInvalidValue);
  int32_t exporter = 0;
  std::memcpy(&exporter, &handle, sizeof exporter);
  if (exporter == ::getpid()) return said(cudaErrorInvalidResourceHandle);
  ExportedMemory exported;
  std::memcpy(exported.handle.data(), &handle, sizeof handle);
  return said(device_at(device).import_memory(exported, pointer));
}
cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  const int device = enter_relaxed("cudaIpcCloseMemHandle");
  return said(device_at(device).close_memory(pointer));
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  const int device = enter_relaxed("cudaIpcGetEventHandle");
  if (!event->interprocess) return said(cudaErrorInvalidResourceHandle);
  ExportedEvent exported;
  const Outcome outcome = device_at(device).export_event(event->event, &exported);
  std::memcpy(handle, exported.handle.data(), sizeof *handle);
  return said(outcome);
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  const int device = enter_relaxed("cudaIpcOpenEventHandle");
  ExportedEvent exported;
  std::memcpy(exported.handle.data(), &handle, sizeof handle);
  DeviceEvent made = nullptr;
  const Outcome outcome = device_at(device).import_event(exported, &made);
  if (outcome.ok()) *event = new CUevent_st{device, false, made};
  return said(outcome);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads, size_t shared) {
  const int device = enter_relaxed("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  if (function == nullptr || threads != int(kernel_threads) || shared != 0) return said(cudaErrorInvalidValue);
  load(*static_cast<StandInKernel*>(const_cast<void*>(function)), device);
  *blocks = linked_blocks_each;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 blocks, dim3 threads, void** arguments, size_t shared, cudaStream_t stream) {
  return launch("cudaLaunchKernel", function, blocks, threads, arguments, shared, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 blocks, dim3 threads, void** arguments, size_t shared,
                                        cudaStream_t stream) {
  if (blocks.x > multiprocessors * uint32_t(linked_blocks_each)) return said(cudaErrorCooperativeLaunchTooLarge);
  return launch("cudaLaunchCooperativeKernel", function, blocks, threads, arguments, shared, stream);
}

}  // extern "C"
