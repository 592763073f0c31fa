// Where things lie in shared memory, and the endpoint that reads and writes them.
//
// A FIFO has lines, and a bulk area. A small message is a line and nothing else: one cache line written, one read; or two,
// of which the reader looks at the first alone again and again. A larger one lies in the bulk area, in a place behind it that
// changes hands, in the sender's outbox where several peers are sent the same, or in the sender's own memory, and its line
// tells where; before it there may be lines that tell how much of it is there already. There are many lines, so that a
// sender of small messages gets far ahead before it must wait for a receiver that is not running. Every line has one writer.
// A sender's claim to lines and bulk (its credit) comes back with the messages of the other direction, so that an exchange
// never reads the receiver's credit line.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_bulk.h"
#include "transport/shm/shm_lending.h"
#include "transport/shm/shm_peek.h"
#include "transport/shm/shm_reads.h"
#include "transport/shm/shm_trade.h"
#include "transport/shm/shm_writes.h"
#include "transport/transport.h"

namespace tutti {

// A small message is at most so large, and the part of it that shares its flag's cache line.
inline constexpr size_t shm_inline_bytes_max = 104, shm_flag_bytes_max = 40;

// Where in a page the memory of larger messages begins: callers' buffers begin at or near a page's start, and copies between
// equal offsets of two pages are slower, most likely since a load waits for a store before it with the same low 12 bits.
inline constexpr size_t shm_bulk_page_offset = 2048;

// A message that lies in the sender's own memory has this bit in its line's `bytes`, and a LentPlace as payload.
inline constexpr uint32_t shm_lent_bit = 0x8000'0000;
static_assert(sizeof(LentPlace) <= shm_inline_bytes_max);
// One that lies in the sender's outbox has this bit.
inline constexpr uint32_t shm_outbox_bit = 0x4000'0000;
// A line that is but the word that so much of a message lies in its place has this as its `bytes`, and a ShmPart as payload:
// see ShmEndpoint::send_in_parts().
inline constexpr uint32_t shm_part = 0x3fff'ffff;
static_assert(shm_slot_bytes_max < shm_part);

struct ShmPart {
  uint64_t at;     // as of a whole message
  uint64_t total;  // bytes of the message,
  uint64_t until;  // of which all before this lie there
};
static_assert(sizeof(ShmPart) <= shm_inline_bytes_max);

// One that says that the sender writes the end of what the receiver has offered has this, and a ShmPut. The message's own line comes
// once that is done.
inline constexpr uint32_t shm_put = 0x3fff'fffe;
static_assert(shm_slot_bytes_max < shm_put);

struct ShmPut {
  const std::byte* address;  // as of LentPlace: of the message, and of what is lent on behind it,
  uint64_t bytes;            // so many in all,
  uint64_t read;             // of which the receiver reads the first ones
  uint64_t message_bytes;
};
static_assert(sizeof(ShmPut) <= shm_inline_bytes_max);

// Values of ShmFifo::starved.
inline constexpr uint32_t shm_starved = 1, shm_revoked = 2;

// Written by the sender. Number k (from 1) is line (k - 1) mod lines. Two cache lines, as processors fetch them in pairs.
struct alignas(128) ShmLine {
  std::atomic<uint32_t> sequence;  // k once it is written: released by the sender, acquired by the receiver
  uint32_t bytes;
  uint64_t signature;
  uint32_t consumed;  // lines of the other direction that this line's sender had consumed
  uint32_t unused;
  // The message, where it is that small; else a uint64_t: where it lies in bulk, or beyond bulk_bytes the number of a place
  // that changes hands.
  std::byte payload[shm_inline_bytes_max];
};
static_assert(sizeof(ShmLine) == 128 && offsetof(ShmLine, payload) + shm_flag_bytes_max == 64);
static_assert(std::is_trivially_destructible_v<ShmLine>);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Memory of the receiver that the next message, and what is lent on behind it, goes to.
struct ShmOffer {
  std::atomic<uint32_t> number;     // of the line that is next once all before it have been consumed, or 0: released by the receiver,
                                    // acquired by the sender, for whom it holds if that is the line that he writes next
  std::atomic<Offer> part;
  std::atomic<std::byte*> data;
  std::atomic<uint64_t> bytes, signature;
};

// The FIFO of one direction of one pair and channel, in the receiver's inbox.
struct ShmFifo {
  // Lines consumed. Written by the receiver (release), read by a sender whose credit is used up (acquire).
  alignas(128) std::atomic<uint32_t> consumed;
  // 1 while the sender sleeps for want of credit, 2 once it has revoked what it lent. Written by the sender, read by the
  // receiver when it gives credit.
  alignas(128) std::atomic<uint32_t> starved;
  // 1 while the receiver reads and writes in memory of the sender, past this FIFO. Written by the receiver, read by a
  // sender that has revoked what it lent.
  alignas(128) std::atomic<uint32_t> entered;
  // Written by the receiver, read by the sender.
  alignas(128) ShmOffer offer;

