// How ranks of one host hand each other their memory: descriptors over abstract Unix sockets, and a proof of the job's
// key first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "bootstrap/bootstrap.h"
#include "transport/shm/shm_packet.h"

namespace tutti {

// Names an abstract socket. No secret.
using ShmToken = std::array<unsigned char, 16>;

// Where a rank can be reached by those who share its network namespace.
struct ShmListener {
  Fd fd;
  ShmToken token{};
};
// Throws Error(system_error).
ShmListener open_shm_listener();

struct ShmCandidate {
  int rank;
  ShmToken token;
};

// What a rank gives to each peer: 1 to shm_packet_fds_max descriptors.
using ShmGift = std::vector<Fd>;

struct ShmHandshake {
  const Key& key;
  int rank;
  std::span<const int> gift;  // to each peer
  TimeNs deadline;
  std::function<void()> check;  // called several times a second; throws to end the handshake
};

// Tries to reach every candidate, and serves those who reach this rank, in one poll loop. Returns a gift per candidate;
// an empty one where one of the two could not reach the other. Ends when all are served that will come: every
// candidate that is reached says whether it reached this rank. The listener closes with it, so that nobody waits for a
// rank that has ended. Throws Error(system_error, timeout).
std::vector<ShmGift> exchange_gifts(ShmListener listener, std::span<const ShmCandidate> candidates,
                                    const ShmHandshake& handshake);

// Bytes that are read from a peer before it has proven the key.
inline constexpr size_t shm_unproven_bytes_max = 52;

}  // namespace tutti
