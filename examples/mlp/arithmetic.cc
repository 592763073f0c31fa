// Whose arithmetic serves a device; that of simulated ones is the host's.
#include "arithmetic.h"

#include <dlfcn.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "device/device.h"
#include "network.h"

namespace mlp {
namespace {

void must(const tutti::Outcome& outcome) {
  if (!outcome.ok()) throw std::runtime_error(outcome.sentence);
}

Matrix inputs_at(const std::byte* place, int n, const Sizes& sizes) {
  return Eigen::Map<const Matrix>(reinterpret_cast<const float*>(place), n, sizes.inputs);
}

// One host kernel for each function, which does what a rank without a device does.
class SimulatedMath final : public Math {
 public:
  SimulatedMath(tutti::Device& device, const Sizes& sizes) : device_(device), sizes_(sizes) {}

  void loss_and_gradient(tutti::DeviceStream stream, const float* parameters, const Batch& batch, float* gradient,
                         float* loss, const GradientReady& ready) override {
    const std::array extents = {of(parameters, sizes_.all()), of(batch.inputs, inputs_of(batch)),
                                of(batch.labels, size_t(batch.n)), of(gradient, sizes_.all()), of(loss, 1)};
    must(device_.run_on_host(stream, extents, [sizes = sizes_, n = batch.n](std::span<std::byte* const> at) {
      const auto* const all = reinterpret_cast<const float*>(at[0]);
      const auto* const labels = reinterpret_cast<const uint8_t*>(at[2]);
      auto* const result = reinterpret_cast<float*>(at[3]);
      *reinterpret_cast<float*>(at[4]) =
          mlp::loss_and_gradient(sizes, {all, sizes.all()}, inputs_at(at[1], n, sizes), {labels, size_t(n)},
                                 {result, sizes.all()}, [](size_t, size_t) {});
    }));
    ready(0, sizes_.second_layer());
    ready(sizes_.second_layer(), sizes_.first_layer());
  }

  void descend(tutti::DeviceStream stream, float* parameters, const float* gradient, size_t count,
               float learning_rate) override {
    const std::array extents = {of(parameters, count), of(gradient, count)};
    must(device_.run_on_host(stream, extents, [count, learning_rate](std::span<std::byte* const> at) {
      mlp::descend({reinterpret_cast<float*>(at[0]), count}, {reinterpret_cast<const float*>(at[1]), count}, learning_rate);
    }));
  }

  void count_right(tutti::DeviceStream stream, const float* parameters, const Batch& batch, int32_t* right) override {
    const std::array extents = {of(parameters, sizes_.all()), of(batch.inputs, inputs_of(batch)),
                                of(batch.labels, size_t(batch.n)), of(right, 1)};
    must(device_.run_on_host(stream, extents, [sizes = sizes_, n = batch.n](std::span<std::byte* const> at) {
      const std::span<const float> all(reinterpret_cast<const float*>(at[0]), sizes.all());
      Matrix hidden;
      forward_first(sizes, all.subspan(sizes.second_layer()), inputs_at(at[1], n, sizes), hidden);
      const std::span<const uint8_t> labels(reinterpret_cast<const uint8_t*>(at[2]), size_t(n));
      *reinterpret_cast<int32_t*>(at[3]) += int32_t(mlp::count_right(sizes, all.first(sizes.second_layer()), hidden, labels));
    }));
  }

 private:
  template <class T>
  static tutti::DeviceExtent of(const T* data, size_t count) {
    return {data, count * sizeof(T)};
  }
  size_t inputs_of(const Batch& batch) const { return size_t(batch.n) * size_t(sizes_.inputs); }

  tutti::Device& device_;
  Sizes sizes_;
};

// Beside this program, or where the loader looks.
std::unique_ptr<Math> cuda_math(int device, const Sizes& sizes, int batch_max) {
  std::error_code ignored;
  const auto beside = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "libmlp_cuda.so";
  void* module = ::dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) module = ::dlopen("libmlp_cuda.so", RTLD_NOW | RTLD_LOCAL);
  const char* const reason = module == nullptr ? ::dlerror() : nullptr;
  if (module == nullptr)
    throw std::runtime_error(fmt::format("no arithmetic for CUDA, which is built where the toolkit is: {}",
                                         reason == nullptr ? "libmlp_cuda.so cannot be loaded" : reason));
  const auto make = reinterpret_cast<CudaMathFunction>(::dlsym(module, "mlp_cuda_math"));
  if (make == nullptr) throw std::runtime_error("libmlp_cuda.so has no mlp_cuda_math");
  std::array<char, 512> why{};
  std::unique_ptr<Math> math(make(device, sizes, batch_max, why.data(), why.size()));
  if (math == nullptr) throw std::runtime_error(why.data());
  return math;
}

}  // namespace

std::unique_ptr<Math> make_math(tutti::Platform& platform, int device, const Sizes& sizes, int batch_max) {
  if (platform.name() == std::string_view("cuda")) return cuda_math(device, sizes, batch_max);
  return std::make_unique<SimulatedMath>(platform.device(device), sizes);
}

}  // namespace mlp
