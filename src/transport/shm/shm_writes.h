// How a sender writes large messages into their places: as usual, or past the caches. Learned from how long it takes. And, as
// usual, from its caches or from memory: a long input is looked at, now and then.
//
// Between cores that share a cache the usual way is faster by far. Between cores that share none it depends on the
// machine: on Zen 4 lines that lie in the other core's caches are overwritten at 2 GB/s, and memory takes 7 GB/s. Which
// cores are so far apart the topology should know, but that of a virtual machine does not, and the cores change. So some
// writes are timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "reduce/cold.h"
#include "reduce/copy.h"
#include "transport/shm/shm_run.h"

namespace tutti {

class ShmWrites {
 public:
  // Smaller messages are written as usual.
  static constexpr size_t bytes_min = 2 * 1024;

  using Look = bool (*)(const void* memory, size_t bytes, bool surely) noexcept;

  // The first `fresh_bytes` bytes are not judged: their places are made on being touched. in_none: whether memory lies in no
  // cache; null where that is nothing to a copy.
  ShmWrites(size_t fresh_bytes, size_t own_cache_bytes, Look in_none = strings_copy_well() ? nullptr : in_no_cache)
      : fresh_bytes_(fresh_bytes), in_none_(in_none), input_(own_cache_bytes) {}

  // For who stores a message there by itself.
  Store store(size_t bytes) const noexcept { return past_caches_ && bytes >= bytes_min ? Store::streaming : Store::cached; }

  // What is left free behind a message. A core that reads a small one to its end fetches the lines that follow, and so
  // takes them away from a sender who is about to write the next message there. (Measured, Zen 4, near: messages of 1, 4
  // and 8 KiB that their receiver waits for, 0.14, 0.38 and 0.32 µs each without a gap, 0.12, 0.18 and 0.25 with it; from
  // 16 KiB on it makes no difference. Past the caches it costs up to a third.)
  size_t gap(size_t bytes) const noexcept { return past_caches_ || bytes > gap_message_bytes_max ? 0 : gap_bytes; }

  // For who would store the next message by itself: whether it had better be written here, and timed.
  bool learns_from_next() noexcept {
    due_ = past_caches_ || streak_ > 0 || ++stored_elsewhere_ % looks_every == 0;
    return due_;
  }

  // Of the next message, no smaller than bytes_min. Where `timed`, took() is to be told.
  struct Way {
    Store store;
    bool timed;
  };
  Way next() noexcept {
    const uint32_t i = writes_++;
    const bool due = std::exchange(due_, false);
    if (!past_caches_) return {Store::cached, due || streak_ > 0 || i % looks_every == 0};
    const bool tries = i % tries_every == 0;
    return {tries ? Store::cached : Store::streaming, tries || i % tries_every == tries_every / 2};
  }

  // Writes a message, and learns from it.
  void write(std::byte* place, const std::byte* data, size_t bytes) noexcept {
    if (bytes < bytes_min) return copy_memory(place, data, bytes);
    const Way way = next();
    const TimeNs start = way.timed ? now_ns() : 0;
    if (way.store == Store::cached) {
      write_as_usual(place, data, bytes);
    } else {
      know_input(data, bytes);
      copy_bytes(place, data, bytes, Store::streaming);
    }
    if (way.timed) took(way.store, bytes, now_ns() - start);
  }

  // Whether what is written belongs to a long input, as this or the last one tells.
  bool streams_long() const noexcept { return input_.bytes_together() > long_bytes; }

  // Writes a message or a part of one, and learns nothing.
  void write_as_usual(std::byte* place, const std::byte* data, size_t bytes) noexcept {
    know_input(data, bytes);
    if (bytes >= row_bytes_min && input_is_cold_) copy_from_memory(place, data, bytes);
    else copy_memory(place, data, bytes);
  }

  void took(Store store, size_t bytes, TimeNs ns) noexcept {
    const uint64_t kib_ns = uint64_t(ns) * 1024 / bytes;
    if (store == Store::cached) took_usual(bytes, kib_ns);
    else regrets_ = gain_min * kib_ns > usual_kib_ns_ ? regrets_ + 1 : 0;
    if (regrets_ == regrets_max) give_up();
  }

  static constexpr size_t long_bytes = 8 << 20;
  static constexpr size_t gap_bytes = 512, gap_message_bytes_max = 16 * 1024 - 1;

 private:
  static constexpr size_t row_bytes_min = 8 * 1024;  // what is less does not stand in a row
  static constexpr size_t bytes_a_look = size_t{1} << 20;
  static constexpr uint64_t far_kib_ns = 180;  // a KiB takes 25 to 150 ns where the cores are near, 240 to 500 where far
  static constexpr uint64_t gain_min = 3;      // what the other way must be better by, or memory itself is what is slow
  static constexpr uint32_t looks_every = 8, tries_every = 128;
  static constexpr uint32_t far_streak = 4, near_streak = 2;  // a look may have met a moment when another had the core
  static constexpr uint32_t regrets_max = 2, rest_looks = 500;  // of the other way; until it is thought of again

  // Of each message, however it is written. What exceeds this core's caches may lie in the last one; so it is looked at where it
  // begins, and each megabyte of it: in a second half, since what follows the last message may be on its way here already.
  void know_input(const std::byte* data, size_t bytes) noexcept {
    if (bytes < row_bytes_min) return;
    const bool begins = input_.add(data, bytes);
    if (in_none_ == nullptr) return;
    if (!input_.exceeds_caches()) {
      input_is_cold_ = false;
      looked_at_ = nullptr;
    } else if (begins || uintptr_t(data) - uintptr_t(looked_at_) >= bytes_a_look) {
      input_is_cold_ = in_none_(data + bytes / 2, bytes / 2, false);
      looked_at_ = data;
    }
  }

  void took_usual(size_t bytes, uint64_t kib_ns) noexcept {
    if (fresh_bytes_ > 0) {
      const size_t written = looks_every * bytes;  // since the last look, as a rule
      fresh_bytes_ -= fresh_bytes_ < written ? fresh_bytes_ : written;
      return;
    }
    if (rest_ > 0) {
      --rest_;
      return;
    }
    usual_kib_ns_ = kib_ns;
    const bool is_far = kib_ns > far_kib_ns;
    streak_ = is_far == past_caches_ ? 0 : streak_ + 1;
    if (streak_ < (past_caches_ ? near_streak : far_streak)) return;
    past_caches_ = is_far;
    streak_ = 0;
  }

  void give_up() noexcept {
    past_caches_ = false;
    streak_ = regrets_ = 0;
    rest_ = rest_looks;
  }

  size_t fresh_bytes_;
  uint64_t usual_kib_ns_ = 0;
  uint32_t writes_ = 0, stored_elsewhere_ = 0, streak_ = 0, regrets_ = 0, rest_ = 0;
  bool past_caches_ = false, due_ = false;
  const Look in_none_;
  bool input_is_cold_ = false;  // a long input lies in no cache, or did where it was looked at last:
  const std::byte* looked_at_ = nullptr;
  ShmRun input_;
};

}  // namespace tutti
