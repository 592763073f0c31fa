// How a line is published: what sending a message and lending one have in common.
#pragma once

#include <cstring>
#include <utility>

#include "base/cpu.h"
#include "transport/shm/shm_endpoint.h"

namespace tutti {

// Small messages in one direction, from a rank that is ahead: each line crosses from one core to the other and back, which
// takes longer than a call, so both sides have the next lines on their way. (Measured, Zen 4, 2 ranks far from each other,
// broadcasts of 8 B: 0.16 µs each without, 0.05 with it; one side alone gains nothing, the other one then waits as long.)
// The receiver's distance is the longer one: a line that it fetches before it is written is fetched twice.
inline constexpr uint32_t lines_ahead_to_write = 2, lines_ahead_to_read = 8;

inline ShmPut put_of(const ShmLine& line) noexcept {
  ShmPut put;
  std::memcpy(&put, line.payload, sizeof put);
  return put;
}

inline void ShmEndpoint::publish(ShmLine& line, size_t bytes, uint64_t signature) noexcept {
  line.bytes = uint32_t(bytes);
  line.signature = signature;
  line.consumed = received_;
  ++sent_;
  line.sequence.store(sent_, std::memory_order_release);  // pairs with the load in arrived
  // Not one that the receiver may be about to read.
  if (sent_limit_ - sent_ > lines_ahead_to_write) fetch_to_write(&out_lines_[(sent_ + lines_ahead_to_write) & mask_]);
  if (bytes > shm_flag_bytes_max && bytes <= shm_inline_bytes_max) fetch_past_flag_to_write();
  wake_peer();
}

// What a message writes past its flag's cache line, where messages go in this direction only: of ranks that answer each other
// the line would be fetched from one who still reads.
inline void ShmEndpoint::fetch_past_flag_to_write() noexcept {
  if (std::exchange(received_when_sent_, received_) != received_) return;
  if (sent_limit_ - sent_ > lines_ahead_to_write)
    fetch_to_write(out_lines_[(sent_ + lines_ahead_to_write) & mask_].payload + shm_flag_bytes_max);
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
  if (look_after_store(peer_header_->sleeping) == 0) [[likely]] return;
  ring_peer();
}

}  // namespace tutti
