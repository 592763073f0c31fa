// The ring of an outbox, and who has yet to read what lies there.
#include "transport/shm/shm_outbox.h"

#include <algorithm>

namespace tutti {
namespace {

// A sender gets one message ahead of who reads the one before.
constexpr size_t lap_messages = 2;

}  // namespace

ShmOutbox::ShmOutbox(std::span<std::byte> memory, const Laps& laps, size_t message_bytes_max, size_t own_cache_bytes,
                     size_t ranks, size_t members, bool crowded)
    : memory_(memory),
      message_bytes_max_(message_bytes_max),
      members_(members),
      large_lap_bytes_(laps.large_bytes),
      crowded_(crowded),
      ring_(memory.size(), laps.bytes, messages_max, lap_messages),
      writes_(memory.size(), own_cache_bytes),
      endpoints_(ranks),
      messages_(messages_max),
      receivers_(messages_max * members) {}

Outbox::Place ShmOutbox::reserve(size_t bytes, std::span<const uint32_t> peers) noexcept {
  peers_ = peers;
  if (bytes < outbox_bytes_min || bytes > message_bytes_max_) return {};
  for (const uint32_t peer : peers) {
    if (!endpoints_[peer]->may_post()) return {};
    if (!endpoints_[peer]->has_line()) return wait_for(peer);
  }
  forget_read(false);
  reserved_ = place(bytes);
  if (reserved_ == ShmBulk::npos) {
    forget_read(true);
    reserved_ = place(bytes);
  }
  if (reserved_ != ShmBulk::npos) return {memory_.data() + reserved_, -1};
  return wait_for(receivers(read_ + 1)[message(read_ + 1).consumed_by].peer);
}

// Where FIFOs have two slots, two messages under way are what a sender waits for.
Outbox::Place ShmOutbox::wait_for(uint32_t peer) noexcept {
  const auto found = std::find(peers_.begin(), peers_.end(), peer);
  if (found == peers_.end() || !endpoints_[peer]->waits_for_two()) return {};
  return {nullptr, int(found - peers_.begin())};
}

void ShmOutbox::commit(size_t bytes, uint64_t signature) noexcept {
  ring_.take(reserved_, bytes, ++sent_, writes_.gap(bytes));
  message(sent_) = {uint32_t(peers_.size()), 0};
  const std::span<Receiver> to = receivers(sent_);
  for (size_t i = 0; i < to.size(); ++i)
    to[i] = {peers_[i], endpoints_[peers_[i]]->post(reserved_, bytes, signature)};
}

bool ShmOutbox::is_read(uint32_t number, bool looks) noexcept {
  Message& one = message(number);
  const std::span<Receiver> by = receivers(number);
  while (one.consumed_by < by.size()) {
    const Receiver& receiver = by[one.consumed_by];
    if (!endpoints_[receiver.peer]->has_consumed(receiver.number, looks)) return false;
    ++one.consumed_by;
  }
  return true;
}

// Looking costs a cache line of the receiver.
void ShmOutbox::forget_read(bool looks) noexcept {
  while (read_ != sent_ && is_read(read_ + 1, looks)) ++read_;
  ring_.give_back(read_, sent_);
}

}  // namespace tutti