  ShmLine* lines() noexcept { return reinterpret_cast<ShmLine*>(this + 1); }
  static constexpr size_t bytes(size_t lines) { return sizeof(ShmFifo) + lines * sizeof(ShmLine); }
};

// Begins every inbox.
struct ShmInboxHeader {
  // Set by its owner; whoever rings takes the 1 away, so that one sleep is rung once.
  alignas(128) std::atomic<uint32_t> sleeping;
  // Set by its owner, where ranks share processors: its own and 1; 0: it has not said.
  std::atomic<uint32_t> processor;
};

// What an endpoint works on; all of it outlives it.
struct ShmLink {
  ShmFifo* out = nullptr;           // in the peer's inbox
  std::byte* out_bulk = nullptr;    // bulk_bytes, and behind them places that change hands
  ShmFifo* in = nullptr;            // in this rank's inbox
  std::byte* in_bulk = nullptr;
  ShmInboxHeader* peer_header = nullptr;
  int peer_doorbell = -1;
  uint32_t lines = 2;               // a power of two
  size_t message_bytes_max = 4096;
  size_t bulk_bytes = 3 * 4096;     // three of the largest messages at least, so that two can be under way
  size_t bulk_lap_bytes = 4096;     // of which so many are used while that will do,
  size_t lap_messages_min = 4;      // yet room for so many messages,
  size_t long_lap_bytes = 0;        // and of so many, if that is more, by long inputs, for which alone is
  size_t usual_bulk_bytes = ~size_t{0};  // what lies beyond
  size_t own_cache_bytes = 1 << 20;  // of the largest cache that a core has to itself
  uint32_t traded_places = 0;       // of message_bytes_max each, behind the bulk area of either direction
  bool locked = false;              // true: without membarrier, so every publication ends with a locked instruction
  int peer = -1;
  bool same_process = false;        // the peer's addresses are this rank's too
  std::span<const std::byte> peer_outbox;  // empty: it has none
  Outbox* outbox = nullptr;         // this rank's, on this channel
  ShmLender* lender = nullptr;      // null: nothing is lent to this peer
  ShmBorrower* borrower = nullptr;
  const ShmPeek* peek = nullptr;    // null: the peer's own memory may not be read
};

// Data path. Numbers of messages wrap at 2^32.
class alignas(64) ShmEndpoint final : public Endpoint {
 public:
  explicit ShmEndpoint(const ShmLink& link);

