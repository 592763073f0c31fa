// The TCP transport's inside: endpoints and what they share. Included by tcp.cc and tcp_datapath.cc alone.
#pragma once

#include <sys/uio.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "transport/tcp/tcp.h"
#include "transport/transport.h"

namespace tutti {

// Stands before every payload on the wire.
struct TcpHeader {
  uint64_t bytes = 0;
  uint64_t signature = 0;

  friend constexpr bool operator==(const TcpHeader&, const TcpHeader&) = default;
};
static_assert(sizeof(TcpHeader) == 16 && std::endian::native == std::endian::little);

// Bytes of the stream that are read before it is known to whom they belong: headers and small messages.
inline constexpr size_t tcp_inbox_bytes = 4096;
// Messages up to this size are copied, so that each costs one plain system call and neighbours share it.
inline constexpr size_t tcp_small_bytes = 1024;
// Of a message this large it is asked whether anything has arrived, before it is read; a smaller one would pay for two system calls.
inline constexpr size_t tcp_large_bytes = 64 * 1024;
// What is written at once, where it is known what follows a message: so many messages, of so many bytes in all. A write for each takes the
// kernel longer: it writes to pages that the receiver has just read, and which lie in its core's cache. (Measured, Zen 4, broadcasts:
// docs/tuning.md.)
inline constexpr size_t tcp_messages_at_once = 16, tcp_bytes_at_once = size_t{1} << 20;
// Whole messages that can wait on the receiving side of an endpoint, one of which may be under view.
inline constexpr int tcp_slots = 2;

// Memory of one endpoint, in this order: inbox, header and payload of the message to send, the slots.
constexpr size_t tcp_endpoint_bytes(size_t message_bytes_max) {
  const size_t payload = (message_bytes_max + 63) / 64 * 64;
  return (tcp_inbox_bytes + 64 + payload * (1 + tcp_slots) + 4095) / 4096 * 4096;
}

// Zeroed pages that the kernel gives as they are first touched, so that quiet endpoints cost none.
class TcpMemory {
 public:
  explicit TcpMemory(size_t bytes);  // throws Error(system_error)
  ~TcpMemory();
  TcpMemory(const TcpMemory&) = delete;
  TcpMemory& operator=(const TcpMemory&) = delete;
  std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

class TcpTransport;

class TcpEndpoint final : public Endpoint {
 public:
  // `memory`: tcp_endpoint_bytes() of it, 64-byte aligned, outliving the endpoint. `socket` is non-blocking.
  TcpEndpoint(TcpTransport& transport, Fd socket, std::byte* memory, size_t message_bytes_max);

