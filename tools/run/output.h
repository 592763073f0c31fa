// The ranks' output: bytes become whole lines, lines get their rank's prefix, and nobody waits for a slow reader.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace tutti::run {

// Cuts a stream of bytes into lines. A line ends with \n, \r\n or \r (progress bars); what follows the last end is
// kept. A line longer than line_bytes_max is cut.
class LineSplitter {
 public:
  static constexpr size_t line_bytes_max = 1 << 20;
  using Emit = std::function<void(std::string_view line)>;  // without its end

  void feed(std::string_view bytes, const Emit& emit);
  // The stream is over: an unfinished line is a line.
  void finish(const Emit& emit);

 private:
  std::string pending_;
  bool after_return_ = false;  // the last byte was \r: a \n now belongs to it
};

// "[3] ", as wide for all ranks, in the rank's colour where wanted.
std::string line_prefix(int rank, int ranks, bool colour);

// Colours are for terminals, unless NO_COLOR is set.
bool wants_colour(int fd);

// Lines on their way out, in order, also over several descriptors, so that no line is torn where they are one file.
class OutputQueue {
 public:
  void add(int fd, std::string_view text);
  bool empty() const { return pieces_.empty(); }
  bool full() const { return bytes_ > bytes_max; }
  // The descriptor to wait for, or -1.
  int next_fd() const { return pieces_.empty() ? -1 : pieces_.front().fd; }
  // Writes what can be written without waiting. False where a descriptor has failed: its text is dropped from now on.
  bool write_some();
  int error_number() const { return error_number_; }

 private:
  static constexpr size_t bytes_max = 1 << 20;
  struct Piece {
    int fd;
    std::string text;
    size_t written = 0;
  };
  void drop(int fd);

  std::deque<Piece> pieces_;
  size_t bytes_ = 0;
  int failed_fd_[2] = {-1, -1};
  int error_number_ = 0;
};

}  // namespace tutti::run
