// The network: 784 inputs, 256 hidden units with ReLU, 10 outputs, cross-entropy. Parameters and gradients are flat
// vectors, so that they can be broadcast, averaged and saved as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "sizes.h"

namespace mlp {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Uniform in ±1/sqrt(fan-in), as PyTorch's Linear starts.
std::vector<float> initial_parameters(const Sizes& sizes, uint64_t seed);

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

// parameters -= learning_rate × gradient
void descend(std::span<float> parameters, std::span<const float> gradient, float learning_rate);

// How many of the batch are classified right.
size_t count_right(const Sizes& sizes, std::span<const float> second_layer, const Matrix& hidden,
                   std::span<const uint8_t> labels);

}  // namespace mlp