  Status send(const std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept override;
  void may_send_on(size_t behind) noexcept override { behind_ = behind; }
  std::byte* reserve(size_t bytes) noexcept override;
  void commit(size_t bytes, uint64_t signature) noexcept override;
  Status flush() noexcept override;
  Status recv(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept override;
  Status view(size_t bytes, uint64_t signature, const std::byte*& data) noexcept override;
  Status release() noexcept override;
  std::optional<uint64_t> next_signature() const noexcept override;
  std::optional<Passed> passed() const noexcept override { return Passed{sent_, received_}; }
  const Fault& fault() const noexcept override { return fault_; }

  int socket() const noexcept { return socket_.get(); }
  // Called by the transport: what the kernel said of the socket; and to read ahead what lies there.
  void on_readable(bool ended) noexcept;
  void on_writable() noexcept;
  void read_ahead() noexcept;
  void let_go() noexcept;  // of small messages that it was to hold

 private:
  struct Slot {
    TcpHeader header;
    std::byte* payload = nullptr;
  };

  Status write_staged() noexcept;
  bool hold(const TcpHeader& header, const std::byte* data) noexcept;
  bool take_sent_ahead(size_t bytes, size_t& bytes_done) noexcept;
  ssize_t write_message(const TcpHeader& header, const std::byte* data, size_t bytes_done, size_t behind) noexcept;
  bool may_write() noexcept;
  Status written_short() noexcept;
  Status fail(FaultKind kind, int error_number = 0, const TcpHeader& received = {}) noexcept;
  Status fail_errno(int error_number) noexcept;

  Status advance(std::byte* payload, const TcpHeader* expected) noexcept;
  void take_header() noexcept;
  void take_payload(std::byte* payload) noexcept;
  bool read(std::byte* payload, const TcpHeader* expected) noexcept;
  bool worth_reading(const TcpHeader* expected) noexcept;
  bool has_arrived() const noexcept;
  void wait_in_round() noexcept;
  void end_message() noexcept;
  Slot& filled_slot() noexcept { return slots_[size_t(first_ ^ staged_)]; }
  void stage_filled() noexcept;
  void drop_first() noexcept;

  TcpTransport& transport_;
  Fd socket_;
  size_t message_bytes_max_;
  Fault fault_;

  // Sending.
  bool blocked_ = false;       // the socket takes no more until on_writable()
  size_t header_sent_ = 0;     // of the message under send()
  size_t behind_ = 0;          // as may_send_on() was told of that one
  size_t sent_ahead_ = 0;      // bytes of the messages after the last one that was sent, written with it
  std::byte* staging_;         // payload of a produced message; its header lies right before it. Or messages that are held
  std::byte* out_ = nullptr;   // what is not yet written of the committed message, or of those held: [out_, out_end_)
  std::byte* out_end_ = nullptr;
  bool holds_ = false;         // messages, so that the transport has it among those to let go
  unsigned refusals_ = 0;
  uint32_t sent_ = 0;          // messages

  // Receiving. The message at the head of the stream has got so far:
  TcpHeader header_;
  size_t header_done_ = 0;
  size_t payload_done_ = 0;
  bool direct_ = false;        // it goes to the memory of a recv(): nothing is read ahead meanwhile
  bool filling_ = false;       // it goes to filled_slot()
  bool readable_ = false;      // the kernel said so, and no read has come back short since
  bool ended_ = false;         // the kernel said that the stream has an end; read on until it is seen
  bool found_empty_ = false;   // the last read brought nothing
  Fault stream_end_;           // what stands behind the last byte: reported when it is asked for
  std::byte* inbox_;
  size_t inbox_begin_ = 0;
  size_t inbox_end_ = 0;
  // Whole messages that were read ahead: slots_[first_], then the other.
  std::array<Slot, tcp_slots> slots_;
  int first_ = 0;
  int staged_ = 0;
  uint32_t received_ = 0;      // messages that were received or released
  uint64_t waits_in_round_ = 0;
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::vector<Fd> sockets, int size, const TcpOptions& options);

  std::string_view name() const noexcept override { return "tcp"; }
  Endpoint* endpoint(int peer, int channel) noexcept override;
  size_t message_bytes_max() const noexcept override { return message_bytes_max_; }
  void hold_small(bool holds) noexcept override;
  void progress() noexcept override;
  void arm() noexcept override;
  void disarm() noexcept override;
  size_t poll_fds(std::span<pollfd> space) noexcept override;

  // --- For the endpoints.

  bool holds_small() const noexcept { return holds_small_; }
  void add_holding(TcpEndpoint& endpoint) noexcept { holding_[n_holding_++] = &endpoint; }
  // Bytes moved: whoever waits has not waited for nothing.
  void moved() noexcept { idle_ = 0; }
  // An endpoint was asked for a message that has not come: once per endpoint and round, which progress() counts.
  void one_waits() noexcept { ++waiting_; }
  uint64_t round() const noexcept { return round_; }
  // Whether an endpoint that waits should try its socket, rather than wait for word from the kernel.
  bool few_wait() const noexcept { return few_wait_; }
  void blocked(int change) noexcept { blocked_ += change; }

 private:
  void look() noexcept;
  void read_ahead() noexcept;

  int size_;
  int channels_;
  size_t message_bytes_max_;
  TcpMemory memory_;
  std::vector<std::unique_ptr<TcpEndpoint>> endpoints_;  // [channel * size + peer]
  // Edge-triggered epoll sets of all sockets: one for arrivals, one for room to write. Two, because a socket has room
  // nearly always: in one set, every arrival that was read without asking the set would wake the next sleep.
  Fd arrivals_, room_;
  uint64_t round_ = 1;
  unsigned idle_ = 0;    // rounds since bytes moved
  int waiting_ = 0;      // endpoints that were asked in vain in this round
  int blocked_ = 0;      // endpoints whose socket takes no more
  bool armed_ = false;   // between arm() and disarm()
  bool holds_small_ = false;
  std::vector<TcpEndpoint*> holding_;  // room for all; the first n_holding_ hold messages
  size_t n_holding_ = 0;
  bool few_wait_ = true; // at most one was asked in vain in the last round
};

}  // namespace tutti
