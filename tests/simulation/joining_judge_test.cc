// The judge of joining scenes sees what must not be.
#include "simulation/joining_judge.h"

#include <gtest/gtest.h>

#include "simulation/session.h"

namespace tutti {
namespace {

JoiningCaller caller(int rank, bool ok, std::string sentence = "") {
  JoiningCaller one;
  one.rank = rank;
  one.survives = true;
  one.ok = ok;
  one.sentence = std::move(sentence);
  return one;
}

TEST(JoiningJudge, WantsAllToJoinWhereNothingEndsTheJob) {
  JoiningScene scene;
  scene.faults = {{JoiningFaultKind::silent_stranger, 0, 1, 0}};
  EXPECT_EQ(judge({scene, {caller(0, true), caller(1, true)}, 24}), "");
  EXPECT_NE(judge({scene, {caller(0, true), caller(1, false, "rank 1 has a cold")}, 24}), "");
  EXPECT_NE(judge({scene, {caller(0, true), caller(1, true)}, 64}).find("64 bytes of a stranger"), std::string::npos);
  JoiningCaller slow = caller(0, true);
  slow.ended_at = 60 * ns_per_s;
  EXPECT_NE(judge({scene, {slow}, 0}), "");
}

TEST(JoiningJudge, WantsTheGuiltyBlamedAndTheReasonTold) {
  JoiningScene scene;
  scene.n = 6;
  scene.faults = {{JoiningFaultKind::absent, 4, 1, 0}};
  EXPECT_EQ(judge({scene, {caller(0, false, "ranks 1, 3-5 of 6 did not join within 3.0 s")}, 0}), "");
  EXPECT_NE(judge({scene, {caller(0, false, "ranks 1, 3, 5 of 6 did not join within 3.0 s")}, 0}), "");
  EXPECT_NE(judge({scene, {caller(0, false, "rank 2 (host h3, pid 1) died, and rank 4 waits")}, 0}), "");
  EXPECT_NE(judge({scene, {caller(0, true), caller(1, false, "rank 4 of 6 did not join")}, 0}), "");
}

TEST(JoiningJudge, WantsOneVerdictOfAll) {
  JoiningScene scene;
  scene.n = 3;
  scene.faults = {{JoiningFaultKind::death, 2, 0, 0}};
  JoiningCaller a = caller(0, false, "rank 2 died"), b = caller(1, false, "rank 2 died");
  a.joined_last = b.joined_last = true;
  a.verdict = b.verdict = Verdict{Code::remote_error, 2, "rank 2 died"};
  EXPECT_EQ(judge({scene, {a, b}, 0}), "");
  b.verdict->sentence = "rank 2 is silent";
  EXPECT_NE(judge({scene, {a, b}, 0}).find("end differently"), std::string::npos);
  b.verdict.reset();
  EXPECT_NE(judge({scene, {a, b}, 0}).find("never learned"), std::string::npos);
  a.verdict->rank = 1;
  EXPECT_NE(judge({scene, {a}, 0}).find("innocent"), std::string::npos);
}

}  // namespace
}  // namespace tutti
