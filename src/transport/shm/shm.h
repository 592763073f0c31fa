// The shared-memory transport: messages between ranks of one host, with no system call unless a peer sleeps.
//
// Every rank makes one memfd, its inbox, that holds a FIFO for each local peer and channel, and passes it to those
// peers over an abstract Unix socket once they have proven the job's key. Nothing is named in the file system, so
// nothing is left behind whatever kills a rank, and no limit on /dev/shm applies. The death of a peer is not seen here.
#pragma once

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "bootstrap/bootstrap.h"
#include "transport/doorbell.h"
#include "transport/transport.h"

namespace tutti {

struct ShmOptions {
  int channels = 1;                // the same on all ranks
  size_t slot_bytes = 256 * 1024;  // of one message at most; a multiple of 4096; the least of all ranks holds
  int slots = 4;                   // per FIFO, so many of the largest messages at least; the least of all ranks holds
  size_t own_cache_bytes = 1 << 20;    // of the largest cache that a core has to itself: see shm_lap_bytes
  size_t last_cache_bytes = 32 << 20;  // of the last cache, which cores share
  TimeNs timeout_ns = 300 * ns_per_s;  // of the connecting
  bool membarrier = true;          // false: as on a kernel without it; publishing costs a locked instruction then
  bool lends = true;               // false: what is lent by this rank is copied
  bool lends_private = true;       // false: so is what lies in its private memory
  bool trades = true;              // false: no place changes hands (see shm_trade.h)
  bool one_process = true;         // false: ranks of one process lend to each other as those of different ones do
  Doorbell* doorbell = nullptr;    // outlives the transport; null: it has one of its own
  WhyNotReached* why_not = nullptr;  // one for each rank, to be filled in; null: nobody asks
};

inline constexpr int shm_slots_min = 3, shm_slots_max = 64;
inline constexpr size_t shm_slot_bytes_min = 4096;
inline constexpr size_t shm_slot_bytes_max = size_t{1} << 29;
// Shared memory of all ranks of one host together, if every FIFO is used. Where many ranks share a host, FIFOs get fewer
// places that change hands and three slots, and then smaller ones (down to 16 KiB), to keep to it. Outboxes are small beside
// them, and not counted. Memory that no message has touched costs nothing.
inline constexpr size_t shm_host_bytes_max = size_t{1} << 30;

// Of a FIFO's memory for large messages, the bytes that are used again and again, while its receiver keeps up. `members`:
// ranks of the host; crowded: more than there are cores for them.
//
// What a rank has read stays in its core's own cache, and whoever overwrites it must first have it dropped there, line by
// line: on Zen 4 at 9 GB/s, where lines that have gone on to the last cache are overwritten at 40. So a rank's FIFOs
// together go round twice its own cache, yet leave half of the last one to other memory. Ranks that share a core share its
// own cache too, and there the less the better. (Measured, 4 ranks on 2 cores: 1 MiB a FIFO takes 1.6 times as long as
// 128 KiB; 32 KiB a rank hold back a sender that is a little ahead.)
size_t shm_lap_bytes(size_t members, bool crowded, const ShmOptions& options) noexcept;

// The same for a long input: twice a core's own cache for each FIFO. Messages from one rank to another use one of them, and where
// a collective uses all at once inputs of that length gain nothing and lose nothing. (Measured, Zen 4, near, 4 ranks on 2 cores:
// messages of 16 and 64 MiB from rank to rank take 0.76 and 0.55 of the time.)
size_t shm_long_lap_bytes(size_t members, bool crowded, const ShmOptions& options) noexcept;

// Messages by which each of so many ranks sends every other one of its own: what they lie in, two messages a FIFO, shall
// leave most of the last cache to the ranks' buffers. A power of two, from 32 KiB on. (Measured, 8 ranks on a last cache of
// 32 MiB: with messages of 64 KiB, all_to_all of 4 MiB takes 0.63 of the time that it takes with 256 KiB; 4 ranks mostly
// lose by less than 256.)
size_t shm_spread_bytes_max(size_t members, const ShmOptions& options) noexcept;

// slot_bytes as TUTTI_SHM_SLOT_BYTES says, lends and lends_private as TUTTI_LEND; private memory is not lent by itself where the kernel
// copies slowly. Throws Error(invalid_usage).
ShmOptions shm_options_from_environment();

// Collective over all ranks of the bootstrap. Peers that share this rank's host are found by trying: those behind a
// border of network namespaces have endpoint() == nullptr, on both sides. message_bytes_max() is equal on all ranks.
// Throws Error, the same on all ranks: invalid_usage (different channels), invalid_argument (an option out of range),
// system_error (no memfd, too few descriptors, no address space: says which rank and the remedy), timeout.
std::unique_ptr<Transport> make_shm(Bootstrap& bootstrap, const ShmOptions& options);

}  // namespace tutti
