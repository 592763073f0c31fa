// The system calls. One that reads reads the peer's proof with the data.
#include "transport/shm/shm_peek.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "transport/transport.h"

namespace tutti {

namespace {

constexpr size_t pieces_max = 32;

// Both sides of a system call.
struct Pieces {
  std::array<iovec, pieces_max + 1> here, there;
  size_t count = 0;

  Pieces(const std::byte* mine, const std::byte* peers, size_t bytes, bool from_end) noexcept {
    const size_t piece_max = from_end ? std::max(block_piece_bytes, (bytes + pieces_max - 1) / pieces_max) : bytes;
    for (size_t left = bytes; left > 0;) {
      const size_t piece = std::min(left, piece_max);
      left -= piece;
      add(mine + left, peers + left, piece);
    }
  }

  void add(const void* mine, const void* peers, size_t bytes) noexcept {
    here[count] = {const_cast<void*>(mine), bytes};
    there[count] = {const_cast<void*>(peers), bytes};
    ++count;
  }
};

}  // namespace

int ShmPeek::read(std::byte* to, const std::byte* from, size_t bytes, bool from_end) const noexcept {
  uint64_t number = 0;
  Pieces pieces(to, from, bytes, from_end);
  pieces.add(&number, reinterpret_cast<const void*>(uintptr_t(proof_.number_at)), sizeof number);
  const ssize_t n = ::process_vm_readv(pid_, pieces.here.data(), pieces.count, pieces.there.data(), pieces.count, 0);
  if (n < 0) return errno;
  return size_t(n) == bytes + sizeof number && number == proof_.number ? 0 : EFAULT;
}

int ShmPeek::write(const std::byte* from, std::byte* to, size_t bytes, bool from_end) const noexcept {
  if (const int error_number = read(nullptr, nullptr, 0); error_number != 0) return error_number;
  const Pieces pieces(from, to, bytes, from_end);
  const ssize_t n = ::process_vm_writev(pid_, pieces.here.data(), pieces.count, pieces.there.data(), pieces.count, 0);
  if (n < 0) return errno;
  return size_t(n) == bytes ? 0 : EFAULT;
}

}  // namespace tutti
