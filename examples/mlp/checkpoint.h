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

// Writes beside `path`, flushes to the disk, then renames: a reader sees the old file or the new one, whatever happens.
// Throws std::runtime_error that names the file and the reason (disk full, no permission); then the old file is as it
// was and nothing is left beside it.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// Throws std::runtime_error that names the file and what is wrong: missing, of another program, truncated, damaged.
Checkpoint load_checkpoint(const std::string& path);

}  // namespace mlp
