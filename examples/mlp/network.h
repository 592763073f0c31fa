// The network: 784 inputs, 256 hidden units with ReLU, 10 outputs, cross-entropy. Parameters and gradients are flat
// vectors, so that they can be broadcast, averaged and saved as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <Eigen/Core>

namespace mlp {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Sizes {
  int inputs = 784;
  int hidden = 256;
  int outputs = 10;

  size_t first_layer() const { return size_t(hidden) * size_t(inputs) + size_t(hidden); }
  size_t second_layer() const { return size_t(outputs) * size_t(hidden) + size_t(outputs); }
  // All parameters: the second layer's weights (outputs × hidden) and biases, then the first layer's (hidden × inputs).
  // The second layer stands first because its gradient is done first.
  size_t all() const { return second_layer() + first_layer(); }
};

// Uniform in ±1/sqrt(fan-in), as PyTorch's Linear starts.
std::vector<float> initial_parameters(const Sizes& sizes, uint64_t seed);

// Called during backward() when gradient[first, first + count) is final. Ranges come in order and without gaps.
using GradientReady = std::function<void(size_t first, size_t count)>;

// One layer's part each, so that two ranks can hold one layer each.
// hidden(batch × hidden) = relu(inputs × W1ᵀ + b1)
void forward_first(const Sizes& sizes, std::span<const float> first_layer, const Matrix& inputs, Matrix& hidden);
// Mean cross-entropy of the batch, and d(loss)/d(logits).
float forward_second(const Sizes& sizes, std::span<const float> second_layer, const Matrix& hidden,
                     std::span<const uint8_t> labels, Matrix& logits_gradient);
// The second layer's gradient, and d(loss)/d(hidden).
void backward_second(const Sizes& sizes, std::span<const float> second_layer, const Matrix& hidden,
                     const Matrix& logits_gradient, std::span<float> gradient, Matrix& hidden_gradient);
// The first layer's gradient, by blocks of hidden units; `ready` gets ranges relative to the layer.
void backward_first(const Sizes& sizes, const Matrix& inputs, const Matrix& hidden, Matrix& hidden_gradient,
                    std::span<float> gradient, const GradientReady& ready);

// Loss of a batch, and its whole gradient.
float loss_and_gradient(const Sizes& sizes, std::span<const float> parameters, const Matrix& inputs,
                        std::span<const uint8_t> labels, std::span<float> gradient, const GradientReady& ready);

// How many of the batch are classified right.
size_t count_right(const Sizes& sizes, std::span<const float> second_layer, const Matrix& hidden,
                   std::span<const uint8_t> labels);

}  // namespace mlp
