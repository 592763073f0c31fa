// Whether memory lies in a cache, as loads tell.
#include "reduce/cold.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace tutti {
namespace {

constexpr int looks = 500;

uint64_t measured = 0;
uint64_t measure() noexcept { return measured; }

TEST(Cold, MemoryThatWasSlowWhenItWasMeasuredIsMeasuredAgain) {
  measured = 4000;
  TicksOfMemory ticks(measure);
  EXPECT_EQ(ticks.most_of_others(), 3000u);
  const auto ask = [&] {
    uint64_t last = 0;
    for (uint32_t i = 0; i < TicksOfMemory::measured_every; ++i) last = ticks.most_of_others();
    return last;
  };
  measured = 400;
  EXPECT_EQ(ask(), 300u);
  for (const uint64_t later : {uint64_t{4000}, TicksOfMemory::cannot_tell}) {
    measured = later;
    EXPECT_EQ(ask(), 300u) << "its best is what holds";
  }
}

TEST(Cold, WhereLoadsCannotBeToldNothingIsMeasuredAgain) {
  measured = TicksOfMemory::cannot_tell;
  TicksOfMemory ticks(measure);
  measured = 400;
  for (uint32_t i = 0; i < 2 * TicksOfMemory::measured_every; ++i) ASSERT_EQ(ticks.most_of_others(), TicksOfMemory::cannot_tell);
}

#if defined(__x86_64__)
using Prepare = void(const std::vector<char>&);

int count_right(const std::vector<char>& memory, bool surely, Prepare& prepare, bool is_cold) {
  int right = 0;
  for (int i = 0; i < looks; ++i) {
    prepare(memory);
    right += in_no_cache(memory.data(), memory.size(), surely) == is_cold;
  }
  return right;
}

// Single looks may err: a core can be taken away between two loads, or a cache's lines by a neighbour. So may a series of
// them: once a neighbour lets memory be fast again, until that is measured anew.
template <class CountRight>
void expect_most_are_right(int of, const std::string& what, CountRight count_right) {
  constexpr size_t series_max = 5;
  std::vector<int> right;
  while (right.size() < series_max && (right.empty() || right.back() <= of * 3 / 4)) right.push_back(count_right());
  EXPECT_GT(right.back(), of * 3 / 4) << what << ", the series: " << fmt::format("{}", fmt::join(right, ", "));
}

void take_out_of_caches(const std::vector<char>& memory) {
  for (size_t at = 0; at < memory.size(); at += 64) _mm_clflush(&memory[at]);
  _mm_mfence();
}

void read_all(const std::vector<char>& memory) {
  for (size_t at = 0; at < memory.size(); at += 64) *static_cast<const volatile char*>(&memory[at]);
}

TEST(Cold, MostLooksTellMemoryInACacheFromSuchThatIsInNone) {
  if (!can_tell_cold()) GTEST_SKIP() << "loads from memory take as long as others by this machine's time-stamp counter";
  for (uint32_t i = 0; i < 4 * TicksOfMemory::measured_every; ++i) can_tell_cold();  // measured more than once
  for (const size_t bytes : {cold_bytes_min, cold_bytes_min + 1, size_t{65536} + 77, size_t{1} << 18}) {
    const std::vector<char> memory(bytes, 1);
    for (const bool surely : {false, true}) {
      const std::string what = fmt::format("{} bytes, surely: {}", bytes, surely);
      expect_most_are_right(looks, what + ", in a cache", [&] { return count_right(memory, surely, read_all, false); });
      expect_most_are_right(looks, what + ", cold", [&] { return count_right(memory, surely, take_out_of_caches, true); });
    }
  }
}

// Loads at one distance would be foreseen.
TEST(Cold, AreasNextToEachOtherThatAreInNoCacheAreAllToldSo) {
  if (!can_tell_cold()) GTEST_SKIP() << "loads from memory take as long as others by this machine's time-stamp counter";
  constexpr size_t area = 65536, areas = 16;
  const std::vector<char> memory(area * areas, 1);
  expect_most_are_right(looks / 10 * int(areas), "areas", [&] {
    int cold = 0;
    for (int i = 0; i < looks / 10; ++i) {
      take_out_of_caches(memory);
      for (size_t k = 0; k < areas; ++k) cold += in_no_cache(&memory[k * area], area, k % 2 == 0);
    }
    return cold;
  });
}
#else
TEST(Cold, IsToldOfNoMemoryWhereNoClockIsKnown) {
  const std::vector<char> memory(cold_bytes_min, 1);
  EXPECT_FALSE(can_tell_cold());
  EXPECT_FALSE(in_no_cache(memory.data(), memory.size(), false));
}
#endif

}  // namespace
}  // namespace tutti
