// Sending and receiving through shared memory: no allocation, no lock, and no system call unless the peer sleeps.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/cpu.h"
#include "reduce/copy.h"
#include "transport/doorbell.h"
#include "transport/shm/shm_endpoint.h"

namespace tutti {
namespace {

// Small messages in one direction, from a rank that is ahead: each line crosses from one core to the other and back, which
// takes longer than a call, so both sides have the next lines on their way. (Measured, Zen 4, 2 ranks far from each other,
// broadcasts of 8 B: 0.16 µs each without, 0.05 with it; one side alone gains nothing, the other one then waits as long.)
// The receiver's distance is the longer one: a line that it fetches before it is written is fetched twice.
constexpr uint32_t lines_ahead_to_write = 2, lines_ahead_to_read = 8;
// Likewise the place of the next message, as if it were like this one. (Measured so, 256 B to 1 KiB: 0.6 to 1.0 of the time
// in broadcast, reduce and scatter; calls in both directions as before.)
constexpr size_t fetched_bytes_max = 1024, cache_line_bytes = 64;

// A message of two parts or more may be sent in parts: small ones at first, so that the receiver begins soon, then larger
// ones, which are copied faster. (Measured, Zen 4 and Zen 5, 2 ranks: parts of 8 to 64 KiB, see docs/tuning.md.)
constexpr size_t part_bytes_min = 8 * 1024, part_bytes_max = 16 * 1024, later_part_bytes_max = 32 * 1024;
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

inline ShmPut put_of(const ShmLine& line) noexcept {
  ShmPut put;
  std::memcpy(&put, line.payload, sizeof put);
  return put;
}

}  // namespace

ShmEndpoint::ShmEndpoint(const ShmLink& link)
    : out_lines_(link.out->lines()),
      in_lines_(link.in->lines()),
      peer_sleeping_(link.peer_sleeping),
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
      bulk_(link.bulk_bytes, link.bulk_lap_bytes, link.lines, link.lap_messages_min),
      trade_(link.out_bulk + link.bulk_bytes, link.in_bulk + link.bulk_bytes, link.message_bytes_max, link.traded_places),
      writes_(link.bulk_bytes),
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
  std::byte* const place = reserve(bytes);
  if (place == nullptr) return failed_ ? Status::failed : Status::again;
  if (bytes <= shm_inline_bytes_max) copy_small(place, data, bytes);
  else if (goes_in_parts(bytes, signature)) send_in_parts(place, data, bytes, signature);
  else if (reserved_is_traded()) copy_memory(place, data, bytes);
  else writes_.write(place, data, bytes);
  commit(bytes, signature);
  bytes_done = bytes;
  return Status::done;
}

// Whether the receiver may copy a message, which has its place, while it is being written there: where he has read all
// before it, as far as is known here, and so may well be waiting, or its call has just begun so. There must be lines for the
// smallest parts, and the message's own.
bool ShmEndpoint::goes_in_parts(size_t bytes, uint64_t signature) noexcept {
  if (bytes < 2 * part_bytes_min || sent_limit_ - sent_ <= bytes / part_of_message(bytes, 0)) return false;
  const bool begins = consumed() == sent_;
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
    copy_memory(place + at, data + at, part_bytes);
    at += part_bytes;
    const ShmPart part{reserved_, bytes, at};
    ShmLine& line = out_line();
    std::memcpy(line.payload, &part, sizeof part);
    publish(line, shm_part, signature);
    if (at >= first_parts_bytes) part_bytes = later_part_bytes_max;
  }
  copy_memory(place + at, data + at, bytes - at);
  parted_ = sent_ + 1;
  parted_signature_ = signature;
}

