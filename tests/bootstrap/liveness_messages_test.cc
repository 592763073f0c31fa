// What liveness tells: lists of ranks read well, and verdicts come back as they went.
#include <vector>

#include <gtest/gtest.h>

#include "bootstrap/liveness.h"

namespace tutti {
namespace {

TEST(LivenessMessages, ListRanksAsRanges) {
  EXPECT_EQ(rank_list(std::vector{2}), "rank 2");
  EXPECT_EQ(rank_list(std::vector{2, 5, 6, 7, 9}), "ranks 2, 5-7, 9");
}

TEST(LivenessMessages, CarryVerdicts) {
  const Verdict back = verdict_from(to_bytes(Verdict{Code::timeout, 3, "rank 3 is late"}));
  EXPECT_EQ(back.code, Code::timeout);
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.sentence, "rank 3 is late");
  EXPECT_THROW(verdict_from(to_bytes(Verdict{})), Error);
  EXPECT_THROW(verdict_from({}), Error);
}

}  // namespace
}  // namespace tutti
