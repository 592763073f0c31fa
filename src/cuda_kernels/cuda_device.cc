// A GPU by CUDA's runtime.
#include "cuda_kernels/cuda_device.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace tutti {
namespace {

cudaStream_t stream_of(DeviceStream stream) { return reinterpret_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(DeviceEvent event) { return reinterpret_cast<cudaEvent_t>(event); }

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof ExportedMemory::handle);
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof ExportedEvent::handle);
// What a kernel's parameters may hold, since CUDA 12.1; before that, and fast in any case, 4 KiB.
static_assert(sizeof(LinkedArguments) <= 32764);
static_assert(sizeof(PacketArguments) <= 4096);

}  // namespace

CudaDevice::CudaDevice(const CudaDriver& driver, int number) noexcept : driver_(driver), number_(number) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, number) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  info_.name = properties.name;
  info_.bus = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID, properties.pciDeviceID);
  std::memcpy(info_.uuid.data(), properties.uuid.bytes, info_.uuid.size());
  info_.memory_bytes = properties.totalGlobalMem;
  info_.major = properties.major;
  info_.minor = properties.minor;
  info_.exports_memory = properties.unifiedAddressing != 0 && properties.ipcEventSupported != 0;
  multiprocessors_ = properties.multiProcessorCount;
  info_.blocks_at_once = uint32_t(linked_blocks_each * std::max(multiprocessors_, 0));
}

// --- Errors and the context -------------------------------------------------------------------------------------------

Outcome CudaDevice::told(cudaError_t error, std::string_view what, Code code) noexcept {
  if (error == cudaSuccess) return {};
  if (ends_device(error)) lost_.store(true, std::memory_order_relaxed);
  return cuda_outcome(error, fmt::format("{} on CUDA device {}", what, number_), code);
}

Outcome CudaDevice::told_or_running(cudaError_t error, std::string_view what) noexcept {
  if (error != cudaErrorNotReady) return told(error, what);
  cudaGetLastError();
  return {Code::in_progress, ""};
}

// The runtime's numbers of errors are the driver's.
Outcome CudaDevice::told(CUresult error, std::string_view what) noexcept {
  if (error == CUDA_SUCCESS) return {};
  if (ends_device(static_cast<cudaError_t>(error))) lost_.store(true, std::memory_order_relaxed);
  return driver_outcome(driver_, error, fmt::format("{} on CUDA device {}", what, number_));
}

// The primary one, which the runtime shares. Made when the device is first used, and kept.
Outcome CudaDevice::context(CUcontext* context) noexcept {
  *context = context_.load(std::memory_order_acquire);  // pairs with the store below
  if (*context != nullptr) return {};
  const std::lock_guard lock(mutex_);
  *context = context_.load(std::memory_order_relaxed);
  if (*context != nullptr) return {};
  const CUresult error = driver_.retain_primary(context, number_);
  if (error != CUDA_SUCCESS) return driver_outcome(driver_, error, fmt::format("making a context on CUDA device {}", number_));
  context_.store(*context, std::memory_order_release);
  return {};
}

// --- Memory -----------------------------------------------------------------------------------------------------------

Outcome CudaDevice::allocate(size_t bytes, void** pointer) noexcept {
  return in_context([&]() -> Outcome {
    const cudaError_t error = cudaMalloc(pointer, bytes);
    if (error != cudaErrorMemoryAllocation) return told(error, fmt::format("cudaMalloc of {} bytes", bytes));
    cudaGetLastError();
    size_t free_bytes = 0, total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) cudaGetLastError();
    return {Code::device_error, fmt::format("CUDA device {} is out of memory: {} bytes were asked for, {} of its {} are free",
                                            number_, bytes, free_bytes, total_bytes)};
  });
}

Outcome CudaDevice::free(void* pointer) noexcept {
  if (pointer == nullptr) return {};
  return in_context([&] { return told(cudaFree(pointer), fmt::format("cudaFree of {}", pointer)); });
}

