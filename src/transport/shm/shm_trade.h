// Places for large messages that change hands: who has received a message owns the place where it lies, and puts its own
// next message to the same peer there.
//
// What a rank has just read is in its core's own cache, on Zen 4, it seems, as the only copy. Writing there again costs
// least; writing anywhere else means fetching lines from the other core or from the last cache first, and the old sender,
// if the place were its own again, would have to fetch them from the receiver. Where ranks exchange messages (all but
// broadcasts and the like), every message so finds a place in its sender's cache. (Measured, Zen 4, 2 ranks, 64 KiB each way:
// 1.2 µs to write where it was 1.7, reading as before.)
//
// Only as much of a place is near as its last message filled, and writing the rest is slowest of all. So each length of message
// has places of its own, as far as they go: a message goes where one of about its length was read, else to a place that
// nothing was read from yet, else where the nearest length was. Where that leaves much of it to write elsewhere it goes by
// the FIFO's ring, but for one now and then, which is tried: if the peer's messages are as long, its next one fills the place. (Measured,
// Zen 4, 2 ranks, near: an all_reduce of 8 KiB and one of 256 KiB that met in one place took 25 µs together, and 12.5 apart; an
// all_gather of messages of 256 and 8 KiB 40, of 256 KiB alone 17.)
//
// A place is owned by one side at a time, or under way. Nobody waits for one: a sender that owns none uses its FIFO's ring.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

// Each side owns so many at first. A call sends at most two messages before it receives the peer's, where it matters; the others
// are for other lengths.
inline constexpr uint32_t shm_traded_places = 4;

// Data path: one side's view. Places are numbered from 0: first those that lie in the FIFO that this side writes.
class ShmTrade {
 public:
  static constexpr uint32_t none = ~0u;

  // Each FIFO of the pair has `places` (at most shm_traded_places) of place_bytes bytes.
  ShmTrade(std::byte* out, std::byte* in, size_t place_bytes, uint32_t places) noexcept
      : out_(out), in_(in), place_bytes_(place_bytes), places_(places) {
    for (uint32_t i = places; i > 0; --i) owned_[n_owned_++] = {0, i - 1};
  }

  bool owns_any() const noexcept { return n_owned_ > 0; }
  // For a message of `bytes` bytes; of several that are alike, the place that was received last. It is owned no more.
  uint32_t take(size_t bytes) noexcept {
    if (n_owned_ == 0) return none;
    uint32_t best = n_owned_ - 1;
    if (owned_[best].filled != bytes) {
      best = best_for(bytes);
      const size_t filled = owned_[best].filled;
      if (filled != 0 && !fits(bytes, filled) && !tries(bytes)) return none;
    }
    const uint32_t number = owned_[best].number;
    for (--n_owned_; best < n_owned_; ++best) owned_[best] = owned_[best + 1];
    return number;
  }
  // The same, where the place that was received last is one for it; else none, though there may be others.
  uint32_t take_alike(size_t bytes) noexcept {
    return n_owned_ > 0 && owned_[n_owned_ - 1].filled == bytes ? owned_[--n_owned_].number : none;
  }
  // A message of `bytes` bytes that lay there has been read.
  void give(uint32_t number, size_t bytes) noexcept {
    owned_[n_owned_++] = {bytes, number};
    if (tried_bytes_ > 0 && fits(tried_bytes_, bytes)) tried_bytes_ = 0;
  }

  std::byte* at(uint32_t number) const noexcept {
    return number < places_ ? out_ + number * place_bytes_ : in_ + (number - places_) * place_bytes_;
  }
  // What the peer calls `number`: its outgoing FIFO is the incoming one here.
  uint32_t here(uint32_t number) const noexcept { return number < places_ ? number + places_ : number - places_; }

 private:
  struct Owned {
    size_t filled;  // by the last message; 0: there was none
    uint32_t number;
  };

  static bool is_about(size_t bytes, size_t filled) noexcept {
    return bytes <= filled + filled / 16 && filled <= bytes + bytes / 16;
  }
  // A little more than was filled is cheaper there than by the ring; so is what is small.
  static bool fits(size_t bytes, size_t filled) noexcept { return bytes <= filled + std::max(filled / 16, small_bytes); }

  uint32_t best_for(size_t bytes) const noexcept {
    uint32_t best = none;
    size_t least = ~size_t{0};
    for (uint32_t i = n_owned_; i-- > 0;) {
      const size_t filled = owned_[i].filled;
      const size_t apart = filled == 0 ? 0 : filled < bytes ? bytes - filled : filled - bytes;
      if (filled != 0 && is_about(bytes, filled)) return i;
      if (apart < least) {
        least = apart;
        best = i;
      }
    }
    return best;
  }

  // Whether a message that fits nowhere goes to a place all the same.
  bool tries(size_t bytes) noexcept {
    if (fits(bytes, tried_bytes_) && ++misses_ < misses_max) return false;
    tried_bytes_ = bytes;
    misses_ = 0;
    return true;
  }

  static constexpr size_t small_bytes = 4096;
  static constexpr uint32_t misses_max = 32;

  std::byte *out_, *in_;
  size_t place_bytes_;
  uint32_t places_, n_owned_ = 0;
  std::array<Owned, 2 * shm_traded_places> owned_{};
  size_t tried_bytes_ = 0;  // of the last message that was tried; 0: the peer's next one was as long
  uint32_t misses_ = 0;     // messages that fitted nowhere since
};

}  // namespace tutti
