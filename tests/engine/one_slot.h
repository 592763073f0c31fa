// A peer for tests of the engine that has one place for a message, and a cache in which nothing lies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace tutti {

// A peer that has sent a message already, and takes one slot at most. Slots of processes on one host are so.
class OneSlot final : public Endpoint {
 public:
  explicit OneSlot(size_t bytes) : message(bytes / 4), slot(bytes / 4) {}
  Status send(const std::byte* data, size_t bytes, uint64_t, size_t& bytes_done) noexcept override {
    if (!has_room && room_for-- <= 0) return Status::again;
    if (meanwhile != nullptr) {  // the first half of what comes here is there between the parts of what goes
      ++begun_meanwhile;
      meanwhile->bytes_done = meanwhile->bytes / 2;
      std::memcpy(meanwhile->data, message.data(), meanwhile->bytes_done);
    }
    std::memcpy(slot.data(), data, bytes);
    bytes_done = bytes;
    ++sent;
    keep(bytes);
    return Status::done;
  }
  Status recv(std::byte* data, size_t bytes, uint64_t, size_t& bytes_done) noexcept override {
    std::memcpy(data + bytes_done, reinterpret_cast<const std::byte*>(message.data()) + bytes_done, bytes - bytes_done);
    bytes_done = bytes;
    ++received;
    return release();
  }
  Status recv_past_caches(std::byte* data, size_t bytes, uint64_t tag, size_t& bytes_done) noexcept override {
    ++past_caches;
    return recv(data, bytes, tag, bytes_done);
  }
  std::byte* reserve(size_t) noexcept override {
    if (answers) return reinterpret_cast<std::byte*>(message.data());
    return has_room ? reinterpret_cast<std::byte*>(slot.data()) : nullptr;
  }
  std::byte* reserve_viewed(size_t) noexcept override {
    answers = answers_where_it_lies;
    return answers ? reinterpret_cast<std::byte*>(message.data()) : nullptr;
  }
  void commit(size_t bytes, uint64_t) noexcept override {
    ++committed;
    if (std::exchange(answers, false)) slot = message;
    keep(bytes);
  }
  Status flush() noexcept override { return Status::done; }
  bool stages() const noexcept override { return false; }
  Store slot_store(size_t) const noexcept override { return store; }
  bool learns_from_next() noexcept override { return learns; }
  void may_be_awaited() noexcept override { ++awaited; }
  void may_receive_meanwhile(const Meanwhile* other) noexcept override { meanwhile = other; }
  void may_send_on(size_t bytes) noexcept override { behind.push_back(bytes); }
  void may_read_on(const std::byte* data, size_t bytes, bool from_end, OwnCopy* own) noexcept override {
    block = {data, bytes, from_end, own};
    if (own != nullptr) own->copy_next(own->left() / 2);
    if (data != nullptr) blocks.push_back(block);
  }
  bool copies_to_view() const noexcept override { return lends; }
  Watch watch() const noexcept override { return lends ? Watch{&flag, 1} : Watch{}; }
  Outbox* outbox() noexcept override { return shared; }
  Status view(size_t, uint64_t, const std::byte*& data) noexcept override {
    data = reinterpret_cast<const std::byte*>(message.data());
    return Status::done;
  }
  Status release() noexcept override {
    ++released;
    return revoked ? Status::failed : Status::done;
  }
  const Fault& fault() const noexcept override { return fault_; }
  std::vector<float> message, slot;
  std::vector<std::vector<float>> messages;  // that came here
  bool has_room = true, answers_where_it_lies = false, revoked = false;
  Store store = Store::cached;
  bool learns = false;
  Outbox* shared = nullptr;
  int room_for = 0;  // so many messages all the same
  int sent = 0, received = 0, past_caches = 0, begun_meanwhile = 0, committed = 0, released = 0, awaited = 0;
  std::vector<size_t> behind;  // as may_send_on() was told
  bool lends = false;          // the message lies with the peer
  struct Block {               // as may_read_on() was told
    const std::byte* data;
    size_t bytes;
    bool from_end;
    const OwnCopy* own;
  };
  Block block{};
  std::vector<Block> blocks;  // all of them
  const Meanwhile* meanwhile = nullptr;

 private:
  const std::atomic<uint32_t> flag = 1;
  bool answers = false;  // the reserved place is the message's
  void keep(size_t bytes) { messages.emplace_back(slot.begin(), slot.begin() + ptrdiff_t(bytes / 4)); }
  Fault fault_;
};

// What a ColdOutputs asks that is to find every output cold, and how often it has asked.
inline int looked_at = 0;
inline bool cold(const void*, size_t, bool) noexcept { return ++looked_at > 0; }

}  // namespace tutti
