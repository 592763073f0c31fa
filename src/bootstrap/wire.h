// Bytes on control connections: numbers in little endian, and frames (length, type, payload) over a TCP socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "bootstrap/bootstrap.h"

namespace tutti {

// Builds a message.
class ByteWriter {
 public:
  void number(uint64_t value, size_t bytes);  // little endian; bytes 1..8
  void u8(uint8_t value) { number(value, 1); }
  void u16(uint16_t value) { number(value, 2); }
  void u32(uint32_t value) { number(value, 4); }
  void u64(uint64_t value) { number(value, 8); }
  void raw(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void text(std::string_view text);                 // length as u32, then the characters
  void blob(std::span<const std::byte> bytes);      // length as u64, then the bytes
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

// Takes a message apart. Throws Error(remote_error) where it is shorter than what is asked for.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  uint64_t number(size_t bytes);
  uint8_t u8() { return uint8_t(number(1)); }
  uint16_t u16() { return uint16_t(number(2)); }
  uint32_t u32() { return uint32_t(number(4)); }
  uint64_t u64() { return number(8); }
  std::span<const std::byte> raw(size_t bytes);
  std::string text();
  std::span<const std::byte> blob();
  bool empty() const { return rest_.empty(); }
  size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

enum class FrameType : uint32_t {
  report = 1,  // joining rank to meeting place: who it is (messages.h)
  welcome,     // meeting place to rank: its neighbours in the tree
  failure,     // both ways: why joining fails for all
  linked,      // rank to meeting place: it needs it no more
  liveness,    // between neighbours in the tree: liveness.h
  gather,      // towards the root: one rank's part of an all_gather
  result       // from the root: all parts
};

struct Frame {
  FrameType type{};
  Bytes payload;
};

// Largest payload of a frame; only peers that have proven the key send frames.
inline constexpr size_t frame_bytes_max = size_t{1} << 30;

using SharedBytes = std::shared_ptr<const Bytes>;  // a frame as it travels; several links may share one

SharedBytes make_frame(FrameType type, std::span<const std::byte> payload);

// A non-blocking connected socket that carries frames both ways. Used by one thread at a time.
class FramedSocket {
 public:
  FramedSocket() = default;
  explicit FramedSocket(Fd fd) : fd_(std::move(fd)) {}

  int fd() const noexcept { return fd_.get(); }
  bool valid() const noexcept { return fd_.valid(); }

  // Appends to what is to be sent; sends nothing yet.
  void queue(SharedBytes frame) { out_.push_back(std::move(frame)); }
  // Sends what the socket takes without blocking. false: the connection is broken.
  bool flush() noexcept;
  bool has_output() const noexcept { return !out_.empty(); }

  enum class Received { frame, again, closed, malformed };
  // The next whole frame, without blocking.
  Received receive(Frame& frame);
  // Grows with every byte received: a sign of life also in the middle of a long frame.
  uint64_t bytes_received() const noexcept { return bytes_received_; }

  // Blocking until `deadline`, for those without a loop of their own. false or Received::again: the deadline passed.
  bool flush_until(TimeNs deadline, System* system = nullptr) noexcept;
  Received receive_until(Frame& frame, TimeNs deadline, System* system = nullptr);

  // No more output from here; the peer sees the end after all that was sent.
  void finish_output() noexcept;
  void close() noexcept { fd_.reset(); }

 private:
  static constexpr size_t header_bytes = 8;
  // >0: bytes read; 0: again; -1: closed.
  ssize_t read_some(std::byte* data, size_t bytes) noexcept;

  Fd fd_;
  std::deque<SharedBytes> out_;
  size_t out_done_ = 0;  // bytes of out_.front() already sent
  std::array<std::byte, header_bytes> header_{};
  size_t header_done_ = 0;
  size_t payload_bytes_ = 0;  // of the frame whose header is complete
  size_t payload_done_ = 0;
  Frame in_;
  uint64_t bytes_received_ = 0;
};

}  // namespace tutti
