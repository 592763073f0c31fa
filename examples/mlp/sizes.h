// How large the network is, and where its parameters lie.
#pragma once

#include <cstddef>
#include <functional>

namespace mlp {

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

// Called during backward() when gradient[first, first + count) is final. Ranges come in order and without gaps.
using GradientReady = std::function<void(size_t first, size_t count)>;

}  // namespace mlp
