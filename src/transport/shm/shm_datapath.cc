// Sending and receiving through shared memory: no allocation, no lock, and no system call unless the peer sleeps.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/cpu.h"
#include "reduce/copy.h"
#include "transport/doorbell.h"
#include "transport/shm/shm_endpoint-inl.h"

namespace tutti {
namespace {

// The place of the next message is fetched ahead, as lines are, as if it were like this one. (Measured as there, 256 B to 1 KiB:
// 0.6 to 1.0 of the time in broadcast, reduce and scatter; calls in both directions as before.)
constexpr size_t fetched_bytes_max = 1024, cache_line_bytes = 64;

// A message of two parts or more may be sent in parts: small ones at first, so that the receiver begins soon, then larger
// ones, which are copied faster. (Measured, Zen 4 and Zen 5, 2 ranks: parts of 8 to 64 KiB, see docs/tuning.md.)
constexpr size_t part_bytes_min = 8 * 1024, part_bytes_max = 16 * 1024, later_part_bytes_max = 32 * 1024;
// A shorter message lies in one piece, is lent only where all know the memory, and is no part of a long input or output.
constexpr size_t short_bytes_max = part_bytes_min;
static_assert(short_bytes_max <= lent_private_bytes_min && short_bytes_max <= lent_bytes_min);
// With so much of a message the receiver is busy: what follows goes in the larger parts.
constexpr size_t first_parts_bytes = 64 * 1024;
// What is larger is a stream, which its first messages have set going.
constexpr uint32_t parted_in_a_row_max = 4;
// `in_a_row`: so many messages of the call before it went in parts.
constexpr size_t part_of_message(size_t bytes, uint32_t in_a_row) {
  return std::clamp(bytes / 4, part_bytes_min, in_a_row == 0 ? part_bytes_max : later_part_bytes_max);
}

template <size_t n>
void copy_fixed(std::byte* to, const std::byte* from, size_t at) noexcept {
  std::memcpy(to + at, from + at, n);
}

// At most shm_inline_bytes_max bytes, by a few moves that may overlap: a call of memcpy would cost more than they do. From
// the end: what lies past the flag's cache line comes first, lest the waiting reader take that one away in between.
inline void copy_small(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  if (bytes == 8) return copy_fixed<8>(to, from, 0);
  if (bytes >= 16) {
    copy_fixed<16>(to, from, bytes - 16);
    if (bytes > 48) {
      if (bytes > 96) copy_fixed<16>(to, from, 80);
      if (bytes > 80) copy_fixed<16>(to, from, 64);
      if (bytes > 64) copy_fixed<16>(to, from, 48);
      copy_fixed<16>(to, from, 32);
    }
    if (bytes > 32) copy_fixed<16>(to, from, 16);
    return copy_fixed<16>(to, from, 0);
  }
  if (bytes >= 8) {
    copy_fixed<8>(to, from, 0);
    return copy_fixed<8>(to, from, bytes - 8);
  }
  if (bytes >= 4) {
    copy_fixed<4>(to, from, 0);
    return copy_fixed<4>(to, from, bytes - 4);
  }
  for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
}

inline ShmPart part_of(const ShmLine& line) noexcept {
  ShmPart part;
  std::memcpy(&part, line.payload, sizeof part);
  return part;
}

}  // namespace

ShmEndpoint::ShmEndpoint(const ShmLink& link)
    : out_lines_(link.out->lines()),
      in_lines_(link.in->lines()),
      peer_header_(link.peer_header),
      sent_limit_(link.lines),
      mask_(link.lines - 1),
      in_(link.in),
      peer_doorbell_(link.peer_doorbell),
      locked_(link.locked),
      out_(link.out),
      out_bulk_(link.out_bulk),
      in_bulk_(link.in_bulk),
      message_bytes_max_(link.message_bytes_max),
      bulk_bytes_(link.bulk_bytes),
      lap_bytes_(link.bulk_lap_bytes),
      usual_bulk_bytes_(link.usual_bulk_bytes),
      bulk_(link.bulk_bytes, std::max(link.bulk_lap_bytes, link.long_lap_bytes), link.lines, link.lap_messages_min),
      trade_(link.out_bulk + link.bulk_bytes, link.in_bulk + link.bulk_bytes, link.message_bytes_max, link.traded_places),
      writes_(link.bulk_bytes, link.own_cache_bytes),
      reads_(link.own_cache_bytes),
      peer_outbox_(link.peer_outbox),
      outbox_(link.outbox),
      peer_(link.peer),
      same_process_(link.same_process),
      lender_(link.lender),
      borrower_(link.borrower),
      peek_(link.peek) {
  if (peek_ == nullptr) return;
  size_t room = message_bytes_max_ + alignof(ShmLine);
  stage_memory_ = std::make_unique_for_overwrite<std::byte[]>(room);
  void* memory = stage_memory_.get();
  stage_ = static_cast<std::byte*>(std::align(alignof(ShmLine), message_bytes_max_, memory, room));
}

Status ShmEndpoint::send(const std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept {
  if (bytes > shm_inline_bytes_max || failed_ || sent_ == sent_limit_) [[unlikely]]
    return send_at_length(data, bytes, signature, bytes_done);
  ShmLine& line = out_line();
  copy_small(line.payload, data, bytes);
  bytes_done = bytes;
  publish(line, bytes, signature);
  return Status::done;
}

// What the short way above leaves: no credit at hand, a message that is not inline, failure.
[[gnu::noinline]] Status ShmEndpoint::send_at_length(const std::byte* data, size_t bytes, uint64_t signature,
                                                     size_t& bytes_done) noexcept {
  if (bytes > shm_inline_bytes_max && bytes < short_bytes_max && !failed_ && sent_ != sent_limit_ && reserved_ == ShmBulk::npos)
    if (const uint32_t number = trade_.take_alike(bytes); number != ShmTrade::none) {
      send_in_place(number, data, bytes, signature);
      bytes_done = bytes;
      return Status::done;
    }
  std::byte* const place = reserve(bytes);
  if (place == nullptr) return failed_ ? Status::failed : Status::again;
  if (bytes <= shm_inline_bytes_max) copy_small(place, data, bytes);
  else if (goes_in_parts(bytes, signature)) send_in_parts(place, data, bytes, signature);
  else if (reserved_is_traded()) writes_.write_as_usual(place, data, bytes);
  else writes_.write(place, data, bytes);
  commit(bytes, signature);
  bytes_done = bytes;
  return Status::done;
}

// A short message where one as long was read last, as ranks that exchange some do again and again.
inline void ShmEndpoint::send_in_place(uint32_t number, const std::byte* data, size_t bytes, uint64_t signature) noexcept {
  copy_memory(trade_.at(number), data, bytes);
  ShmLine& line = out_line();
  const uint64_t at = bulk_bytes_ + number;
  std::memcpy(line.payload, &at, sizeof at);
  by_ring_ = false;
  publish(line, bytes, signature);
}

// Whether the receiver has all that was sent before, as far as is known here. Where he may be waiting, and the last such message is long
// ago, so that this one is not of a stream, it is looked whether there is news. (What looking takes, and finding the receiver's line
// gone the next time, a stream would pay with every message.)
inline bool ShmEndpoint::receiver_waits(size_t bytes) noexcept {
  constexpr size_t copied_a_ns = 32;
  const bool may_be_awaited = std::exchange(may_be_awaited_, false);
  if (consumed() == sent_) return true;
  if (!may_be_awaited) return false;
  return ns_since(maybe_awaited_at_) > stream_ns_max + TimeNs(bytes / copied_a_ns) && has_consumed(sent_, true);
}

// Whether the receiver may copy a message, which has its place, while it is being written there: where he has read all
// before it, as far as is known here, and so may well be waiting, or its call has just begun so; or where something is received
// meanwhile. There must be lines for the smallest parts, and the message's own.
bool ShmEndpoint::goes_in_parts(size_t bytes, uint64_t signature) noexcept {
  if (bytes < 2 * part_bytes_min || sent_limit_ - sent_ <= bytes / part_of_message(bytes, 0)) return false;
  const bool begins = receiver_waits(bytes) || meanwhile_ != nullptr;
  const bool goes_on = parted_ == sent_ && parted_signature_ == signature && parted_in_a_row_ < parted_in_a_row_max;
  if (!begins && !goes_on) return false;
  parted_in_a_row_ = begins ? 0 : parted_in_a_row_ + 1;
  return reserved_is_traded() || !writes_.learns_from_next();
}

// The line of a message says where it lies. Lines before it say so, too, and how much of it lies there so far. Not past the
// caches: where that is better, the message is one from which is learnt.
[[gnu::noinline]] void ShmEndpoint::send_in_parts(std::byte* place, const std::byte* data, size_t bytes,
                                                  uint64_t signature) noexcept {
  size_t part_bytes = part_of_message(bytes, parted_in_a_row_), at = 0;
  for (parted_lines_ = 1; bytes - at > part_bytes; ++parted_lines_) {
    writes_.write_as_usual(place + at, data + at, part_bytes);
    at += part_bytes;
    const ShmPart part{reserved_, bytes, at};
    ShmLine& line = out_line();
    std::memcpy(line.payload, &part, sizeof part);
    publish(line, shm_part, signature);
    if (meanwhile_ != nullptr) meanwhile_->from.recv_begin(*meanwhile_, at - part_bytes);  // a part behind what is written
    if (at >= first_parts_bytes) part_bytes = later_part_bytes_max;
  }
  writes_.write_as_usual(place + at, data + at, bytes - at);
  parted_ = sent_ + 1;
  parted_signature_ = signature;
}

std::byte* ShmEndpoint::reserve(size_t bytes) noexcept {
  if (bytes > message_bytes_max_) too_large(bytes);
  if (failed_ || !may_send_line()) return nullptr;
  return bytes <= shm_inline_bytes_max ? out_line().payload : bulk_place(bytes);
}

std::byte* ShmEndpoint::reserve_viewed(size_t bytes) noexcept {
  if (bytes <= shm_inline_bytes_max || failed_ || !may_send_line()) return nullptr;
  if (at_release_ != AtRelease::takes_place || reserved_ != ShmBulk::npos) return nullptr;
  at_release_ = AtRelease::nothing;
  reserved_ = bulk_bytes_ + traded_;
  return trade_.at(traded_);
}

inline size_t ShmEndpoint::next_place(size_t bytes) const noexcept {
  const size_t gap = writes_.gap(bytes);
  return writes_.streams_long() ? bulk_.place(bytes, gap) : bulk_.place(bytes, gap, lap_bytes_, usual_bulk_bytes_);
}

// A place that was reserved stays the same until the message is sent.
std::byte* ShmEndpoint::bulk_place(size_t bytes) noexcept {
  if (reserved_ == ShmBulk::npos)
    if (const uint32_t number = trade_.take(bytes); number != ShmTrade::none) reserved_ = bulk_bytes_ + number;
  if (reserved_is_traded()) return trade_.at(uint32_t(reserved_ - bulk_bytes_));
  while (reserved_ == ShmBulk::npos) {
    bulk_.give_back(consumed(), sent_);
    reserved_ = next_place(bytes);
    if (reserved_ == ShmBulk::npos && !look_whether_consumed(bulk_.oldest())) return nullptr;
  }
  return out_bulk_ + reserved_;
}

void ShmEndpoint::commit(size_t bytes, uint64_t signature) noexcept {
  ShmLine& line = out_line();
  uint64_t at = ShmBulk::npos;
  if (bytes > shm_inline_bytes_max) {
    at = std::exchange(reserved_, ShmBulk::npos);
    by_ring_ = at < bulk_bytes_;
    if (by_ring_) bulk_.take(at, bytes, sent_ + 1, writes_.gap(bytes));
    std::memcpy(line.payload, &at, sizeof at);
  }
  publish(line, bytes, signature);
  if (at < bulk_bytes_ && bytes <= fetched_bytes_max) fetch_next_place(bytes);
}

void ShmEndpoint::fetch_next_place(size_t bytes) noexcept {
  const size_t at = next_place(bytes);
  if (at == ShmBulk::npos) return;
  for (size_t i = 0; i < bytes; i += cache_line_bytes) fetch_to_write(out_bulk_ + at + i);
}

uint32_t ShmEndpoint::post(size_t at, size_t bytes, uint64_t signature) noexcept {
  ShmLine& line = out_line();
  const uint64_t place = at;
  std::memcpy(line.payload, &place, sizeof place);
  publish(line, bytes | shm_outbox_bit, signature);
  return sent_;
}

bool ShmEndpoint::has_consumed(uint32_t number, bool looks) noexcept {
  if (ShmBulk::is_consumed(number, consumed(), sent_)) return true;
  if (!looks) return false;
  take_credit(out_->consumed.load(std::memory_order_acquire));  // pairs with the store in release
  return ShmBulk::is_consumed(number, consumed(), sent_);
}

// Of a message that is not inline.
inline const std::byte* ShmEndpoint::in_bulk(const ShmLine& line) noexcept {
  if ((line.bytes & shm_lent_bit) != 0) return borrowed_;
  uint64_t at;
  std::memcpy(&at, line.payload, sizeof at);
  if ((line.bytes & shm_outbox_bit) != 0) return peer_outbox_.data() + at;
  if (at < bulk_bytes_) return in_bulk_ + at;
  traded_ = trade_.here(uint32_t(at - bulk_bytes_));
  if (reserved_ != bulk_bytes_ + traded_) at_release_ = AtRelease::takes_place;
  return trade_.at(traded_);
}

// Of a part.
const std::byte* ShmEndpoint::bulk_at(uint64_t at) const noexcept {
  return at < bulk_bytes_ ? in_bulk_ + at : trade_.at(trade_.here(uint32_t(at - bulk_bytes_)));
}

// While a message that goes past its flag's cache line is here: as much of a later one, as count_as_received() fetches the
// flag's.
inline void ShmEndpoint::fetch_past_flag() noexcept {
  fetch_to_read(in_lines_[(received_ + 1 + lines_ahead_to_read) & mask_].payload + shm_flag_bytes_max);
}

// The message that is expected, which lies in its line, in bulk or in a place that changes hands. What else there may be is told
// apart elsewhere, so that this takes no stack frame.
inline bool ShmEndpoint::is_here_as_usual(const ShmLine& line, size_t bytes, uint64_t signature) const noexcept {
  return line.sequence.load(std::memory_order_acquire) == received_ + 1 &&  // pairs with the store in publish
         line.signature == signature && line.bytes == bytes && !failed_;
}

Status ShmEndpoint::recv(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept {
  const ShmLine& line = in_line();
  if (!is_here_as_usual(line, bytes, signature)) return recv_otherwise(data, bytes, signature, bytes_done);
  take_credit(line.consumed);
  if (bytes > shm_inline_bytes_max) return recv_bulk(line, data, bytes, bytes_done);
  if (bytes > shm_flag_bytes_max) fetch_past_flag();
  copy_small(data, line.payload, bytes);
  bytes_done = bytes;
  return release();
}

[[gnu::noinline]] Status ShmEndpoint::recv_otherwise(std::byte* data, size_t bytes, uint64_t signature,
                                                     size_t& bytes_done) noexcept {
  const ShmLine& line = in_line();
  if (const Status status = arrived(line, bytes, signature); status != Status::done)
    return is_part_ ? recv_parts(data, bytes, signature, bytes_done) : status;
  if (line.bytes == bytes) return recv(data, bytes, signature, bytes_done);  // it came meanwhile
  return recv_bulk(line, data, bytes, bytes_done);
}

Status ShmEndpoint::recv_past_caches(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept {
  reads_.past_caches = true;
  const Status status = recv(data, bytes, signature, bytes_done);
  reads_.past_caches = false;
  return status;
}

// Apart, as all that is noinline here, so that a small message needs no stack frame.
[[gnu::noinline]] Status ShmEndpoint::recv_bulk(const ShmLine& line, std::byte* data, size_t bytes,
                                                size_t& bytes_done) noexcept {
  if (bytes < short_bytes_max && (line.bytes & ~shm_outbox_bit) == bytes && bytes_done == 0 && !offers_next() && !reads_.past_caches) {
    free_to_read_ = {};
    copy_memory(data, in_bulk(line), bytes);
    const Status released = release();
    if (released == Status::done) bytes_done = bytes;
    return released;
  }
  withdraw_offer();
  const FreeToRead free = std::exchange(free_to_read_, {});
  if (see_where_it_lies(line)) {
    if (peek(line, data, free.data == data ? free : FreeToRead{data, bytes}) != Status::done) return Status::failed;
  } else {
    reads_.read(data + bytes_done, in_bulk(line) + bytes_done, bytes - bytes_done);  // some, where it came in parts
  }
  reads_.end();
  const Status released = release();
  if (released == Status::done) bytes_done = bytes;
  return released;
}

Status ShmEndpoint::view(size_t bytes, uint64_t signature, const std::byte*& data) noexcept {
  const ShmLine& line = in_line();
  if (!is_here_as_usual(line, bytes, signature)) return view_otherwise(bytes, signature, data);
  take_credit(line.consumed);
  if (bytes > shm_inline_bytes_max) {
    if (bytes >= short_bytes_max || offers_next()) return view_bulk(line, data);
    data = in_bulk(line);
    return Status::done;
  }
  if (bytes > shm_flag_bytes_max) fetch_past_flag();
  data = line.payload;
  return Status::done;
}

[[gnu::noinline]] Status ShmEndpoint::view_otherwise(size_t bytes, uint64_t signature, const std::byte*& data) noexcept {
  const ShmLine& line = in_line();
  if (const Status status = arrived(line, bytes, signature); status != Status::done)
    return is_part_ ? view_parts(bytes, signature, data) : status;
  if (line.bytes == bytes) return view(bytes, signature, data);  // it came meanwhile
  if ((line.bytes & shm_outbox_bit) != 0 && bytes < short_bytes_max && !offers_next()) {
    data = in_bulk(line);
    return Status::done;
  }
  return view_bulk(line, data);
}

[[gnu::noinline]] Status ShmEndpoint::view_bulk(const ShmLine& line, const std::byte*& data) noexcept {
  withdraw_offer();
  data = in_bulk(line);
  if (!see_where_it_lies(line)) return Status::done;
  if (borrowed_ != nullptr) return Status::done;
  borrowed_ = take_read_before(line);
  if (borrowed_ == nullptr) {
    if (peek(line, stage_, {}) != Status::done) return Status::failed;
    borrowed_ = stage_;
  }
  data = borrowed_;
  return Status::done;
}

// Whether a line that has arrived says that a part of the message that is expected lies there.
bool ShmEndpoint::says_part(const ShmLine& line, size_t bytes, uint64_t signature) const noexcept {
  return line.bytes == shm_part && line.signature == signature && part_of(line).total == bytes;
}

// From a line that says so: copies parts as they come, the last one too. What has no line yet is soon there, if its sender
// runs.
[[gnu::noinline]] Status ShmEndpoint::recv_parts(std::byte* data, size_t bytes, uint64_t signature,
                                                 size_t& bytes_done) noexcept {
  is_part_ = false;
  do {
    const ShmLine& line = in_line();
    if (says_put(line, bytes, signature)) {
      if (take_put(line) != Status::done) return Status::failed;
      continue;
    }
    if (!says_part(line, bytes, signature)) return recv(data, bytes, signature, bytes_done);
    const ShmPart part = part_of(line);
    const size_t until = std::min<size_t>(part.until, bytes);
    if (until > bytes_done) {
      reads_.read(data + bytes_done, bulk_at(part.at) + bytes_done, until - bytes_done);
      bytes_done = until;
    }
    ++received_;
  } while (watch().wait());
  return Status::again;
}

void ShmEndpoint::recv_begin(const Meanwhile& message, size_t until) noexcept {
  reads_.past_caches = true;
  while (message.bytes_done < until && watch().arrived() && says_part(in_line(), message.bytes, message.signature)) {
    const ShmPart part = part_of(in_line());
    if (part.until > until || part.until <= message.bytes_done) break;
    reads_.read(message.data + message.bytes_done, bulk_at(part.at) + message.bytes_done, part.until - message.bytes_done);
    message.bytes_done = part.until;
    ++received_;
  }
  reads_.past_caches = false;
}

[[gnu::noinline]] Status ShmEndpoint::view_parts(size_t bytes, uint64_t signature, const std::byte*& data) noexcept {
  is_part_ = false;
  do {
    if (says_put(in_line(), bytes, signature)) {
      if (take_put(in_line()) != Status::done) return Status::failed;
      continue;
    }
    if (!says_part(in_line(), bytes, signature)) return view(bytes, signature, data);
    ++received_;
  } while (watch().wait());
  return Status::again;
}

Status ShmEndpoint::release() noexcept {
  if (at_release_ != AtRelease::nothing) [[unlikely]] return at_release_ == AtRelease::takes_place ? release_place() : release_as_it_lies();
  return count_as_received();
}

[[gnu::noinline]] Status ShmEndpoint::release_place() noexcept {
  at_release_ = AtRelease::nothing;
  trade_.give(traded_, in_line().bytes);
  return count_as_received();
}

[[gnu::noinline]] Status ShmEndpoint::release_as_it_lies() noexcept {
  at_release_ = AtRelease::nothing;
  return release_borrowed() == Status::done ? count_as_received() : Status::failed;
}

inline Status ShmEndpoint::count_as_received() noexcept {
  ++received_;
  fetch_to_read(&in_lines_[(received_ + lines_ahead_to_read) & mask_]);
  in_->consumed.store(received_, std::memory_order_release);  // pairs with the load in look_for_credit
  if (look_after_store(in_->starved) != 0) [[unlikely]] wake_peer();
  return Status::done;
}

// Whether what recv_otherwise and view_otherwise are asked for is here: a message that lies with its sender or in his outbox, or one that
// has come as usual meanwhile. again: nothing has come, or a line that tells of a part (is_part_). failed: another message has, or this
// endpoint had failed.
Status ShmEndpoint::arrived(const ShmLine& line, size_t bytes, uint64_t signature) noexcept {
  if (failed_) return Status::failed;
  if (line.sequence.load(std::memory_order_acquire) != received_ + 1) return Status::again;  // pairs with the store in publish
  const bool is_of_outbox = line.bytes == (bytes | shm_outbox_bit) && line.signature == signature;
  if (is_of_outbox && lies_in_outbox(line, bytes)) {
    take_credit(line.consumed);
    return Status::done;
  }
  if (is_here_as_usual(line, bytes, signature)) return Status::done;
  if (says_part(line, bytes, signature) || says_put(line, bytes, signature)) {
    is_part_ = true;
    return Status::again;
  }
  if (is_of_outbox) {
    fault_ = {FaultKind::system, EFAULT, 0, bytes};
  } else if (line.bytes == (bytes | shm_lent_bit) && line.signature == signature) {
    if (borrow(line, bytes)) {
      take_credit(line.consumed);
      return Status::done;
    }
    fault_ = {FaultKind::system, borrower_->error_number(), 0, bytes};
  } else {
    const uint64_t got = line.bytes == shm_part  ? part_of(line).total
                         : line.bytes == shm_put ? put_of(line).message_bytes
                                                 : line.bytes & ~(shm_lent_bit | shm_outbox_bit);
    fault_ = {FaultKind::mismatch, 0, line.signature, got};
  }
  failed_ = true;
  return Status::failed;
}

bool ShmEndpoint::lies_in_outbox(const ShmLine& line, size_t bytes) const noexcept {
  uint64_t at;
  std::memcpy(&at, line.payload, sizeof at);
  return at <= peer_outbox_.size() && bytes <= peer_outbox_.size() - at;
}

// Whoever takes the 1 rings, so that many arrivals cost one system call.
[[gnu::noinline]] void ShmEndpoint::ring_peer() noexcept {
  if (peer_header_->sleeping.exchange(0, std::memory_order_relaxed) != 0) Doorbell::ring(peer_doorbell_);
}

inline void ShmEndpoint::take_credit(uint32_t consumed) noexcept {
  const uint32_t limit = consumed + mask_ + 1;
  if (int32_t(limit - sent_limit_) > 0) sent_limit_ = limit;
}

// Has the peer consumed message `number`?
bool ShmEndpoint::look_whether_consumed(uint32_t number) noexcept {
  starved_ = !has_consumed(number, true);
  return !starved_;
}

void ShmEndpoint::before_sleep() noexcept {
  if (!starved_ || failed_) return;
  told_starved_ = true;
  out_->starved.exchange(shm_starved, std::memory_order_acq_rel);  // pairs with look_after_store
}

void ShmEndpoint::after_sleep() noexcept {
  if (!told_starved_) return;
  told_starved_ = false;
  if (!failed_) out_->starved.exchange(0, std::memory_order_acq_rel);  // else it may say that what was lent is revoked
}

void ShmEndpoint::too_large(size_t bytes) noexcept {
  if (!failed_) fault_ = {FaultKind::system, EMSGSIZE, 0, bytes};
  failed_ = true;
}

}  // namespace tutti
