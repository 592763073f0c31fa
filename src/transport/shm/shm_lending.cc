// Mailboxes: a packet is the name of a region, with its descriptor.
#include "transport/shm/shm_lending.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>

#include "base/error.h"

namespace tutti {
namespace {

struct Notice {
  int32_t rank;
  uint32_t unused;
  uint64_t number;
  uint64_t bytes;
};

struct alignas(cmsghdr) Control {
  char bytes[CMSG_SPACE(sizeof(int))] = {};
};

}  // namespace

bool ShmLender::tell(const LentRegion& region) noexcept {
  try {
    if (told_.contains(region.number)) return true;
    if (told_.size() >= told_max) return false;
    const Notice notice{rank_, 0, region.number, region.bytes};
    Control control;
    iovec part{const_cast<Notice*>(&notice), sizeof notice};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &region.fd, sizeof(int));
    if (::sendmsg(mailbox_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t(sizeof notice)) return false;
    told_.insert(region.number);
    return true;
  } catch (const std::exception&) {  // no memory for told_: the peer may be told twice
    return false;
  }
}

ShmBorrower::ShmBorrower() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    throw system_error("shared memory: cannot make a mailbox (socketpair); where too many files are open, raise `ulimit -n`",
                       errno);
  read_end_ = Fd(ends[0]);
  write_end_ = Fd(ends[1]);
}

const std::byte* ShmBorrower::find(int rank, const ShmLentSlice& slice, size_t bytes) noexcept {
  try {
    const Name name{rank, slice.region};
    auto found = borrowed_.find(name);
    while (found == borrowed_.end()) {
      if (!take_one()) return nullptr;
      found = borrowed_.find(name);
    }
    const Mapping& mapping = found->second;
    error_number_ = EFAULT;
    const bool inside = slice.offset <= mapping.bytes() && bytes <= mapping.bytes() - slice.offset;
    return inside ? mapping.at(slice.offset) : nullptr;
  } catch (const std::exception&) {
    error_number_ = ENOMEM;
    return nullptr;
  }
}

// One packet; false: there is none. One without its descriptor came to a process that may not open more.
bool ShmBorrower::take_one() {
  Notice notice{};
  Control control;
  iovec part{&notice, sizeof notice};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  if (::recvmsg(read_end_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != ssize_t(sizeof notice)) {
    error_number_ = errno;
    return false;
  }
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    error_number_ = EMFILE;
    return false;
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  const Fd file(fd);
  if (!is_memory_file(file.get(), notice.bytes)) {
    error_number_ = EBADF;
    return false;
  }
  borrowed_.emplace(Name{notice.rank, notice.number}, Mapping(file.get(), 0, notice.bytes, "shared memory"));
  return true;
}

}  // namespace tutti
