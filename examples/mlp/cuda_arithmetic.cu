// The network's arithmetic on a GPU: matrices by cuBLAS, which is found at run time, and small kernels around them.
#include <dlfcn.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "arithmetic.h"

namespace mlp {
namespace {

constexpr int threads = 256;

void must(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}
void must(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": cuBLAS says " + std::to_string(int(status)));
}

// --- Kernels: an element, a row or a column for each thread. Fixed orders of addition, so that runs repeat.

__device__ int position() { return int(blockIdx.x * blockDim.x + threadIdx.x); }

// matrix (rows × columns) += biases, by columns; then no less than 0 where asked.
__global__ void add_biases(float* matrix, const float* biases, int rows, int columns, bool relu) {
  const int i = position();
  if (i >= rows * columns) return;
  const float sum = matrix[i] + biases[i % columns];
  matrix[i] = relu && sum < 0 ? 0 : sum;
}

// A row of logits becomes d(mean loss)/d(logits), and its loss over n.
__global__ void cross_entropy(float* logits, const uint8_t* labels, int n, int classes, float* losses) {
  const int row = position();
  if (row >= n) return;
  float* const p = logits + row * classes;
  float greatest = p[0], sum = 0;
  for (int c = 1; c < classes; ++c) greatest = fmaxf(greatest, p[c]);
  for (int c = 0; c < classes; ++c) sum += expf(p[c] - greatest);
  const float log_sum = logf(sum);
  losses[row] = (log_sum - (p[labels[row]] - greatest)) / float(n);
  for (int c = 0; c < classes; ++c)
    p[c] = (expf(p[c] - greatest - log_sum) - (c == labels[row] ? 1.0f : 0.0f)) / float(n);
}

// Nothing flows back through a unit that was 0.
__global__ void mask(float* gradient, const float* hidden, int count) {
  const int i = position();
  if (i < count && !(hidden[i] > 0)) gradient[i] = 0;
}

__global__ void sum_columns(const float* matrix, int rows, int columns, float* sums) {
  const int column = position();
  if (column >= columns) return;
  float sum = 0;
  for (int row = 0; row < rows; ++row) sum += matrix[row * columns + column];
  sums[column] = sum;
}

__global__ void step_down(float* parameters, const float* gradient, int count, float rate) {
  const int i = position();
  if (i < count) parameters[i] -= rate * gradient[i];
}

__global__ void compare(const float* logits, const uint8_t* labels, int n, int classes, int32_t* right) {
  const int row = position();
  if (row >= n) return;
  int best = 0;
  for (int c = 1; c < classes; ++c)
    if (logits[row * classes + c] > logits[row * classes + best]) best = c;
  if (best == labels[row]) atomicAdd(right, 1);
}

// --- cuBLAS, without linking to it.

struct Blas {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSgemm_v2) multiply = nullptr;

  Blas() {
    void* library = nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"})
      if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error("cuBLAS cannot be loaded (libcublas.so)");
    find(library, "cublasCreate_v2", create);
    find(library, "cublasDestroy_v2", destroy);
    find(library, "cublasSetStream_v2", set_stream);
    find(library, "cublasSgemm_v2", multiply);
  }

 private:
  template <class Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(std::string("cuBLAS has no ") + name);
  }
};

class CudaMath final : public Math {
 public:
  CudaMath(int device, const Sizes& sizes, int batch_max) : device_(device), sizes_(sizes) {
    must(cudaSetDevice(device_), "cudaSetDevice");
    must(blas_.create(&handle_), "cublasCreate");
    const size_t each = 2 * size_t(sizes.hidden) + size_t(sizes.outputs) + 1;
    if (const cudaError_t error = cudaMalloc(&room_, size_t(batch_max) * each * sizeof(float)); error != cudaSuccess) {
      blas_.destroy(handle_);
      must(error, "cudaMalloc for activations");
    }
    hidden_ = room_;
    hidden_gradient_ = hidden_ + size_t(batch_max) * size_t(sizes.hidden);
    logits_ = hidden_gradient_ + size_t(batch_max) * size_t(sizes.hidden);
    losses_ = logits_ + size_t(batch_max) * size_t(sizes.outputs);
  }
  ~CudaMath() override {
    cudaFree(room_);
    blas_.destroy(handle_);
  }

