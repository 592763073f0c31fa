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
  int slots = 4;                   // per FIFO, so many of the largest messages; the least of all ranks holds
  TimeNs timeout_ns = 300 * ns_per_s;  // of the connecting
  bool membarrier = true;          // false: as on a kernel without it; publishing costs a locked instruction then
  bool lends = true;               // false: what is lent by this rank is copied
  bool one_process = true;         // false: ranks of one process lend to each other as those of different ones do
  Doorbell* doorbell = nullptr;    // outlives the transport; null: it has one of its own
};

inline constexpr int shm_slots_min = 3, shm_slots_max = 64;
inline constexpr size_t shm_slot_bytes_min = 4096;
inline constexpr size_t shm_slot_bytes_max = size_t{1} << 30;
// Shared memory of all ranks of one host together, if every FIFO is used. Where many ranks share a host, FIFOs get three
// slots, and then smaller ones (down to 16 KiB), to keep to it. Memory that no message has touched costs nothing.
inline constexpr size_t shm_host_bytes_max = size_t{1} << 30;

// slot_bytes as TUTTI_SHM_SLOT_BYTES says, lends as TUTTI_LEND. Throws Error(invalid_usage).
ShmOptions shm_options_from_environment();

// Collective over all ranks of the bootstrap. Peers that share this rank's host are found by trying: those behind a
// border of network namespaces have endpoint() == nullptr, on both sides. message_bytes_max() is equal on all ranks.
// Throws Error, the same on all ranks: invalid_usage (different channels), invalid_argument (an option out of range),
// system_error (no memfd, too few descriptors, no address space: says which rank and the remedy), timeout.
std::unique_ptr<Transport> make_shm(Bootstrap& bootstrap, const ShmOptions& options);

}  // namespace tutti