// The line alone is sent, and says where the message lies.
Status ShmEndpoint::lend(const LentRegion& region, const std::byte* data, size_t bytes, uint64_t signature,
                         size_t& bytes_done) noexcept {
  const std::span<const std::byte> free = std::exchange(free_to_lend_, {});
  const Puts puts = std::exchange(puts_, Puts::nowhere);
  const bool goes_on = data == put_.data(), is_small = bytes < (region.is_private() ? lent_private_bytes_min : lent_bytes_min);
  if (!may_lend(region, bytes) || sent_ + 1 == unput_ || (is_small && puts == Puts::nowhere && !goes_on))
    return send(data, bytes, signature, bytes_done);
  if (failed_) return Status::failed;
  if (!may_send_line()) return Status::again;
  if (puts == Puts::at_leisure && !finds_leisure(bytes, signature)) return send(data, bytes, signature, bytes_done);
  if (puts == Puts::in_turn && is_offering() && !look_whether_consumed(sent_)) return Status::again;
  const size_t all = data == free.data() && region.is_private() ? free.size() : bytes;
  if (puts != Puts::nowhere && puts != Puts::at_leisure && !goes_on) {
    constexpr int looks_max = 5000;  // a tenth of a millisecond
    if (puts != Puts::goes_on && all >= offered_bytes_min && is_offered(bytes, signature, looks_max) && !peer_reads()) {
      const Status status = put(data, all, bytes, signature);
      if (status == Status::failed) return status;
      if (status == Status::again) return send(data, bytes, signature, bytes_done);
    } else if (puts != Puts::else_lends || is_small) {
      return send(data, bytes, signature, bytes_done);
    }
  }
  publish_lent({region.number, uint64_t(data - region.begin), data, all - bytes}, bytes, signature);
  put_ = data == put_.data() && bytes < put_.size() ? put_.subspan(bytes) : std::span<const std::byte>();
  bytes_done = bytes;
  return Status::done;
}

void ShmEndpoint::publish_lent(const LentPlace& place, size_t bytes, uint64_t signature) noexcept {
  ShmLine& line = out_line();
  std::memcpy(line.payload, &place, sizeof place);
  lent_until_ = sent_ + 1;
  lent_ = true;
  publish(line, bytes | shm_lent_bit, signature);
}

bool ShmEndpoint::is_offering() const noexcept { return out_->offer.part.load(std::memory_order_relaxed) > Offer::declined; }

bool ShmEndpoint::peer_reads() const noexcept { return out_->offer.part.load(std::memory_order_relaxed) == Offer::reads; }

// Messages that follow each other closely are a stream, in which both ranks copy at the same time, each another message. What stands
// alone is copied by one after the other, unless the receiver reads it here. (Measured, Xeon 6, far, 16 KiB: a stream takes 0.8 us a
// message copied, 1.2 lent; what stands alone 2.5 and 1.4. A receiver's word takes a quarter of a microsecond to come.)
bool ShmEndpoint::finds_leisure(size_t bytes, uint64_t signature) noexcept {
  constexpr TimeNs stream_ns_max = 5 * ns_per_us;
  constexpr int looks_max = 16;  // about half a microsecond
  const TimeNs now = now_ns();
  if (now - std::exchange(asked_at_, now) < stream_ns_max) return false;  // and the receiver's line is left to him
  return is_offered(bytes, signature, looks_max);
}

// Whether the receiver, who has all that was sent before, has said where the next message goes. If it did so in its last call, it is
// awaited, but not for long if it did not come before: it may be in another call.
bool ShmEndpoint::is_offered(size_t bytes, uint64_t signature, int looks_max) noexcept {
  constexpr uint32_t misses_max = 4, rarely = 16;
  if (!may_put_ || peek_ == nullptr || sent_limit_ - sent_ < 2) return false;
  const ShmOffer& offer = out_->offer;
  const auto is_here = [&] {
    const uint32_t number = offer.number.load(std::memory_order_acquire);  // pairs with the store in offer()
    return number == sent_ + 1 && number != taken_offer_ && number != 0;
  };
  if (!is_offering()) return false;
  if (awaited_ != sent_ + 1) {
    awaited_ = sent_ + 1;
    const bool waits = missed_ < misses_max || missed_ % rarely == 0;
    for (int look = 1; waits && look < looks_max && is_offering() && !is_here(); ++look) cpu_relax();
    missed_ = is_here() ? 0 : missed_ + 1;
  }
  return is_here() && is_offering() && offer.signature.load(std::memory_order_relaxed) == signature &&
         offer.bytes.load(std::memory_order_relaxed) >= bytes;
}

