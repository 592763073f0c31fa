// Messages that stay with their sender and are read there, and memory of the receiver that the sender may write to.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/cpu.h"
#include "transport/shm/shm_endpoint-inl.h"

namespace tutti {

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
  const bool comes_after_all = puts == Puts::in_turn || puts == Puts::when_offered;
  if (comes_after_all && is_offering() && !look_whether_consumed(sent_)) return Status::again;
  if (puts == Puts::when_offered && awaits_offer()) return Status::again;
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
  may_be_awaited_ = false;
  publish(line, bytes | shm_lent_bit, signature);
}

bool ShmEndpoint::is_offering() const noexcept { return out_->offer.part.load(std::memory_order_relaxed) > Offer::declined; }

bool ShmEndpoint::peer_reads() const noexcept { return out_->offer.part.load(std::memory_order_relaxed) == Offer::reads; }

// Messages that follow each other closely are a stream, in which both ranks copy at the same time, each another message. What stands
// alone is copied by one after the other, unless the receiver reads it here. (Measured, Xeon 6, far, 16 KiB: a stream takes 0.8 us a
// message copied, 1.2 lent; what stands alone 2.5 and 1.4. A receiver's word takes a quarter of a microsecond to come.)
bool ShmEndpoint::finds_leisure(size_t bytes, uint64_t signature) noexcept {
  constexpr int looks_max = 16;  // about half a microsecond
  if (ns_since(asked_at_) < stream_ns_max) return false;  // and the receiver's line is left to him
  return is_offered(bytes, signature, looks_max);
}

bool ShmEndpoint::next_is_offered() const noexcept {
  const uint32_t number = out_->offer.number.load(std::memory_order_acquire);  // pairs with the store in offer()
  return number == sent_ + 1 && number != taken_offer_ && number != 0;
}

bool ShmEndpoint::offers_are_missed() const noexcept {
  constexpr uint32_t misses_max = 4, rarely = 16;
  return missed_ >= misses_max && missed_ % rarely != 0;
}

// Whether the message waits, in calls to come, for a receiver who offered memory in its last call: it may have to run first, on this
// rank's core. But not for long, as it may be in another call.
bool ShmEndpoint::awaits_offer() noexcept {
  constexpr TimeNs wait_max_ns = 10 * ns_per_ms;
  if (!may_put_ || peek_ == nullptr || !is_offering()) return false;
  if (awaited_ != sent_ + 1) {
    awaited_ = sent_ + 1;
    awaited_until_ = now_ns() + wait_max_ns;
  }
  if (awaited_until_ == 0) return false;
  const bool is_here = next_is_offered();
  if (!is_here && !offers_are_missed() && now_ns() < awaited_until_) return true;
  awaited_until_ = 0;
  missed_ = is_here ? 0 : missed_ + 1;
  return false;
}

// Whether the receiver, who has all that was sent before, has said where the next message goes. If it did so in its last call, it is
// awaited, but not for long if it did not come before: it may be in another call.
bool ShmEndpoint::is_offered(size_t bytes, uint64_t signature, int looks_max) noexcept {
  if (!may_put_ || peek_ == nullptr || sent_limit_ - sent_ < 2) return false;
  const ShmOffer& offer = out_->offer;
  if (!is_offering()) return false;
  if (awaited_ != sent_ + 1) {
    awaited_ = sent_ + 1;
    const bool waits = !offers_are_missed();
    for (int look = 1; waits && look < looks_max && is_offering() && !next_is_offered(); ++look) cpu_relax();
    missed_ = next_is_offered() ? 0 : missed_ + 1;
  }
  return next_is_offered() && is_offering() && offer.signature.load(std::memory_order_relaxed) == signature &&
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
  const int error_number = peek_->write(data + put.read, to + put.read, all - put.read, puts_from_end_);
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
  if (offers_next()) in_->offer.number.store(0, std::memory_order_relaxed);
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
  const int error_number = put.read > 0 ? peek_->read(offered_.data, put.address, put.read, free_to_read_.from_end) : 0;
  if (error_number != 0) return fail_to_peek(error_number, put.read);
  ++received_;
  read_before_ = {offered_.data, put.address, put.bytes, received_ + 1};
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

// 0, or what the system says.
[[gnu::noinline]] int ShmEndpoint::peek_in_turn(const LentPlace& place, std::byte* data, size_t bytes, const FreeToRead& free) noexcept {
  int error_number = 0;
  for (size_t left = bytes; left > 0 && error_number == 0;) {
    const size_t piece = std::min(left, block_piece_bytes), at = free.from_end ? left - piece : bytes - left;
    free.own->copy_next(piece);
    error_number = peek_->read(data + at, place.address + at, piece);
    left -= piece;
  }
  return error_number;
}

// To where there is room for so much, if for no more than the message.
Status ShmEndpoint::peek(const ShmLine& line, std::byte* data, const FreeToRead& free) noexcept {
  LentPlace place;
  std::memcpy(&place, line.payload, sizeof place);
  const size_t bytes = line.bytes & ~shm_lent_bit;
  if (take_read_before(line) == data) return Status::done;
  const size_t more = bytes_to_read_on(line, free.bytes), all = bytes + more;
  const bool in_turn = more > 0 && free.own != nullptr;
  const int error_number = in_turn ? peek_in_turn(place, data, all, free) : peek_->read(data, place.address, all, free.from_end);
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

}  // namespace tutti