  void loss_and_gradient(tutti::DeviceStream stream, const float* parameters, const Batch& batch, float* gradient, float* loss,
                         const GradientReady& ready) override {
    begin(stream);
    const int n = batch.n, inputs = sizes_.inputs, units = sizes_.hidden, classes = sizes_.outputs;
    const int second_weights = classes * units, first_weights = units * inputs, second = second_weights + classes;
    forward(parameters, batch);
    cross_entropy<<<blocks(n), threads, 0, stream_>>>(logits_, batch.labels, n, classes, losses_);
    sum_columns<<<1, threads, 0, stream_>>>(losses_, n, 1, loss);
    multiply(true, false, classes, units, n, logits_, hidden_, gradient);
    sum_columns<<<blocks(classes), threads, 0, stream_>>>(logits_, n, classes, gradient + second_weights);
    multiply(false, false, n, units, classes, logits_, parameters, hidden_gradient_);
    must(cudaGetLastError(), "a kernel of the second layer");
    ready(0, size_t(second));
    mask<<<blocks(n * units), threads, 0, stream_>>>(hidden_gradient_, hidden_, n * units);
    multiply(true, false, units, inputs, n, hidden_gradient_, batch.inputs, gradient + second);
    sum_columns<<<blocks(units), threads, 0, stream_>>>(hidden_gradient_, n, units, gradient + second + first_weights);
    must(cudaGetLastError(), "a kernel of the first layer");
    ready(size_t(second), size_t(first_weights + units));
  }

  void descend(tutti::DeviceStream stream, float* parameters, const float* gradient, size_t count, float learning_rate) override {
    begin(stream);
    step_down<<<blocks(int(count)), threads, 0, stream_>>>(parameters, gradient, int(count), learning_rate);
    must(cudaGetLastError(), "the step down");
  }

  void count_right(tutti::DeviceStream stream, const float* parameters, const Batch& batch, int32_t* right) override {
    begin(stream);
    forward(parameters, batch);
    compare<<<blocks(batch.n), threads, 0, stream_>>>(logits_, batch.labels, batch.n, sizes_.outputs, right);
    must(cudaGetLastError(), "the comparison with labels");
  }

 private:
  static int blocks(int count) { return (count + threads - 1) / threads; }

  void begin(tutti::DeviceStream stream) {
    stream_ = reinterpret_cast<cudaStream_t>(stream);
    must(cudaSetDevice(device_), "cudaSetDevice");
    must(blas_.set_stream(handle_, stream_), "cublasSetStream");
  }

  void forward(const float* parameters, const Batch& batch) {
    const int n = batch.n, inputs = sizes_.inputs, units = sizes_.hidden, classes = sizes_.outputs;
    const float* const first = parameters + classes * units + classes;
    multiply(false, true, n, units, inputs, batch.inputs, first, hidden_);
    add_biases<<<blocks(n * units), threads, 0, stream_>>>(hidden_, first + units * inputs, n, units, true);
    multiply(false, true, n, classes, units, hidden_, parameters, logits_);
    add_biases<<<blocks(n * classes), threads, 0, stream_>>>(logits_, parameters + classes * units, n, classes, false);
    must(cudaGetLastError(), "a kernel forward");
  }

  // c (rows × columns) = a × b, each transposed where asked; all row by row. To cuBLAS, which thinks in columns, that is
  // the transposed product of the two in the other order.
  void multiply(bool turn_a, bool turn_b, int rows, int columns, int inner, const float* a, const float* b, float* c) {
    const float one = 1, zero = 0;
    must(blas_.multiply(handle_, turn_b ? CUBLAS_OP_T : CUBLAS_OP_N, turn_a ? CUBLAS_OP_T : CUBLAS_OP_N, columns, rows,
                        inner, &one, b, turn_b ? inner : columns, a, turn_a ? rows : inner, &zero, c, columns),
         "cublasSgemm");
  }

  const int device_;
  const Sizes sizes_;
  Blas blas_;
  cublasHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  float *room_ = nullptr, *hidden_ = nullptr, *hidden_gradient_ = nullptr, *logits_ = nullptr, *losses_ = nullptr;
};

}  // namespace
}  // namespace mlp

extern "C" __attribute__((visibility("default"))) mlp::Math* mlp_cuda_math(int device, const mlp::Sizes& sizes, int batch_max,
                                                                        char* why, size_t why_bytes) noexcept {
  try {
    return new mlp::CudaMath(device, sizes, batch_max);
  } catch (const std::exception& error) {
    std::snprintf(why, why_bytes, "%s", error.what());
    return nullptr;
  }
}
