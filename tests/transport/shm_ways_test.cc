// Ways of writing what several ranks read: the faster one is found, also after it has changed.
#include "transport/shm/shm_ways.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

// Writes n messages of 4 KiB, which take so long. How many were by vectors.
int write(ShmWays& ways, int n, TimeNs usual, TimeNs vectors) {
  int by_vectors = 0;
  for (int i = 0; i < n; ++i) {
    const ShmWays::Way way = ways.next();
    by_vectors += way.by_vectors;
    if (way.timed) ways.took(way, 4096, way.by_vectors ? vectors : usual);
  }
  return by_vectors;
}

TEST(ShmWays, TheFasterOneIsTaken) {
  ShmWays ways;
  write(ways, 200, 200, 100);
  EXPECT_GT(write(ways, 1000, 200, 100), 980);
  write(ways, 200, 200, 400);  // the cores are far now
  EXPECT_LT(write(ways, 1000, 200, 400), 20);
  write(ways, 200, 200, 100);
  EXPECT_GT(write(ways, 1000, 200, 100), 980);
}

TEST(ShmWays, WhereTheyAreAlikeItStays) {
  ShmWays ways;
  EXPECT_LT(write(ways, 1000, 200, 190), 20);
  write(ways, 200, 200, 100);
  EXPECT_GT(write(ways, 1000, 190, 200), 980);
}

TEST(ShmWays, AMomentThatAnotherHadTheCoreChangesNothing) {
  ShmWays ways;
  write(ways, 1, 200, 210);
  write(ways, 1, 1'000'000, 210);
  EXPECT_LT(write(ways, 1000, 200, 210), 20);
}

TEST(ShmWays, MessagesOfOtherSizesAreNotCompared) {
  ShmWays ways;
  for (int i = 0; i < 1000; ++i) {
    const ShmWays::Way way = ways.next();
    EXPECT_FALSE(way.by_vectors && !way.timed) << i;
    if (way.timed) ways.took(way, way.by_vectors ? 2048 : 16384, way.by_vectors ? 20 : 160);
  }
}

TEST(ShmWays, WhatIsWrittenIsWhole) {
  ShmWays ways;
  std::vector<std::byte> data(ShmWays::bytes_max + 1), place(data.size() + 1);
  for (size_t i = 0; i < data.size(); ++i) data[i] = std::byte(i * 31 >> 3);
  for (size_t bytes = ShmWays::bytes_min; bytes <= ShmWays::bytes_max; bytes += 157) {
    place[bytes] = std::byte{77};
    ways.write(place.data(), data.data() + 1, bytes);
    ASSERT_TRUE(std::equal(place.begin(), place.begin() + ptrdiff_t(bytes), data.begin() + 1)) << bytes;
    ASSERT_EQ(place[bytes], std::byte{77}) << bytes;
  }
}

}  // namespace
}  // namespace tutti