// done: what the receiver leaves to this rank lies with him. again: it does not, so the message is to be sent.
[[gnu::noinline]] Status ShmEndpoint::put(const std::byte* data, size_t all, size_t bytes, uint64_t signature) noexcept {
  constexpr size_t page_bytes = 4096;
  const ShmOffer& offer = out_->offer;
  std::byte* const to = offer.data.load(std::memory_order_relaxed);
  all = std::min<size_t>(all, offer.bytes.load(std::memory_order_relaxed));
  const bool writes_all = offer.part.load(std::memory_order_relaxed) == Offer::all;
  const ShmPut put{data, all, writes_all ? 0 : all / 2 / page_bytes * page_bytes, bytes};
  if (!enter()) return Status::failed;
  taken_offer_ = sent_ + 1;
  ShmLine& line = out_line();
  std::memcpy(line.payload, &put, sizeof put);
  publish(line, shm_put, signature);
  const int error_number = peek_->write(data + put.read, to + put.read, all - put.read);
  leave();
  if (error_number == ESRCH) return fail_to_peek(error_number, all);
  may_put_ = error_number == 0;
  if (!may_put_) unput_ = sent_ + 1;
  put_ = may_put_ ? std::span(data, all) : std::span<const std::byte>();
  return may_put_ ? Status::done : Status::again;
}

bool ShmEndpoint::may_lend(const LentRegion& region, size_t bytes) noexcept {
  if (bytes == 0 || bytes > message_bytes_max_) return false;
  return region.is_private() ? is_peeked_ : bytes >= lent_bytes_min && tell(region);
}

bool ShmEndpoint::tell(const LentRegion& region) noexcept {
  return lender_ != nullptr && (same_process_ || lender_->tell(region));
}

std::byte* ShmEndpoint::reach(const LentPlace& place, size_t bytes) noexcept {
  std::byte* const at = same_process_ ? const_cast<std::byte*>(place.address) : borrower_->find(peer_, place, bytes);
  if (at != nullptr) return at;
  fault_ = {FaultKind::system, borrower_->error_number(), 0, bytes};
  failed_ = true;
  return nullptr;
}

// Who revokes says so and then looks who is in; who enters says so and then looks whether it is revoked. In the one order
// that all such operations have, the later of the two sees the earlier.
bool ShmEndpoint::enter() noexcept {
  if (failed_) return false;
  in_->entered.exchange(1, std::memory_order_seq_cst);  // pairs with the load in is_entered
  if (in_->starved.load(std::memory_order_seq_cst) != shm_revoked) return true;  // pairs with the exchange in revoke
  leave();
  fault_.kind = FaultKind::closed;
  failed_ = true;
  return false;
}

void ShmEndpoint::leave() noexcept {
  in_->entered.store(0, std::memory_order_release);  // after what was read and written; pairs with the load in is_entered
}

bool ShmEndpoint::is_entered() const noexcept { return out_->entered.load(std::memory_order_seq_cst) != 0; }