// --- Streams and events -----------------------------------------------------------------------------------------------

// Urgent: of the greatest priority. Streams share a few queues to the device (CUDA_DEVICE_MAX_CONNECTIONS), in which one
// that waits holds up those behind it; those of another priority have others.
Outcome CudaDevice::create_stream(DeviceStream* stream, bool urgent) noexcept {
  return in_context([&] {
    int least = 0, greatest = 0;
    if (cudaDeviceGetStreamPriorityRange(&least, &greatest) != cudaSuccess) cudaGetLastError();
    cudaStream_t made = nullptr;
    Outcome outcome = told(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, urgent ? greatest : 0),
                           "cudaStreamCreateWithPriority");
    *stream = reinterpret_cast<DeviceStream>(made);
    return outcome;
  });
}

Outcome CudaDevice::destroy_stream(DeviceStream stream) noexcept {
  return in_context([&] { return told(cudaStreamDestroy(stream_of(stream)), "cudaStreamDestroy"); });
}

Outcome CudaDevice::wait_stream(DeviceStream stream) noexcept {
  return in_context([&] { return told(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize"); });
}

Outcome CudaDevice::query_stream(DeviceStream stream) noexcept {
  return in_context([&] { return told_or_running(cudaStreamQuery(stream_of(stream)), "what stood on a stream (cudaStreamQuery)"); });
}

Outcome CudaDevice::create_event(bool shared, DeviceEvent* event) noexcept {
  return in_context([&] {
    cudaEvent_t made = nullptr;
    const unsigned flags = cudaEventDisableTiming | (shared ? cudaEventInterprocess : 0u);
    Outcome outcome = told(cudaEventCreateWithFlags(&made, flags), "cudaEventCreateWithFlags");
    *event = reinterpret_cast<DeviceEvent>(made);
    return outcome;
  });
}

Outcome CudaDevice::destroy_event(DeviceEvent event) noexcept {
  return in_context([&] { return told(cudaEventDestroy(event_of(event)), "cudaEventDestroy"); });
}

Outcome CudaDevice::record_event(DeviceEvent event, DeviceStream stream) noexcept {
  return in_context([&]() -> Outcome {
    // The default stream joins the order of others: asked for it, a capture of one of them only says so.
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (stream == nullptr && cudaStreamIsCapturing(nullptr, &status) == cudaErrorStreamCaptureImplicit) {
      cudaGetLastError();
      return {Code::unsupported, fmt::format("the default stream of CUDA device {} would get into the capture of another one "
                                             "into a graph", number_)};
    }
    return told(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
  });
}

Outcome CudaDevice::wait_event(DeviceStream stream, DeviceEvent event) noexcept {
  return in_context([&] { return told(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "cudaStreamWaitEvent"); });
}

Outcome CudaDevice::query_event(DeviceEvent event) noexcept {
  return in_context([&] { return told_or_running(cudaEventQuery(event_of(event)), "what stood before an event (cudaEventQuery)"); });
}

// The stream itself waits, no kernel. A caller's stream that is being captured refuses that, and says so.
Outcome CudaDevice::wait_flag(DeviceStream stream, const uint32_t* flag, uint32_t value) noexcept {
  return in_context([&] {
    return told(driver_.wait_value(stream_of(stream), reinterpret_cast<CUdeviceptr>(flag), value, CU_STREAM_WAIT_VALUE_GEQ),
                fmt::format("cuStreamWaitValue32 at {}", static_cast<const void*>(flag)));
  });
}

// By default the driver writes it after all that the stream wrote before can be seen by the host.
Outcome CudaDevice::write_flag(DeviceStream stream, uint32_t* flag, uint32_t value) noexcept {
  return in_context([&] {
    return told(driver_.write_value(stream_of(stream), reinterpret_cast<CUdeviceptr>(flag), value, CU_STREAM_WRITE_VALUE_DEFAULT),
                fmt::format("cuStreamWriteValue32 at {}", static_cast<void*>(flag)));
  });
}

// --- Copies and kernels -------------------------------------------------------------------------------------------------

Outcome CudaDevice::copy(DeviceStream stream, void* to, const void* from, size_t bytes) noexcept {
  if (bytes == 0 || to == from) return {};
  return in_context([&] {
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream));
    if (error == cudaSuccess) return Outcome{};
    return told(error, fmt::format("cudaMemcpyAsync of {} bytes from {} to {}", bytes, from, to));
  });
}

uint32_t CudaDevice::blocks_max(const KernelCall& call, KernelKind kind, const void* function) noexcept {
  std::atomic<uint32_t>& known =
      block_counts_[(size_t(call.type) * reduce_op_count + size_t(call.op)) * kernel_kinds + kind];
  const uint32_t count = known.load(std::memory_order_relaxed);
  if (count != 0) return count;
  int each = 0;
  if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, function, int(kernel_threads), 0) != cudaSuccess)
    cudaGetLastError();
  const uint32_t found = uint32_t(std::max(each, 1)) * uint32_t(std::max(multiprocessors_, 1));
  known.store(found, std::memory_order_relaxed);
  return found;
}

