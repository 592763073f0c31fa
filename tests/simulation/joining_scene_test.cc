// Joining scenes are data: made from seeds, written, read, refused, made smaller.
#include <gtest/gtest.h>

#include "base/error.h"
#include "simulation/joining.h"

namespace tutti {
namespace {

TEST(JoiningScenes, AreReadAsTheyAreWritten) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const std::string text = to_text(joining_scene_of(seed));
    EXPECT_EQ(to_text(parse_joining_scene(text)), text);
  }
}

TEST(JoiningScenes, AreRefusedWhereTheyCannotBe) {
  for (const char* text : {"", "{}", "{\"n\":0}", "{\"n\":2,\"newcomers\":-1}", "{\"n\":2,\"spread_ns\":-1}",
                           "{\"n\":2,\"faults\":[{\"kind\":\"flood\",\"rank\":0}]}",
                           "{\"n\":2,\"faults\":[{\"kind\":\"death\",\"rank\":2}]}"})
    EXPECT_THROW(parse_joining_scene(text), Error) << text;
}

TEST(JoiningScenes, AreShrunkWhileTheyFail) {
  JoiningScene scene = joining_scene_of(1);
  scene.n = 9;
  scene.newcomers = 3;
  scene.faults = {{JoiningFaultKind::late, 1, 0, 0}, {JoiningFaultKind::pause, 2, 0, 0}};
  const JoiningScene small = shrunk(scene, [](const JoiningScene& one) {
    return one.faults.empty() || one.faults.back().kind != JoiningFaultKind::pause ? "" : "fails";
  });
  EXPECT_EQ(small.n + small.newcomers, 2);
  EXPECT_EQ(small.faults.size(), 1u);
  EXPECT_EQ(small.spread_ns, 0);
}

}  // namespace
}  // namespace tutti
