// What ranks and the meeting place tell each other while joining.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace tutti {

// One rank, as it describes itself.
struct Member {
  int rank = 0;
  int size = 0;
  uint64_t identity = 0;  // of its listener (handshake.h)
  std::string host;
  int64_t pid = 0;
  std::vector<JobId::Address> addresses;  // of its listener, at most rank_address_max

  std::string describe() const;  // "rank 3 (host a, pid 77)"
};

// A rank's first word to the meeting place.
struct Report {
  Member member;
  TimeNs left_ns = 0;  // how long it will wait
};

struct Failure {
  Code code = Code::internal_error;
  int rank = -1;
  std::string sentence;
};

Bytes encode(const Member& member);
Bytes encode(const Report& report);
Bytes encode(const Failure& failure);
Bytes encode(std::span<const Member> members);
// Throw Error(remote_error) where the bytes are no such message.
Member decode_member(std::span<const std::byte> bytes);
Report decode_report(std::span<const std::byte> bytes);
Failure decode_failure(std::span<const std::byte> bytes);
std::vector<Member> decode_members(std::span<const std::byte> bytes);

// What a rank knows of the others, as they told it: a few dozen bytes for each.
class MemberTable {
 public:
  explicit MemberTable(int size) : size_(size) {}

  // encoded: as encode(member) has it; a member whose table entry is there stays as it is.
  void put(int rank, std::span<const std::byte> encoded);
  bool knows(int rank) const { return !ends_.empty() && ends_[size_t(rank)] != 0; }
  bool complete() const { return known_ == size_; }
  // Of a rank that it does not know, the rank alone. Throws as decode_member does.
  Member at(int rank) const;
  // "rank 3" where it knows no more.
  std::string describe(int rank) const;

 private:
  const int size_;
  int known_ = 0;
  Bytes bytes_;
  std::vector<uint32_t> begins_, ends_;  // in bytes_; ends 0: not known
};

}  // namespace tutti
