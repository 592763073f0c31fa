// MNIST in its original IDX format, plain or gzipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mlp {

// n images of pixels_per_image bytes each, row by row, and their labels 0 to 9.
struct Dataset {
  size_t n = 0;
  size_t pixels_per_image = 0;
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
};

// `part` is "train" or "t10k": reads PART-images-idx3-ubyte and PART-labels-idx1-ubyte in `folder`, with or without
// ".gz". Throws std::runtime_error that names the file and what is wrong with it.
Dataset load_mnist(const std::string& folder, const std::string& part);

}  // namespace mlp
