// How a sender copies small messages that several ranks read into their places, where string instructions are the usual way
// (reduce/copy.h; the C library uses them from 2 KiB on, too): by them or by vectors. Learned from how long either takes.
//
// Vectors fetch the lines that they overwrite, string instructions do not. Where the readers' cores are near, or one of the
// readers shares the writer's, vectors take half the time; where lines would come from far, up to twice as long.
// ShmWrites, which learns whether to write past the caches, does not see these messages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/cpu.h"
#include "reduce/copy.h"

namespace tutti {

class ShmWays {
 public:
  // Of the messages that it is for. Larger ones are written no faster by vectors.
  static constexpr size_t bytes_min = 2 * 1024, bytes_max = 32 * 1024 - 1;

  // Of the next message. Where `timed`, took() is to be told.
  struct Way {
    bool by_vectors;
    bool timed;
  };
  Way next() noexcept {
    const uint32_t i = writes_++ % looks_every;
    return {by_vectors_ != (i == 0), i <= 1};
  }

  void took(Way way, size_t bytes, TimeNs ns) noexcept {
    if (way.by_vectors != by_vectors_) {
      other_bytes_ = bytes;
      other_ns_ = ns;
      return;
    }
    if (bytes != other_bytes_) return;
    streak_ = gain * other_ns_ < (gain - 1) * ns ? streak_ + 1 : 0;
    if (streak_ < streak_min) return;
    by_vectors_ = !by_vectors_;
    streak_ = 0;
  }

  // Writes a message, and learns from it.
  void write(std::byte* place, const std::byte* data, size_t bytes) noexcept {
    const Way way = next();
    if (!way.timed) return copy(way, place, data, bytes);
    const TimeNs start = now_ns();
    copy(way, place, data, bytes);
    await_own_stores();  // else what is measured is how fast they are told of
    took(way, bytes, now_ns() - start);
  }

 private:
  static constexpr uint32_t looks_every = 61;  // two of so many; ranks tend to write powers of two between two hand-overs
  static constexpr TimeNs gain = 8;            // the other way is taken if it saves an eighth
  static constexpr uint32_t streak_min = 2;    // a look may have met a moment when another had the core

  static void copy(Way way, std::byte* place, const std::byte* data, size_t bytes) noexcept {
    if (way.by_vectors) copy_large_passing(place, data, bytes);
    else copy_memory(place, data, bytes);
  }

  uint32_t writes_ = 0, streak_ = 0;
  bool by_vectors_ = false;
  size_t other_bytes_ = 0;  // of the last message that was written by the other way
  TimeNs other_ns_ = 0;
};

}  // namespace tutti
