// How ranks of one host hand each other their inboxes: abstract Unix sockets, and a proof of the job's key first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "bootstrap/bootstrap.h"

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

// What a rank gives to each peer: descriptors of its inbox, of its doorbell and of its mailbox.
struct ShmGift {
  Fd inbox;
  Fd doorbell;
  Fd mailbox;
};

struct ShmHandshake {
  const Key& key;
  int rank;
  int inbox_fd;
  int doorbell_fd;
  int mailbox_fd;
  TimeNs deadline;
  std::function<void()> check;  // called several times a second; throws to end the handshake
};

// Tries to reach every candidate, and serves those who reach this rank, in one poll loop. Returns a gift per candidate;
// without inbox where one of the two could not reach the other. Ends when all are served that will come: every
// candidate that is reached says whether it reached this rank. The listener closes with it, so that nobody waits for a
// rank that has ended. Throws Error(system_error, timeout).
std::vector<ShmGift> exchange_inboxes(ShmListener listener, std::span<const ShmCandidate> candidates,
                                      const ShmHandshake& handshake);

// Bytes that are read from a peer before it has proven the key.
inline constexpr size_t shm_unproven_bytes_max = 52;

}  // namespace tutti
