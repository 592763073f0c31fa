// Copies: every way and store, every size and alignment, and which way a processor gets.
#include "reduce/copy.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "reduce/cases.h"

namespace tutti {
namespace {

TEST(Copy, EitherStoreCopiesExactlyTheBytesAtAnyAlignment) {
  std::mt19937_64 random(seed);
  const std::vector<uint8_t> source = mixed_elements(DataType::uint8, 9000, random);
  on_every_target([&] {
    for (const Store store : {Store::cached, Store::streaming})
      for (const size_t bytes : {0, 1, 63, 64, 65, 1023, 1024, 1025, 1087, 1088, 4096, 8191})
        for (size_t shift = 0; shift < 70; ++shift) {
          GuardedBytes output(bytes, shift);
          const uint8_t* input = source.data() + (shift * 7) % 64;
          copy_bytes(output.data(), input, bytes, store);
          ASSERT_TRUE(std::equal(input, input + bytes, output.data())) << bytes << " bytes, seed " << seed;
          ASSERT_TRUE(output.guards_intact());
        }
  });
}

TEST(Copy, SeveralOutputsGetTheSameBytesAtAnyAlignment) {
  std::mt19937_64 random(seed);
  const std::vector<uint8_t> source = mixed_elements(DataType::uint8, 9000, random);
  on_every_target([&] {
    for (const size_t bytes : {0, 1, 63, 64, 65, 255, 256, 257, 319, 320, 1024, 4096, 8191})
      for (size_t shift = 0; shift < 70; ++shift)
        for (const size_t apart : {size_t{0}, shift % 3}) {
          GuardedBytes a(bytes, shift), b(bytes, shift + apart), c(bytes, shift + 64);
          const uint8_t* input = source.data() + (shift * 7) % 64;
          void* const outputs[] = {a.data(), b.data(), c.data()};
          for (const int n : {1, 2, 3}) {
            for (int k = 0; k < n; ++k) std::fill_n(static_cast<uint8_t*>(outputs[k]), bytes, uint8_t(~input[0]));
            stream_bytes_to(outputs, n, input, bytes);
            stream_end();
            for (int k = 0; k < n; ++k)
              ASSERT_TRUE(std::equal(input, input + bytes, static_cast<uint8_t*>(outputs[k]))) << bytes << " bytes, shift " << shift;
          }
          ASSERT_TRUE(a.guards_intact() && b.guards_intact() && c.guards_intact());
        }
  });
}

TEST(Copy, EveryWayCopiesExactlyTheBytesAtAnyAlignment) {
  std::mt19937_64 random(seed);
  const std::vector<uint8_t> source = mixed_elements(DataType::uint8, 9000, random);
  on_every_target([&] {
    for (const CopyWay way : {CopyWay::library, CopyWay::vectors, CopyWay::string})
      for (const size_t bytes : {1, 31, 127, 128, 129, 255, 257, 511, 512, 513, 4096, 4159, 8191})
        for (size_t shift = 0; shift < 70; ++shift) {
          GuardedBytes output(bytes, shift);
          const uint8_t* input = source.data() + (shift * 7) % 64;
          copy_by(way, output.data(), input, bytes);
          ASSERT_TRUE(std::equal(input, input + bytes, output.data())) << int(way) << ": " << bytes << " bytes";
          ASSERT_TRUE(output.guards_intact());
        }
  });
}

TEST(Copy, WhateverItIsForItCopiesExactlyTheBytes) {
  const std::vector<uint8_t> source = [] {
    std::vector<uint8_t> bytes(70000);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * 31 >> 3);
    return bytes;
  }();
  on_every_target([&] {
    for (const auto copy : {copy_memory, copy_own, copy_passing, copy_large_passing, copy_from_memory})
      for (const size_t bytes : {0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 16383, 16384, 16385, 32767, 32768, 65537})
        for (const size_t shift : {0, 1, 63}) {
          GuardedBytes output(bytes, shift);
          const uint8_t* input = source.data() + shift / 3;
          copy(output.data(), input, bytes);
          ASSERT_TRUE(std::equal(input, input + bytes, output.data())) << bytes << " bytes";
          ASSERT_TRUE(output.guards_intact());
        }
  });
}

TEST(Copy, LargeOnesAreWholeByEveryWay) {
  for (const size_t bytes : {(1u << 19) - 1, 1u << 19, (1u << 19) + 1, (3u << 20) + 7}) {
    std::vector<uint8_t> source(bytes + 1);
    for (size_t i = 0; i < source.size(); ++i) source[i] = uint8_t(i * 31 >> 3);
    for (const CopyWay way : {CopyWay::library, CopyWay::vectors, CopyWay::string}) {
      GuardedBytes output(bytes, 3);
      copy_by(way, output.data(), source.data() + 1, bytes);
      ASSERT_TRUE(std::equal(source.begin() + 1, source.end(), output.data())) << int(way) << ": " << bytes << " bytes";
      ASSERT_TRUE(output.guards_intact());
    }
  }
}

TEST(Copy, TheWayFollowsTheProcessor) {
  const std::string_view amd = "AuthenticAMD", intel = "GenuineIntel";
  EXPECT_EQ(copy_way(amd, 0x19, true), CopyWay::vectors) << "Zen 3 and 4";
  EXPECT_EQ(copy_way(amd, 0x17, true), CopyWay::vectors) << "Zen 1 and 2";
  EXPECT_EQ(copy_way(amd, 0x1a, true), CopyWay::string) << "Zen 5";
  EXPECT_EQ(copy_way(amd, 0x1a, false), CopyWay::library);
  EXPECT_EQ(copy_way(amd, 0x15, true), CopyWay::library);
  EXPECT_EQ(copy_way(intel, 6, true), CopyWay::library);
  EXPECT_EQ(copy_way("", 0, false), CopyWay::library);
  EXPECT_EQ(copy_way_from_memory(CopyWay::vectors, true), CopyWay::string);
  EXPECT_EQ(copy_way_from_memory(CopyWay::vectors, false), CopyWay::vectors);
  for (const CopyWay way : {CopyWay::library, CopyWay::string}) EXPECT_EQ(copy_way_from_memory(way, true), way);
}

TEST(Copy, OntoItselfDoesNothing) {
  std::vector<uint8_t> data(5000, 7);
  copy_bytes(data.data(), data.data(), data.size(), Store::streaming);
  EXPECT_EQ(data, std::vector<uint8_t>(5000, 7));
}

}  // namespace
}  // namespace tutti
