// Mailboxes: a packet is the name of a region, with its descriptor.
#include "transport/shm/shm_lending.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <exception>
#include <vector>

#include "base/error.h"
#include "transport/shm/shm_packet.h"

namespace tutti {
namespace {

struct Notice {
  int32_t rank;
  uint32_t unused;
  uint64_t number;
  uint64_t bytes;
};

}  // namespace

bool ShmLender::tell(const LentRegion& region) noexcept {
  try {
    if (told_.contains(region.number)) return true;
    if (told_.size() >= told_max) return false;
    struct stat about {};
    if (::fstat(region.fd, &about) != 0 || about.st_ino != region.inode) return false;
    const Notice notice{rank_, 0, region.number, region.file_bytes};
    if (send_with_fds(mailbox_.get(), std::as_bytes(std::span(&notice, 1)), {&region.fd, 1}) != ssize_t(sizeof notice))
      return false;
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

std::byte* ShmBorrower::find(int rank, const LentPlace& place, size_t bytes) noexcept {
  try {
    const Name name{rank, place.region};
    auto found = borrowed_.find(name);
    while (found == borrowed_.end()) {
      if (!take_one()) return nullptr;
      found = borrowed_.find(name);
    }
    const Mapping& mapping = found->second;
    error_number_ = EFAULT;
    const bool inside = place.offset <= mapping.bytes() && bytes <= mapping.bytes() - place.offset;
    return inside ? mapping.at(place.offset) : nullptr;
  } catch (const std::exception&) {
    error_number_ = ENOMEM;
    return nullptr;
  }
}

// One packet; false: there is none. One without its descriptor came to a process that may not open more.
bool ShmBorrower::take_one() {
  Notice notice{};
  std::vector<Fd> fds;
  bool lost = false;
  if (receive_with_fds(read_end_.get(), std::as_writable_bytes(std::span(&notice, 1)), fds, lost) !=
      ssize_t(sizeof notice)) {
    error_number_ = errno;
    return false;
  }
  if (fds.empty()) {
    error_number_ = EMFILE;
    return false;
  }
  const Fd file = std::move(fds[0]);
  if (!is_memory_file(file.get(), notice.bytes)) {
    error_number_ = EBADF;
    return false;
  }
  borrowed_.emplace(Name{notice.rank, notice.number}, Mapping(file.get(), 0, notice.bytes, "shared memory"));
  return true;
}

}  // namespace tutti
