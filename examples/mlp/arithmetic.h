// The arithmetic of the network on a device: put on a stream, done there in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "sizes.h"

namespace tutti {
class Platform;
using DeviceStream = struct DeviceStreamTag*;  // as device/device.h says
}  // namespace tutti

namespace mlp {

// All pointers are to memory of the device. Parameters and gradients lie as network.h says, samples row by row. Throws
// std::runtime_error.
class Math {
 public:
  virtual ~Math() = default;

  struct Batch {
    const float* inputs;    // n × sizes.inputs
    const uint8_t* labels;  // n
    int n;                  // at most what it was made for
  };
  // The gradient of the batch, and its mean loss (one float). `ready` is called when a part's work is on the stream.
  virtual void loss_and_gradient(tutti::DeviceStream stream, const float* parameters, const Batch& batch, float* gradient,
                                 float* loss, const GradientReady& ready) = 0;
  // parameters -= learning_rate × gradient
  virtual void descend(tutti::DeviceStream stream, float* parameters, const float* gradient, size_t count,
                       float learning_rate) = 0;
  // Adds to *right how many of the batch are classified right.
  virtual void count_right(tutti::DeviceStream stream, const float* parameters, const Batch& batch, int32_t* right) = 0;
};

// For batches of up to batch_max samples on that device: of CUDA, from libmlp_cuda.so; of the simulated one, the host's own
// arithmetic, so that all around it is tested. Throws std::runtime_error that says what is missing.
std::unique_ptr<Math> make_math(tutti::Platform& platform, int device, const Sizes& sizes, int batch_max);

// What libmlp_cuda.so has, by the name mlp_cuda_math. Null: `why` (room for that many characters) says why not.
using CudaMathFunction = Math* (*)(int device, const Sizes& sizes, int batch_max, char* why, size_t why_bytes) noexcept;

}  // namespace mlp
