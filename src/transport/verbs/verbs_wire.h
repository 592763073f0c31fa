// What verbs ranks write to each other: headers in rings, immediate data, and frames on the connection beside the
// paths.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

// Places in a ring are multiples of this; a message takes one such unit for its header, and its payload begins with the
// next, so that it is aligned.
inline constexpr size_t verbs_unit_bytes = 64;

// The end of a message's first unit; its payload follows it.
struct VerbsHeader {
  uint64_t signature;
  uint64_t bytes;     // of the payload
  uint32_t number;    // of the message, from 1; wraps
  uint32_t consumed;  // messages of the other direction that the sender has consumed
  uint64_t unused;
};
static_assert(sizeof(VerbsHeader) == 32);
inline constexpr size_t verbs_header_at = verbs_unit_bytes - sizeof(VerbsHeader);

// Immediate data: where a message lies, in units; or, with this bit, how many messages were consumed (31 bits of it).
inline constexpr uint32_t verbs_credit_bit = 0x8000'0000;
// Or that a path is being probed.
inline constexpr uint32_t verbs_probe = 0x7fff'ffff;

// On the TCP connection that stands beside the paths of a pair and channel.
struct VerbsFrame {
  enum Kind : uint32_t {
    message = 1,  // `bytes` bytes follow, for the ring: header and payload, as a path would have written them there
    credit,       // immediate: as on a path
    path_down     // immediate: the path's number. Its queue pair is stopped here, and what it brought is taken in
  };
  uint32_t kind;
  uint32_t immediate;
  uint64_t bytes;
};
static_assert(sizeof(VerbsFrame) == 16);

}  // namespace tutti
