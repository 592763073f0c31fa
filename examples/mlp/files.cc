// Files by way of a temporary one and rename.
#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include <fmt/format.h>

namespace mlp {
namespace {

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void write_all(int fd, const std::string& bytes, const std::string& path) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) throw std::runtime_error(fmt::format("{}: cannot write: {}", path, std::strerror(errno)));
    done += size_t(wrote);
  }
}

// Removes the unfinished file unless it was renamed into place.
struct Unfinished {
  std::string path;
  int fd;
  bool kept = false;
  ~Unfinished() {
    if (fd >= 0) ::close(fd);
    if (!kept) ::unlink(path.c_str());
  }
};

void sync_folder_of(const std::string& path) {
  const std::string folder = folder_of(path);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

void refuse_unwritable(const std::string& path) {
  if (path.empty()) return;
  if (std::filesystem::is_directory(path)) throw std::runtime_error(path + ": is a folder");
  if (::access(folder_of(path).c_str(), W_OK) != 0)
    throw std::runtime_error(fmt::format("{}: no file can be made in its folder: {}", path, std::strerror(errno)));
}

void write_file(const std::string& path, const std::string& bytes) {
  const std::string temporary = path + ".unfinished";
  Unfinished file{temporary, ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (file.fd < 0) {
    file.kept = true;  // there is nothing to remove
    throw std::runtime_error(fmt::format("{}: cannot create: {}", temporary, std::strerror(errno)));
  }
  write_all(file.fd, bytes, temporary);
  if (::fsync(file.fd) != 0)
    throw std::runtime_error(fmt::format("{}: cannot flush to disk: {}", temporary, std::strerror(errno)));
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    throw std::runtime_error(fmt::format("{}: cannot rename {} to it: {}", path, temporary, std::strerror(errno)));
  file.kept = true;
  sync_folder_of(path);
}

}  // namespace mlp
