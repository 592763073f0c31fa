// A queue of events by time for simulators: a radix heap (Ahuja, Mehlhorn, Orlin, Tarjan, "Faster algorithms for the
// shortest path problem", JACM 1990).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace tutti {

// Times never go back: what is pushed is not before what was popped last. Equal times leave in one fixed order. Every
// event moves to ever lower buckets, which are read and written in a row.
class TimeQueue {
 public:
  struct Event {
    double time;  // not negative
    uint32_t item;
  };

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // Of what was popped last.
  double now() const { return std::bit_cast<double>(last_); }

  void push(double time, uint32_t item) {
    const uint64_t key = std::bit_cast<uint64_t>(time);
    TUTTI_ASSERT(key >= last_);
    buckets_[size_t(std::bit_width(key ^ last_))].push_back({time, item});
    ++size_;
  }

  Event pop() {
    if (next_ == buckets_[0].size()) refill();
    const Event event = buckets_[0][next_++];
    --size_;
    if (next_ == buckets_[0].size()) {
      buckets_[0].clear();
      next_ = 0;
    }
    return event;
  }

 private:
  // The first bucket with events is emptied into lower ones: its earliest time is the new last.
  void refill() {
    size_t i = 1;
    while (buckets_[i].empty()) ++i;
    std::vector<Event>& bucket = buckets_[i];
    uint64_t earliest = ~uint64_t{0};
    for (const Event& event : bucket) earliest = std::min(earliest, std::bit_cast<uint64_t>(event.time));
    last_ = earliest;
    for (const Event& event : bucket)
      buckets_[size_t(std::bit_width(std::bit_cast<uint64_t>(event.time) ^ last_))].push_back(event);
    bucket.clear();
  }

  std::array<std::vector<Event>, 65> buckets_;  // [bits in which a time differs from last_]
  size_t next_ = 0;                             // of bucket 0: what is before has left
  size_t size_ = 0;
  uint64_t last_ = 0;
};

}  // namespace tutti
