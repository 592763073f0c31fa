// All GPUs of this process by CUDA's runtime, and the module's one function.
#include "cuda_kernels/cuda_platform.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace tutti {

std::string CudaPlatform::find() noexcept {
  int count = 0, version = 0;
  // The runtime is linked into this module; the driver's library is looked for here, and may be missing.
  cudaError_t error = cudaDriverGetVersion(&version);
  if (error != cudaSuccess || version == 0) {
    cudaGetLastError();
    return "this host has no CUDA driver (libcuda.so.1)";
  }
  error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cuda_outcome(error, "cudaGetDeviceCount").sentence;
  if (count == 0) return "the CUDA driver shows this process no device (CUDA_VISIBLE_DEVICES?)";
  if (std::string missing = driver_.find(); !missing.empty()) return missing;
  for (int i = 0; i < count; ++i) {
    devices_.push_back(std::make_unique<CudaDevice>(driver_, i));
    int same = 0;
    if (cudaDeviceGetAttribute(&same, cudaDevAttrCanUseHostPointerForRegisteredMem, i) != cudaSuccess) cudaGetLastError();
    same_addresses_ = same_addresses_ && same != 0;
  }
  access_.resize(size_t(count) * size_t(count), true);
  for (int i = 0; i < count; ++i)
    for (int peer = 0; peer < count; ++peer) {
      int can = i == peer;
      if (i != peer && cudaDeviceCanAccessPeer(&can, i, peer) != cudaSuccess) cudaGetLastError();
      access_[size_t(i * count + peer)] = can != 0;
    }
  return "";
}

int CudaPlatform::current_device() const noexcept {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) cudaGetLastError();
  return device;
}

// One question to the driver, of what it answers on threads without a context too. What it does not know is the host's.
Location CudaPlatform::locate(const void* pointer) const noexcept {
  // exports: memory of cudaMalloc; what comes from pools and mappings has permissions of its own.
  unsigned kind = 0, managed = 0, exports = 0;
  int device = -1;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  unsigned long long allocation = 0;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE,       CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* answers[] = {&kind, &managed, &device, &begin, &bytes, &allocation, &exports};
  if (driver_.pointer_attributes(7, asked, answers, reinterpret_cast<CUdeviceptr>(pointer)) != CUDA_SUCCESS) return {};
  if (managed != 0) return {MemoryKind::managed, device, nullptr, 0, 0};
  if (kind == CU_MEMORYTYPE_DEVICE)
    return {MemoryKind::device, device, reinterpret_cast<const std::byte*>(begin), bytes, allocation, exports != 0};
  if (kind == CU_MEMORYTYPE_HOST && same_addresses_) return {MemoryKind::registered, -1, nullptr, 0, 0};
  return {};
}

Outcome CudaPlatform::describe_stream(DeviceStream stream, StreamInfo* info) noexcept {
  const cudaStream_t caller = reinterpret_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  // The default stream cannot be captured; asked while one is that it orders itself with, it says that it would get into it.
  const cudaError_t error = cudaStreamIsCapturing(caller, &status);
  if (error == cudaErrorStreamCaptureImplicit) {
    cudaGetLastError();
    status = cudaStreamCaptureStatusActive;
  } else if (error != cudaSuccess) {
    return cuda_outcome(error, fmt::format("cudaStreamIsCapturing of stream {}", static_cast<void*>(stream)),
                        Code::invalid_argument);
  }
  info->capturing = status != cudaStreamCaptureStatusNone;
  info->device = current_device();
  if (caller == nullptr || caller == cudaStreamLegacy || caller == cudaStreamPerThread) return {};
  CUcontext context = nullptr;
  CUresult found = driver_.stream_context(caller, &context);
  if (found == CUDA_SUCCESS) found = driver_.push_context(context);
  if (found == CUDA_SUCCESS) {
    CUdevice device = -1;
    found = driver_.context_device(&device);
    driver_.pop_context(&context);
    info->device = device;
  }
  if (found == CUDA_SUCCESS) return {};
  Outcome outcome = driver_outcome(driver_, found, fmt::format("cuStreamGetCtx of stream {}", static_cast<void*>(stream)));
  outcome.code = Code::invalid_argument;
  return outcome;
}

