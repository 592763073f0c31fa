// What it costs the ranks of a communicator to reach each other: from their places, the transports that connect them,
// and a few constants of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "schedule/price.h"
#include "topology/topology.h"

namespace tutti {

// A message in shared memory of so many bytes rides beside its flag.
inline constexpr uint64_t shm_inline_bytes = 104;

// One of at least so many that goes to several ranks of a host lies there once.
inline constexpr uint64_t shm_shared_bytes = 128;

// A larger one leaves a second-level cache as it goes round the places of a FIFO. (A power of two that fits what
// pipelines of four ranks measured; see bench/choices.)
inline constexpr uint64_t shm_near_bytes = 64 << 10;

// Which transport connects a pair of ranks. Whether they share a cache, or a TCP connection stays on the host, follows
// from their places.
enum class LinkKind : uint8_t { self, shm, verbs, tcp };

// Constants of one machine, all in ns or ns per byte. The defaults are those of a common server. Rank 0's are
// broadcast, so that all ranks choose alike.
struct MachineCosts {
  double step_ns = 15;               // interpreting one step
  double copy_byte_ns = 0.04;        // copying one byte
  double near_copy_byte_ns = 0.02;   // the same where all of it stays in a second-level cache
  double reduce_byte_ns = 0.04;      // per input byte of a reduction
  double hop_ns = 100;               // until a cache line written on one core is read on another of the same cache
  double far_hop_ns = 200;           // the same without a shared cache
  double hand_over_ns = 1'000;       // until a rank that shares its core runs
  double shm_message_ns = 30;        // a message in shared memory, beside its bytes
  double tcp_message_ns = 4'000;     // the system call that sends a small message
  double tcp_receive_ns = 4'000;     // those that find and take it
  double verbs_message_ns = 300;     // handing a message to an RDMA device
  double verbs_receive_ns = 300;     // finding and taking one
  double verbs_latency_ns = 1'500;   // between
  double loopback_latency_ns = 3'000;
  double loopback_byte_ns = 0.4;
  double network_latency_ns = 15'000;  // between hosts
  double network_byte_ns = 0.8;        // where no link speed is known: 10 Gbit/s

  friend bool operator==(const MachineCosts&, const MachineCosts&) = default;
};

// One row per constant: what encode, decode and the tools go through.
struct MachineCostRow {
  std::string_view name;
  double MachineCosts::*value;
};
std::span<const MachineCostRow> machine_cost_rows();

std::vector<std::byte> encode(const MachineCosts& costs);
// Throws Error(invalid_argument) where the bytes are not these constants, or one is negative, not finite or absurd.
MachineCosts decode_machine_costs(std::span<const std::byte> bytes);

// Measures copy and reduce bandwidth, the hop between two allowed cores, the hand-over on one core, and TCP over the
// loopback; what cannot be measured here (one core, no loopback, a crowded machine) keeps its default, and nothing is taken for more
// than ten times off its default. Takes about budget_ms, longer only where others hold the cores.
// The calling thread's affinity is read, not changed; short-lived threads do the work. `host`, where not null, says
// which cores share a cache; else the first two allowed ones stand for a pair that does.
MachineCosts calibrate(int budget_ms = 25, const Host* host = nullptr);

// The model for n = places.size() ranks. Place::host tells machines apart, whose ranks share cores, even where no memory
// connects them (containers). links[from * n + to]; the diagonal is not read. Throws
// Error(invalid_argument) where links is not n × n.
CostModel cost_model(std::span<const Place> places, std::span<const LinkKind> links, const MachineCosts& costs);

// Whether two ranks may run on the same core.
bool may_meet(const Place& a, const Place& b);

// Ranks per core where ranks are most crowded; at least 1.
double contention_of(std::span<const Place> places);

// For every rank, of those that are bound to its core, as it is to no other, the lowest one; its own number where it is bound to no
// single core. Empty where no two ranks are bound to one core.
std::vector<int> shared_cores_of(std::span<const Place> places);

}  // namespace tutti
