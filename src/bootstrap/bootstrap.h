// How ranks find each other, prove that they belong together, exchange small things, and learn of each other's end.
//
// Every rank keeps one listening socket and one control thread. The control links form a tree over the ranks; data
// connections for transports are made on request, over the same listener. Nothing but a nonce and a proof (under
// 64 bytes) is read from a peer that has not proven the job's key.
#pragma once

#include <algorithm>
#include <atomic>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "bootstrap/stuck_calls.h"

namespace tutti {

class System;

using Bytes = std::vector<std::byte>;
using Key = std::array<unsigned char, 32>;

// Two builds join one job only if these are equal; otherwise both say so.
inline constexpr uint32_t protocol_version = 24;

// What tuttiUniqueId holds: where to meet, and the key.
struct JobId {
  Key key{};
  // Addresses of the meeting place, all tried at once: 16-byte IPv6 or v4-mapped addresses.
  struct Address {
    std::array<unsigned char, 16> ip{};
    uint16_t port = 0;
    uint32_t scope = 0;
  };
  std::vector<Address> addresses;  // 1..address_max
  uint8_t port_count = 1;          // the meeting place is at one of the ports port .. port + port_count - 1

  static constexpr size_t address_max = 3;
};

// To and from the 128 bytes of tuttiUniqueId. decode throws Error(invalid_argument) where the bytes are no id
// (a magic, a version and a checksum are inside).
void encode(const JobId& id, std::span<char, 128> bytes);
JobId decode(std::span<const char, 128> bytes);

// Opens a meeting place in this process on a thread of its own, which ends when all ranks have joined or the deadline
// has passed. Throws Error(system_error), Error(invalid_usage) where interface_names leaves no interface.
//
// interface_names, here and below: "" for all interfaces; "eth0,ib*": those named ('*' at the end stands for anything);
// "^docker*,virbr0": all but those named.
JobId open_meeting_place(const std::string& interface_names, TimeNs deadline, System* system = nullptr);

// As above, where address, port and key are agreed beforehand (rank 0 of an environment rendezvous). A port that
// others hold is skipped: ports port .. port + meeting_ports - 1 are tried, by those who join as well. Listens on all
// interfaces: `address` is how others reach this host (a name, a forwarded address), which need not be one of its own;
// the key, not the address, keeps strangers out. Throws Error(system_error) where all those ports are held.
inline constexpr int meeting_ports = 16;
void open_meeting_place_at(const std::string& address, uint16_t port, const Key& key, TimeNs deadline,
                           System* system = nullptr);
// The id that others derive for it. Throws Error(invalid_usage) where `address` is no name or address of a host.
JobId agreed_meeting_place(const std::string& address, uint16_t port, const Key& key);
// A key from a text that the launcher gave to all ranks.
Key derive_key(const std::string& text);

// Why the communicator failed; the same on every survivor that learns of it.
struct Verdict {
  Code code = Code::success;
  int rank = -1;  // who is to blame, or -1
  std::string sentence;
};

// What a rank brings to something that all who live agree on.
struct Wish {
  int rank = -1;
  Bytes bytes;
};
// What the one that makes it knows: who lives, and at most two of their wishes, enough to see that there are several: those
// whose bytes come first in order, whoever voted first.
struct Ballot {
  std::vector<int> members;
  std::vector<Wish> wishes;
};

struct BootstrapOptions {
  std::string interface_names;         // as at open_meeting_place
  TimeNs timeout_ns = 300 * ns_per_s;  // of each blocking call here
  TimeNs silence_ns = 10 * ns_per_s;   // a rank whose process is silent for so long is given up
  uint32_t protocol_version = tutti::protocol_version;  // another only to test how versions meet
  System* system = nullptr;                             // null: the machine's (system.h)
};

// This rank's calls, for others' to be compared with. Called by the control thread too.
struct OwnCalls {
  // The signature of the collective call with a number, from 0, where it has begun and is known still.
  std::function<std::optional<uint64_t>(uint64_t number)> collective;
  std::function<std::string(uint64_t signature)> describe;  // empty: describe_signature()
};

// The silence to take where a call's deadline is timeout_ns: half of it, so that a stopped process is named as such before
// its peers' deadlines pass, and at most silence_ns. But a second at least, unless silence_ns is less: a process that a
// loaded machine does not run for a while is not dead.
constexpr TimeNs silence_within(TimeNs timeout_ns, TimeNs silence_ns) {
  return std::min(silence_ns, std::max(ns_per_s, timeout_ns / 2));
}

// Where a rank is: it may have left, or have vanished, nobody knows how; or have died, or been given up.
enum class Presence : uint8_t { here, left, died };
// Of a rank that is waited for in vain.
std::string gone_sentence(const std::string& name);
// Looked at now and then while ranks meet: why somebody who is awaited will not come, or "".
using GivesUp = std::function<std::string()>;

// Most bytes that one rank gives to one all_gather.
inline constexpr size_t gather_bytes_max = size_t{8} << 20;

class Bootstrap {
 public:
  // Joins and returns when all have. Throws Error: invalid_usage (a rank twice, different sizes, another version: both
  // are shown; another job's id), timeout (names the ranks that did not come), remote_error (a rank died or failed
  // while joining), system_error. An error of one rank is told to all that have come; what gives_up says is one, a
  // remote_error.
  static std::unique_ptr<Bootstrap> join(const JobId& id, int rank, int size, const BootstrapOptions& options,
                                         const Log& log, const GivesUp& gives_up = {});
  virtual ~Bootstrap() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const Key& key() const noexcept = 0;
  // "rank 3 (host a, pid 77)"
  virtual const std::string& describe(int rank) const noexcept = 0;

