// All GPUs of this process by CUDA, and what the module libtutti_cuda.so answers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda_kernels/cuda_device.h"
#include "device/device.h"

namespace tutti {

class CudaPlatform final : public Platform {
 public:
  // "" where there is a driver and at least one device, else why not. To be called once, before all others.
  std::string find() noexcept;

  const char* name() const noexcept override { return "cuda"; }
  int count() const noexcept override { return int(devices_.size()); }
  Device& device(int number) noexcept override { return *devices_[size_t(number)]; }
  int current_device() const noexcept override;

  Location locate(const void* pointer) const noexcept override;
  Outcome describe_stream(DeviceStream stream, StreamInfo* info) noexcept override;
  bool has_peer_access(int device, int peer) const noexcept override;
  Outcome enable_peer_access(int device, int peer) noexcept override;
  bool supports(DataType type, ReduceOp op) const noexcept override;
  bool links(DataType type, ReduceOp op) const noexcept override;

  Outcome allocate_host(size_t bytes, void** pointer) noexcept override;
  Outcome free_host(void* pointer) noexcept override;
  Outcome register_host(void* pointer, size_t bytes) noexcept override;
  Outcome unregister_host(void* pointer) noexcept override;

 private:
  CudaDevice& device_in_use() noexcept;

  CudaDriver driver_;
  std::vector<std::unique_ptr<CudaDevice>> devices_;
  std::vector<bool> access_;     // [device * count() + peer]
  bool same_addresses_ = true;   // devices reach memory of the host that is registered where the host does
};

}  // namespace tutti
