// The handshake: nonce, proof, gift. Every message is one packet, so nothing is ever read by halves.
#include "transport/shm/shm_handshake.h"

#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "transport/shm/shm_packet.h"

namespace tutti {
namespace {

using Nonce = std::array<unsigned char, 16>;
using Mac = std::array<unsigned char, 32>;

// Server to client, at once.
struct Challenge {
  Nonce nonce;
};
// Client to server.
struct Proof {
  uint32_t rank;
  Nonce nonce;
  Mac mac;
};
static_assert(sizeof(Proof) == shm_unproven_bytes_max && shm_unproven_bytes_max < 64);
// Server to client, with the descriptors.
struct GiftNote {
  Mac mac;
  unsigned char comes;  // 1: the server reached the client too, and will ask for its gift
};

// Connections of strangers who say nothing are closed, oldest first, beyond this many.
constexpr size_t unproven_max = 64;
constexpr int attempts_max = 100;

sockaddr_un address_of(const ShmToken& token, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  constexpr std::string_view prefix = "tutti-";
  char* name = address.sun_path + 1;  // after a leading zero byte: abstract
  std::memcpy(name, prefix.data(), prefix.size());
  sodium_bin2hex(name + prefix.size(), 2 * token.size() + 1, token.data(), token.size());
  length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + prefix.size() + 2 * token.size());
  return address;
}

[[noreturn]] void refuse(const std::string& what, int error_number) {
  const bool descriptors = error_number == EMFILE || error_number == ENFILE;
  const char* remedy = descriptors ? "; too many open files: raise `ulimit -n` (ENFILE: fs.file-max)" : "";
  throw system_error("shared memory: " + what + remedy, error_number);
}

Fd unix_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) refuse("cannot open a Unix socket", errno);
  return fd;
}

Mac mac_of(const Key& key, char side, uint32_t client, uint32_t server, const Nonce& of_server, const Nonce& of_client,
           unsigned char comes) {
  crypto_generichash_state state;
  Mac mac;
  const std::string label = fmt::format("tutti shm {} {} {} {};", side, client, server, int(comes));
  crypto_generichash_init(&state, key.data(), key.size(), mac.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(label.data()), label.size());
  crypto_generichash_update(&state, of_server.data(), of_server.size());
  crypto_generichash_update(&state, of_client.data(), of_client.size());
  crypto_generichash_final(&state, mac.data(), mac.size());
  return mac;
}

