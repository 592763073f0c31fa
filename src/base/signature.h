// What a rank is calling, in 64 bits that travel with every message, so that mismatched calls are seen at once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/types.h"

namespace tutti {

// Those that end in _v have blocks of sizes of their own (tutti.h: v-forms).
enum class Collective : uint8_t {
  none = 0, all_reduce, broadcast, barrier, send_recv, reduce, all_gather, reduce_scatter, gather, scatter, all_to_all,
  all_gather_v, reduce_scatter_v, gather_v, scatter_v, all_to_all_v, scan, exscan
};

// As tutti.h and TUTTI_ALGO name them; the index is the value.
inline constexpr std::array<std::string_view, 18> collective_names = {
    "none",       "all_reduce",     "broadcast",    "barrier",          "send_recv", "reduce",
    "all_gather", "reduce_scatter", "gather",       "scatter",          "all_to_all",
    "all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v",        "all_to_all_v",
    "scan",         "exscan"};

constexpr std::string_view name(Collective collective) {
  return size_t(collective) < collective_names.size() ? collective_names[size_t(collective)] : collective_names[0];
}
constexpr std::optional<Collective> collective_named(std::string_view wanted) {
  for (size_t i = 1; i < collective_names.size(); ++i)
    if (collective_names[i] == wanted) return Collective(i);
  return std::nullopt;
}

// One call as its caller made it. Type and operator are 0 where the kind has none. For send_recv, root is 0. The count
// is the argument: where each rank has a block, the elements of one block. Of v-forms: where all ranks know all sizes,
// checksum() of them; else, in a message, the size of the block that it is of, and in a record what the rank has to
// send. opaque_bytes is the size of an element of type opaque, else 0.
struct Call {
  Collective kind = Collective::none;
  DataType type = DataType::int8;
  ReduceOp op = ReduceOp::sum;
  uint32_t root = 0;
  uint64_t count = 0;
  uint16_t opaque_bytes = 0;

  friend constexpr bool operator==(const Call&, const Call&) = default;
};

// What the bits of a result may depend on; the values are those of tuttiDeterminism_t, plus 1.
enum class Determinism : uint8_t { as_communicator = 0, bitwise, strict, invariant };
inline constexpr std::array<std::string_view, 4> determinism_names = {"the communicator's", "bitwise", "strict",
                                                                      "invariant"};
constexpr std::string_view name(Determinism determinism) { return determinism_names[size_t(determinism)]; }

// What a caller asks of one call beyond what it is; the same on all ranks.
struct Terms {
  Determinism determinism = Determinism::as_communicator;
  uint8_t algorithm = 0;  // its number among those of its collective, from 1; 0: none is asked for
  uint16_t inputs = 1;    // vectors that each rank gives

  friend constexpr bool operator==(const Terms&, const Terms&) = default;
};

constexpr size_t element_bytes(const Call& call) {
  return call.type == DataType::opaque ? call.opaque_bytes : element_bytes(call.type);
}

inline constexpr uint32_t signature_root_max = (1u << 16) - 1;
inline constexpr uint64_t signature_count_max = (uint64_t{1} << 34) - 1;
// Of opaque elements, whose size takes the other bits.
inline constexpr uint64_t signature_opaque_count_max = (uint64_t{1} << 21) - 1;
inline constexpr uint64_t signature_opaque_bytes_max = (uint64_t{1} << 13) - 1;
static_assert(opaque_bytes_max <= signature_opaque_bytes_max);

inline constexpr unsigned signature_count_at = 30;  // its lowest bit, of calls without terms

// Calls with terms have this in the type's place, and their type further up.
inline constexpr uint64_t signature_with_terms = 31;
static_assert(data_type_count <= signature_with_terms);
inline constexpr uint32_t signature_algorithm_max = (1u << 6) - 1;
inline constexpr uint32_t signature_inputs_max = (1u << 12) - 1;

// Whether calls of this kind differ in their root.
constexpr bool has_root(Collective kind) {
  return kind == Collective::broadcast || kind == Collective::reduce || kind == Collective::gather ||
         kind == Collective::scatter || kind == Collective::gather_v || kind == Collective::scatter_v;
}

// Whether only the two ranks that a block goes between know its size.
constexpr bool is_of_pairs(Collective kind) {
  return kind >= Collective::gather_v && kind <= Collective::all_to_all_v;
}

// Writes, or reads, numbers one after the other from the lowest bit on. What is beyond the last bit reads as 0: a
// signature from elsewhere may be anything.
struct SignatureBits {
  uint64_t bits = 0;
  unsigned used = 0;

