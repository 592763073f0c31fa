// Checkpoints: written whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mlp {

struct Checkpoint {
  int32_t epochs_done = 0;
  uint64_t seed = 0;
  std::vector<float> parameters;
};

// By write_file: where it throws, the old checkpoint is as it was.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// Throws std::runtime_error that names the file and what is wrong: missing, of another program, truncated, damaged.
Checkpoint load_checkpoint(const std::string& path);

}  // namespace mlp