// (Asking how many blocks find room loads a kernel.)
void CudaDevice::load(const KernelCall& call, KernelKind kind, const Kernel& kernel) noexcept {
  if (kernel.function != nullptr) (void)blocks_max(call, kind, kernel.function);
}

// CUDA loads a kernel when it is first asked for, and may then wait for all streams of the device. So ranks that share it
// wait here for whoever loads: a stream of theirs that had come to the call already would wait for that one in turn.
void CudaDevice::prepare(DataType type, ReduceOp op) noexcept {
  std::atomic<bool>& prepared = prepared_[size_t(type) * reduce_op_count + size_t(op)];
  if (prepared.load(std::memory_order_acquire)) return;  // pairs with the store below
  const std::lock_guard lock(preparing_);
  if (prepared.load(std::memory_order_relaxed)) return;
  const bool scales = op == ReduceOp::premulsum;
  (void)in_context([&]() -> Outcome {
    // Where the buffers and their sizes allow it, bits are joined as words, else as bytes.
    for (const uintptr_t place : {uintptr_t{0}, uintptr_t{1}}) {
      if (!defined(op, type)) break;
      const KernelCall call = kernel_call(type, scales ? ReduceOp::sum : op, 4, place);
      load(call, few_inputs, reduce_kernel(call, 2));
      load(call, many_inputs, reduce_kernel(call, kernel_inputs_max));
      load(call, linked, linked_kernel(call, false));
      load(call, packets, linked_kernel(call, true));
    }
    const KernelCall bytes{DataType::uint8, ReduceOp::sum, 1};  // what is not joined is moved so
    load(bytes, linked, linked_kernel(bytes, false));
    load(bytes, packets, linked_kernel(bytes, true));
    if (scales && defined(op, type)) load({scale_type(type), ReduceOp::prod, 0}, scaling, scale_kernel(scale_type(type)));
    return {};
  });
  prepared.store(true, std::memory_order_release);
}

Outcome CudaDevice::launch(DeviceStream stream, const Kernel& kernel, uint32_t blocks, void* arguments,
                           const char* what) noexcept {
  void* parameters[] = {arguments};
  const cudaError_t error =
      cudaLaunchKernel(kernel.function, dim3(blocks), dim3(kernel_threads), parameters, 0, stream_of(stream));
  return error == cudaSuccess ? Outcome{} : told(error, what);
}

