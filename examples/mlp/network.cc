// Forward and backward, by Eigen.
#include "network.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace mlp {
namespace {

using Weights = Eigen::Map<const Matrix>;
using Biases = Eigen::Map<const Eigen::RowVectorXf>;

struct Layer {
  Weights weights;
  Biases biases;
};

// A layer's parameters: weights (rows × columns), then a bias per row.
Layer layer_of(std::span<const float> flat, int rows, int columns) {
  return {Weights(flat.data(), rows, columns), Biases(flat.data() + size_t(rows) * size_t(columns), rows)};
}

Matrix logits_of(const Sizes& sizes, std::span<const float> second_layer, const Matrix& hidden) {
  const Layer layer = layer_of(second_layer, sizes.outputs, sizes.hidden);
  Matrix logits = hidden * layer.weights.transpose();
  logits.rowwise() += layer.biases;
  return logits;
}

}  // namespace

std::vector<float> initial_parameters(const Sizes& sizes, uint64_t seed) {
  std::vector<float> parameters(sizes.all());
  std::mt19937_64 random(seed);
  const auto uniform = [&](float bound) { return (float(random() >> 40) / float(1 << 23) - 1) * bound; };
  const float second_bound = 1 / std::sqrt(float(sizes.hidden)), first_bound = 1 / std::sqrt(float(sizes.inputs));
  for (size_t i = 0; i < parameters.size(); ++i)
    parameters[i] = uniform(i < sizes.second_layer() ? second_bound : first_bound);
  return parameters;
}

void forward_first(const Sizes& sizes, std::span<const float> first_layer, const Matrix& inputs, Matrix& hidden) {
  const Layer layer = layer_of(first_layer, sizes.hidden, sizes.inputs);
  hidden.noalias() = inputs * layer.weights.transpose();
  hidden.rowwise() += layer.biases;
  hidden = hidden.cwiseMax(0.0f);
}

float forward_second(const Sizes& sizes, std::span<const float> second_layer, const Matrix& hidden,
                     std::span<const uint8_t> labels, Matrix& logits_gradient) {
  Matrix& p = logits_gradient;
  p = logits_of(sizes, second_layer, hidden);
  const Eigen::Index batch = p.rows();
  float loss = 0;
  for (Eigen::Index i = 0; i < batch; ++i) {
    const Eigen::Index label = labels[size_t(i)];
    p.row(i).array() -= p.row(i).maxCoeff();
    const float log_sum = std::log(p.row(i).array().exp().sum());
    loss += log_sum - p(i, label);
    p.row(i) = (p.row(i).array() - log_sum).exp();
    p(i, label) -= 1;
  }
  p /= float(batch);
  return loss / float(batch);
}

void backward_second(const Sizes& sizes, std::span<const float> second_layer, const Matrix& hidden,
                     const Matrix& logits_gradient, std::span<float> gradient, Matrix& hidden_gradient) {
  Eigen::Map<Matrix> weights_gradient(gradient.data(), sizes.outputs, sizes.hidden);
  Eigen::Map<Eigen::RowVectorXf> biases_gradient(gradient.data() + weights_gradient.size(), sizes.outputs);
  weights_gradient.noalias() = logits_gradient.transpose() * hidden;
  biases_gradient = logits_gradient.colwise().sum();
  hidden_gradient.noalias() = logits_gradient * layer_of(second_layer, sizes.outputs, sizes.hidden).weights;
}

void backward_first(const Sizes& sizes, const Matrix& inputs, const Matrix& hidden, Matrix& hidden_gradient,
                    std::span<float> gradient, const GradientReady& ready) {
  constexpr int block = 64;  // hidden units at a time: 200 kB of gradient
  hidden_gradient = (hidden.array() > 0).select(hidden_gradient, 0.0f);
  for (int first = 0; first < sizes.hidden; first += block) {
    const int rows = std::min(block, sizes.hidden - first);
    const size_t offset = size_t(first) * size_t(sizes.inputs), count = size_t(rows) * size_t(sizes.inputs);
    Eigen::Map<Matrix> part(gradient.data() + offset, rows, sizes.inputs);
    part.noalias() = hidden_gradient.middleCols(first, rows).transpose() * inputs;
    ready(offset, count);
  }
  const size_t biases_at = size_t(sizes.hidden) * size_t(sizes.inputs);
  Eigen::Map<Eigen::RowVectorXf>(gradient.data() + biases_at, sizes.hidden) = hidden_gradient.colwise().sum();
  ready(biases_at, size_t(sizes.hidden));
}

float loss_and_gradient(const Sizes& sizes, std::span<const float> parameters, const Matrix& inputs,
                        std::span<const uint8_t> labels, std::span<float> gradient, const GradientReady& ready) {
  const size_t second = sizes.second_layer();
  Matrix hidden, logits_gradient, hidden_gradient;
  forward_first(sizes, parameters.subspan(second), inputs, hidden);
  const float loss = forward_second(sizes, parameters.first(second), hidden, labels, logits_gradient);
  backward_second(sizes, parameters.first(second), hidden, logits_gradient, gradient.first(second), hidden_gradient);
  ready(0, second);
  backward_first(sizes, inputs, hidden, hidden_gradient, gradient.subspan(second),
                 [&](size_t first, size_t count) { ready(second + first, count); });
  return loss;
}

void descend(std::span<float> parameters, std::span<const float> gradient, float learning_rate) {
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i] -= learning_rate * gradient[i];
}

size_t count_right(const Sizes& sizes, std::span<const float> second_layer, const Matrix& hidden,
                   std::span<const uint8_t> labels) {
  const Matrix logits = logits_of(sizes, second_layer, hidden);
  size_t right = 0;
  for (Eigen::Index i = 0; i < logits.rows(); ++i) {
    Eigen::Index best = 0;
    logits.row(i).maxCoeff(&best);
    right += best == labels[size_t(i)];
  }
  return right;
}

}  // namespace mlp
