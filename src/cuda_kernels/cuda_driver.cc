// Functions of CUDA's driver, found at run time, and errors as sentences.
#include "cuda_kernels/cuda_driver.h"

#include <fmt/format.h>

namespace tutti {
namespace {

// The driver's function of that name as it was in a version of CUDA.
bool look_up(const char* name, unsigned version, void** function) noexcept {
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, function, version, cudaEnableDefault, &result);
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess && *function != nullptr;
}

}  // namespace

std::string CudaDriver::find() noexcept {
  const struct {
    const char* name;
    unsigned version;
    void* function;
  } all[] = {{"cuDevicePrimaryCtxRetain", 7000, &retain_primary}, {"cuCtxPushCurrent", 4000, &push_context},
             {"cuCtxPopCurrent", 4000, &pop_context},             {"cuCtxGetDevice", 2000, &context_device},
             {"cuStreamGetCtx", 9020, &stream_context},           {"cuPointerGetAttributes", 7000, &pointer_attributes},
             {"cuStreamWaitValue32", 11070, &wait_value},         {"cuStreamWriteValue32", 11070, &write_value},
             {"cuMemGetHandleForAddressRange", 11070, &range_handle},
             {"cuGetErrorName", 6000, &error_name},               {"cuGetErrorString", 6000, &error_text}};
  for (const auto& row : all)
    if (!look_up(row.name, row.version, static_cast<void**>(row.function)))
      return fmt::format("the CUDA driver has no {}: it is older than CUDA 11.7", row.name);
  return "";
}

Outcome cuda_outcome(cudaError_t error, std::string_view what, Code code) noexcept {
  if (error == cudaSuccess) return {};
  cudaGetLastError();
  return {code, fmt::format("{} failed: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error))};
}

Outcome driver_outcome(const CudaDriver& driver, CUresult error, std::string_view what) noexcept {
  if (error == CUDA_SUCCESS) return {};
  const char *name = nullptr, *text = nullptr;
  if (driver.error_name(error, &name) != CUDA_SUCCESS) name = "unknown";
  if (driver.error_text(error, &text) != CUDA_SUCCESS) text = "an error that the driver does not know";
  return {Code::device_error, fmt::format("{} failed: {} ({})", what, text, name)};
}

// Those after which the runtime says that "the process must be terminated and relaunched", and lost devices.
bool ends_device(cudaError_t error) noexcept {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown: return true;
    default: return false;
  }
}

}  // namespace tutti