  // --- Set-up; collective, called by all ranks in the same order; blocking; one thread at a time; throw Error: the
  // verdict where there is one or comes. A rank that does not call within timeout_ns makes a verdict that names it.

  // Each rank's bytes, at most gather_bytes_max, by rank.
  virtual std::vector<Bytes> all_gather(std::span<const std::byte> mine) = 0;
  virtual void barrier() = 0;

  // Authenticated TCP connections, one per wish, in the order of the wishes. Both ranks of a pair wish for each
  // other with the same tag; all addresses of both are tried and what connects is used. The sockets are non-blocking,
  // close on exec, without Nagle's delay. Not collective: only the two of a pair must call, each within timeout_ns.
  struct Wish {
    int peer;
    uint32_t tag;
    bool although_failed = false;  // among those who live on after a verdict: not it, but the peer's end, ends the connecting
  };
  virtual std::vector<Fd> connect(std::span<const Wish> wishes) = 0;

  // --- Liveness; any thread.

  // Null while healthy. Once not null, it never changes.
  const Verdict* verdict() const noexcept { return verdict_cell().load(std::memory_order_acquire); }
  // As far as this rank knows. It knows of a death before it knows of those who leave because of it.
  virtual Presence presence(int rank) const noexcept = 0;
  bool has_gone(int rank) const noexcept { return presence(rank) != Presence::here; }
  // Where verdict() lies, for who looks often. Stored with release.
  virtual const std::atomic<const Verdict*>& verdict_cell() const noexcept = 0;
  // Makes `verdict` this communicator's end, unless it has one. Where several ranks find something at once, or some have
  // died, all who live end with one of their verdicts: waits for that, at most half of timeout_ns.
  virtual void fail(Verdict verdict) noexcept = 0;
  // Called once, from the control thread, when the verdict comes: to wake who sleeps. Set before the first operation.
  virtual void on_verdict(std::function<void()> wake) = 0;

  // From now on others' calls are compared with these; with empty functions: no more.
  virtual void compare_calls([[maybe_unused]] OwnCalls own) noexcept {}
  // This rank has waited for long in its collective call `number`. Where a rank that lives has called, or comes to call, another
  // one under that number, all end with the verdict mismatch, which shows both. Does not wait.
  virtual void tell_waiting([[maybe_unused]] uint64_t number, [[maybe_unused]] uint64_t signature) noexcept {}
  // Nothing has moved for longer still in this rank's call, which comes after all that was made before; sent: by rank, how far sends to
  // each had come (Endpoint::passed). Where ranks wait in such calls for each other in a circle, all end with the verdict mismatch,
  // which shows them. Does not wait.
  virtual void tell_stuck([[maybe_unused]] StuckCall call, [[maybe_unused]] std::vector<uint32_t> sent) noexcept {}

  // Agrees on one thing with all ranks that live, also after a verdict, and whoever dies meanwhile. Each of them calls,
  // with the same number: 1, 2, …. One of them makes it; all return the same bytes. Blocks until `deadline`; one thread at
  // a time. Throws Error: timeout (names who did not call, where this rank knows it), or what this rank's `make` throws.
  virtual Bytes agree(uint32_t number, Bytes wish, TimeNs deadline, const std::function<Bytes(const Ballot&)>& make) = 0;

  // Says that this rank will call no more, so that its closed sockets are no death. Does not wait for others; the word
  // is with the kernel on return. The destructor then relays for those who go on until their links are mended, at
  // most leave_wait_ns_max. A destructor, or an end of the process, without leave is this rank's death to the others.
  virtual void leave() noexcept = 0;

  // Around a fork, on the forking thread. A child that went on holding the connections would hide its parent's death, so
  // it closes its own ends of them; it calls nothing else here.
  virtual void before_fork() noexcept {}
  virtual void after_fork([[maybe_unused]] bool in_child) noexcept {}
};

inline constexpr TimeNs leave_wait_ns_max = 500 * ns_per_ms;

}  // namespace tutti
