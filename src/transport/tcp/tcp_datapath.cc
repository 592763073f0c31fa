// The TCP transport's data path: moving messages between memory and sockets. No allocation; a system call moves bytes,
// or asks the kernel which sockets can.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "transport/tcp/tcp_endpoint.h"

namespace tutti {
namespace {

constexpr int events_max = 64;          // taken from the kernel by one call; the rest come with the next
constexpr unsigned patience = 16;       // asks in vain before an endpoint tries again, whatever the kernel said
constexpr unsigned idle_rounds = 32;    // rounds without movement before everything that arrived is read ahead
constexpr unsigned blocked_rounds = 4;  // the same while a socket takes no more: the peers may wait for our reading

void put(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

// --- Faults.

Status TcpEndpoint::fail(FaultKind kind, int error_number, const TcpHeader& received) noexcept {
  fault_ = {kind, error_number, received.signature, received.bytes};
  return Status::failed;
}

Status TcpEndpoint::fail_errno(int error_number) noexcept {
  const bool gone = error_number == ECONNRESET || error_number == EPIPE;
  return fail(gone ? FaultKind::closed : FaultKind::system, error_number);
}

// --- Sending.

Status TcpEndpoint::send(const std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept {
  const TcpHeader header{bytes, signature};
  const size_t behind = std::exchange(behind_, 0);
  if (sent_ahead_ > 0 && take_sent_ahead(bytes, bytes_done)) return Status::done;
  if (transport_.holds_small() && hold(header, data)) {
    ++sent_;
    bytes_done = bytes;
    return Status::done;
  }
  const Status staged = write_staged();
  if (staged != Status::done) return staged;
  if (bytes > message_bytes_max_) return fail(FaultKind::system, EMSGSIZE);
  if (!may_write()) return Status::again;
  const ssize_t n = write_message(header, data, bytes_done, behind);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? written_short() : fail_errno(errno);
  transport_.moved();
  const size_t of_header = std::min(size_t(n), sizeof header - header_sent_);
  const size_t of_message = std::min(size_t(n) - of_header, bytes - bytes_done);
  header_sent_ += of_header;
  bytes_done += of_message;
  if (header_sent_ < sizeof header || bytes_done < bytes) return written_short();
  header_sent_ = 0;
  sent_ahead_ = size_t(n) - of_header - of_message;
  ++sent_;
  return Status::done;
}

// Of what was written ahead, the next message. False: not all of it was; then header_sent_ and bytes_done say how much.
bool TcpEndpoint::take_sent_ahead(size_t bytes, size_t& bytes_done) noexcept {
  if (sent_ahead_ >= sizeof(TcpHeader) + bytes) {
    sent_ahead_ -= sizeof(TcpHeader) + bytes;
    bytes_done = bytes;
    ++sent_;
    return true;
  }
  header_sent_ = std::min(sent_ahead_, sizeof(TcpHeader));
  bytes_done = std::exchange(sent_ahead_, 0) - header_sent_;
  return false;
}

// What is left of the message, and of those behind it what is written at once.
ssize_t TcpEndpoint::write_message(const TcpHeader& header, const std::byte* data, size_t bytes_done, size_t behind) noexcept {
  const size_t bytes = header.bytes;
  if (bytes <= tcp_small_bytes && header_sent_ == 0) {
    std::byte together[sizeof header + tcp_small_bytes];
    std::memcpy(together, &header, sizeof header);
    put(together + sizeof header, data, bytes);
    return ::send(socket_.get(), together, sizeof header + bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  iovec parts[2 * tcp_messages_at_once];
  size_t n = 0;
  const auto add = [&](const void* from, size_t all, size_t done) {
    parts[n++] = {static_cast<std::byte*>(const_cast<void*>(from)) + done, all - done};
  };
  add(&header, sizeof header, header_sent_);
  add(data, bytes, bytes_done);
  const size_t end = bytes > tcp_small_bytes ? bytes + behind : bytes;
  const TcpHeader last{bytes > 0 ? end % bytes : 0, header.signature};
  for (size_t at = bytes; at < end && n < std::size(parts); at += bytes) {
    const TcpHeader& next = end - at < bytes ? last : header;
    if (at + next.bytes > tcp_bytes_at_once) break;
    add(&next, sizeof next, 0);
    add(data + at, next.bytes, 0);
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = n;
  return ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Whether a message waits with those before it, where there is room.
bool TcpEndpoint::hold(const TcpHeader& header, const std::byte* data) noexcept {
  if (header.bytes > std::min(tcp_small_bytes, message_bytes_max_) || header_sent_ > 0 || fault_.kind != FaultKind::none)
    return false;
  if (out_ == out_end_) out_ = out_end_ = staging_ - sizeof header;
  if (size_t(staging_ + message_bytes_max_ - out_end_) < sizeof header + header.bytes) return false;
  std::memcpy(out_end_, &header, sizeof header);
  put(out_end_ + sizeof header, data, header.bytes);
  out_end_ += sizeof header + header.bytes;
  if (!holds_) transport_.add_holding(*this);
  holds_ = true;
  return true;
}

void TcpEndpoint::let_go() noexcept {
  holds_ = false;
  write_staged();
}

// done: nothing committed is left in this process.
Status TcpEndpoint::write_staged() noexcept {
  if (fault_.kind != FaultKind::none) return Status::failed;
  while (out_ != out_end_) {
    if (!may_write()) return Status::again;
    const ssize_t n = ::send(socket_.get(), out_, size_t(out_end_ - out_), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? written_short() : fail_errno(errno);
    transport_.moved();
    out_ += n;
    if (out_ != out_end_) return written_short();
  }
  return Status::done;
}

// The kernel took less than it was given: it will say when it has room.
Status TcpEndpoint::written_short() noexcept {
  if (!blocked_) transport_.blocked(+1);
  blocked_ = true;
  return Status::again;
}

// Whether to try. A caller that asks this endpoint only, and never the transport, is served too: the peer may be
// waiting until what it sent has been read.
bool TcpEndpoint::may_write() noexcept {
  if (!blocked_) return true;
  if (++refusals_ % patience != 0) return false;
  transport_.progress();
  return true;
}

std::byte* TcpEndpoint::reserve(size_t bytes) noexcept {
  if (write_staged() != Status::done) return nullptr;
  if (bytes > message_bytes_max_) {
    fail(FaultKind::system, EMSGSIZE);
    return nullptr;
  }
  return staging_;
}

void TcpEndpoint::commit(size_t bytes, uint64_t signature) noexcept {
  const TcpHeader header{bytes, signature};
  std::memcpy(staging_ - sizeof header, &header, sizeof header);
  out_ = staging_ - sizeof header;
  out_end_ = staging_ + bytes;
  ++sent_;
  write_staged();
}

Status TcpEndpoint::flush() noexcept { return write_staged(); }

void TcpEndpoint::on_writable() noexcept {
  if (blocked_) transport_.blocked(-1);
  blocked_ = false;
  if (out_ != out_end_) write_staged();
}

// --- Receiving.

Status TcpEndpoint::recv(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept {
  if (fault_.kind != FaultKind::none) return Status::failed;
  const TcpHeader expected{bytes, signature};
  if (staged_ > 0) {
    const Slot& slot = slots_[size_t(first_)];
    if (slot.header != expected) return fail(FaultKind::mismatch, 0, slot.header);
    put(data, slot.payload, bytes);
    bytes_done = bytes;
    ++received_;
    drop_first();
    return Status::done;
  }
  if (filling_) {
    // A part of it was read ahead; the rest goes to the caller's memory.
    if (header_done_ == sizeof header_ && header_ != expected) return fail(FaultKind::mismatch, 0, header_);
    put(data, filled_slot().payload, payload_done_);
    filling_ = false;
  }
  direct_ = true;
  const Status status = advance(data, &expected);
  bytes_done = payload_done_;
  if (status == Status::done) {
    ++received_;
    end_message();
  }
  return status;
}

Status TcpEndpoint::view(size_t bytes, uint64_t signature, const std::byte*& data) noexcept {
  if (fault_.kind != FaultKind::none) return Status::failed;
  const TcpHeader expected{bytes, signature};
  if (staged_ == 0) {
    if (bytes > message_bytes_max_) return fail(FaultKind::system, EMSGSIZE);
    filling_ = true;
    const Status status = advance(filled_slot().payload, &expected);
    if (status != Status::done) return status;
    stage_filled();
  }
  const Slot& slot = slots_[size_t(first_)];
  if (slot.header != expected) return fail(FaultKind::mismatch, 0, slot.header);
  data = slot.payload;
  return Status::done;
}

Status TcpEndpoint::release() noexcept {
  ++received_;
  drop_first();
  return Status::done;
}

std::optional<uint64_t> TcpEndpoint::next_signature() const noexcept {
  if (staged_ > 0) return slots_[size_t(first_)].header.signature;
  return header_done_ == sizeof header_ ? std::optional(header_.signature) : std::nullopt;
}

void TcpEndpoint::end_message() noexcept {
  header_done_ = payload_done_ = 0;
  direct_ = filling_ = false;
}

void TcpEndpoint::stage_filled() noexcept {
  filled_slot().header = header_;
  ++staged_;
  end_message();
}

// The first slot is taken again as soon as it can be: its lines are in the cache.
void TcpEndpoint::drop_first() noexcept {
  --staged_;
  first_ = staged_ > 0 || filling_ ? first_ ^ 1 : 0;
}

// Reads whole messages into free slots, so that peers that wait for room get on.
void TcpEndpoint::read_ahead() noexcept {
  if (direct_ || fault_.kind != FaultKind::none) return;
  while (staged_ < tcp_slots && (readable_ || inbox_begin_ != inbox_end_)) {
    filling_ = true;
    if (advance(filled_slot().payload, nullptr) != Status::done) return;
    stage_filled();
  }
}

void TcpEndpoint::on_readable(bool ended) noexcept {
  readable_ = true;
  ended_ |= ended;
}

// Brings the message at the head of the stream forward, from the inbox first and then from the socket; `payload` is its
// place. With `expected`, a caller asked for it: a difference or the stream's end is a fault. Without, it is read
// ahead: nothing is a fault yet, and failed says that no more can be read.
Status TcpEndpoint::advance(std::byte* payload, const TcpHeader* expected) noexcept {
  for (bool first = true;; first = false) {
    take_header();
    if (header_done_ == sizeof header_) {
      if (expected != nullptr && header_ != *expected) return fail(FaultKind::mismatch, 0, header_);
      if (header_.bytes > message_bytes_max_ && filling_) {
        return expected != nullptr ? fail(FaultKind::mismatch, 0, header_) : Status::failed;
      }
      take_payload(payload);
      if (payload_done_ == header_.bytes) return Status::done;
    }
    if (stream_end_.kind != FaultKind::none) {
      if (expected != nullptr) fault_ = stream_end_;
      return Status::failed;
    }
    // A read that came back short emptied the socket: another one now would be in vain.
    if (first ? !worth_reading(expected) : !readable_) return Status::again;
    if (!read(payload, expected)) return Status::again;
  }
}

void TcpEndpoint::take_header() noexcept {
  const size_t n = std::min(sizeof header_ - header_done_, inbox_end_ - inbox_begin_);
  std::memcpy(reinterpret_cast<std::byte*>(&header_) + header_done_, inbox_ + inbox_begin_, n);
  header_done_ += n;
  inbox_begin_ += n;
}

void TcpEndpoint::take_payload(std::byte* payload) noexcept {
  const size_t n = std::min(size_t(header_.bytes) - payload_done_, inbox_end_ - inbox_begin_);
  put(payload + payload_done_, inbox_ + inbox_begin_, n);
  payload_done_ += n;
  inbox_begin_ += n;
}

// Where a large message is awaited, a read in vain would do harm: it holds the socket's lock, so what acknowledges this rank's own last
// message waits for it, and so the pages of that message are freed on this core, though they lie in the other one's cache. (Measured, Zen 4,
// a message of 1 MiB there and back: docs/tuning.md.)
bool TcpEndpoint::worth_reading(const TcpHeader* expected) noexcept {
  if (readable_ || ended_) return true;
  if (expected == nullptr) return false;
  if (!found_empty_) return true;
  wait_in_round();
  if (!transport_.few_wait() && ++refusals_ % patience != 0) return false;
  return expected->bytes < tcp_large_bytes || has_arrived();
}

bool TcpEndpoint::has_arrived() const noexcept {
  pollfd look{socket_.get(), POLLIN, 0};
  return ::poll(&look, 1, 0) != 0;
}

void TcpEndpoint::wait_in_round() noexcept {
  if (waits_in_round_ != transport_.round()) transport_.one_waits();
  waits_in_round_ = transport_.round();
}

// One read of the socket into all places where its next bytes belong; the inbox is empty. False: it had nothing.
bool TcpEndpoint::read(std::byte* payload, const TcpHeader* expected) noexcept {
  // Of a header that has not come yet, the caller's word is taken; were it wrong, the endpoint would fail and what was
  // written to the caller's memory would not matter.
  const bool known = header_done_ == sizeof header_;
  const bool guess = expected != nullptr && expected->bytes > tcp_small_bytes;
  const size_t bytes = known ? header_.bytes : guess ? expected->bytes : 0;
  const size_t of_header = bytes == 0 ? 0 : sizeof header_ - header_done_;
  const size_t of_payload = bytes == 0 ? 0 : bytes - payload_done_;
  iovec parts[3] = {{reinterpret_cast<std::byte*>(&header_) + header_done_, of_header},
                    {payload + payload_done_, of_payload},
                    {inbox_, tcp_inbox_bytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 3;
  const ssize_t n = bytes == 0 ? ::recv(socket_.get(), inbox_, tcp_inbox_bytes, MSG_DONTWAIT)
                               : ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  found_empty_ = n <= 0;
  if (n <= 0) {
    readable_ = false;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      ended_ = false;
      if (expected != nullptr) wait_in_round();
      return false;
    }
    const bool gone = n == 0 || errno == ECONNRESET || errno == EPIPE;
    stream_end_ = {gone ? FaultKind::closed : FaultKind::system, n == 0 ? 0 : errno, 0, 0};
    return true;
  }
  transport_.moved();
  readable_ = ended_ || size_t(n) == of_header + of_payload + tcp_inbox_bytes;
  const size_t to_header = std::min(size_t(n), of_header);
  const size_t to_payload = std::min(size_t(n) - to_header, of_payload);
  header_done_ += to_header;
  payload_done_ += to_payload;
  inbox_begin_ = 0;
  inbox_end_ = size_t(n) - to_header - to_payload;
  return true;
}

// --- The transport.

void TcpTransport::hold_small(bool holds) noexcept {
  holds_small_ = holds;
  if (holds) return;
  while (n_holding_ > 0) holding_[--n_holding_]->let_go();
}

void TcpTransport::progress() noexcept {
  ++round_;
  ++idle_;
  const bool stuck = idle_ % (blocked_ > 0 ? blocked_rounds : idle_rounds) == 0;
  if (waiting_ > 1 || blocked_ > 0 || stuck) look();
  few_wait_ = waiting_ <= 1;
  waiting_ = 0;
  if (stuck) read_ahead();
}

// Asks the kernel what changed since it was last asked. Not while armed: then news is kept for poll().
void TcpTransport::look() noexcept {
  if (armed_) return;
  epoll_event events[events_max];
  const int arrived = ::epoll_wait(arrivals_.get(), events, events_max, 0);
  for (int i = 0; i < arrived; ++i)
    static_cast<TcpEndpoint*>(events[i].data.ptr)
        ->on_readable((events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
  if (blocked_ == 0) return;
  const int with_room = ::epoll_wait(room_.get(), events, events_max, 0);
  for (int i = 0; i < with_room; ++i) static_cast<TcpEndpoint*>(events[i].data.ptr)->on_writable();
}

void TcpTransport::read_ahead() noexcept {
  for (const std::unique_ptr<TcpEndpoint>& endpoint : endpoints_)
    if (endpoint) endpoint->read_ahead();
}

// The sets watch always; what is left to do is to take in what they told and nobody asked for.
void TcpTransport::arm() noexcept {
  look();
  read_ahead();
  armed_ = true;
}

void TcpTransport::disarm() noexcept {
  armed_ = false;
  look();
}

size_t TcpTransport::poll_fds(std::span<pollfd> space) noexcept {
  size_t n = 0;
  if (n < space.size()) space[n++] = {arrivals_.get(), POLLIN, 0};
  if (blocked_ > 0 && n < space.size()) space[n++] = {room_.get(), POLLIN, 0};
  return n;
}

}  // namespace tutti
