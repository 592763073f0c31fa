// Numbers in little endian, and frames over a non-blocking socket.
#include "bootstrap/wire.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "bootstrap/sockets.h"
#include "bootstrap/system.h"

namespace tutti {

void ByteWriter::number(uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) bytes_.push_back(std::byte(value >> (8 * i)));
}

void ByteWriter::text(std::string_view text) {
  u32(uint32_t(text.size()));
  raw(std::as_bytes(std::span(text)));
}

void ByteWriter::blob(std::span<const std::byte> bytes) {
  u64(bytes.size());
  raw(bytes);
}

uint64_t ByteReader::number(size_t bytes) {
  uint64_t value = 0;
  const std::span<const std::byte> from = raw(bytes);
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t(from[i]) << (8 * i);
  return value;
}

std::span<const std::byte> ByteReader::raw(size_t bytes) {
  if (bytes > rest_.size()) throw Error(Code::remote_error, "a control message ends too early");
  const std::span<const std::byte> taken = rest_.first(bytes);
  rest_ = rest_.subspan(bytes);
  return taken;
}

std::string ByteReader::text() {
  const std::span<const std::byte> bytes = raw(u32());
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::span<const std::byte> ByteReader::blob() { return raw(u64()); }

SharedBytes make_frame(FrameType type, std::span<const std::byte> payload) {
  TUTTI_ASSERT(payload.size() <= frame_bytes_max);
  ByteWriter writer;
  writer.u32(uint32_t(payload.size()));
  writer.u32(uint32_t(type));
  writer.raw(payload);
  return std::make_shared<const Bytes>(writer.take());
}

bool FramedSocket::flush() noexcept {
  while (!out_.empty()) {
    const Bytes& front = *out_.front();
    const ssize_t sent = send_some(fd_, front.data() + out_done_, front.size() - out_done_);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    out_done_ += size_t(sent);
    if (out_done_ < front.size()) continue;
    out_.pop_front();
    out_done_ = 0;
  }
  return true;
}

ssize_t FramedSocket::read_some(std::byte* data, size_t bytes) noexcept {
  for (;;) {
    const ssize_t count = receive_some(fd_, data, bytes);
    if (count > 0) bytes_received_ += uint64_t(count);
    if (count > 0) return count;
    if (count == 0) return -1;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
  }
}

FramedSocket::Received FramedSocket::receive(Frame& frame) {
  while (header_done_ < header_bytes) {
    const ssize_t count = read_some(header_.data() + header_done_, header_bytes - header_done_);
    if (count <= 0) return count == 0 ? Received::again : Received::closed;
    header_done_ += size_t(count);
    if (header_done_ < header_bytes) continue;
    ByteReader reader(header_);
    payload_bytes_ = reader.u32();
    in_.type = FrameType(reader.u32());
    in_.payload.clear();
    payload_done_ = 0;
    if (payload_bytes_ > frame_bytes_max || in_.type < FrameType::report || in_.type > FrameType::result)
      return Received::malformed;
  }
  // Memory grows with what has arrived, not with what was announced.
  constexpr size_t first_bytes = size_t{64} << 10;
  while (payload_done_ < payload_bytes_) {
    Bytes& payload = in_.payload;
    if (payload_done_ == payload.size())
      payload.resize(std::min(payload_bytes_, std::max(2 * payload.size(), first_bytes)));
    const ssize_t count = read_some(payload.data() + payload_done_, payload.size() - payload_done_);
    if (count <= 0) return count == 0 ? Received::again : Received::closed;
    payload_done_ += size_t(count);
  }
  header_done_ = 0;
  frame = std::move(in_);
  in_ = Frame{};
  return Received::frame;
}

bool FramedSocket::flush_until(TimeNs deadline, System* system) noexcept {
  while (flush()) {
    if (out_.empty()) return true;
    pollfd wait{fd_.get(), POLLOUT, 0};
    if (poll_until({&wait, 1}, deadline, system) == 0 && now_ns(system) >= deadline) return false;
  }
  return false;
}

FramedSocket::Received FramedSocket::receive_until(Frame& frame, TimeNs deadline, System* system) {
  for (;;) {
    const Received received = receive(frame);
    if (received != Received::again || now_ns(system) >= deadline) return received;
    pollfd wait{fd_.get(), POLLIN, 0};
    poll_until({&wait, 1}, deadline, system);
  }
}

void FramedSocket::finish_output() noexcept {
  tutti::finish_output(fd_);
}

}  // namespace tutti