Status ShmEndpoint::flush() noexcept {
  if (fault_.kind != FaultKind::none) return Status::failed;
  if (!lent_) return Status::done;
  lent_ = !look_whether_consumed(lent_until_);
  return lent_ ? Status::again : Status::done;
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

// A place that was reserved stays the same until the message is sent.
std::byte* ShmEndpoint::bulk_place(size_t bytes) noexcept {
  if (reserved_ == ShmBulk::npos)
    if (const uint32_t number = trade_.take(bytes); number != ShmTrade::none) reserved_ = bulk_bytes_ + number;
  if (reserved_is_traded()) return trade_.at(uint32_t(reserved_ - bulk_bytes_));
  while (reserved_ == ShmBulk::npos) {
    bulk_.give_back(consumed(), sent_);
    reserved_ = bulk_.place(bytes, writes_.gap(bytes));
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
  const size_t at = bulk_.place(bytes, writes_.gap(bytes));
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

Status ShmEndpoint::recv(std::byte* data, size_t bytes, uint64_t signature, size_t& bytes_done) noexcept {
  const ShmLine& line = in_line();
  if (const Status status = arrived(line, bytes, signature); status != Status::done)
    return is_part_ ? recv_parts(data, bytes, signature, bytes_done) : status;
  if (line.bytes > shm_inline_bytes_max) return recv_bulk(line, data, bytes, bytes_done);
  if (bytes > shm_flag_bytes_max) fetch_past_flag();
  copy_small(data, line.payload, bytes);
  bytes_done = bytes;
  return release();
}

// Apart, as all that is noinline here, so that a small message needs no stack frame.
[[gnu::noinline]] Status ShmEndpoint::recv_bulk(const ShmLine& line, std::byte* data, size_t bytes,
                                                size_t& bytes_done) noexcept {
  withdraw_offer();
  const std::span<const std::byte> free = std::exchange(free_to_read_, {});
  if (see_where_it_lies(line)) {
    if (peek(line, data, free.data() == data ? free.size() : bytes) != Status::done) return Status::failed;
  } else {
    reads_.read(data + bytes_done, in_bulk(line) + bytes_done, bytes - bytes_done);  // some, where it came in parts
  }
  const Status released = release();
  if (released == Status::done) bytes_done = bytes;
  return released;
}

Status ShmEndpoint::view(size_t bytes, uint64_t signature, const std::byte*& data) noexcept {
  const ShmLine& line = in_line();
  if (const Status status = arrived(line, bytes, signature); status != Status::done)
    return is_part_ ? view_parts(bytes, signature, data) : status;
  if (line.bytes > shm_inline_bytes_max) return view_bulk(line, data);
  if (bytes > shm_flag_bytes_max) fetch_past_flag();
  data = line.payload;
  return Status::done;
}

[[gnu::noinline]] Status ShmEndpoint::view_bulk(const ShmLine& line, const std::byte*& data) noexcept {
  withdraw_offer();
  data = in_bulk(line);
  if (!see_where_it_lies(line)) return Status::done;
  if (borrowed_ != nullptr) return Status::done;
  borrowed_ = take_read_before(line);
  if (borrowed_ == nullptr) {
    if (peek(line, stage_, 0) != Status::done) return Status::failed;
    borrowed_ = stage_;
  }
  data = borrowed_;
  return Status::done;
}

// Nothing that was sent before is under way, or it is not known which message will be the next one. Once is enough.
void ShmEndpoint::offer(std::byte* data, size_t bytes, uint64_t signature, Offer part) noexcept {
  const uint32_t number = received_ + 1;
  const size_t bytes_min = part == Offer::reads ? lent_at_leisure_bytes_min : offered_bytes_min;
  if (peek_ == nullptr || failed_ || bytes < bytes_min || offered_.number == number) return;
  ShmOffer& offer = in_->offer;
  if (watch().arrived() || part == Offer::declined) {  // who sends is told for later calls
    if (offer.part.load(std::memory_order_relaxed) != part) offer.part.store(part, std::memory_order_relaxed);
    return;
  }
  offered_ = {data, bytes, number};
  offer.data.store(data, std::memory_order_relaxed);
  offer.bytes.store(bytes, std::memory_order_relaxed);
  offer.signature.store(signature, std::memory_order_relaxed);
  offer.part.store(part, std::memory_order_relaxed);
  offer.number.store(number, std::memory_order_release);  // pairs with the load in is_offered
}

// Of memory for a message that has come in another way: numbers come again.
void ShmEndpoint::withdraw_offer() noexcept {
  if (offered_.number == received_ + 1) in_->offer.number.store(0, std::memory_order_relaxed);
}

bool ShmEndpoint::says_put(const ShmLine& line, size_t bytes, uint64_t signature) const noexcept {
  if (line.bytes != shm_put || line.signature != signature) return false;
  return put_of(line).message_bytes == bytes;
}

// While the sender writes the end of it, the beginning is read; the message's line comes when he has. Should he fail to, it comes in
// another way.
Status ShmEndpoint::take_put(const ShmLine& line) noexcept {
  const ShmPut put = put_of(line);
  const bool is_offered = offered_.number == received_ + 1 && offered_.data != nullptr;
  if (!is_offered || put.bytes > offered_.bytes || put.read > put.bytes) return fail_to_peek(EFAULT, put.bytes);
  if (const int error_number = put.read > 0 ? peek_->read(offered_.data, put.address, put.read) : 0; error_number != 0)
    return fail_to_peek(error_number, put.read);
  ++received_;
  read_before_ = {offered_.data, put.address, put.bytes, received_ + 1};
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
  if (at_release_ != AtRelease::nothing) [[unlikely]] return release_as_it_lies();
  return count_as_received();
}

[[gnu::noinline]] Status ShmEndpoint::release_as_it_lies() noexcept {
  const AtRelease what = std::exchange(at_release_, AtRelease::nothing);
  if (what == AtRelease::takes_place) trade_.give(traded_, in_line().bytes);
  else if (release_borrowed() != Status::done) return Status::failed;
  return count_as_received();
}

inline Status ShmEndpoint::count_as_received() noexcept {
  ++received_;
  fetch_to_read(&in_lines_[(received_ + lines_ahead_to_read) & mask_]);
  in_->consumed.store(received_, std::memory_order_release);  // pairs with the load in look_for_credit
  if (look_after_store(in_->starved) != 0) [[unlikely]] wake_peer();
  return Status::done;
}

// Whoever revokes says so before the memory changes. So if nothing is said after it was read, it had not changed.
Status ShmEndpoint::release_borrowed() noexcept {
  borrowed_ = nullptr;
  // A change that changes nothing, for its order: after what was read. Pairs with the exchange in revoke.
  if (in_->starved.fetch_or(0, std::memory_order_acq_rel) != shm_revoked) return Status::done;
  fault_.kind = FaultKind::closed;
  failed_ = true;
  return Status::failed;
}

void ShmEndpoint::revoke() noexcept {
  failed_ = true;
  if (fault_.kind == FaultKind::none) fault_.kind = FaultKind::closed;
  // Before what changes next: see release_borrowed, and enter.
  out_->starved.exchange(shm_revoked, std::memory_order_seq_cst);
}

// Is the next message here, and the one that is expected?
inline Status ShmEndpoint::arrived(const ShmLine& line, size_t bytes, uint64_t signature) noexcept {
  if (line.sequence.load(std::memory_order_acquire) != received_ + 1)  // pairs with the store in publish
    return failed_ ? Status::failed : Status::again;
  if (line.signature != signature || line.bytes != bytes || failed_) [[unlikely]]
    return unusual(line, bytes, signature);
  take_credit(line.consumed);
  return Status::done;
}

// A message that lies with its sender, another than is expected, or none since this endpoint has failed.
[[gnu::noinline]] Status ShmEndpoint::unusual(const ShmLine& line, size_t bytes, uint64_t signature) noexcept {
  if (failed_) return Status::failed;
  if (says_part(line, bytes, signature) || says_put(line, bytes, signature)) {
    is_part_ = true;
    return Status::again;
  }
  if (line.bytes == (bytes | shm_outbox_bit) && line.signature == signature) {
    if (lies_in_outbox(line, bytes)) {
      take_credit(line.consumed);
      return Status::done;
    }
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

// The message, which has arrived, lies in private memory of its sender.
bool ShmEndpoint::lies_with_peer(const ShmLine& line) const noexcept {
  if ((line.bytes & shm_lent_bit) == 0) return false;
  LentPlace place;
  std::memcpy(&place, line.payload, sizeof place);
  return place.region == LentRegion::private_number;
}

// Whether it lies there, for who asks about the peer later, too.
bool ShmEndpoint::see_where_it_lies(const ShmLine& line) noexcept {
  const bool lent = lies_with_peer(line);
  if ((line.bytes & ~(shm_lent_bit | shm_outbox_bit)) >= lent_private_bytes_min) peer_lent_ = lent ? PeerLends::yes : PeerLends::no;
  return lent;
}

// Where the message of that line, which has come and is received now, lies since it was read with one before it. Null: it was not.
const std::byte* ShmEndpoint::take_read_before(const ShmLine& line) noexcept {
  LentPlace place;
  std::memcpy(&place, line.payload, sizeof place);
  const size_t bytes = line.bytes & ~shm_lent_bit;
  if (received_ + 1 != read_before_.number || place.address != read_before_.from || bytes > read_before_.bytes) return nullptr;
  const std::byte* const at = read_before_.to;
  read_before_ = {at + bytes, place.address + bytes, read_before_.bytes - bytes, received_ + 2};
  return at;
}

// How much of what follows the message of that line lies behind it in the peer's memory, and belongs behind it in the memory that it
// goes to, which is free for so much: as the line says, or the lines behind it. One system call for all of it, which takes the
// kernel's longer ways once (measured on a Xeon, in caches: 256 KiB by parts of 64 KiB 9.5 µs, at once 8.3; 4 MiB by parts of 256 KiB
// 397, at once 365). Who lends sends all lines that it can at once, so the next ones are waited for, if not for long.
size_t ShmEndpoint::bytes_to_read_on(const ShmLine& line, size_t free_bytes) const noexcept {
  constexpr int looks_max = 8;
  LentPlace place;
  std::memcpy(&place, line.payload, sizeof place);
  const size_t bytes = line.bytes & ~shm_lent_bit;
  if (free_bytes <= bytes) return 0;
  if (place.more > 0) return std::min<size_t>(place.more, free_bytes - bytes);
  size_t all = bytes;
  for (uint32_t number = received_ + 2; all < free_bytes; ++number) {
    const ShmLine& next = in_lines_[(number - 1) & mask_];
    const Watch watch{&next.sequence, number};
    for (int look = 1; look < looks_max && !watch.arrived(); ++look) cpu_relax();
    if (!watch.arrived() || next.signature != line.signature || !lies_with_peer(next)) break;
    LentPlace after;
    std::memcpy(&after, next.payload, sizeof after);
    const size_t more = next.bytes & ~shm_lent_bit;
    if (after.address != place.address + all || more > free_bytes - all) break;
    all += more;
  }
  return all - bytes;
}

// To where there is room for so much, if for no more than the message.
Status ShmEndpoint::peek(const ShmLine& line, std::byte* data, size_t free_bytes) noexcept {
  LentPlace place;
  std::memcpy(&place, line.payload, sizeof place);
  const size_t bytes = line.bytes & ~shm_lent_bit;
  if (take_read_before(line) == data) return Status::done;
  const size_t more = bytes_to_read_on(line, free_bytes);
  const int error_number = peek_->read(data, place.address, bytes + more);
  if (error_number == 0) {
    read_before_ = {data + bytes, place.address + bytes, more, received_ + 2};
    return Status::done;
  }
  return fail_to_peek(error_number, bytes);
}

// The peer has ended, or revoked what is between them; or the system forbids what it did not before.
[[gnu::noinline]] Status ShmEndpoint::fail_to_peek(int error_number, size_t bytes) noexcept {
  // Pairs with the exchange in revoke.
  const bool is_gone = error_number == ESRCH || in_->starved.load(std::memory_order_acquire) == shm_revoked;
  fault_ = {is_gone ? FaultKind::closed : FaultKind::system, is_gone ? 0 : error_number, 0, bytes};
  failed_ = true;
  return Status::failed;
}

// Finds out where a lent message lies.
bool ShmEndpoint::borrow(const ShmLine& line, size_t bytes) noexcept {
  if (at_release_ == AtRelease::returns_lent) return true;
  LentPlace place;
  std::memcpy(&place, line.payload, sizeof place);
  if (place.region == LentRegion::private_number) {
    if (peek_ == nullptr) return false;
    at_release_ = AtRelease::returns_lent;
    return true;
  }
  borrowed_ = same_process_ ? place.address : borrower_->find(peer_, place, bytes);
  if (borrowed_ == nullptr) return false;
  at_release_ = AtRelease::returns_lent;
  return true;
}

inline void ShmEndpoint::publish(ShmLine& line, size_t bytes, uint64_t signature) noexcept {
  line.bytes = uint32_t(bytes);
  line.signature = signature;
  line.consumed = received_;
  ++sent_;
  line.sequence.store(sent_, std::memory_order_release);  // pairs with the load in arrived
  // Not one that the receiver may be about to read.
  if (sent_limit_ - sent_ > lines_ahead_to_write) fetch_to_write(&out_lines_[(sent_ + lines_ahead_to_write) & mask_]);
  wake_peer();
}

// A sleeper's flag, after storing what it waits for. Its owner sets the flag and then looks for the store, so one of
// the two must see the other. Usually the owner's membarrier sees to that, and the compiler is all that must be held
// here. Where there is none, both sides change the flag atomically: the later of the two sees what the earlier did.
inline uint32_t ShmEndpoint::look_after_store(std::atomic<uint32_t>& flag) noexcept {
  if (locked_) [[unlikely]] return flag.fetch_or(0, std::memory_order_acq_rel);  // pairs with exchange in arm and below
  std::atomic_signal_fence(std::memory_order_seq_cst);  // pairs with the membarrier in ShmTransport::arm
  return flag.load(std::memory_order_relaxed);
}

inline void ShmEndpoint::wake_peer() noexcept {
  if (look_after_store(*peer_sleeping_) == 0) [[likely]] return;
  ring_peer();
}

// Whoever takes the 1 rings, so that many arrivals cost one system call.
[[gnu::noinline]] void ShmEndpoint::ring_peer() noexcept {
  if (peer_sleeping_->exchange(0, std::memory_order_relaxed) != 0) Doorbell::ring(peer_doorbell_);
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