  constexpr void put(uint64_t value, unsigned width) {
    bits |= (value & ((uint64_t{1} << width) - 1)) << used;
    used += width;
  }
  constexpr uint64_t take(unsigned width) {
    if (used == 64 || width > left()) {
      used = 64;
      return 0;
    }
    const uint64_t value = bits >> used & ((uint64_t{1} << width) - 1);
    used += width;
    return value;
  }
  constexpr unsigned left() const { return 64 - used; }
};

// kind 5 bits, type 5, operator 4, root 16, count 34: exact up to 2^34 elements, so the other side's call can be shown
// from the signature alone. Larger counts keep their low 34 bits. Of opaque elements: count 21, their size 13. A change
// of this is a change of the protocol (protocol_version in bootstrap.h).
constexpr uint64_t pack(const Call& call) {
  const uint64_t count = call.type == DataType::opaque
                             ? (call.count & signature_opaque_count_max) | uint64_t{call.opaque_bytes} << 21
                             : call.count & signature_count_max;
  return uint64_t(call.kind) | uint64_t(call.type) << 5 | uint64_t(call.op) << 10 |
         uint64_t(call.root & signature_root_max) << 14 | count << signature_count_at;
}

// With terms: kind 5 bits, the mark 5, operator 4, type 5, determinism 2, algorithm 6, whether there are several inputs
// 1, then what there is of root 16, and inputs 12 or element size 13 (no opaque type has several inputs); the rest, from
// 7 to 36 bits, is the count's.
constexpr uint64_t pack(const Call& call, const Terms& terms) {
  if (terms == Terms{}) return pack(call);
  SignatureBits to;
  to.put(uint64_t(call.kind), 5);
  to.put(signature_with_terms, 5);
  to.put(uint64_t(call.op), 4);
  to.put(uint64_t(call.type), 5);
  to.put(uint64_t(terms.determinism), 2);
  to.put(terms.algorithm, 6);
  to.put(terms.inputs != 1, 1);
  if (has_root(call.kind)) to.put(call.root, 16);
  if (terms.inputs != 1) to.put(terms.inputs, 12);
  else if (call.type == DataType::opaque) to.put(call.opaque_bytes, 13);
  to.put(call.count, to.left());
  return to.bits;
}

struct CallWithTerms {
  Call call;
  Terms terms;
};

constexpr CallWithTerms unpack_with_terms(uint64_t signature) {
  SignatureBits from{signature};
  CallWithTerms result;
  Call& call = result.call;
  call.kind = Collective(from.take(5));
  call.type = DataType(from.take(5));
  call.op = ReduceOp(from.take(4));
  if (uint64_t(call.type) == signature_with_terms) {
    call.type = DataType(from.take(5));
    result.terms.determinism = Determinism(from.take(2));
    result.terms.algorithm = uint8_t(from.take(6));
    const bool several = from.take(1) != 0;
    if (has_root(call.kind)) call.root = uint32_t(from.take(16));
    if (several) result.terms.inputs = uint16_t(from.take(12));
    else if (call.type == DataType::opaque) call.opaque_bytes = uint16_t(from.take(13));
    call.count = from.take(from.left());
    return result;
  }
  call.root = uint32_t(from.take(16));
  call.count = signature >> signature_count_at;
  if (call.type == DataType::opaque) {
    call.opaque_bytes = uint16_t(call.count >> 21);
    call.count &= signature_opaque_count_max;
  }
  return result;
}
constexpr Call unpack(uint64_t signature) { return unpack_with_terms(signature).call; }

// The same call with another count.
constexpr uint64_t with_count(uint64_t signature, uint64_t count) {
  const uint64_t type = signature >> 5 & 31;
  if (type != signature_with_terms && type != uint64_t(DataType::opaque)) [[likely]]
    return (signature & ((uint64_t{1} << signature_count_at) - 1)) | (count & signature_count_max) << signature_count_at;
  CallWithTerms seen = unpack_with_terms(signature);
  seen.call.count = count;
  return pack(seen.call, seen.terms);
}

constexpr Collective kind_of(uint64_t signature) { return Collective(signature & 31); }
constexpr bool is_collective(uint64_t signature) {
  return kind_of(signature) != Collective::none && kind_of(signature) != Collective::send_recv;
}
// Whether the records of two ranks may be of one collective call: what each of them has to send may differ where only pairs
// know of it.
constexpr bool match(uint64_t a, uint64_t b) {
  return a == b || (kind_of(a) == kind_of(b) && is_of_pairs(kind_of(a)) && with_count(a, 0) == with_count(b, 0));
}

// Of the sizes of all blocks: other sizes, or the same ones in another order, give another number but by a chance of one
// in 2^34 (2^21 where elements are opaque).
constexpr uint64_t checksum(std::span<const size_t> sizes) {
  uint64_t sum = sizes.size();
  for (const size_t size : sizes) {
    sum = (sum ^ size) * 0x9e3779b97f4a7c15ull;
    sum ^= sum >> 29;
  }
  return sum & signature_count_max;
}

// A type's name; of opaque elements their size.
std::string describe(DataType type, size_t opaque_bytes);

// As a caller would write it: "all_reduce(count 1024, float32, sum)", "broadcast(count 8, int8, root 2)". With terms:
// "all_reduce(count 1024, float32, sum, strict)". `algorithm` is the name that stands for the terms' number.
std::string describe(const Call& call);
std::string describe(const Call& call, const Terms& terms, std::string_view algorithm = {});
// Of a signature; algorithms by their numbers.
std::string describe_signature(uint64_t signature);

}  // namespace tutti