  Status send(const std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept override;
  Status lend(const LentRegion& region, const std::byte* data, size_t bytes, uint64_t signature,
              size_t& bytes_done) noexcept override;
  void may_lend_on(const std::byte* data, size_t bytes, Puts puts, bool from_end) noexcept override {
    free_to_lend_ = {data, bytes};
    puts_ = puts;
    puts_from_end_ = from_end;
  }
  void may_be_awaited() noexcept override { may_be_awaited_ = true; }
  void may_receive_meanwhile(const Meanwhile* other) noexcept override { meanwhile_ = other; }
  bool lends_private() const noexcept override { return is_peeked_; }
  void revoke() noexcept override;
  std::byte* reserve(size_t bytes) noexcept override;
  std::byte* reserve_viewed(size_t bytes) noexcept override;
  void commit(size_t bytes, uint64_t signature) noexcept override;
  Outbox* outbox() noexcept override { return outbox_; }
  Status flush() noexcept override;
  bool stages() const noexcept override { return false; }
  Store slot_store(size_t bytes) const noexcept override {
    return reserved_is_traded() ? Store::cached : writes_.store(bytes);
  }
  bool learns_from_next() noexcept override { return (by_ring_ || !trade_.owns_any()) && writes_.learns_from_next(); }
  Status recv(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept override;
  Status recv_past_caches(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept override;
  void recv_begin(const Meanwhile& message, size_t until) noexcept override;
  void may_read_on(const std::byte* data, size_t bytes, bool from_end, OwnCopy* own) noexcept override {
    free_to_read_ = {data, bytes, from_end, own};
  }
  void offer(std::byte* data, size_t bytes, uint64_t signature, Offer part) noexcept override;
  Status view(size_t bytes, uint64_t signature, const std::byte*& data) noexcept override;
  Status release() noexcept override;
  PeerLends peer_lent() noexcept override { return std::exchange(peer_lent_, PeerLends::unknown); }
  bool copies_to_view() const noexcept override { return watch().arrived() && lies_with_peer(in_line()); }
  std::optional<Passed> passed() const noexcept override { return Passed{sent_, received_}; }
  std::optional<uint64_t> next_signature() const noexcept override {
    return watch().arrived() ? std::optional(in_line().signature) : std::nullopt;
  }
  Watch watch() const noexcept override { return {&in_lines_[received_ & mask_].sequence, received_ + 1}; }
  bool tell(const LentRegion& region) noexcept override;
  std::byte* reach(const LentPlace& place, size_t bytes) noexcept override;
  bool enter() noexcept override;
  void leave() noexcept override;
  bool is_entered() const noexcept override;
  bool shares_process() const noexcept override { return same_process_; }
  int peer_processor() const noexcept override { return int(peer_header_->processor.load(std::memory_order_relaxed)) - 1; }
  const Fault& fault() const noexcept override { return fault_; }

  // Before anything is sent: the peer can read this rank's own memory.
  void is_peeked() noexcept { is_peeked_ = true; }

  // For this rank's outbox. Whether a message may be sent, and whether there is a line for it.
  bool may_post() const noexcept { return !failed_ && reserved_ == ShmBulk::npos; }
  bool has_line() noexcept { return may_send_line(); }
  // Whether the last two messages are both under way; then the peer's reading ends this rank's sleep.
  bool waits_for_two() noexcept { return !look_whether_consumed(sent_ == parted_ ? sent_ - parted_lines_ : sent_ - 1); }
  // Sends what lies at `at` of the outbox, and returns the message's number.
  uint32_t post(size_t at, size_t bytes, uint64_t signature) noexcept;
  // Whether the peer has consumed message `number`: as far as is known here, or by looking.
  bool has_consumed(uint32_t number, bool looks) noexcept;

  // Around a sleep of this rank: a receiver whose credit it waits for is told to wake it. Not earlier: a sender that is
  // a little ahead of its receiver, and looks again and again, would write the flag that the receiver reads each time.
  void before_sleep() noexcept;
  void after_sleep() noexcept;

 private:
  // Then its lines are near, if any are.
  bool reserved_is_traded() const noexcept { return reserved_ >= bulk_bytes_ && reserved_ != ShmBulk::npos; }
  bool may_send_line() noexcept { return sent_ != sent_limit_ || look_whether_consumed(sent_ - mask_); }
  bool look_whether_consumed(uint32_t number) noexcept;
  std::byte* bulk_place(size_t bytes) noexcept;
  void send_in_place(uint32_t number, const std::byte* data, size_t bytes, uint64_t signature) noexcept;
  bool receiver_waits(size_t bytes) noexcept;
  bool goes_in_parts(size_t bytes, uint64_t signature) noexcept;
  void send_in_parts(std::byte* place, const std::byte* data, size_t bytes, uint64_t signature) noexcept;
  void fetch_next_place(size_t bytes) noexcept;
  size_t next_place(size_t bytes) const noexcept;
  // The last message that the peer has consumed, as far as is known here.
  uint32_t consumed() const noexcept { return sent_limit_ - mask_ - 1; }
  bool may_lend(const LentRegion& region, size_t bytes) noexcept;
  void publish_lent(const LentPlace& place, size_t bytes, uint64_t signature) noexcept;
  bool is_offering() const noexcept;
  bool is_offered(size_t bytes, uint64_t signature, int looks_max) noexcept;
  bool next_is_offered() const noexcept;
  bool offers_are_missed() const noexcept;  // so that it is not worth while to wait for one
  bool awaits_offer() noexcept;
  bool peer_reads() const noexcept;
  // What follows a message like it within this time of that one's begin is of a stream.
  static constexpr TimeNs stream_ns_max = 5 * ns_per_us;
  static TimeNs ns_since(TimeNs& last) noexcept {
    const TimeNs now = now_ns();
    return now - std::exchange(last, now);
  }
  bool finds_leisure(size_t bytes, uint64_t signature) noexcept;
  Status put(const std::byte* data, size_t all, size_t bytes, uint64_t signature) noexcept;
  bool says_put(const ShmLine& line, size_t bytes, uint64_t signature) const noexcept;
  Status take_put(const ShmLine& line) noexcept;
  void withdraw_offer() noexcept;
  // This rank has offered memory for the next message.
  bool offers_next() const noexcept { return offered_.number == received_ + 1; }
  Status fail_to_peek(int error_number, size_t bytes) noexcept;
  const std::byte* in_bulk(const ShmLine& line) noexcept;
  Status recv_bulk(const ShmLine& line, std::byte* data, size_t bytes, size_t& bytes_done) noexcept;
  Status view_bulk(const ShmLine& line, const std::byte*& data) noexcept;
  const std::byte* bulk_at(uint64_t at) const noexcept;
  bool says_part(const ShmLine& line, size_t bytes, uint64_t signature) const noexcept;
  Status recv_parts(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept;
  Status view_parts(size_t bytes, uint64_t signature, const std::byte*& data) noexcept;
  void fetch_past_flag() noexcept;
  void fetch_past_flag_to_write() noexcept;
  Status count_as_received() noexcept;
  Status release_place() noexcept;
  Status release_as_it_lies() noexcept;
  Status release_borrowed() noexcept;
  bool borrow(const ShmLine& line, size_t bytes) noexcept;
  bool lies_with_peer(const ShmLine& line) const noexcept;
  bool see_where_it_lies(const ShmLine& line) noexcept;
  // As may_read_on() was told.
  struct FreeToRead {
    const std::byte* data = nullptr;
    size_t bytes = 0;
    bool from_end = false;
    OwnCopy* own = nullptr;
  };
  Status peek(const ShmLine& line, std::byte* data, const FreeToRead& free) noexcept;
  int peek_in_turn(const LentPlace& place, std::byte* data, size_t bytes, const FreeToRead& free) noexcept;
  const std::byte* take_read_before(const ShmLine& line) noexcept;
  size_t bytes_to_read_on(const ShmLine& line, size_t free_bytes) const noexcept;
  bool lies_in_outbox(const ShmLine& line, size_t bytes) const noexcept;
  Status send_at_length(const std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept;
  void take_credit(uint32_t consumed) noexcept;
  void publish(ShmLine& line, size_t bytes, uint64_t signature) noexcept;
  uint32_t look_after_store(std::atomic<uint32_t>& flag) noexcept;
  void wake_peer() noexcept;
  void ring_peer() noexcept;
  bool is_here_as_usual(const ShmLine& line, size_t bytes, uint64_t signature) const noexcept;
  Status recv_otherwise(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept;
  Status view_otherwise(size_t bytes, uint64_t signature, const std::byte*& data) noexcept;
  Status arrived(const ShmLine& line, size_t bytes, uint64_t signature) noexcept;
  void too_large(size_t bytes) noexcept;

  ShmLine& out_line() noexcept { return out_lines_[sent_ & mask_]; }
  const ShmLine& in_line() const noexcept { return in_lines_[received_ & mask_]; }
  ShmLine& in_line() noexcept { return in_lines_[received_ & mask_]; }

  // The first two lines of this object are all that a small message touches here.
  ShmLine* out_lines_;
  ShmLine* in_lines_;
  ShmInboxHeader* peer_header_;
  uint32_t sent_ = 0;
  uint32_t sent_limit_;    // sent_ may grow up to here
  uint32_t received_ = 0;  // and released
  uint32_t received_when_sent_ = 0;  // a message past its flag's cache line
  uint32_t mask_;          // lines - 1
  ShmFifo* in_;
  int peer_doorbell_;
  bool locked_;
  // What the release of the message that is viewed does beyond counting it.
  enum class AtRelease : uint8_t { nothing, takes_place, returns_lent };
  AtRelease at_release_ = AtRelease::nothing;
  bool failed_ = false;
  bool is_part_ = false;       // the line that was looked at says that a part of its message lies there
  bool starved_ = false;       // when last looked for, there was no credit,
  bool told_starved_ = false;  // which the peer has been told
  ShmFifo* out_;
  std::byte* out_bulk_;
  std::byte* in_bulk_;
  size_t message_bytes_max_, bulk_bytes_, lap_bytes_, usual_bulk_bytes_;
  ShmBulk bulk_;
  ShmTrade trade_;
  ShmWrites writes_;
  ShmReads reads_;
  size_t reserved_ = ShmBulk::npos;      // where in bulk, or beyond it a place that changes hands
  uint32_t parted_ = 0;                  // the last line of the last message that was sent in parts,
  uint32_t parted_lines_ = 1;            // how many it has, how many messages of that call before it were, too,
  uint32_t parted_in_a_row_ = 0;
  uint64_t parted_signature_ = 0;        // and its call
  const Meanwhile* meanwhile_ = nullptr; // of what is sent in parts
  bool may_be_awaited_ = false;          // the next message,
  TimeNs maybe_awaited_at_ = 0;          // when the last one was sent of which that was said and nothing was known
  bool by_ring_ = false;                 // where the last message was put that was not inline
  bool lent_ = false;                    // and perhaps not read yet:
  uint32_t lent_until_ = 0;              // a message before this one
  const std::byte* borrowed_ = nullptr;  // where the next message lies, if it was lent
  uint32_t traded_ = 0;                  // or in which place, if that changes hands
  std::span<const std::byte> peer_outbox_;
  Outbox* outbox_;
  int peer_;
  bool same_process_;
  ShmLender* lender_;
  ShmBorrower* borrower_;
  const ShmPeek* peek_;
  bool is_peeked_ = false;
  PeerLends peer_lent_ = PeerLends::unknown;
  std::span<const std::byte> free_to_lend_;  // of the next message, as may_lend_on() was told
  FreeToRead free_to_read_;                  // likewise
  Puts puts_ = Puts::nowhere;
  bool puts_from_end_ = false;
  bool may_put_ = true;       // until that fails
  uint32_t unput_ = 0;        // the message that it has failed with: it is sent
  uint32_t taken_offer_ = 0;  // the last one's number
  uint32_t awaited_ = 0;      // the last message whose memory was waited for, in case it is offered,
  uint32_t missed_ = 0;       // and how many in a row it was not
  TimeNs awaited_until_ = 0;  // where that goes on over several calls; 0: it has come, or is waited for no longer
  TimeNs asked_at_ = 0;       // when a message was last sent that might be lent at leisure
  std::span<const std::byte> put_;  // what follows what was put: it lies with the receiver already
  struct Offered {
    std::byte* data = nullptr;
    size_t bytes = 0;
    uint32_t number = 0;
  };
  Offered offered_;
  struct ReadBefore {  // of messages to come, with one before them: to where, from where in the peer's memory, how much, and
    const std::byte* to = nullptr;
    const std::byte* from = nullptr;
    size_t bytes = 0;
    uint32_t number = 0;  // the next one's: what comes in another way than it was said is not there
  };
  ReadBefore read_before_;
  std::unique_ptr<std::byte[]> stage_memory_;
  std::byte* stage_ = nullptr;  // where a message that lies in the peer's own memory is viewed
  Fault fault_;
};

}  // namespace tutti
