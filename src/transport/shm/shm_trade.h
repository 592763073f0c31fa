// Places for large messages that change hands: who has received a message owns the place where it lies, and puts its own
// next message to the same peer there.
//
// What a rank has just read is in its core's own cache, on Zen 4, it seems, as the only copy. Writing there again costs
// least; writing anywhere else means fetching lines from the other core or from the last cache first, and the old sender,
// if the place were its own again, would have to fetch them from the receiver. Where ranks exchange messages (all but
// broadcasts and the like), every message so finds a place in its sender's cache. (Measured, Zen 4, 2 ranks, 64 KiB each way:
// 1.2 µs to write where it was 1.7, reading as before.)
//
// A place is owned by one side at a time, or under way. Nobody waits for one: a sender that owns none uses its FIFO's ring.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

// Each side owns so many at first; a call sends at most two messages before it receives the peer's, where it matters.
inline constexpr uint32_t shm_traded_places = 2;

// Data path: one side's view. Places are numbered from 0: first those that lie in the FIFO that this side writes.
class ShmTrade {
 public:
  // Each FIFO of the pair has `places` (at most shm_traded_places) of place_bytes bytes.
  ShmTrade(std::byte* out, std::byte* in, size_t place_bytes, uint32_t places) noexcept
      : out_(out), in_(in), place_bytes_(place_bytes), places_(places) {
    for (uint32_t i = places; i > 0; --i) give(i - 1);
  }

  bool owns_any() const noexcept { return n_owned_ > 0; }
  // For a message: the place that was received last, whose lines are the most likely to be near. It is owned no more.
  uint32_t take() noexcept { return owned_[--n_owned_]; }
  // A message that lay there has been read.
  void give(uint32_t number) noexcept { owned_[n_owned_++] = uint8_t(number); }

  std::byte* at(uint32_t number) const noexcept {
    return number < places_ ? out_ + number * place_bytes_ : in_ + (number - places_) * place_bytes_;
  }
  // What the peer calls `number`: its outgoing FIFO is the incoming one here.
  uint32_t here(uint32_t number) const noexcept { return number < places_ ? number + places_ : number - places_; }

 private:
  std::byte *out_, *in_;
  size_t place_bytes_;
  uint32_t places_, n_owned_ = 0;
  std::array<uint8_t, 2 * shm_traded_places> owned_{};
};

}  // namespace tutti
