// Outputs past the caches: who is patient, who tries again, and who is let alone.
#include "engine/cold_outputs.h"

#include <vector>

#include <gtest/gtest.h>


namespace tutti {
namespace {

const void* at(uintptr_t address) { return reinterpret_cast<const void*>(address); }
const void* const output = at(0x7f0123400000);

TEST(ColdOutputs, WhatLiesInACacheStaysInThem) {
  ColdOutputs outputs;
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(outputs.past_caches(output, false));
}

TEST(ColdOutputs, WhatIsNowAndThenOutOfThemStaysInThem) {
  ColdOutputs outputs;
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(outputs.past_caches(output, i % 4 != 0)) << i;
}

// However its stores go: whoever uses it drives it out each time.
TEST(ColdOutputs, WhatIsNeverInOneGoesPastThemButForTrialsThatGrowRarer) {
  ColdOutputs outputs;
  std::vector<int> cached;
  for (int i = 0; i < 1000; ++i)
    if (!outputs.past_caches(output, true)) cached.push_back(i);
  EXPECT_EQ((std::vector<int>(cached.begin(), cached.begin() + 6)), (std::vector<int>{0, 1, 2, 7, 16, 33}));
  EXPECT_LT(cached.size(), 1000u / 25);
  for (size_t i = 3; i + 1 < cached.size(); ++i) EXPECT_LE(cached[i + 1] - cached[i], int(ColdOutputs::streamed_max) + 1);
}

// What was stored past the caches is in none the next time; what was stored to them is in one.
TEST(ColdOutputs, WhatIsOutOfThemForItsOwnStoresAloneComesBack) {
  for (int disturbances = 0; disturbances < 200; ++disturbances) {
    ColdOutputs outputs;
    for (int i = 0; i < disturbances; ++i) outputs.past_caches(output, true);
    bool cold = true;
    int streamed = 0;
    for (int i = 0; i < 200; ++i) {
      cold = outputs.past_caches(output, cold);
      streamed += cold;
    }
    EXPECT_FALSE(cold) << disturbances;
    EXPECT_LE(streamed, int(ColdOutputs::streamed_max)) << disturbances;
  }
}

TEST(ColdOutputs, OneSaysNothingOfAnother) {
  ColdOutputs outputs;
  for (int i = 0; i < 100; ++i) {
    outputs.past_caches(output, true);
    for (uintptr_t k = 1; k <= 64; ++k)
      ASSERT_FALSE(outputs.past_caches(at(reinterpret_cast<uintptr_t>(output) + k * 65536), false)) << k;
  }
  EXPECT_TRUE(outputs.past_caches(output, true) || outputs.past_caches(output, true)) << "it was not forgotten";
}

}  // namespace
}  // namespace tutti
