// How two ends of a new connection prove to each other that they know the job's key, before either reads more.
//
// Who connects sends a greeting (magic, protocol version, nonce). Who listens says nothing before it has seen one, then
// answers with its own greeting and a proof; who connects checks that and sends its proof and a hello. A proof is a
// keyed BLAKE2b over the side, both versions, both nonces and the listener's identity: a fresh answer for this
// connection, of no use on any other, and right only from the very listener that was meant (two hosts can have the
// same private address, and then the same port leads to another rank).
//
// Magic, greeting and proof are the same in all versions, so two builds can tell each other their versions with proof.
// What comes after authentication is not encrypted: the key keeps strangers out, it does not hide.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.h"
#include "bootstrap/bootstrap.h"

namespace tutti {

// Bytes read from a peer before it has proven the key: a greeting and a proof.
inline constexpr size_t greeting_bytes = 24;
inline constexpr size_t proof_bytes = 32;
static_assert(greeting_bytes + proof_bytes < 64);

// A connection that has not proven the key by then is closed.
inline constexpr TimeNs handshake_timeout_ns = 5 * ns_per_s;

enum class Purpose : uint32_t { join = 1, tree, data, probe };  // probe: whether it is there, nothing more

// What the connecting side says first once it is believed.
struct Hello {
  Purpose purpose{};
  uint32_t rank = 0;
  uint32_t size = 0;
  uint32_t tag = 0;  // of a data connection
};

// What both ends must know beforehand.
struct Secret {
  Key key{};
  uint64_t identity = 0;  // of the listener; 0: a meeting place
  uint32_t version = protocol_version;
};

// One side of one handshake over a non-blocking socket. step() does what can be done without blocking.
class Handshake {
 public:
  enum class Side : uint8_t { connecting, listening };
  enum class State : uint8_t {
    working,        // call step() again when the socket is ready for events()
    peer_proven,    // connecting side only: the listener has proven itself; call finish(), or drop the connection
    done,           // both have proven themselves; on the listening side hello() holds
    other_version,  // both have proven themselves and their versions differ: other_version()
    stranger,       // the peer speaks, but does not know the key, or not this protocol
    closed          // the connection ended
  };

  Handshake(Fd fd, Side side, const Secret& secret, TimeNs now);

  State step() noexcept;
  // Sends this side's proof and hello. If versions differ, the proof alone; then the end is other_version.
  State finish(const Hello& hello) noexcept;

  short events() const noexcept;
  const Fd& fd() const noexcept { return fd_; }
  Fd take_fd() noexcept { return std::move(fd_); }
  State state() const noexcept { return state_; }
  const Hello& hello() const noexcept { return hello_; }
  uint32_t other_version() const noexcept { return other_version_; }
  // Listening side: this side has proven itself, so the other may count on the connection as soon as it has sent its part.
  bool answered() const noexcept { return side_ == Side::listening && phase_ != Phase::greeting; }
  TimeNs since_ns() const noexcept { return since_ns_; }
  // As if it had begun at `since`; false: that has been done before.
  bool renew_once(TimeNs since) noexcept {
    if (renewed_) return false;
    since_ns_ = since;
    return renewed_ = true;
  }

 private:
  enum class Phase : uint8_t { greeting, proof, hello, last_write };
  static constexpr size_t nonce_bytes = 16;
  static constexpr size_t hello_bytes = 16;
  using Nonce = std::array<std::byte, nonce_bytes>;
  using Proof = std::array<std::byte, proof_bytes>;

  bool flush() noexcept;
  bool read(size_t bytes) noexcept;
  void take_greeting() noexcept;
  void take_proof() noexcept;
  void take_hello() noexcept;
  void put_greeting() noexcept;
  void put(const std::byte* data, size_t bytes) noexcept;
  void put_number(uint32_t value) noexcept;
  Proof proof(Side of) const noexcept;

  Fd fd_;
  Side side_;
  Secret secret_;
  TimeNs since_ns_;
  bool renewed_ = false;
  State state_ = State::working;
  Phase phase_ = Phase::greeting;
  Nonce nonce_{};
  Nonce other_nonce_{};
  uint32_t other_version_ = 0;
  Hello hello_;
  std::array<std::byte, proof_bytes> in_{};
  size_t in_done_ = 0;
  std::array<std::byte, greeting_bytes + proof_bytes + hello_bytes> out_{};
  size_t out_bytes_ = 0;
  size_t out_done_ = 0;
};

// Sentence for two versions that met.
std::string version_sentence(uint32_t here, uint32_t there, const std::string& who);

}  // namespace tutti
