// What a rank is calling, in 64 bits that travel with every message, so that mismatched calls are seen at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/types.h"

namespace tutti {

enum class Collective : uint8_t { none = 0, all_reduce, broadcast, barrier, send_recv };

// As tutti.h and TUTTI_ALGO name them.
constexpr std::string_view name(Collective collective) {
  switch (collective) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::broadcast: return "broadcast";
    case Collective::barrier: return "barrier";
    case Collective::send_recv: return "send_recv";
    case Collective::none: break;
  }
  return "none";
}
constexpr std::optional<Collective> collective_named(std::string_view wanted) {
  for (Collective c : {Collective::all_reduce, Collective::broadcast, Collective::barrier, Collective::send_recv})
    if (name(c) == wanted) return c;
  return std::nullopt;
}

// One call as its caller made it. Type and operator are 0 where the kind has none. For send_recv, root is 0.
struct Call {
  Collective kind = Collective::none;
  DataType type = DataType::int8;
  ReduceOp op = ReduceOp::sum;
  uint32_t root = 0;
  uint64_t count = 0;

  friend constexpr bool operator==(const Call&, const Call&) = default;
};

inline constexpr uint32_t signature_root_max = (1u << 16) - 1;
inline constexpr uint64_t signature_count_max = (uint64_t{1} << 35) - 1;

// kind 4 bits, type 5, operator 4, root 16, count 35: exact up to 2^35 elements, so the other side's call can be shown
// from the signature alone. Larger counts keep their low 35 bits.
constexpr uint64_t pack(const Call& call) {
  return uint64_t(call.kind) | uint64_t(call.type) << 4 | uint64_t(call.op) << 9 |
         uint64_t(call.root & signature_root_max) << 13 | (call.count & signature_count_max) << 29;
}

constexpr Call unpack(uint64_t signature) {
  Call call;
  call.kind = Collective(signature & 15);
  call.type = DataType(signature >> 4 & 31);
  call.op = ReduceOp(signature >> 9 & 15);
  call.root = uint32_t(signature >> 13 & signature_root_max);
  call.count = signature >> 29;
  return call;
}

// As a caller would write it: "all_reduce(count 1024, float32, sum)", "broadcast(count 8, int8, root 2)".
std::string describe(const Call& call);

}  // namespace tutti
