// What CUDA's runtime has no name for: functions of the driver, found at run time, and the context of a call.
#pragma once

#include <string>
#include <string_view>

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "base/outcome.h"

namespace tutti {

// The driver's functions. Found once; all are there or the driver is refused.
struct CudaDriver {
  PFN_cuDevicePrimaryCtxRetain_v7000 retain_primary = nullptr;
  PFN_cuCtxPushCurrent_v4000 push_context = nullptr;
  PFN_cuCtxPopCurrent_v4000 pop_context = nullptr;
  PFN_cuCtxGetDevice_v2000 context_device = nullptr;
  PFN_cuStreamGetCtx_v9020 stream_context = nullptr;
  PFN_cuPointerGetAttributes_v7000 pointer_attributes = nullptr;
  PFN_cuStreamWaitValue32_v11070 wait_value = nullptr;
  PFN_cuStreamWriteValue32_v11070 write_value = nullptr;
  PFN_cuMemGetHandleForAddressRange_v11070 range_handle = nullptr;
  PFN_cuGetErrorName_v6000 error_name = nullptr;
  PFN_cuGetErrorString_v6000 error_text = nullptr;

  // "" where all were found, else what is missing.
  std::string find() noexcept;
};

// "cudaMalloc of 64 bytes on device 0 failed: out of memory (cudaErrorMemoryAllocation)". `what` is the call with its
// values. The runtime's memory of the error is cleared, so that the caller's own code does not meet it.
Outcome cuda_outcome(cudaError_t error, std::string_view what, Code code = Code::device_error) noexcept;
Outcome driver_outcome(const CudaDriver& driver, CUresult error, std::string_view what) noexcept;

// Whether nothing can be done on the device after this any more, in this process.
bool ends_device(cudaError_t error) noexcept;

// The context of a device is the calling thread's current one while this lives; then what was, be it none, is again. And
// what the thread does meanwhile, though it may wait or allocate, is no matter for captures of others into graphs.
class CudaContextScope {
 public:
  CudaContextScope(const CudaDriver& driver, CUcontext context) noexcept
      : driver_(driver), error_(driver.push_context(context)) {
    if (error_ == CUDA_SUCCESS && cudaThreadExchangeStreamCaptureMode(&mode_) != cudaSuccess) cudaGetLastError();
  }
  ~CudaContextScope() {
    if (error_ != CUDA_SUCCESS) return;
    if (cudaThreadExchangeStreamCaptureMode(&mode_) != cudaSuccess) cudaGetLastError();
    CUcontext popped = nullptr;
    driver_.pop_context(&popped);
  }
  CUresult error() const noexcept { return error_; }
  CudaContextScope(const CudaContextScope&) = delete;
  CudaContextScope& operator=(const CudaContextScope&) = delete;

 private:
  const CudaDriver& driver_;
  CUresult error_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // the other one: the thread's own, while this lives
};

}  // namespace tutti
