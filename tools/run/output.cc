// Lines, prefixes, and a queue that never blocks the launcher.
#include "tools/run/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include <fmt/format.h>

namespace tutti::run {

void LineSplitter::feed(std::string_view bytes, const Emit& emit) {
  while (!bytes.empty()) {
    if (after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    pending_.append(bytes.substr(0, end));
    while (pending_.size() > line_bytes_max) {
      emit(std::string_view(pending_).substr(0, line_bytes_max));
      pending_.erase(0, line_bytes_max);
    }
    if (end == std::string_view::npos) return;
    after_return_ = bytes[end] == '\r';
    // A bar that returns before it draws would give an empty line each time.
    if (!after_return_ || !pending_.empty()) emit(pending_);
    else if (end + 1 < bytes.size() && bytes[end + 1] == '\n') emit(pending_);
    pending_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::finish(const Emit& emit) {
  if (!pending_.empty()) emit(pending_);
  pending_.clear();
}

std::string line_prefix(int rank, int ranks, bool colour) {
  constexpr std::array<int, 10> colours = {36, 33, 35, 32, 94, 91, 96, 93, 95, 92};
  const std::string width = std::to_string(ranks - 1);
  const std::string text = fmt::format("[{:>{}}]", rank, width.size());
  if (!colour) return text + " ";
  return fmt::format("\x1b[{}m{}\x1b[0m ", colours[size_t(rank) % colours.size()], text);
}

bool wants_colour(int fd) {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(fd) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

void OutputQueue::add(int fd, std::string_view text) {
  constexpr size_t piece_bytes_max = 64 << 10;
  if (fd == failed_fd_[0] || fd == failed_fd_[1]) return;
  bytes_ += text.size();
  if (pieces_.empty() || pieces_.back().fd != fd || pieces_.back().text.size() > piece_bytes_max)
    pieces_.push_back({fd, {}});
  pieces_.back().text += text;
}

bool OutputQueue::write_some() {
  while (!pieces_.empty()) {
    Piece& piece = pieces_.front();
    pollfd ready{piece.fd, POLLOUT, 0};
    if (poll(&ready, 1, 0) <= 0) return true;
    // A pipe that is ready takes PIPE_BUF bytes without blocking.
    const size_t bytes = std::min<size_t>(piece.text.size() - piece.written, PIPE_BUF);
    const ssize_t written = write(piece.fd, piece.text.data() + piece.written, bytes);
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (written < 0) {
      error_number_ = errno;
      drop(piece.fd);
      return false;
    }
    piece.written += size_t(written);
    bytes_ -= size_t(written);
    if (piece.written == piece.text.size()) pieces_.pop_front();
  }
  return true;
}

void OutputQueue::drop(int fd) {
  failed_fd_[failed_fd_[0] == -1 ? 0 : 1] = fd;
  std::erase_if(pieces_, [fd](const Piece& piece) { return piece.fd == fd; });
  bytes_ = 0;
  for (const Piece& piece : pieces_) bytes_ += piece.text.size() - piece.written;
}

}  // namespace tutti::run
