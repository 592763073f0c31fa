// The TCP transport: one connection per pair of ranks and channel, messages framed by a header.
//
// Each message is 16 bytes of header (bytes, signature; little-endian) and its payload. It is written straight from the
// caller's memory and read straight into it where the caller asks in time. What arrives unasked is read ahead into two
// slots per endpoint, so each FIFO takes two whole messages whatever the kernel's buffers are: two ranks that send to
// each other at once both get on, as long as both keep calling progress() (or their endpoints).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "bootstrap/bootstrap.h"
#include "transport/transport.h"

namespace tutti {

struct TcpOptions {
  int channels = 1;
  // Of every rank, whether TCP reaches it from here. Symmetric: both ranks of a pair say the same. The own entry is
  // ignored.
  std::vector<bool> peers;
  // 0: TUTTI_TCP_MESSAGE_BYTES; at least 64. The ranks agree on the least. With its header a message of 255 KiB, the default,
  // fills four segments of the loopback interface (65483 bytes each). With one of 256 KiB, a fifth segment carried 228 bytes,
  // and broadcasts of 1 MiB took 1.1 to 1.4 times as long.
  size_t message_bytes_max = 0;
  // SO_SNDBUF and SO_RCVBUF; 0: the kernel sizes them, which measured fastest.
  int send_buffer_bytes = 0;
  int receive_buffer_bytes = 0;
};

// Connects to all peers wished for. Collective: every rank of the communicator calls it, also those with no such peer.
// Throws Error as Bootstrap::connect does; system_error where memory or descriptors do not suffice.
std::unique_ptr<Transport> make_tcp(Bootstrap& bootstrap, const TcpOptions& options);

// The same over sockets made elsewhere: sockets[channel * size + peer], none where invalid. options.peers is ignored
// and message_bytes_max must be the same on both ends.
std::unique_ptr<Transport> make_tcp_over(std::vector<Fd> sockets, int size, const TcpOptions& options);

}  // namespace tutti
