// A rank's outbox on one channel: where one message to several peers of the host lies once, and all of them read it.
//
// A ring in the sender's own inbox file, which every peer maps. Each of them finds the message's line in its FIFO as usual,
// and the place in the line. The place is used again once all of them have consumed the message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/shm/shm_bulk.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/shm/shm_ways.h"
#include "transport/shm/shm_writes.h"
#include "transport/transport.h"

namespace tutti {

// Data path.
class ShmOutbox final : public Outbox {
 public:
  // What is used again and again: see ShmBulk.
  struct Laps {
    size_t bytes;
    size_t large_bytes;  // no more than that, for messages of large_bytes_min or more
  };
  static constexpr size_t large_bytes_min = 32 * 1024;
  // Where ranks share cores: what an exchange sends to each, as long as all of it fits the first cache. (Measured, Xeon, 2 cores,
  // all_reduce of 1, 2, 4, 8 KiB among 4 ranks 0.79, 0.75, 0.83, 0.85 of the time, of 1, 2, 4 KiB among 8 0.86, 0.92, 0.92, of 8 KiB 1.08 and 1.17.)
  static constexpr size_t sent_to_each_bytes_max = 32 * 1024;

  // Of `ranks` ranks, of which `members` are of this host. `memory` outlives it.
  // crowded: these share cores.
  ShmOutbox(std::span<std::byte> memory, const Laps& laps, size_t message_bytes_max, size_t own_cache_bytes, size_t ranks,
            size_t members, bool crowded = false);

  // The endpoint outlives what is sent.
  void add(int peer, ShmEndpoint& endpoint) { endpoints_[size_t(peer)] = &endpoint; }

  Place reserve(size_t bytes, std::span<const uint32_t> peers) noexcept override;
  void write(const std::byte* data, size_t bytes) noexcept override {
    std::byte* const place = memory_.data() + reserved_;
    if (has_ways_ && bytes >= ShmWays::bytes_min && bytes <= ShmWays::bytes_max) ways_.write(place, data, bytes);
    else writes_.write(place, data, bytes);
  }
  Store store(size_t bytes) const noexcept override { return writes_.store(bytes); }
  void commit(size_t bytes, uint64_t signature) noexcept override;
  size_t exchanged_bytes_min(size_t receivers) const noexcept override {
    return crowded_ ? std::max(exchanged_outbox_bytes_min, sent_to_each_bytes_max / receivers) : exchanged_outbox_bytes_min;
  }

 private:
  static constexpr uint32_t messages_max = 256;  // under way; lines may allow fewer

  // Who was sent a message, and its number there.
  struct Receiver {
    uint32_t peer, number;
  };
  struct Message {
    uint32_t receivers, consumed_by;  // the first so many of them
  };
  Message& message(uint32_t number) noexcept { return messages_[number % messages_max]; }
  std::span<Receiver> receivers(uint32_t number) noexcept {
    return {receivers_.data() + number % messages_max * members_, message(number).receivers};
  }
  Place wait_for(uint32_t peer) noexcept;
  bool is_read(uint32_t number, bool looks) noexcept;
  void forget_read(bool looks) noexcept;
  size_t place(size_t bytes) const noexcept {
    return ring_.place(bytes, writes_.gap(bytes), bytes < large_bytes_min ? ShmBulk::npos : large_lap_bytes_);
  }

  std::span<std::byte> memory_;
  size_t message_bytes_max_, members_, large_lap_bytes_;
  bool crowded_;
  ShmBulk ring_;
  ShmWrites writes_;
  const bool has_ways_ = copies_at_a_stretch();
  ShmWays ways_;
  std::vector<ShmEndpoint*> endpoints_;  // of ranks of this host
  std::vector<Message> messages_;
  std::vector<Receiver> receivers_;  // [message][member]
  uint32_t sent_ = 0, read_ = 0;     // messages; read by all
  size_t reserved_ = 0;
  std::span<const uint32_t> peers_;  // for whom
};

}  // namespace tutti
