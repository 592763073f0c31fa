// Connected TCP transports in one process, for the tests and benchmarks of that transport.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "transport/fake_bootstrap.h"
#include "transport/tcp/tcp.h"

namespace tutti {

// All ranks by make_tcp over fake bootstraps, every pair over TCP.
inline std::vector<std::unique_ptr<Transport>> connected_tcp(int ranks, TcpOptions options) {
  options.peers.assign(size_t(ranks), true);
  const auto bootstraps = fake_bootstraps(ranks);
  return on_each_rank(bootstraps, [&](int r) { return make_tcp(*bootstraps[size_t(r)], options); });
}

// One rank of two over a socket whose other end the test plays by hand: its peer is rank 1.
inline std::unique_ptr<Transport> tcp_over(Fd socket, const TcpOptions& options) {
  std::vector<Fd> sockets(2);
  sockets[1] = std::move(socket);
  return make_tcp_over(std::move(sockets), 2, options);
}

}  // namespace tutti
