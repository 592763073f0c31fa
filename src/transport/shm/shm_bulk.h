// Where in a FIFO's bulk area messages lie that are under way: a ring, kept by the sender alone. The receiver is told
// the place of each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

class ShmBulk {
 public:
  static constexpr size_t npos = ~size_t{0};
  static constexpr size_t small_lap_bytes = 128 * 1024;

  // Of at most `messages_max` messages at a time, a power of two. For lap_bytes and lap_messages_min see place().
  ShmBulk(size_t bytes, size_t lap_bytes, uint32_t messages_max, size_t lap_messages_min = 1)
      : bytes_(bytes), lap_bytes_(lap_bytes), lap_messages_min_(lap_messages_min), under_way_(messages_max) {}

  // Where the next message of `bytes` bytes may lie, in one piece; npos where there is no room. While no message has more
  // than a third of the ring, there is room for two at least. gap: as at take().
  //
  // A lap ends after lap_bytes, which this call can make less, or as many messages of this size, with their gaps, as may be
  // under way, yet not before lap_messages_min, unless the receiver is so far behind that there is no room at the start:
  // memory that was used lately is in some cache. With lap_bytes of all bytes, a lap is the whole ring.
  //
  // Also where all messages have been read, the next lies behind the last one while the lap lasts, which then is of
  // small_lap_bytes at least: what a receiver read lately is slow to overwrite. It is not of all lap_bytes, since each page
  // of the ring that is used for the first time costs a page fault, which is long beside a small message.
  // A call can also leave what is beyond room_bytes_max to other messages.
  size_t place(size_t bytes, size_t gap = 0, size_t lap_bytes_max = npos, size_t room_bytes_max = npos) const noexcept {
    const size_t size = rounded(bytes), lap_bytes = std::min(lap_bytes_, lap_bytes_max), room = std::min(bytes_, room_bytes_max);
    const size_t of_as_many = under_way_.size() * (size + gap);
    if (empty()) return end_ + size <= std::min({lap_bytes, std::max(of_as_many, small_lap_bytes), room}) ? end_ : 0;
    if (last_ - first_ == under_way_.size()) return npos;
    const size_t lap = lap_bytes >= room ? room : std::max(std::min(lap_bytes, of_as_many), lap_messages_min_ * size);
    const Message &first = at(first_), &last = at(last_ - 1);
    if (last.begin < first.begin) return last.end + size <= std::min(first.begin, room) ? last.end : npos;
    const bool room_at_start = size <= first.begin;
    if (last.end + size <= (room_at_start ? std::min(lap, room) : room)) return last.end;
    return room_at_start ? 0 : npos;
  }
  // The message `number` lies there, and what follows begins no sooner than `gap` bytes behind it, unless it is large
  // beside the ring. Numbers ascend, not each of them, and wrap at 2^32.
  void take(size_t place, size_t bytes, uint32_t number, size_t gap = 0) noexcept {
    const size_t size = rounded(bytes);
    end_ = place + (size + gap <= bytes_ / 4 ? size + gap : size);
    at(last_++) = {number, place, end_};
  }
  // Of the messages up to number `sent`, those up to `consumed` have been read.
  void give_back(uint32_t consumed, uint32_t sent) noexcept {
    while (!empty() && is_consumed(oldest(), consumed, sent)) ++first_;
  }
  // However long ago the message was sent: few are under way, and all others were read.
  static bool is_consumed(uint32_t number, uint32_t consumed, uint32_t sent) noexcept {
    return sent - number >= sent - consumed;
  }
  bool empty() const noexcept { return first_ == last_; }
  uint32_t oldest() const noexcept { return at(first_).number; }

 private:
  struct Message {
    uint32_t number;
    size_t begin, end;
  };
  static size_t rounded(size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }
  Message& at(uint32_t i) noexcept { return under_way_[i & (under_way_.size() - 1)]; }
  const Message& at(uint32_t i) const noexcept { return under_way_[i & (under_way_.size() - 1)]; }

  size_t bytes_, lap_bytes_, lap_messages_min_;
  std::vector<Message> under_way_;  // [first_, last_)
  uint32_t first_ = 0, last_ = 0;
  size_t end_ = 0;  // of the last message, which may have been read
};

}  // namespace tutti