bool CudaPlatform::has_peer_access(int device, int peer) const noexcept {
  return access_[size_t(device * count() + peer)];
}

Outcome CudaPlatform::enable_peer_access(int device, int peer) noexcept {
  if (device == peer) return {};
  if (!has_peer_access(device, peer))
    return {Code::unsupported, fmt::format("CUDA device {} cannot reach the memory of device {}", device, peer)};
  return devices_[size_t(device)]->enable_peer_access(peer);
}

bool CudaPlatform::supports(DataType type, ReduceOp op) const noexcept {
  if (!defined(op, type) || op == ReduceOp::custom || op == ReduceOp::custom_in_order) return false;
  const KernelCall call = kernel_call(type, op == ReduceOp::premulsum ? ReduceOp::sum : op, 1, 0);
  return reduce_kernel(call, kernel_inputs_max).function != nullptr;
}

bool CudaPlatform::links(DataType type, ReduceOp op) const noexcept {
  return supports(type, op) && op != ReduceOp::premulsum && linked_kernel(kernel_call(type, op, 1, 0), false).function != nullptr;
}

// What is of all devices is done in the context of one that is in use: otherwise a process would make one, and use memory,
// on a device that it has no business with.
CudaDevice& CudaPlatform::device_in_use() noexcept {
  const auto found = std::find_if(devices_.begin(), devices_.end(), [](const auto& device) { return device->has_context(); });
  return found != devices_.end() ? **found : *devices_[size_t(current_device())];
}

Outcome CudaPlatform::allocate_host(size_t bytes, void** pointer) noexcept {
  return device_in_use().in_context([&]() -> Outcome {
    const cudaError_t error = cudaHostAlloc(pointer, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) return cuda_outcome(error, fmt::format("cudaHostAlloc of {} bytes", bytes));
    std::memset(*pointer, 0, bytes);
    return {};
  });
}

Outcome CudaPlatform::free_host(void* pointer) noexcept {
  return device_in_use().in_context([&] { return cuda_outcome(cudaFreeHost(pointer), fmt::format("cudaFreeHost of {}", pointer)); });
}

Outcome CudaPlatform::register_host(void* pointer, size_t bytes) noexcept {
  return device_in_use().in_context([&] {
    const cudaError_t error = cudaHostRegister(pointer, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    return cuda_outcome(error, fmt::format("cudaHostRegister of {} bytes at {}", bytes, pointer),
                        error == cudaErrorHostMemoryAlreadyRegistered ? Code::invalid_usage : Code::device_error);
  });
}

Outcome CudaPlatform::unregister_host(void* pointer) noexcept {
  return device_in_use().in_context(
      [&] { return cuda_outcome(cudaHostUnregister(pointer), fmt::format("cudaHostUnregister of {}", pointer)); });
}

namespace {

// What the module answers, made when it is first asked; never destroyed, since streams may outlive main.
struct Answer {
  CudaPlatform platform;
  std::string why_not;
  DeviceModule module;

  Answer() : why_not(platform.find()) {
    if (why_not.empty()) module.platform = &platform;
    else module.why_not = why_not.c_str();
  }
};

constexpr DeviceModule another_version{device_interface_version, nullptr, "it speaks another version of the device interface"};

}  // namespace

extern "C" __attribute__((visibility("default"))) const DeviceModule* tutti_device_module(uint32_t version) noexcept {
  if (version != device_interface_version) return &another_version;
  static const Answer& answer = *new Answer();  // NOLINT(bugprone-unhandled-exception-at-new): ends the process, as it must
  return &answer.module;
}

}  // namespace tutti
