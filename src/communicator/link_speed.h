// How fast bytes come from one host to another: asked of the link itself, because what an interface says of its speed is
// often not true (virtual ones) or not all (what limits it lies further on).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "transport/transport.h"

namespace tutti {

// One rank's part: it sends to one host's rank and receives from another's, both at once, as rings and exchanges do: 1 MiB,
// or what it could hand to the transport in 20 ms (at 100 Mbit/s still all of it, which takes 90 ms to arrive). Both ends'
// endpoints are then as before.
class LinkSpeed {
 public:
  // The endpoints outlive it. message_bytes: the same on all ranks, at most what the transport takes.
  LinkSpeed(Endpoint& out, Endpoint& in, size_t message_bytes);

  // Moves what can move. done: both directions are through. Data path.
  Status step() noexcept;
  // Changes when something has moved.
  uint64_t position() const noexcept { return uint64_t(sent_ + received_) + bytes_sent_ + bytes_received_; }

  // What came in, after the first burst, which queues on the way let pass faster; rounded to a power of the square root
  // of 2, so that two runs mostly find the same. 0: too little or too fast to say.
  uint64_t bits_per_s() const noexcept;

 private:
  Status send() noexcept;
  Status receive() noexcept;

  Endpoint& out_;
  Endpoint& in_;
  std::vector<std::byte> outgoing_, incoming_;  // the first byte: whether it is the last message
  TimeNs started_at_ = 0;
  int sent_ = 0, received_ = 0;
  size_t bytes_sent_ = 0, bytes_received_ = 0;  // of the current message
  bool all_sent_ = false, all_received_ = false;
  TimeNs burst_over_at_ = 0, over_at_ = 0;
};

}  // namespace tutti
