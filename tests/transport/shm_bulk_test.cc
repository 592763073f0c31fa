// Where messages lie in a bulk area: never one over another, and always room for two.
#include "transport/shm/shm_bulk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

namespace tutti {
namespace {

struct Message {
  size_t begin, end;
  uint32_t number;
};

// Random sizes, sent and consumed at random: what place() grants is aligned, inside, and free; what it refuses is
// refused for a reason.
TEST(ShmBulk, MessagesUnderWayNeverOverlap) {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (int round = 0; round < 500; ++round) {
    const size_t largest = 4096 << below(5), bytes = largest * (3 + below(3)), lap = 4096 << below(8);
    const uint32_t messages_max = 8u << below(3);
    ShmBulk bulk(bytes, lap, messages_max, 1 + below(4));
    std::deque<Message> under_way;
    uint32_t number = ~0u - uint32_t(below(2000));  // wraps on the way
    for (int step = 0; step < 1000; ++step) {
      number += 1 + uint32_t(below(3));  // others are inline
      const size_t size = below(4) == 0 ? largest : 1 + below(largest);
      const size_t room = below(3) == 0 ? std::min(3 * largest + 512, bytes) : bytes;
      const size_t at = bulk.place(size, 0, ShmBulk::npos, room);
      if (at == ShmBulk::npos) {
        const bool is_beyond = std::any_of(under_way.begin(), under_way.end(), [&](const Message& m) { return m.end > room; });
        ASSERT_GE(under_way.size(), is_beyond ? 1u : 2u) << "there is room for two of any size";
      } else {
        ASSERT_EQ(at % 64, 0u);
        ASSERT_LE(at + size, room);
        for (const Message& other : under_way)
          ASSERT_TRUE(at + size <= other.begin || other.end <= at) << at << " over " << other.begin;
        ASSERT_LT(under_way.size(), messages_max);
        bulk.take(at, size, number, below(2) * 512);
        under_way.push_back({at, at + size, number});
      }
      if (at == ShmBulk::npos || below(2) == 0) {
        for (size_t n = below(under_way.size() + 1); n > 0; --n) {
          ASSERT_EQ(bulk.oldest(), under_way.front().number);
          bulk.give_back(under_way.front().number, number);
          under_way.pop_front();
        }
        ASSERT_EQ(bulk.empty(), under_way.empty());
      }
    }
  }
}

TEST(ShmBulk, ALapEndsEarlyWhileTheReceiverKeepsUp) {
  constexpr size_t bytes = 1 << 20, lap = 32 * 1024, size = 4096;
  ShmBulk bulk(bytes, lap, 32, 4);
  for (uint32_t number = 1; number < 1000; ++number) {
    const size_t at = bulk.place(size);
    ASSERT_LE(at + size, lap);
    bulk.take(at, size, number);
    bulk.give_back(number - 2, number);
  }
}

TEST(ShmBulk, LargeMessagesUseAsManyPlacesAsALapHasAtLeast) {
  for (const size_t places : {1u, 2u, 4u}) {
    constexpr size_t size = 64 * 1024;
    ShmBulk bulk(16 * size, 4096, 32, places);
    std::set<size_t> used;
    for (uint32_t number = 1; number < 100; ++number) {
      const size_t at = bulk.place(size);
      used.insert(at);
      bulk.take(at, size, number);
      if (number > 1) bulk.give_back(number - 1, number);  // the one before, while this one is under way
    }
    EXPECT_EQ(used.size(), std::max<size_t>(places, 2)) << "two are under way at a time";
  }
}

// Whoever reads to the end of a small message fetches ahead what lies behind it.
TEST(ShmBulk, BehindAMessageAGapIsLeftIfThereIsRoom) {
  constexpr size_t bytes = 1 << 20, gap = 512;
  for (const bool all_read : {true, false}) {
    ShmBulk bulk(bytes, bytes, 32, 4);
    size_t begin = 0;
    uint32_t number = 0;
    for (const size_t size : {size_t{64}, size_t{4096}, bytes / 4 - gap, bytes / 4}) {
      ASSERT_EQ(bulk.place(size), begin);
      bulk.take(begin, size, ++number, gap);
      begin += size < bytes / 4 ? size + gap : size;
      if (all_read) bulk.give_back(number, number);
    }
    EXPECT_EQ(bulk.place(bytes / 4), begin);
  }
}

// Each page that is used for the first time costs a page fault: those of the first calls end soon.
TEST(ShmBulk, SmallMessagesThatAreReadAtOnceUseLittleOfTheRing) {
  constexpr size_t gap = 512, lap = 2 << 20;
  for (const size_t size : {64, 512, 1024, 4096, 16384}) {
    ShmBulk bulk(4 << 20, lap, 64, 4);
    std::set<size_t> used;
    size_t end = 0;
    for (uint32_t number = 1; number < 10'000; ++number) {
      const size_t at = bulk.place(size, gap);
      used.insert(at);
      end = std::max(end, at + size);
      bulk.take(at, size, number, gap);
      bulk.give_back(number, number);
    }
    EXPECT_LE(end, std::max(64 * (size + gap), ShmBulk::small_lap_bytes)) << size << " bytes";
    EXPECT_GE(used.size(), 64u) << size << " bytes: what was read lately is not overwritten";
  }
}

// As where a sender and a receiver share a core: it sends as much as it can, then some is read.
TEST(ShmBulk, ThereIsRoomForAsManySmallMessagesWithTheirGapsAsMayBeUnderWay) {
  constexpr size_t gap = 512, size = 64;
  constexpr uint32_t under_way_max = 32;
  std::mt19937 random(7);
  ShmBulk bulk(1 << 20, 128 * 1024, under_way_max, 2);
  uint32_t number = 0, read = 0;
  for (int turn = 0; turn < 1000; ++turn) {
    for (size_t at; (at = bulk.place(size, gap)) != ShmBulk::npos;) bulk.take(at, size, ++number, gap);
    ASSERT_EQ(number - read, under_way_max) << "turn " << turn;
    read += 1 + random() % under_way_max;
    bulk.give_back(read, number);
  }
}

TEST(ShmBulk, ACallCanMakeALapShorter) {
  constexpr size_t size = 32 * 1024;
  ShmBulk bulk(1 << 20, 256 * 1024, 32, 2);
  std::set<size_t> used;
  for (uint32_t number = 1; number < 100; ++number) {
    const size_t at = bulk.place(size, 0, 128 * 1024);
    used.insert(at);
    bulk.take(at, size, number);
    if (number > 1) bulk.give_back(number - 1, number);
  }
  EXPECT_EQ(used.size(), 4u);
}

// As where calls come one by one: what the receiver read lately is slow to overwrite.
TEST(ShmBulk, ALapGoesOnThoughAllHasBeenRead) {
  constexpr size_t lap = 1 << 20;
  for (const size_t size : {size_t{4096}, size_t{64 * 1024}, size_t{256 * 1024}, size_t{300'032}}) {
    constexpr uint32_t under_way_max = 32;
    ShmBulk bulk(4 * lap, lap, under_way_max, 4);
    std::set<size_t> used;
    for (uint32_t number = 1; number < 1000; ++number) {
      const size_t at = bulk.place(size);
      ASSERT_LE(at + size, lap);
      used.insert(at);
      bulk.take(at, size, number);
      bulk.give_back(number, number);
      ASSERT_TRUE(bulk.empty());
    }
    EXPECT_EQ(used.size(), std::min(lap / size, std::max<size_t>(under_way_max, ShmBulk::small_lap_bytes / size)));
  }
  ShmBulk bulk(4 * lap, 4096, 32, 4);
  for (uint32_t number = 1; number < 10; ++number) {
    ASSERT_EQ(bulk.place(8192), 0u) << "the lap is shorter than the message";
    bulk.take(0, 8192, number);
    bulk.give_back(number, number);
  }
}

// A small message has no place here, and 2^31 of them may come between two large ones.
TEST(ShmBulk, WhatWasReadLongAgoIsFree) {
  for (const uint32_t later : {1u, 40u, 0x7fff'ffffu, 0x8000'0000u, 0xffff'ff00u}) {
    ShmBulk bulk(3 * 4096, 4096, 8, 4);
    bulk.take(bulk.place(4096), 4096, 7);
    bulk.give_back(7 + later - 1, 7 + later);
    EXPECT_TRUE(bulk.empty()) << later;
  }
  ShmBulk bulk(3 * 4096, 4096, 8, 4);
  bulk.take(bulk.place(4096), 4096, 7);
  bulk.give_back(6, 9);
  EXPECT_FALSE(bulk.empty());
}

TEST(ShmBulk, ALapGoesOnWhileTheReceiverDoesNotRun) {
  ShmBulk bulk(1 << 20, 8192, 32, 4);
  for (uint32_t number = 1; number <= 32; ++number) {
    ASSERT_EQ(bulk.place(4096), (number - 1) * size_t{4096});
    bulk.take(bulk.place(4096), 4096, number);
  }
  EXPECT_EQ(bulk.place(4096), ShmBulk::npos) << "more messages than lines";
}

}  // namespace
}  // namespace tutti
