// Files that are written whole or not at all.
#pragma once

#include <string>

namespace mlp {

// Writes beside `path`, flushes to the disk, then renames: a reader sees the old file or the new one, whatever happens.
// Throws std::runtime_error that names the file and the reason (disk full, no permission); then the old file is as it
// was and nothing is left beside it.
void write_file(const std::string& path, const std::string& bytes);

// Throws std::runtime_error where it can be known now that write_file would fail later: no such folder, no permission.
// "" is no file and passes.
void refuse_unwritable(const std::string& path);

}  // namespace mlp
