// Listening, connecting and waiting on sockets.
#include "bootstrap/sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "bootstrap/address.h"
#include "bootstrap/system.h"

namespace tutti {
namespace {

constexpr int backlog_max = 4096;  // the kernel lowers it to net.core.somaxconn

void switch_on(int fd, int level, int option) noexcept {
  const int on = 1;
  ::setsockopt(fd, level, option, &on, sizeof on);
}

// A congestion control, as TCP_CONGESTION names it.
using Control = std::array<char, 16>;

Control usual_control() noexcept {
  static const Control usual = [] {
    Control name{};
    socklen_t bytes = name.size();
    const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes);
    return name;
  }();
  return usual;
}

void control_congestion(int fd, const Control& by) noexcept {
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, by.data(), socklen_t(::strnlen(by.data(), by.size())));
}

// Within a host nothing is congested, and who paces what is sent, as bbr does, only takes time. A connection that has begun with
// such a control is paced for good, so each begins with one that does not, which every kernel has; where it turns out to lead to another
// host, the system's own takes over.
void begin_as_within_host(int fd) noexcept { control_congestion(fd, {"reno"}); }
void go_on_as_connected(const Fd& fd) noexcept {
  if (local_address(fd).ip != peer_address(fd).ip) control_congestion(fd.get(), usual_control());
}

// Binds and listens; 0 or errno.
int try_listen(int fd, int family, uint16_t port) noexcept {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  if (family == AF_INET6) {
    auto& address = reinterpret_cast<sockaddr_in6&>(storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    bytes = sizeof address;
    const int off = 0;
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  } else {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    bytes = sizeof address;
  }
  switch_on(fd, SOL_SOCKET, SO_REUSEADDR);
  begin_as_within_host(fd);  // for what is accepted
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&storage), bytes) != 0) return errno;
  return ::listen(fd, backlog_max) == 0 ? 0 : errno;
}

}  // namespace

Error descriptor_error(const std::string& what, int error_number) {
  if (error_number != EMFILE) return system_error(what, error_number);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return system_error(fmt::format("{}: this process may have {} open file descriptors, which is too few; raise it with "
                                  "`ulimit -n`",
                                  what, limit.rlim_cur),
                      error_number);
}

namespace {

Fd listen_on_machine(uint16_t port, int& error) {
  for (const int family : {AF_INET6, AF_INET}) {
    Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) {
      error = errno;
      if (error == EAFNOSUPPORT) continue;
      break;
    }
    error = try_listen(fd.get(), family, port);
    if (error == 0) return fd;
    if (error == EADDRINUSE || error == EACCES) break;
  }
  return Fd();
}

Fd listen_on_simulated(uint16_t port, int& error, System& system) {
  Fd fd(system.listen(port), &system);
  if (!fd.valid()) error = errno;
  return fd;
}

}  // namespace

Fd listen_everywhere(uint16_t port, bool* in_use, System* system) {
  int error = 0;
  if (Fd fd = system == nullptr ? listen_on_machine(port, error) : listen_on_simulated(port, error, *system); fd.valid())
    return fd;
  if ((error == EADDRINUSE || error == EACCES) && in_use != nullptr) {
    *in_use = true;
    return Fd();
  }
  throw descriptor_error(fmt::format("cannot listen on port {}", port), error);
}

uint16_t local_port(const Fd& fd) { return local_address(fd).port; }

JobId::Address local_address(const Fd& fd) noexcept {
  if (System* const system = system_of(fd)) return system->local_address(fd.get());
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return {};
  return from_sockaddr(storage);
}

JobId::Address peer_address(const Fd& fd) noexcept {
  if (System* const system = system_of(fd)) return system->peer_address(fd.get());
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return {};
  return from_sockaddr(storage);
}

Fd start_connect(const JobId::Address& address, int* error_number, System* system) noexcept {
  if (system != nullptr) {
    Fd simulated(system->connect(address), system);
    *error_number = simulated.valid() ? 0 : errno;
    return simulated;
  }
  sockaddr_storage storage{};
  const socklen_t bytes = to_sockaddr(address, storage);
  Fd fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  *error_number = errno;
  if (!fd.valid()) return fd;
  switch_on(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  begin_as_within_host(fd.get());
  // An interrupted connect goes on by itself, as a started one does.
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&storage), bytes) == 0 || errno == EINPROGRESS ||
      errno == EINTR) {
    *error_number = 0;
    return fd;
  }
  *error_number = errno;
  return Fd();
}

int connect_result(const Fd& fd) noexcept {
  if (System* const system = system_of(fd)) return system->connect_result(fd.get());
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error == 0) go_on_as_connected(fd);
  return error;
}

Fd accept_connection(const Fd& listener, int* error_number) noexcept {
  if (System* const system = system_of(listener)) {
    Fd fd(system->accept(listener.get()), system);
    *error_number = fd.valid() ? 0 : errno;
    return fd;
  }
  for (;;) {
    Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    *error_number = fd.valid() ? 0 : errno;
    // A connection that ended while it waited is no reason to stop looking for the next.
    if (!fd.valid() && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO)) continue;
    if (!fd.valid()) return fd;
    switch_on(fd.get(), IPPROTO_TCP, TCP_NODELAY);
    go_on_as_connected(fd);
    return fd;
  }
}

ssize_t send_some(const Fd& fd, const std::byte* data, size_t bytes) noexcept {
  if (System* const system = system_of(fd)) return system->send(fd.get(), data, bytes);
  return ::send(fd.get(), data, bytes, MSG_NOSIGNAL);
}

ssize_t receive_some(const Fd& fd, std::byte* data, size_t bytes) noexcept {
  if (System* const system = system_of(fd)) return system->recv(fd.get(), data, bytes);
  return ::recv(fd.get(), data, bytes, 0);
}

void finish_output(const Fd& fd) noexcept {
  if (System* const system = system_of(fd)) system->finish_output(fd.get());
  else if (fd.valid()) ::shutdown(fd.get(), SHUT_WR);
}

Fd make_event(System* system) {
  Fd fd = system != nullptr ? Fd(system->make_event(), system) : Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) throw descriptor_error("cannot make an event descriptor", errno);
  return fd;
}

void ring(const Fd& event) noexcept {
  if (System* const system = system_of(event)) return system->ring(event.get());
  const uint64_t one = 1;
  while (::write(event.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void clear(const Fd& event) {
  if (System* const system = system_of(event)) return system->clear(event.get());
  uint64_t count = 0;
  if (::read(event.get(), &count, sizeof count) < 0 && errno != EAGAIN && errno != EINTR)
    throw system_error("cannot read an event descriptor", errno);
}

int poll_until(std::span<pollfd> fds, TimeNs deadline, System* system) noexcept {
  if (system != nullptr) return system->poll(fds, deadline);
  const TimeNs left_ns = std::max<TimeNs>(0, deadline - now_ns());
  const timespec left{.tv_sec = time_t(left_ns / ns_per_s), .tv_nsec = long(left_ns % ns_per_s)};
  const int ready = ::ppoll(fds.data(), nfds_t(fds.size()), &left, nullptr);
  return std::max(ready, 0);
}

}  // namespace tutti
