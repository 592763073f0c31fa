// Memory of a peer that no memory file holds: the kernel copies from there (process_vm_readv), once, and to where the data
// shall be. That costs the receiver a system call and the kernel's work on each page, and saves the sender its copy. Or the sender
// has it copied to there (process_vm_writev), where the receiver has said where that is.
//
// It may be forbidden: to another user or user namespace, by Yama (kernel.yama.ptrace_scope 1 and more), by a container's
// seccomp filter. So it is tried when ranks connect, and where it failed messages go by their FIFO.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace tutti {

// By which a reader knows whose memory it has read, since a process's number may have come to belong to another one: a
// random number of a rank's own, and where it lies as long as the rank is there.
struct ShmProof {
  uint64_t number = 0, number_at = 0;
};

// Data path, but for the system call that it is for.
class ShmPeek {
 public:
  ShmPeek(pid_t pid, const ShmProof& proof) noexcept : pid_(pid), proof_(proof) {}

  // 0; or what the system says, EFAULT also where the memory is not the peer's, or not all of it is mapped there.
  // from_end: its last piece first, of block_piece_bytes or more, and so on to the first one.
  int read(std::byte* to, const std::byte* from, size_t bytes, bool from_end = false) const noexcept;
  // The same the other way. (Who the peer is can be seen only before.)
  int write(const std::byte* from, std::byte* to, size_t bytes, bool from_end = false) const noexcept;
  // Whether that may be done at all.
  bool works() const noexcept { return read(nullptr, nullptr, 0) == 0; }

 private:
  pid_t pid_;
  ShmProof proof_;
};

}  // namespace tutti
