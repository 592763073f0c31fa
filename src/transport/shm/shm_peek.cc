// The system calls. One that reads reads the peer's proof with the data.
#include "transport/shm/shm_peek.h"

#include <sys/uio.h>

#include <array>
#include <cerrno>

namespace tutti {

int ShmPeek::read(std::byte* to, const std::byte* from, size_t bytes) const noexcept {
  uint64_t number = 0;
  const std::array<iovec, 2> here = {{{to, bytes}, {&number, sizeof number}}};
  const std::array<iovec, 2> there = {{{const_cast<std::byte*>(from), bytes},
                                       {reinterpret_cast<void*>(uintptr_t(proof_.number_at)), sizeof number}}};
  const ssize_t n = ::process_vm_readv(pid_, here.data(), here.size(), there.data(), there.size(), 0);
  if (n < 0) return errno;
  return size_t(n) == bytes + sizeof number && number == proof_.number ? 0 : EFAULT;
}

int ShmPeek::write(const std::byte* from, std::byte* to, size_t bytes) const noexcept {
  if (const int error_number = read(nullptr, nullptr, 0); error_number != 0) return error_number;
  const iovec here{const_cast<std::byte*>(from), bytes}, there{to, bytes};
  const ssize_t n = ::process_vm_writev(pid_, &here, 1, &there, 1, 0);
  if (n < 0) return errno;
  return size_t(n) == bytes ? 0 : EFAULT;
}

}  // namespace tutti
