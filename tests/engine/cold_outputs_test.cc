// Outputs past the caches: who is patient, who tries again, and who is let alone.
#include "engine/cold_outputs.h"

#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

bool lies_in_none = false;
bool looked_closely = false;
bool look(const void*, size_t, bool surely) noexcept {
  looked_closely = surely;
  return lies_in_none;
}

bool past_caches(ColdOutputs& outputs, const void* output, bool cold) {
  lies_in_none = cold;
  return outputs.past_caches(output, cold_bytes_min);
}

const void* at(uintptr_t address) { return reinterpret_cast<const void*>(address); }
const void* const output = at(0x7f0123400000);

TEST(ColdOutputs, WhatLiesInACacheStaysInThem) {
  ColdOutputs outputs(look);
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(past_caches(outputs, output, false));
}

TEST(ColdOutputs, WhatIsNowAndThenOutOfThemStaysInThem) {
  ColdOutputs outputs(look);
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(past_caches(outputs, output, i % 4 != 0)) << i;
}

// However its stores go: whoever uses it drives it out each time.
TEST(ColdOutputs, WhatIsNeverInOneGoesPastThemButForTrialsThatGrowRarer) {
  ColdOutputs outputs(look);
  std::vector<int> cached;
  for (int i = 0; i < 1000; ++i)
    if (!past_caches(outputs, output, true)) cached.push_back(i);
  EXPECT_EQ((std::vector<int>(cached.begin(), cached.begin() + 10)), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 11, 20, 37}));
  EXPECT_LT(cached.size(), 1000u / 25);
  for (size_t i = 7; i + 1 < cached.size(); ++i) EXPECT_LE(cached[i + 1] - cached[i], int(ColdOutputs::streamed_max) + 1);
}

// What was stored past the caches is in none the next time; what was stored to them is in one.
TEST(ColdOutputs, WhatIsOutOfThemForItsOwnStoresAloneComesBack) {
  for (int disturbances = 0; disturbances < 200; ++disturbances) {
    ColdOutputs outputs(look);
    for (int i = 0; i < disturbances; ++i) past_caches(outputs, output, true);
    bool cold = true;
    int streamed = 0;
    for (int i = 0; i < 200; ++i) {
      cold = past_caches(outputs, output, cold);
      streamed += cold;
    }
    EXPECT_FALSE(cold) << disturbances;
    EXPECT_LE(streamed, int(ColdOutputs::streamed_max)) << disturbances;
  }
}

TEST(ColdOutputs, ALookIsCloseWhereMuchHangsOnIt) {
  ColdOutputs outputs(look);
  bool streamed_last = false;
  for (int i = 0; i < 200; ++i) {
    const bool streams = past_caches(outputs, output, i < 150);
    EXPECT_EQ(looked_closely, !streamed_last) << i;
    streamed_last = streams;
  }
}

TEST(ColdOutputs, WhatWentPastThemIsKnownWithoutALook) {
  ColdOutputs outputs(look, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(outputs.went_past_caches(output)) << i;
    past_caches(outputs, output, true);
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(outputs.went_past_caches(output)) << "or was a trial";
    past_caches(outputs, output, true);
  }
  EXPECT_FALSE(outputs.went_past_caches(at(0x7f0123500000)));
  past_caches(outputs, output, false);
  EXPECT_FALSE(outputs.went_past_caches(output));
}

TEST(ColdOutputs, OneSaysNothingOfAnother) {
  ColdOutputs outputs(look);
  for (int i = 0; i < 100; ++i) {
    past_caches(outputs, output, true);
    for (uintptr_t k = 1; k <= 64; ++k)
      ASSERT_FALSE(past_caches(outputs, at(reinterpret_cast<uintptr_t>(output) + k * 65536), false)) << k;
  }
  EXPECT_TRUE(past_caches(outputs, output, true) || past_caches(outputs, output, true)) << "it was not forgotten";
}

TEST(ColdOutputs, WhatWasTheInputOfACallSinceItWasWrittenIsKnown) {
  ColdOutputs outputs(look);
  const void* const other = at(reinterpret_cast<uintptr_t>(output) + 64);
  outputs.call_reads(output);
  EXPECT_FALSE(outputs.call_writes(output)) << "nobody had written it";
  EXPECT_FALSE(outputs.call_writes(output));
  for (int i = 0; i < 3; ++i) {
    outputs.call_reads(output);
    EXPECT_TRUE(outputs.call_writes(output));
    outputs.call_reads(other);
    EXPECT_FALSE(outputs.call_writes(output)) << "not since";
  }
}

}  // namespace
}  // namespace tutti
