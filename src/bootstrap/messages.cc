// Encodes and decodes what is told while joining.
#include "bootstrap/messages.h"

#include <algorithm>

#include <fmt/format.h>

#include "bootstrap/address.h"
#include "bootstrap/wire.h"

namespace tutti {
namespace {

void write(ByteWriter& writer, const Member& member) {
  writer.u32(uint32_t(member.rank));
  writer.u32(uint32_t(member.size));
  writer.u64(member.identity);
  writer.text(member.host);
  writer.u64(uint64_t(member.pid));
  writer.u8(uint8_t(member.addresses.size()));
  for (const JobId::Address& address : member.addresses) write(writer, address);
}

Member read_member(ByteReader& reader) {
  Member member;
  member.rank = int(reader.u32());
  member.size = int(reader.u32());
  member.identity = reader.u64();
  member.host = reader.text();
  member.pid = int64_t(reader.u64());
  const size_t count = reader.u8();
  if (count > rank_address_max) throw Error(Code::remote_error, "a rank reports too many addresses");
  for (size_t i = 0; i < count; ++i) member.addresses.push_back(read_address(reader));
  return member;
}

}  // namespace

std::string Member::describe() const { return fmt::format("rank {} (host {}, pid {})", rank, host, pid); }

Bytes encode(const Member& member) {
  ByteWriter writer;
  write(writer, member);
  return writer.take();
}

Bytes encode(const Report& report) {
  ByteWriter writer;
  write(writer, report.member);
  writer.u64(uint64_t(report.left_ns));
  return writer.take();
}

Bytes encode(const Failure& failure) {
  ByteWriter writer;
  writer.u32(uint32_t(failure.code));
  writer.u32(uint32_t(failure.rank));
  writer.text(failure.sentence);
  return writer.take();
}

Bytes encode(std::span<const Member> members) {
  ByteWriter writer;
  writer.u32(uint32_t(members.size()));
  for (const Member& member : members) write(writer, member);
  return writer.take();
}

void MemberTable::put(int rank, std::span<const std::byte> encoded) {
  if (knows(rank)) return;
  if (ends_.empty()) {
    begins_.resize(size_t(size_));
    ends_.resize(size_t(size_));
  }
  begins_[size_t(rank)] = uint32_t(bytes_.size());
  bytes_.insert(bytes_.end(), encoded.begin(), encoded.end());
  ends_[size_t(rank)] = uint32_t(bytes_.size());
  if (++known_ == size_) bytes_.shrink_to_fit();
}

Member MemberTable::at(int rank) const {
  if (!knows(rank)) {
    Member member;
    member.rank = rank;
    return member;
  }
  return decode_member(std::span(bytes_).subspan(begins_[size_t(rank)], ends_[size_t(rank)] - begins_[size_t(rank)]));
}

std::string MemberTable::describe(int rank) const {
  return knows(rank) ? at(rank).describe() : fmt::format("rank {}", rank);
}

Member decode_member(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  return read_member(reader);
}

Report decode_report(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Report report;
  report.member = read_member(reader);
  report.left_ns = TimeNs(reader.u64());
  return report;
}

Failure decode_failure(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Failure failure;
  failure.code = Code(reader.u32());
  failure.rank = int(reader.u32());
  failure.sentence = reader.text();
  if (failure.code == Code::success) failure.code = Code::internal_error;
  return failure;
}

std::vector<Member> decode_members(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  std::vector<Member> members;
  for (uint32_t left = reader.u32(); left > 0; --left) members.push_back(read_member(reader));
  return members;
}

}  // namespace tutti
