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
Fd listen_everywhere(uint16_t port, bool* in_use);
uint16_t local_port(int fd);
// Address of this end and of the other end; all zero where the socket is not connected.
JobId::Address local_address(int fd) noexcept;
JobId::Address peer_address(int fd) noexcept;

// Starts to connect. An invalid Fd and *error_number where that fails at once; otherwise wait for POLLOUT, then ask
// connect_result (0: connected).
Fd start_connect(const JobId::Address& address, int* error_number) noexcept;
int connect_result(int fd) noexcept;

// The next waiting connection, non-blocking, close-on-exec, without Nagle's delay. Invalid, with *error_number, where
// there is none.
Fd accept_connection(int listener, int* error_number) noexcept;

// poll() until `deadline` on now_ns()'s clock; an interrupted wait returns 0 like an expired one.
int poll_until(std::span<pollfd> fds, TimeNs deadline) noexcept;

}  // namespace tutti