bool equal(const Mac& a, const Mac& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

template <class Packet>
bool send_packet(int fd, const Packet& packet) {
  return ::send(fd, &packet, sizeof packet, MSG_NOSIGNAL) == ssize_t(sizeof packet);
}

enum class Got : uint8_t { packet, nothing, broken };

// One packet of exactly this size. A longer one is cut by the kernel and refused here.
template <class Packet>
Got receive_packet(int fd, Packet& packet) {
  const ssize_t n = ::recv(fd, &packet, sizeof packet, MSG_TRUNC);
  if (n == ssize_t(sizeof packet)) return Got::packet;
  return n < 0 && (errno == EAGAIN || errno == EINTR) ? Got::nothing : Got::broken;
}

bool send_gift(int fd, const GiftNote& note, std::span<const int> gift) {
  const ssize_t n = send_with_fds(fd, std::as_bytes(std::span(&note, 1)), gift);
  if (n < 0 && (errno == ETOOMANYREFS || errno == ENOMEM)) refuse("cannot pass descriptors to a peer", errno);
  return n == ssize_t(sizeof note);
}

Got receive_gift(int fd, GiftNote& note, ShmGift& gift) {
  bool lost = false;
  const ssize_t n = receive_with_fds(fd, std::as_writable_bytes(std::span(&note, 1)), gift, lost);
  if (n < 0) return errno == EAGAIN || errno == EINTR ? Got::nothing : Got::broken;
  if (n == ssize_t(sizeof note) && lost) refuse("cannot receive the descriptors of a peer's memory", EMFILE);
  return n == ssize_t(sizeof note) && !gift.empty() ? Got::packet : Got::broken;
}

// One run of the handshake.
class Exchange {
 public:
  Exchange(const ShmListener& listener, std::span<const ShmCandidate> candidates, const ShmHandshake& handshake)
      : listener_(listener), handshake_(handshake) {
    TUTTI_ASSERT(!handshake.gift.empty() && handshake.gift.size() <= shm_packet_fds_max);
    for (const ShmCandidate& candidate : candidates) peers_.push_back(Peer{.candidate = candidate});
  }

  std::vector<ShmGift> run() {
    while (true) {
      for (Peer& peer : peers_)
        if (peer.stage == Stage::unconnected) connect(peer);
      if (std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.settled(); })) break;
      wait_and_serve();
    }
    std::vector<ShmGift> gifts;
    for (Peer& peer : peers_) gifts.push_back(peer.reached() ? std::move(peer.gift) : ShmGift{});
    return gifts;
  }

 private:
  enum class Stage : uint8_t { unconnected, expects_challenge, expects_gift, has_gift, unreachable };
  struct Peer {
    ShmCandidate candidate;
    Stage stage = Stage::unconnected;
    Fd fd;        // to its server; closed by it only when its handshake has ended
    Fd visit;     // of its client, from the gift on
    int attempts = 0;
    Nonce server_nonce{}, client_nonce{};
    ShmGift gift;
    bool comes = false;   // it will ask for our gift
    bool served = false;  // it has got our gift

    bool settled() const { return stage == Stage::unreachable || (stage == Stage::has_gift && (served || !comes)); }
    bool reached() const { return stage == Stage::has_gift && served; }
  };
  struct Visitor {
    Fd fd;
    Nonce nonce;
  };

  // Never blocks. Refused: another network namespace, or the peer has given up.
  void connect(Peer& peer) {
    if (!peer.fd.valid()) peer.fd = unix_socket();
    socklen_t length = 0;
    const sockaddr_un address = address_of(peer.candidate.token, length);
    if (::connect(peer.fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) {
      peer.stage = Stage::expects_challenge;
    } else if (errno != EAGAIN && errno != EINTR) {  // EAGAIN: its queue is full, try again soon
      give_up(peer);
    }
  }

  void give_up(Peer& peer) {
    peer.stage = Stage::unreachable;
    peer.fd.reset();
    peer.gift.clear();
  }

  // The server closed the connection: it has given up, which connecting again will show, or was flooded by strangers.
  void start_again(Peer& peer) {
    if (++peer.attempts >= attempts_max) return give_up(peer);
    peer.fd.reset();
    peer.gift.clear();
    peer.stage = Stage::unconnected;
  }

  void wait_and_serve() {
    handshake_.check();
    if (now_ns() >= handshake_.deadline) late();
    fds_.assign(1, {listener_.fd.get(), POLLIN, 0});
    for (const Visitor& visitor : visitors_) fds_.push_back({visitor.fd.get(), POLLIN, 0});
    bool retry = false;
    for (const Peer& peer : peers_) {
      const bool open = peer.stage != Stage::unconnected && !peer.settled();
      fds_.push_back({open ? peer.fd.get() : -1, POLLIN, 0});
      retry = retry || peer.stage == Stage::unconnected;
    }
    if (::poll(fds_.data(), fds_.size(), retry ? 1 : 50) < 0 && errno != EINTR) refuse("poll", errno);

    const size_t visitors = visitors_.size();
    for (size_t i = 0; i < peers_.size(); ++i)
      if (fds_[1 + visitors + i].revents != 0) answer(peers_[i]);
    for (size_t i = 0; i < visitors; ++i)
      if (fds_[1 + i].revents != 0) serve(visitors_[i]);
    std::erase_if(visitors_, [](const Visitor& visitor) { return !visitor.fd.valid(); });
    if (fds_[0].revents != 0) accept();
  }

  // As client: the challenge or the gift has come, or the server has gone.
  void answer(Peer& peer) {
    const auto me = uint32_t(handshake_.rank);
    const auto server = uint32_t(peer.candidate.rank);
    if (peer.stage == Stage::expects_challenge) {
      Challenge challenge;
      const Got got = receive_packet(peer.fd.get(), challenge);
      if (got == Got::nothing) return;
      if (got == Got::broken) return start_again(peer);
      peer.server_nonce = challenge.nonce;
      randombytes_buf(peer.client_nonce.data(), peer.client_nonce.size());
      const Mac mac = mac_of(handshake_.key, 'c', me, server, peer.server_nonce, peer.client_nonce, 0);
      if (!send_packet(peer.fd.get(), Proof{me, peer.client_nonce, mac})) return start_again(peer);
      peer.stage = Stage::expects_gift;
      return;
    }
    if (peer.stage == Stage::has_gift) return give_up(peer);  // it ended before it was served: something failed there
    GiftNote note;
    const Got got = receive_gift(peer.fd.get(), note, peer.gift);
    if (got == Got::nothing) return;
    if (got == Got::broken) return start_again(peer);
    const Mac mac = mac_of(handshake_.key, 's', me, server, peer.server_nonce, peer.client_nonce, note.comes);
    if (!equal(mac, note.mac)) return give_up(peer);
    peer.stage = Stage::has_gift;
    peer.comes = note.comes != 0;
  }

  void accept() {
    Fd fd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
      refuse("cannot accept a peer", errno);
    }
    Visitor visitor{std::move(fd), {}};
    randombytes_buf(visitor.nonce.data(), visitor.nonce.size());
    if (!send_packet(visitor.fd.get(), Challenge{visitor.nonce})) return;
    if (visitors_.size() >= unproven_max + peers_.size()) visitors_.erase(visitors_.begin());
    visitors_.push_back(std::move(visitor));
  }

  // As server: a visitor has sent its proof, or has gone.
  void serve(Visitor& visitor) {
    Proof proof;
    const Got got = receive_packet(visitor.fd.get(), proof);
    if (got == Got::nothing) return;
    Fd fd = std::move(visitor.fd);
    if (got == Got::broken) return;
    const auto me = uint32_t(handshake_.rank);
    if (!equal(mac_of(handshake_.key, 'c', proof.rank, me, visitor.nonce, proof.nonce, 0), proof.mac)) return;
    const auto peer = std::find_if(peers_.begin(), peers_.end(),
                                   [&](const Peer& p) { return uint32_t(p.candidate.rank) == proof.rank; });
    if (peer == peers_.end() || peer->served) return;
    const unsigned char comes = peer->stage == Stage::unreachable ? 0 : 1;
    const GiftNote note{mac_of(handshake_.key, 's', proof.rank, me, visitor.nonce, proof.nonce, comes), comes};
    peer->served = send_gift(fd.get(), note, handshake_.gift);
    peer->visit = std::move(fd);
  }

  [[noreturn]] void late() const {
    std::string ranks;
    for (const Peer& peer : peers_)
      if (!peer.settled()) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", peer.candidate.rank);
    throw Error(Code::timeout,
                fmt::format("shared memory: the handshake with rank {} did not end by the deadline", ranks));
  }

  const ShmListener& listener_;
  const ShmHandshake& handshake_;
  std::vector<Peer> peers_;
  std::vector<Visitor> visitors_;
  std::vector<pollfd> fds_;
};

}  // namespace

ShmListener open_shm_listener() {
  if (sodium_init() < 0) throw Error(Code::internal_error, "shared memory: libsodium does not start");
  ShmListener listener;
  randombytes_buf(listener.token.data(), listener.token.size());
  listener.fd = unix_socket();
  socklen_t length = 0;
  const sockaddr_un address = address_of(listener.token, length);
  if (::bind(listener.fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener.fd.get(), 1024) != 0)
    refuse("cannot listen on an abstract Unix socket", errno);
  return listener;
}

std::vector<ShmGift> exchange_gifts(ShmListener listener, std::span<const ShmCandidate> candidates,
                                    const ShmHandshake& handshake) {
  return Exchange(listener, candidates, handshake).run();
}

}  // namespace tutti
