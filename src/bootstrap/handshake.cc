// Challenge and response over a non-blocking socket.
#include "bootstrap/handshake.h"

#include <poll.h>
#include <sodium.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "bootstrap/sockets.h"

namespace tutti {
namespace {

constexpr std::array<std::byte, 4> magic = {std::byte{'T'}, std::byte{'U'}, std::byte{'T'}, std::byte{'I'}};

template <size_t n>
const unsigned char* unsigned_of(const std::array<std::byte, n>& bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

uint32_t number_at(const std::byte* data) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= uint32_t(data[i]) << (8 * i);
  return value;
}

}  // namespace

Handshake::Handshake(Fd fd, Side side, const Secret& secret, TimeNs now)
    : fd_(std::move(fd)), side_(side), secret_(secret), since_ns_(now) {
  ::randombytes_buf(nonce_.data(), nonce_.size());
  if (side_ == Side::connecting) put_greeting();
}

Handshake::State Handshake::step() noexcept {
  while (state_ == State::working) {
    if (!flush()) break;
    if (phase_ == Phase::last_write) {
      state_ = other_version_ == secret_.version ? State::done : State::other_version;
    } else if (phase_ == Phase::greeting) {
      if (!read(greeting_bytes)) break;
      take_greeting();
    } else if (phase_ == Phase::proof) {
      if (!read(proof_bytes)) break;
      take_proof();
    } else {
      if (!read(hello_bytes)) break;
      take_hello();
    }
  }
  return state_;
}

Handshake::State Handshake::finish(const Hello& hello) noexcept {
  const Proof mine = proof(side_);
  put(mine.data(), mine.size());
  if (other_version_ == secret_.version)
    for (const uint32_t value : {uint32_t(hello.purpose), hello.rank, hello.size, hello.tag}) put_number(value);
  phase_ = Phase::last_write;
  state_ = State::working;
  return step();
}

short Handshake::events() const noexcept { return out_done_ < out_bytes_ ? POLLOUT : POLLIN; }

// true: nothing left to send.
bool Handshake::flush() noexcept {
  while (out_done_ < out_bytes_) {
    const ssize_t sent = send_some(fd_, out_.data() + out_done_, out_bytes_ - out_done_);
    if (sent >= 0) {
      out_done_ += size_t(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) state_ = State::closed;
    return false;
  }
  out_done_ = out_bytes_ = 0;
  return true;
}

// true: exactly `bytes` lie in in_. Never reads beyond: what follows belongs to who takes the socket over.
bool Handshake::read(size_t bytes) noexcept {
  while (in_done_ < bytes) {
    const ssize_t count = receive_some(fd_, in_.data() + in_done_, bytes - in_done_);
    if (count > 0) {
      in_done_ += size_t(count);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) state_ = State::closed;
    return false;
  }
  in_done_ = 0;
  return true;
}

void Handshake::take_greeting() noexcept {
  if (!std::equal(magic.begin(), magic.end(), in_.begin())) {
    state_ = State::stranger;
    return;
  }
  other_version_ = number_at(in_.data() + magic.size());
  std::copy_n(in_.data() + magic.size() + 4, nonce_bytes, other_nonce_.begin());
  phase_ = Phase::proof;
  if (side_ == Side::connecting) return;
  put_greeting();
  const Proof mine = proof(side_);
  put(mine.data(), mine.size());
}

void Handshake::take_proof() noexcept {
  const Proof wanted = proof(side_ == Side::connecting ? Side::listening : Side::connecting);
  if (::sodium_memcmp(wanted.data(), in_.data(), proof_bytes) != 0) {
    state_ = State::stranger;
  } else if (side_ == Side::connecting) {
    state_ = State::peer_proven;
  } else if (other_version_ != secret_.version) {
    state_ = State::other_version;
  } else {
    phase_ = Phase::hello;
  }
}

void Handshake::take_hello() noexcept {
  const std::byte* data = in_.data();
  hello_ = {Purpose(number_at(data)), number_at(data + 4), number_at(data + 8), number_at(data + 12)};
  state_ = State::done;
}

void Handshake::put_greeting() noexcept {
  put(magic.data(), magic.size());
  put_number(secret_.version);
  put(nonce_.data(), nonce_.size());
}

void Handshake::put(const std::byte* data, size_t bytes) noexcept {
  std::copy_n(data, bytes, out_.data() + out_bytes_);
  out_bytes_ += bytes;
}

void Handshake::put_number(uint32_t value) noexcept {
  for (int i = 0; i < 4; ++i) out_[out_bytes_++] = std::byte(value >> (8 * i));
}

Handshake::Proof Handshake::proof(Side of) const noexcept {
  const bool connects = side_ == Side::connecting;
  const uint64_t words[4] = {of == Side::connecting ? 1u : 2u, connects ? secret_.version : other_version_,
                             connects ? other_version_ : secret_.version, secret_.identity};
  std::array<unsigned char, sizeof words> numbers{};
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<unsigned char>(words[i / 8] >> (8 * (i % 8)));
  Proof proof{};
  crypto_generichash_state hash;
  ::crypto_generichash_init(&hash, secret_.key.data(), secret_.key.size(), proof_bytes);
  ::crypto_generichash_update(&hash, numbers.data(), numbers.size());
  ::crypto_generichash_update(&hash, unsigned_of(connects ? nonce_ : other_nonce_), nonce_bytes);
  ::crypto_generichash_update(&hash, unsigned_of(connects ? other_nonce_ : nonce_), nonce_bytes);
  ::crypto_generichash_final(&hash, reinterpret_cast<unsigned char*>(proof.data()), proof_bytes);
  return proof;
}

std::string version_sentence(uint32_t here, uint32_t there, const std::string& who) {
  return fmt::format("protocol version {} here, but {} at {}: all ranks of a job need builds with the same version",
                     here, there, who);
}

}  // namespace tutti
