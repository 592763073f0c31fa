// What verbs ranks write to each other: headers in rings, immediate data, and frames on the connection beside the
// paths.
#pragma once

#include <array>
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
  uint32_t targets;   // of the receiver's that the sender has taken note of
  uint32_t unused;
};
static_assert(sizeof(VerbsHeader) == 32);
inline constexpr size_t verbs_header_at = verbs_unit_bytes - sizeof(VerbsHeader);

// Immediate data: where a message lies, in units; or, with this bit, how many messages were consumed (31 bits of it).
inline constexpr uint32_t verbs_credit_bit = 0x8000'0000;
// Or that a path is being probed.
inline constexpr uint32_t verbs_probe = 0x7fff'ffff;
// Or, with this bit, that a message lies in its target: its number (29 bits of it). Or, with the next one, that a target
// was written to this place among those that the sender of messages keeps.
inline constexpr uint32_t verbs_direct_bit = 0x4000'0000, verbs_target_bit = 0x2000'0000;
inline constexpr uint32_t verbs_low_bits = verbs_target_bit - 1;
// Places in a ring are less than that.
inline constexpr size_t verbs_ring_bytes_limit = size_t{verbs_target_bit} * verbs_unit_bytes;

// Where messages that are still to come may be written to at once: numbers first, first + every, … The k-th goes to
// address + k × stride. It says size and signature, so such a message needs no header. The receiver writes it into the
// sender's memory.
inline constexpr size_t verbs_target_paths_max = 4;
struct VerbsTarget {
  uint32_t number;    // of the target, from 1
  uint32_t first, every, count;
  uint64_t address, stride, bytes, signature;
  std::array<uint32_t, verbs_target_paths_max> keys;  // by path
};
static_assert(sizeof(VerbsTarget) == 64);
inline constexpr uint32_t verbs_targets_max = 4;  // per endpoint, at a time
inline constexpr size_t verbs_targets_bytes = verbs_targets_max * sizeof(VerbsTarget);

// On the TCP connection that stands beside the paths of a pair and channel.
struct VerbsFrame {
  enum Kind : uint32_t {
    message = 1,  // `bytes` bytes follow, for the ring: header and payload, as a path would have written them there
    credit,       // immediate: as on a path
    path_down     // immediate: the path's number, and from bit 8 why. Its queue pair is stopped here, and what it brought is
                  // taken in
  };
  uint32_t kind;
  uint32_t immediate;
  uint64_t bytes;
};
static_assert(sizeof(VerbsFrame) == 16);

}  // namespace tutti