Outcome CudaDevice::reduce(DeviceStream stream, const DeviceReduction& r) noexcept {
  if (r.count == 0) return {};
  ReducePlan plan = plan_reduce(r);
  if (plan.copies) return copy(stream, r.output, r.inputs[0], r.count * element_bytes(r.type));
  const Kernel kernel = reduce_kernel(plan.call, r.n_inputs);
  if (kernel.function == nullptr)
    return {Code::unsupported, fmt::format("CUDA device {} has no kernel for {} of {}", number_, name(r.op), name(r.type))};
  return in_context([&] {
    const KernelKind kind = r.n_inputs <= 2 ? few_inputs : many_inputs;
    const uint32_t blocks = blocks_for(plan.arguments.parts, kernel_threads, kernel.unrolled,
                                       blocks_max(plan.call, kind, kernel.function));
    return launch(stream, kernel, blocks, &plan.arguments, "the launch of a reduction");
  });
}

Outcome CudaDevice::scale(DeviceStream stream, DataType type, const void* scalar, const void* input, void* output,
                          size_t count) noexcept {
  if (count == 0) return {};
  const DataType like = scale_type(type);
  const Kernel kernel = defined(ReduceOp::premulsum, type) ? scale_kernel(like) : Kernel{};
  if (kernel.function == nullptr)
    return {Code::unsupported, fmt::format("CUDA device {} has no kernel that scales {}", number_, name(type))};
  ScaleArguments arguments = plan_scale(type, scalar, input, output, count);
  return in_context([&] {
    const uint32_t blocks = blocks_for(arguments.parts, kernel_threads, kernel.unrolled,
                                       blocks_max({like, ReduceOp::prod, 0}, scaling, kernel.function));
    return launch(stream, kernel, blocks, &arguments, "the launch of a scaling");
  });
}

// Blocks of one launch that wait for each other must all be under way, which a cooperative launch sees to, or refuses. So
// must those of launches that wait for each other, of which the caller sees that they find room.
Outcome CudaDevice::run_linked(DeviceStream stream, const LinkedCall& c) noexcept {
  if (c.count == 0) return {};
  const KernelCall taken = linked_kernel_call(c);
  const bool of_packets = c.plan->packets;
  const Kernel kernel = linked_kernel(taken, of_packets);
  if (kernel.function == nullptr)
    return {Code::unsupported, fmt::format("CUDA device {} has no kernel for {} of {}", number_, name(c.op), name(c.type))};
  return in_context([&]() -> Outcome {
    const uint32_t most = blocks_max(taken, of_packets ? packets : linked, kernel.function);
    const LinkedElements as{taken.type, taken.count};
    PacketArguments small{};
    LinkedArguments large{};
    if (!of_packets) large = linked_arguments(c, as, most);
    else if (!packet_arguments(c, as, most, &small))
      return {Code::unsupported, fmt::format("CUDA device {}: a plan of packets has more than {} steps, or one of two local operands",
                                             number_, packet_steps_max)};
    const LinkedLaunchPart& part = of_packets ? small.part : large.part;
    const dim3 blocks(part.n_ranks * part.channels), threads(kernel_threads);
    void* parameters[] = {of_packets ? static_cast<void*>(&small) : static_cast<void*>(&large)};
    const bool waits = !c.meets() && (of_packets || large.plan.waits);
    const cudaStream_t on = stream_of(stream);
    const cudaError_t error = waits ? cudaLaunchCooperativeKernel(kernel.function, blocks, threads, parameters, 0, on)
                                    : cudaLaunchKernel(kernel.function, blocks, threads, parameters, 0, on);
    return error == cudaSuccess ? Outcome{} : told(error, fmt::format("the launch of a collective of {} ranks", c.plan->ranks));
  });
}

// --- Memory and events of other processes; peers ---------------------------------------------------------------------

