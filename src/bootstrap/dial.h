// Connects to one listener of the job by trying all its addresses at once; the first that proves itself wins.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/handshake.h"

namespace tutti {

struct DialOptions {
  TimeNs deadline = 0;
  // Gives up once every address has refused for so long, at once where some are a stranger's and all others refuse;
  // < 0: tries until the deadline.
  TimeNs hopeless_ns = -1;
  System* system = nullptr;
  std::function<bool()> stop;  // looked at about every 20 ms; may be empty
};

struct DialResult {
  enum class Kind : uint8_t {
    connected,
    refused,        // nobody listens at any address
    stranger,       // somebody listens, who does not know the key
    other_version,  // proven, both ways; see version and address
    timeout,
    stopped,
    system          // no socket could be made: error_number
  };
  Kind kind = Kind::timeout;
  Fd fd;  // of connected: non-blocking, hello sent
  uint32_t version = 0;
  int error_number = 0;
  std::string address;  // which connected, or was of another version
  std::string detail;   // what each address did last: "192.0.2.1:4000 Connection refused; …"
};

// Blocks. Addresses that fail are tried again, with growing pauses.
DialResult dial(std::span<const JobId::Address> addresses, const Secret& secret, const Hello& hello,
                const DialOptions& options);

}  // namespace tutti
