// Memory that ranks of one host lend each other: a message then lies in the sender's own memory, and its line says where.
//
// Every rank has a mailbox. Before a rank lends a slice of a region to a peer for the first time, it puts the region's
// descriptor into the peer's mailbox; the peer looks there when a line names a region that it does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "base/fd.h"
#include "memory/lent_region.h"
#include "memory/memory_file.h"

namespace tutti {

// One peer, who is told of this rank's regions. Data path, except that the first slice of a region costs a system call.
class ShmLender {
 public:
  ShmLender() = default;
  // mailbox: of the peer. rank: who lends.
  ShmLender(Fd mailbox, int rank) : mailbox_(std::move(mailbox)), rank_(rank) {}

  // True: the peer has the region's descriptor, or will find it in its mailbox. False: its mailbox is full, it knows
  // as many regions as it should, or the program has closed the descriptor.
  bool tell(const LentRegion& region) noexcept;

 private:
  // Each costs the peer a mapping, and is never forgotten: a region's number is not used again.
  static constexpr size_t told_max = 1024;

  Fd mailbox_;
  int rank_ = -1;
  std::set<uint64_t> told_;
};

// This rank's mailbox, and the regions that peers have told of.
class ShmBorrower {
 public:
  // Throws Error(system_error).
  ShmBorrower();

  int mailbox_fd() const noexcept { return write_end_.get(); }
  // Where `bytes` bytes of that rank's lie here. Null: see error_number().
  std::byte* find(int rank, const LentPlace& place, size_t bytes) noexcept;
  int error_number() const noexcept { return error_number_; }

 private:
  using Name = std::pair<int, uint64_t>;  // rank and region
  bool take_one();

  Fd read_end_, write_end_;
  std::map<Name, Mapping> borrowed_;
  int error_number_ = 0;
};

}  // namespace tutti