Outcome CudaDevice::export_memory(const void* pointer, ExportedMemory* exported) noexcept {
  return in_context([&]() -> Outcome {
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    uint64_t allocation = 0;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_BUFFER_ID};
    void* answers[] = {&begin, &bytes, &allocation};
    const CUresult error = driver_.pointer_attributes(3, asked, answers, reinterpret_cast<CUdeviceptr>(pointer));
    if (error != CUDA_SUCCESS || begin == 0)
      return {Code::invalid_argument, fmt::format("{} is no memory of a CUDA device", pointer)};
    cudaIpcMemHandle_t handle{};
    const cudaError_t refused = cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(begin));
    if (refused != cudaSuccess)
      return told(refused, fmt::format("cudaIpcGetMemHandle of {} (memory of cudaMalloc alone can be exported)", pointer),
                  Code::unsupported);
    std::memcpy(exported->handle.data(), &handle, sizeof handle);
    exported->offset = reinterpret_cast<CUdeviceptr>(pointer) - begin;
    exported->bytes = bytes;
    exported->allocation = allocation;
    return {};
  });
}

// Whole pages of the host, as the driver wants it: what lies beside the allocation there is of this process too.
Outcome CudaDevice::export_file(const void* pointer, DeviceFile* file) noexcept {
  constexpr CUdeviceptr page_bytes = 4096;
  return in_context([&]() -> Outcome {
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void* answers[] = {&begin, &bytes};
    const CUresult error = driver_.pointer_attributes(2, asked, answers, reinterpret_cast<CUdeviceptr>(pointer));
    if (error != CUDA_SUCCESS || begin == 0)
      return {Code::invalid_argument, fmt::format("{} is no memory of a CUDA device", pointer)};
    const CUdeviceptr first = begin / page_bytes * page_bytes;
    const size_t whole = (begin + bytes - first + page_bytes - 1) / page_bytes * page_bytes;
    const CUresult refused = driver_.range_handle(&file->fd, first, whole, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (refused != CUDA_SUCCESS) {
      Outcome outcome = driver_outcome(driver_, refused, fmt::format("cuMemGetHandleForAddressRange of {} bytes", whole));
      outcome.code = Code::unsupported;
      return outcome;
    }
    file->begin = reinterpret_cast<const std::byte*>(first);
    file->bytes = whole;
    return {};
  });
}

Outcome CudaDevice::import_memory(const ExportedMemory& exported, void** begin) noexcept {
  return in_context([&] {
    cudaIpcMemHandle_t handle{};
    std::memcpy(&handle, exported.handle.data(), sizeof handle);
    return told(cudaIpcOpenMemHandle(begin, handle, cudaIpcMemLazyEnablePeerAccess),
                fmt::format("cudaIpcOpenMemHandle of {} bytes", exported.bytes));
  });
}

Outcome CudaDevice::close_memory(void* begin) noexcept {
  return in_context([&] { return told(cudaIpcCloseMemHandle(begin), fmt::format("cudaIpcCloseMemHandle of {}", begin)); });
}

Outcome CudaDevice::export_event(DeviceEvent event, ExportedEvent* exported) noexcept {
  return in_context([&] {
    cudaIpcEventHandle_t handle{};
    Outcome outcome = told(cudaIpcGetEventHandle(&handle, event_of(event)), "cudaIpcGetEventHandle");
    std::memcpy(exported->handle.data(), &handle, sizeof handle);
    return outcome;
  });
}

Outcome CudaDevice::import_event(const ExportedEvent& exported, DeviceEvent* event) noexcept {
  return in_context([&] {
    cudaIpcEventHandle_t handle{};
    std::memcpy(&handle, exported.handle.data(), sizeof handle);
    cudaEvent_t made = nullptr;
    Outcome outcome = told(cudaIpcOpenEventHandle(&made, handle), "cudaIpcOpenEventHandle");
    *event = reinterpret_cast<DeviceEvent>(made);
    return outcome;
  });
}

Outcome CudaDevice::enable_peer_access(int peer) noexcept {
  return in_context([&]() -> Outcome {
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled)
      return told(error, fmt::format("cudaDeviceEnablePeerAccess to device {}", peer), Code::unsupported);
    cudaGetLastError();
    return {};
  });
}

}  // namespace tutti
