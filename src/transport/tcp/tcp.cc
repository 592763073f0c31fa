// The TCP transport's control path: connecting, socket options, memory.
#include "transport/tcp/tcp.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/error.h"
#include "transport/tcp/tcp_endpoint.h"

namespace tutti {
namespace {

constexpr uint32_t tag_first = 0x7c90000;  // wishes of this transport; the channel is added
constexpr size_t message_bytes_min = 64;
constexpr size_t message_bytes_limit = size_t{1} << 30;

size_t wanted_message_bytes(const TcpOptions& options) {
  size_t bytes = options.message_bytes_max;
  if (bytes == 0) bytes = environment_bytes("TUTTI_TCP_MESSAGE_BYTES").value();
  if (bytes < message_bytes_min || bytes > message_bytes_limit)
    throw Error(Code::invalid_usage, fmt::format("a TCP message of at most {} bytes is asked for "
                                                 "(TUTTI_TCP_MESSAGE_BYTES); it must be {} to {}",
                                                 bytes, message_bytes_min, message_bytes_limit));
  return bytes;
}

// The least that any rank wants: messages must fit the slots of their receivers.
size_t agreed_message_bytes(Bootstrap& bootstrap, size_t wanted) {
  const uint64_t mine = wanted;
  uint64_t least = mine;
  for (const Bytes& theirs : bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    uint64_t bytes = 0;
    if (theirs.size() != sizeof bytes)
      throw Error(Code::internal_error, "a rank answered the TCP set-up with something else");
    std::memcpy(&bytes, theirs.data(), sizeof bytes);
    least = std::min(least, bytes);
  }
  if (least < message_bytes_min)
    throw Error(Code::internal_error, "a rank asked for TCP messages below the least size");
  return least;
}

void set_option(int socket, int level, int option, int value, const char* what) {
  if (::setsockopt(socket, level, option, &value, sizeof value) != 0) throw system_error(what, errno);
}

void prepare(int socket, const TcpOptions& options) {
  const int flags = ::fcntl(socket, F_GETFL);
  if (flags < 0 || ::fcntl(socket, F_SETFL, flags | O_NONBLOCK) != 0)
    throw system_error("making a connection non-blocking", errno);
  // Unix sockets serve in tests; TCP_NODELAY is of TCP alone.
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw system_error("asking a connection for its address", errno);
  if (address.ss_family != AF_UNIX) set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "setting TCP_NODELAY");
  if (options.send_buffer_bytes > 0)
    set_option(socket, SOL_SOCKET, SO_SNDBUF, options.send_buffer_bytes, "setting SO_SNDBUF");
  if (options.receive_buffer_bytes > 0)
    set_option(socket, SOL_SOCKET, SO_RCVBUF, options.receive_buffer_bytes, "setting SO_RCVBUF");
}

size_t count_valid(const std::vector<Fd>& sockets) {
  return size_t(std::count_if(sockets.begin(), sockets.end(), [](const Fd& fd) { return fd.valid(); }));
}

Fd make_epoll() {
  Fd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd.valid()) throw system_error("making an epoll set for the TCP connections", errno);
  return fd;
}

void watch(const Fd& set, TcpEndpoint& endpoint, uint32_t events) {
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.ptr = &endpoint;
  if (::epoll_ctl(set.get(), EPOLL_CTL_ADD, endpoint.socket(), &event) != 0)
    throw system_error("adding a TCP connection to an epoll set", errno);
}

}  // namespace

TcpEndpoint::TcpEndpoint(TcpTransport& transport, Fd socket, std::byte* memory, size_t message_bytes_max)
    : transport_(transport), socket_(std::move(socket)), message_bytes_max_(message_bytes_max) {
  const size_t payload = (message_bytes_max + 63) / 64 * 64;
  inbox_ = memory;
  staging_ = inbox_ + tcp_inbox_bytes + 64;
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].payload = staging_ + payload * (1 + i);
}

TcpMemory::TcpMemory(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw system_error(fmt::format("allocating {} bytes for TCP connections", bytes_), errno);
  data_ = static_cast<std::byte*>(memory);
}

TcpMemory::~TcpMemory() { ::munmap(data_, bytes_); }

TcpTransport::TcpTransport(std::vector<Fd> sockets, int size, const TcpOptions& options)
    : size_(size),
      channels_(options.channels),
      message_bytes_max_(wanted_message_bytes(options)),
      memory_(tcp_endpoint_bytes(message_bytes_max_) * count_valid(sockets)),
      arrivals_(make_epoll()),
      room_(make_epoll()) {
  TUTTI_ASSERT(sockets.size() == size_t(size) * size_t(channels_));
  endpoints_.resize(sockets.size());
  holding_.resize(sockets.size());
  std::byte* next = memory_.data();
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (!sockets[i].valid()) continue;
    prepare(sockets[i].get(), options);
    endpoints_[i] = std::make_unique<TcpEndpoint>(*this, std::move(sockets[i]), next, message_bytes_max_);
    next += tcp_endpoint_bytes(message_bytes_max_);
    watch(arrivals_, *endpoints_[i], EPOLLIN | EPOLLRDHUP);
    watch(room_, *endpoints_[i], EPOLLOUT);
  }
}

Endpoint* TcpTransport::endpoint(int peer, int channel) noexcept {
  return endpoints_[size_t(channel) * size_t(size_) + size_t(peer)].get();
}

std::unique_ptr<Transport> make_tcp_over(std::vector<Fd> sockets, int size, const TcpOptions& options) {
  return std::make_unique<TcpTransport>(std::move(sockets), size, options);
}

std::unique_ptr<Transport> make_tcp(Bootstrap& bootstrap, const TcpOptions& options) {
  const size_t size = size_t(bootstrap.size());
  TUTTI_ASSERT(options.channels >= 1 && options.peers.size() == size);
  TcpOptions agreed = options;
  agreed.message_bytes_max = agreed_message_bytes(bootstrap, wanted_message_bytes(options));

  std::vector<Bootstrap::Wish> wishes;
  for (int channel = 0; channel < options.channels; ++channel)
    for (int peer = 0; peer < bootstrap.size(); ++peer)
      if (peer != bootstrap.rank() && options.peers[size_t(peer)])
        wishes.push_back({peer, tag_first + uint32_t(channel)});
  std::vector<Fd> connected = bootstrap.connect(wishes);
  TUTTI_ASSERT(connected.size() == wishes.size());

  std::vector<Fd> sockets(size * size_t(options.channels));
  for (size_t i = 0; i < wishes.size(); ++i)
    sockets[size_t(wishes[i].tag - tag_first) * size + size_t(wishes[i].peer)] = std::move(connected[i]);
  return make_tcp_over(std::move(sockets), int(size), agreed);
}

}  // namespace tutti
