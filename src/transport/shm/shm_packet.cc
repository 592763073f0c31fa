// SCM_RIGHTS, in one place.
#include "transport/shm/shm_packet.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace tutti {
namespace {

struct alignas(cmsghdr) Control {
  char bytes[CMSG_SPACE(shm_packet_fds_max * sizeof(int))] = {};
};

}  // namespace

ssize_t send_with_fds(int socket, std::span<const std::byte> packet, std::span<const int> fds) noexcept {
  TUTTI_ASSERT(!fds.empty() && fds.size() <= shm_packet_fds_max);
  Control control;
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t receive_with_fds(int socket, std::span<std::byte> packet, std::vector<Fd>& fds, bool& lost) {
  fds.clear();
  fds.reserve(shm_packet_fds_max);  // before there are descriptors to lose
  Control control;
  iovec part{packet.data(), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  lost = n >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
  const cmsghdr* const header = n < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) return n;
  std::array<int, shm_packet_fds_max> numbers{};
  const size_t count = std::min((header->cmsg_len - CMSG_LEN(0)) / sizeof(int), numbers.size());
  std::memcpy(numbers.data(), CMSG_DATA(header), count * sizeof(int));
  for (size_t i = 0; i < count; ++i) fds.emplace_back(numbers[i]);
  return n;
}

}  // namespace tutti
