// Sockets of the control plane: listening, connecting, waiting; every one closes on exec, never blocks, never raises
// SIGPIPE.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "bootstrap/bootstrap.h"

namespace tutti {

// As system_error; where descriptors ran out, says the limit and how to raise it.
Error descriptor_error(const std::string& what, int error_number);

// Listens on all addresses of this host, IPv6 and IPv4 on one port; IPv4 alone where the kernel has no IPv6. The
// wildcard and not one interface: which interface a peer can reach is found by trying, and the key, not the address,
// keeps strangers out. port 0: any. Throws Error(system_error); its errno is EADDRINUSE in `error_number` if wanted:
// with `in_use` not null, a held port returns no descriptor and sets *in_use.
Fd listen_everywhere(uint16_t port, bool* in_use, System* system = nullptr);
uint16_t local_port(const Fd& fd);
// Address of this end and of the other end; all zero where the socket is not connected.
JobId::Address local_address(const Fd& fd) noexcept;
JobId::Address peer_address(const Fd& fd) noexcept;

// Connections to another host are under the system's congestion control; those within this one under reno, which paces nothing.

// Starts to connect. An invalid Fd and *error_number where that fails at once; otherwise wait for POLLOUT, then ask
// connect_result (0: connected).
Fd start_connect(const JobId::Address& address, int* error_number, System* system = nullptr) noexcept;
int connect_result(const Fd& fd) noexcept;

// The next waiting connection, non-blocking, close-on-exec, without Nagle's delay. Invalid, with *error_number, where
// there is none.
Fd accept_connection(const Fd& listener, int* error_number) noexcept;

// As send(2) without SIGPIPE, recv(2), and shutdown(2) of the output.
ssize_t send_some(const Fd& fd, const std::byte* data, size_t bytes) noexcept;
ssize_t receive_some(const Fd& fd, std::byte* data, size_t bytes) noexcept;
void finish_output(const Fd& fd) noexcept;

// A descriptor that is ready to read from ring() to clear(). Any thread may ring. Throw Error(system_error).
Fd make_event(System* system);
void ring(const Fd& event) noexcept;
void clear(const Fd& event);

// poll() until `deadline` on now_ns(system)'s clock; an interrupted wait returns 0 like an expired one.
int poll_until(std::span<pollfd> fds, TimeNs deadline, System* system = nullptr) noexcept;

}  // namespace tutti
