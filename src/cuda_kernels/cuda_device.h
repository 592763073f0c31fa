// A GPU as the library sees it: the device interface by CUDA's runtime. device.h says what each function means.
#pragma once

#include <array>
#include <atomic>
#include <mutex>

#include "cuda_kernels/cuda_driver.h"
#include "cuda_kernels/plan.h"
#include "device/device.h"

namespace tutti {

class CudaDevice final : public Device {
 public:
  // Makes no context yet.
  CudaDevice(const CudaDriver& driver, int number) noexcept;

  int number() const noexcept override { return number_; }
  const DeviceInfo& info() const noexcept override { return info_; }
  bool is_lost() const noexcept override { return lost_.load(std::memory_order_relaxed); }

  Outcome allocate(size_t bytes, void** pointer) noexcept override;
  Outcome free(void* pointer) noexcept override;

  Outcome create_stream(DeviceStream* stream, bool urgent) noexcept override;
  Outcome destroy_stream(DeviceStream stream) noexcept override;
  Outcome wait_stream(DeviceStream stream) noexcept override;
  Outcome query_stream(DeviceStream stream) noexcept override;

  Outcome create_event(bool shared, DeviceEvent* event) noexcept override;
  Outcome destroy_event(DeviceEvent event) noexcept override;
  Outcome record_event(DeviceEvent event, DeviceStream stream) noexcept override;
  Outcome wait_event(DeviceStream stream, DeviceEvent event) noexcept override;
  Outcome query_event(DeviceEvent event) noexcept override;

  Outcome wait_flag(DeviceStream stream, const uint32_t* flag, uint32_t value) noexcept override;
  Outcome write_flag(DeviceStream stream, uint32_t* flag, uint32_t value) noexcept override;

  void prepare(DataType type, ReduceOp op) noexcept override;
  Outcome copy(DeviceStream stream, void* to, const void* from, size_t bytes) noexcept override;
  Outcome reduce(DeviceStream stream, const DeviceReduction& reduction) noexcept override;
  Outcome scale(DeviceStream stream, DataType type, const void* scalar, const void* input, void* output,
                size_t count) noexcept override;
  Outcome run_linked(DeviceStream stream, const LinkedCall& call) noexcept override;

  Outcome export_memory(const void* pointer, ExportedMemory* exported) noexcept override;
  Outcome export_file(const void* pointer, DeviceFile* file) noexcept override;
  Outcome import_memory(const ExportedMemory& exported, void** begin) noexcept override;
  Outcome close_memory(void* begin) noexcept override;
  Outcome export_event(DeviceEvent event, ExportedEvent* exported) noexcept override;
  Outcome import_event(const ExportedEvent& exported, DeviceEvent* event) noexcept override;

  Outcome enable_peer_access(int peer) noexcept;
  bool has_context() const noexcept { return context_.load(std::memory_order_acquire) != nullptr; }

  // Runs what calls CUDA for this device, an Outcome().
  template <class Body>
  Outcome in_context(Body body) noexcept {
    CUcontext mine = nullptr;
    if (Outcome made = context(&mine); made.code != Code::success) return made;
    const CudaContextScope scope(driver_, mine);
    if (scope.error() != CUDA_SUCCESS) return told(scope.error(), "entering the context");
    return body();
  }

 private:
  // Blocks that fill the device with one of the kernels, by type, operator and kind; 0: not asked yet.
  enum KernelKind { few_inputs, many_inputs, scaling, linked, packets, kernel_kinds };
  using BlockCounts = std::array<std::atomic<uint32_t>, data_type_count * reduce_op_count * kernel_kinds>;

  Outcome told(cudaError_t error, std::string_view what, Code code = Code::device_error) noexcept;
  Outcome told(CUresult error, std::string_view what) noexcept;
  Outcome told_or_running(cudaError_t error, std::string_view what) noexcept;
  void load(const KernelCall& call, KernelKind kind, const Kernel& kernel) noexcept;
  Outcome context(CUcontext* context) noexcept;
  uint32_t blocks_max(const KernelCall& call, KernelKind kind, const void* function) noexcept;
  Outcome launch(DeviceStream stream, const Kernel& kernel, uint32_t blocks, void* arguments, const char* what) noexcept;

  const CudaDriver& driver_;
  const int number_;
  DeviceInfo info_;
  int multiprocessors_ = 0;
  std::atomic<bool> lost_{false};
  std::mutex mutex_;  // of making the context
  std::atomic<CUcontext> context_{nullptr};
  BlockCounts block_counts_{};
  std::mutex preparing_;
  std::array<std::atomic<bool>, data_type_count * reduce_op_count> prepared_{};
};

}  // namespace tutti
