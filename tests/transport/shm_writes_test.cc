// How large messages are written: from the times that writes take, and never for good.
#include "transport/shm/shm_writes.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr size_t bytes = 64 * 1024, cache = 1 << 20;
constexpr TimeNs kib = bytes / 1024;

// `usual` and `past` ns a KiB. How many of `n` writes went past the caches.
int write(ShmWrites& writes, int n, TimeNs usual, TimeNs past) {
  int streamed = 0;
  for (int i = 0; i < n; ++i) {
    const ShmWrites::Way way = writes.next();
    const bool streams = way.store == Store::streaming;
    streamed += streams;
    if (way.timed) writes.took(way.store, bytes, kib * (streams ? past : usual));
  }
  return streamed;
}

TEST(ShmWrites, NearNeighboursAreWrittenToAsUsual) {
  ShmWrites writes(0, cache);
  EXPECT_EQ(write(writes, 10'000, 30, 100), 0);
  EXPECT_EQ(write(writes, 10'000, 150, 35), 0) << "even where it would be slower";
  EXPECT_EQ(writes.store(1 << 20), Store::cached);
  EXPECT_EQ(writes.store(64), Store::cached);
}

TEST(ShmWrites, FarOnesPastTheCachesUntilTheyAreNear) {
  ShmWrites writes(0, cache);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_GT(write(writes, 1000, turn == 0 ? 240 : 500, 60), 950) << "all but the first, and a try now and then";
    EXPECT_EQ(writes.store(1 << 20), Store::streaming);
    EXPECT_EQ(writes.store(ShmWrites::bytes_min), Store::streaming);
    EXPECT_EQ(writes.store(ShmWrites::bytes_min - 1), Store::cached);
    write(writes, 300, 60, 60);
    EXPECT_EQ(writes.store(1 << 20), Store::cached);
    EXPECT_EQ(write(writes, 1000, 60, 60), 0);
  }
}

TEST(ShmWrites, BehindSmallMessagesThatLieInTheCachesAGapIsLeft) {
  ShmWrites writes(0, cache);
  EXPECT_EQ(writes.gap(64), ShmWrites::gap_bytes);
  EXPECT_EQ(writes.gap(ShmWrites::gap_message_bytes_max), ShmWrites::gap_bytes);
  EXPECT_EQ(writes.gap(ShmWrites::gap_message_bytes_max + 1), 0u);
  write(writes, 1000, 500, 60);
  EXPECT_EQ(writes.gap(64), 0u);
}

// A sender that stores most messages by itself, until it is told otherwise.
TEST(ShmWrites, FarOnesAreKnownAlsoWhereMostIsStoredElsewhere) {
  ShmWrites writes(0, cache);
  int elsewhere = 0;
  for (int i = 0; i < 100; ++i) {
    if (writes.learns_from_next()) write(writes, 1, 500, 60);
    else ++elsewhere;
  }
  EXPECT_EQ(writes.store(1 << 20), Store::streaming);
  EXPECT_LT(elsewhere, 20);
  ShmWrites near(0, cache);
  elsewhere = 0;
  for (int i = 0; i < 1000; ++i) {
    if (near.learns_from_next()) EXPECT_EQ(write(near, 1, 40, 60), 0);
    else ++elsewhere;
  }
  EXPECT_EQ(elsewhere, 875) << "all but one in eight";
}

TEST(ShmWrites, AMomentThatAnotherHadTheCoreChangesNothing) {
  ShmWrites writes(0, cache);
  for (int turn = 0; turn < 100; ++turn) {
    EXPECT_EQ(write(writes, 3, 50'000, 35), 0);
    EXPECT_EQ(write(writes, 20, 40, 35), 0);
  }
}

TEST(ShmWrites, WhereMemoryItselfIsSlowTheyStayAsUsual) {
  ShmWrites writes(0, cache);
  EXPECT_LT(write(writes, 10'000, 400, 300), 1000) << "short tries";
  EXPECT_EQ(writes.store(1 << 20), Store::cached);
}

TEST(ShmWrites, FreshPlacesAreNotJudged) {
  ShmWrites writes(4 << 20, cache);
  EXPECT_EQ(write(writes, (4 << 20) / bytes, 1000, 60), 0);
  EXPECT_EQ(write(writes, 1000, 40, 60), 0);
}

TEST(ShmWrites, WhatIsWrittenIsTheMessageWhereverItComesFrom) {
  const size_t message = 100 * 1024, all = 2 * cache;
  std::vector<std::byte> input(all), place(message + 64);
  for (size_t i = 0; i < all; ++i) input[i] = std::byte(i * 31 >> 3);
  ShmWrites writes(0, cache);
  for (const bool learns : {true, false})
    for (const size_t shift : {0, 1, 64})
      for (size_t at = 0; at < all; at += message) {
        const size_t n = std::min(message, all - at);
        std::fill(place.begin(), place.end(), std::byte{0});
        if (learns) writes.write(place.data() + shift, input.data() + at, n);
        else writes.write_as_usual(place.data() + shift, input.data() + at, n);
        EXPECT_TRUE(std::equal(input.begin() + long(at), input.begin() + long(at + n), place.begin() + long(shift))) << at;
      }
}

// The writes are timed, so on a busy machine some go past the caches by themselves.
TEST(ShmWrites, LongInputsAreKnownFromTheirLastTimeHoweverTheyAreWritten) {
  const size_t message = 256 * 1024, all = ShmWrites::long_bytes + message;
  const std::vector<std::byte> input(all);
  std::vector<std::byte> place(message);
  for (const bool far : {false, true}) {
    ShmWrites writes(0, cache);
    if (far) write(writes, 1000, 500, 60);
    ASSERT_EQ(writes.store(message), far ? Store::streaming : Store::cached);
    for (int round = 0; round < 3; ++round)
      for (size_t at = 0; at < all; at += message) {
        ASSERT_EQ(writes.streams_long(), round > 0) << "far " << far << ", at " << at;
        writes.write(place.data(), input.data() + at, message);
      }
    EXPECT_TRUE(writes.streams_long());
    for (int i = 0; i < 2; ++i) writes.write(place.data(), input.data(), message);
    EXPECT_FALSE(writes.streams_long()) << "two short ones followed";
  }
}

// Where the inputs were looked at, relative to the one that is tested.
std::vector<size_t> looked_at;
const std::byte* looked_from = nullptr;
bool is_in_none(const void* memory, size_t, bool) noexcept {
  looked_at.push_back(size_t(static_cast<const std::byte*>(memory) - looked_from));
  return true;
}

TEST(ShmWrites, OnlyLongInputsAreLookedAtWhereTheyBeginAndOnceAMegabyte) {
  const size_t message = 64 * 1024, all = 3 << 20, half = message / 2;
  const std::vector<std::byte> input(all);
  std::vector<std::byte> place(message);
  looked_from = input.data();
  const auto write_first = [&](ShmWrites& writes, size_t n) {
    looked_at.clear();
    for (size_t at = 0; at < n; at += message) writes.write_as_usual(place.data(), input.data() + at, std::min(message, n - at));
    return looked_at;
  };
  using Places = std::vector<size_t>;
  constexpr size_t mib = 1 << 20;
  ShmWrites writes(0, cache, is_in_none);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(write_first(writes, cache), Places{}) << "it fits this core's caches";
  EXPECT_EQ(write_first(writes, all), (Places{mib + half, 2 * mib + half})) << "that it is long shows only there";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(write_first(writes, all), (Places{half, mib + half, 2 * mib + half}));
  EXPECT_EQ(write_first(writes, cache), Places{half}) << "may be the begin of another long one";
  EXPECT_EQ(write_first(writes, cache), Places{});

  ShmWrites never(0, cache, nullptr);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(write_first(never, all), Places{}) << "where it makes no difference";
}

TEST(ShmWrites, WhatComesFromMemoryIsTheMessageToo) {
  const size_t message = 100 * 1024, all = 2 * cache;
  std::vector<std::byte> input(all), place(message + 64);
  for (size_t i = 0; i < all; ++i) input[i] = std::byte(i * 31 >> 3);
  looked_from = input.data();
  ShmWrites writes(0, cache, is_in_none);
  for (const size_t shift : {0, 1, 64})
    for (int round = 0; round < 2; ++round)
      for (size_t at = 0; at < all; at += message) {
        const size_t n = std::min(message, all - at);
        std::fill(place.begin(), place.end(), std::byte{0});
        writes.write_as_usual(place.data() + shift, input.data() + at, n);
        ASSERT_TRUE(std::equal(input.begin() + long(at), input.begin() + long(at + n), place.begin() + long(shift))) << at;
      }
}

TEST(ShmWrites, FewWritesAreTimed) {
  ShmWrites writes(0, cache);
  int timed = 0;
  for (int i = 0; i < 8000; ++i) {
    const ShmWrites::Way way = writes.next();
    if (!way.timed) continue;
    ++timed;
    writes.took(way.store, bytes, kib * 40);
  }
  EXPECT_EQ(timed, 1000);
}

}  // namespace
}  // namespace tutti
