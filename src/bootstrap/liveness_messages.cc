// What liveness tells: its messages' bytes, and ranks in sentences.
#include "bootstrap/liveness.h"

#include <fmt/format.h>

#include "bootstrap/messages.h"
#include "bootstrap/wire.h"

namespace tutti {

Bytes to_bytes(const Verdict& verdict) {
  return encode(Failure{verdict.code, verdict.rank, verdict.sentence});
}

Verdict verdict_from(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Verdict verdict;
  verdict.code = Code(reader.u32());
  verdict.rank = int(reader.u32());
  verdict.sentence = reader.text();
  if (verdict.code == Code::success) throw Error(Code::remote_error, "a verdict says that all is well");
  return verdict;
}

std::string rank_list(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

Bytes Liveness::gone_message(std::span<const Gone> ranks) {
  ByteWriter writer;
  writer.u8(uint8_t(MessageType::gone));
  for (const Gone& gone : ranks) {
    writer.u32(uint32_t(gone.rank));
    writer.u8(uint8_t(gone.manner));
  }
  return writer.take();
}

Bytes Liveness::idle_message(int rank, std::span<const int> near) {
  ByteWriter writer;
  writer.u8(uint8_t(MessageType::idle));
  writer.u32(uint32_t(rank));
  for (const int other : near) writer.u32(uint32_t(other));
  return writer.take();
}

Bytes Liveness::decision_message(uint32_t number, const Decision& decision) {
  ByteWriter writer;
  writer.u8(uint8_t(MessageType::decision));
  writer.u32(number);
  writer.u32(uint32_t(decision.taken_of()));
  writer.blob(decision.value());
  return writer.take();
}

Bytes Liveness::waiting_message(std::span<const WaitingCall> calls) {
  ByteWriter writer;
  writer.u8(uint8_t(MessageType::waiting));
  for (const WaitingCall& call : calls) {
    writer.u32(uint32_t(call.rank));
    writer.u64(call.number);
    writer.u64(call.signature);
    writer.u8(uint8_t(call.before.size()));
    for (const uint64_t signature : call.before) writer.u64(signature);
  }
  return writer.take();
}

std::vector<WaitingCall> Liveness::read_waiting(ByteReader& reader) const {
  std::vector<WaitingCall> calls;
  while (!reader.empty()) {
    const int rank = int(reader.u32());
    const uint64_t number = reader.u64(), signature = reader.u64();
    WaitingCall call{rank, number, signature, {}};
    for (unsigned before = reader.u8(); before > 0; --before) call.before.push_back(reader.u64());
    if (rank < 0 || rank >= size_ || call.before.size() > number)
      throw Error(Code::remote_error, "a liveness message tells of a rank or a call that does not exist");
    calls.push_back(std::move(call));
  }
  return calls;
}

Bytes Liveness::stuck_message(std::span<const StuckCall> calls) {
  ByteWriter writer;
  writer.u8(uint8_t(MessageType::stuck));
  for (const StuckCall& call : calls) {
    writer.u32(uint32_t(call.rank));
    writer.u32(call.serial);
    writer.u64(call.signature);
    writer.u8(call.receives);
    writer.u32(uint32_t(call.first));
    writer.u32(uint32_t(call.end));
    writer.u64(call.number);
    writer.u64(call.collectives);
    writer.u32(uint32_t(call.unserved.size()));
    for (const auto& [receiver, serial] : call.unserved) {
      writer.u32(uint32_t(receiver));
      writer.u32(serial);
    }
  }
  return writer.take();
}

std::vector<StuckCall> Liveness::read_stuck(ByteReader& reader) const {
  const auto exists = [this](int rank) { return rank >= 0 && rank < size_; };
  std::vector<StuckCall> calls;
  while (!reader.empty()) {
    StuckCall call;
    call.rank = int(reader.u32());
    call.serial = reader.u32();
    call.signature = reader.u64();
    call.receives = reader.u8() != 0;
    call.first = int(reader.u32());
    call.end = int(reader.u32());
    call.number = reader.u64();
    call.collectives = reader.u64();
    bool all_exist = exists(call.rank) && call.first >= 0 && call.first <= call.end && call.end <= size_;
    for (uint32_t left = reader.u32(); left > 0; --left) {
      const int receiver = int(reader.u32());
      all_exist = all_exist && exists(receiver);
      call.unserved.push_back({receiver, reader.u32()});
    }
    if (!all_exist) throw Error(Code::remote_error, "a liveness message tells of a rank that does not exist");
    calls.push_back(std::move(call));
  }
  return calls;
}

Bytes Liveness::proposal_message(const Bytes& wish) {
  ByteWriter writer;
  writer.u8(uint8_t(MessageType::proposal));
  writer.blob(wish);
  return writer.take();
}

}  // namespace tutti
