// Places for large messages that change hands: who has received a message owns the place where it lies, and puts its own
// next message to the same peer there.
//
// What a rank has just read is in its core's own cache, on Zen 4, it seems, as the only copy. Writing there again costs
// least; writing anywhere else means fetching lines from the other core or from the last cache first, and the old sender,
// if the place were its own again, would have to fetch them from the receiver. Where ranks exchange messages (all but
// broadcasts and the like), every message so finds a place in its sender's cache. (Measured, Zen 4, 2 ranks, 64 KiB each way:
// 1.2 µs to write where it was 1.7, reading as before.)
//
// Only as much of a place is near as its last message filled. So a message goes where one of about its size, or a longer one,
// was read; where there is none it goes by the FIFO's ring. (Measured, Zen 4, 2 ranks, all_gather of 528 KiB, whose messages
// had 256 and 8 KiB then and met in each other's places: 40 µs, where 512 KiB took 17.) When messages grow, one is tried in a
// place that is too little filled: where both sides' grow, the peer's next one fills it; else it is left until later.
//
// A place is owned by one side at a time, or under way. Nobody waits for one: a sender that owns none uses its FIFO's ring.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

// Each side owns so many at first; a call sends at most two messages before it receives the peer's, where it matters.
inline constexpr uint32_t shm_traded_places = 2;

// Data path: one side's view. Places are numbered from 0: first those that lie in the FIFO that this side writes.
class ShmTrade {
 public:
  static constexpr uint32_t none = ~0u;

  // Each FIFO of the pair has `places` (at most shm_traded_places) of place_bytes bytes.
  ShmTrade(std::byte* out, std::byte* in, size_t place_bytes, uint32_t places) noexcept
      : out_(out), in_(in), place_bytes_(place_bytes), places_(places) {
    for (uint32_t i = places; i > 0; --i) give(i - 1, place_bytes);
  }

  bool owns_any() const noexcept { return n_owned_ > 0; }
  // For a message of `bytes` bytes: of the places where it fits the one that was filled least, and of several the one that was
  // received last. It is owned no more.
  uint32_t take(size_t bytes) noexcept {
    uint32_t best = none;
    for (uint32_t i = n_owned_; i-- > 0;)
      if (fits(bytes, owned_[i].filled) && (best == none || owned_[i].filled < owned_[best].filled)) best = i;
    if (best == none && (best = to_be_tried(bytes)) == none) return none;
    const uint32_t number = owned_[best].number;
    for (--n_owned_; best < n_owned_; ++best) owned_[best] = owned_[best + 1];
    return number;
  }
  // A message of `bytes` bytes that lay there has been read.
  void give(uint32_t number, size_t bytes) noexcept {
    owned_[n_owned_++] = {bytes, number};
    if (fits(tried_bytes_, bytes)) tried_bytes_ = 0;
  }

  std::byte* at(uint32_t number) const noexcept {
    return number < places_ ? out_ + number * place_bytes_ : in_ + (number - places_) * place_bytes_;
  }
  // What the peer calls `number`: its outgoing FIFO is the incoming one here.
  uint32_t here(uint32_t number) const noexcept { return number < places_ ? number + places_ : number - places_; }

 private:
  struct Owned {
    size_t filled;
    uint32_t number;
  };
  // A little more than was filled is cheaper there than by the ring; so is what is small.
  static bool fits(size_t bytes, size_t filled) noexcept { return bytes <= filled + std::max(filled / 16, fits_anywhere_bytes); }
  static constexpr size_t fits_anywhere_bytes = 4096;

  // A place for a message that fits into none, if one is to be tried.
  uint32_t to_be_tried(size_t bytes) noexcept {
    if (n_owned_ == 0 || (fits(bytes, tried_bytes_) && ++misses_ < misses_max)) return none;
    tried_bytes_ = bytes;
    misses_ = 0;
    uint32_t best = 0;
    for (uint32_t i = 1; i < n_owned_; ++i)
      if (owned_[i].filled >= owned_[best].filled) best = i;
    return best;
  }

  std::byte *out_, *in_;
  size_t place_bytes_;
  uint32_t places_, n_owned_ = 0;
  std::array<Owned, 2 * shm_traded_places> owned_{};
  static constexpr uint32_t misses_max = 32;
  size_t tried_bytes_ = 0;  // of the last message that was tried; 0: the peer's next one was as long
  uint32_t misses_ = 0;     // messages that fitted into none since
};

}  // namespace tutti
