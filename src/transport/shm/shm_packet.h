// Packets over Unix sockets that carry descriptors beside their bytes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "base/fd.h"

namespace tutti {

inline constexpr size_t shm_packet_fds_max = 3;

// Sends one packet with at most shm_packet_fds_max descriptors, which the receiver gets copies of. Never blocks. What
// sendmsg returns: the packet's bytes, or -1 and errno.
ssize_t send_with_fds(int socket, std::span<const std::byte> packet, std::span<const int> fds) noexcept;

// Receives one packet into `packet` and replaces `fds` by its descriptors. Never blocks. What recvmsg returns; lost: some
// descriptors did not come, as this process may not open more. Throws std::bad_alloc.
ssize_t receive_with_fds(int socket, std::span<std::byte> packet, std::vector<Fd>& fds, bool& lost);

}  // namespace tutti
