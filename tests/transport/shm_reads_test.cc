// How large messages are read: by where they and those before them go.
#include "transport/shm/shm_reads.h"

#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr size_t cache = 1 << 20, message = cache / 4;

// How many of the messages of an output read so pass through the caches.
size_t read_output(ShmReads& reads, const std::vector<std::byte>& output, size_t bytes) {
  size_t passing = 0;
  for (size_t at = 0; at < bytes; at += message) passing += reads.passes(output.data() + at, message);
  return passing;
}

TEST(ShmReads, OutputsThatACacheHoldsStayThere) {
  const std::vector<std::byte> output(cache);
  ShmReads reads(cache);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(read_output(reads, output, cache), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(reads.passes(output.data(), message)) << "the same place again and again";
}

TEST(ShmReads, LargerOnesPassFromTheirSecondTimeOnAsAWhole) {
  const std::vector<std::byte> output(2 * cache);
  ShmReads reads(cache);
  EXPECT_EQ(read_output(reads, output, 2 * cache), 4u) << "the first time, what is more than the cache holds";
  for (int i = 0; i < 10; ++i) EXPECT_EQ(read_output(reads, output, 2 * cache), 8u);
  EXPECT_TRUE(reads.passes(output.data(), message)) << "the start of another large one, as far as is known";
  EXPECT_FALSE(reads.passes(output.data(), message)) << "small ones follow";
}

TEST(ShmReads, WhatIsReadIsTheMessageByEitherWay) {
  std::vector<std::byte> output(2 * cache + 3), place(message);
  for (size_t i = 0; i < place.size(); ++i) place[i] = std::byte(i * 31 >> 3);
  for (const bool past_caches : {false, true}) {
    ShmReads reads(cache);
    reads.past_caches = past_caches;
    std::fill(output.begin(), output.end(), std::byte{0});
    for (size_t at = 3; at < output.size(); at += message) {
      reads.read(output.data() + at, place.data(), message);
      ASSERT_TRUE(std::equal(place.begin(), place.end(), output.begin() + ptrdiff_t(at)));
    }
  }
}

}  // namespace
}  // namespace tutti
