// Scenes as text.
#include "simulation/scene.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

TEST(Scenes, AreReadAsTheyWereWritten) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = to_text(scene_of(seed));
    EXPECT_EQ(to_text(parse_scene(text)), text);
  }
}

TEST(Scenes, TellHowTheOddCallDiffers) {
  Scene scene;
  scene.calls = {{Collective::broadcast, "direct", 100, 2, false}};
  for (scene.seed = 0; scene.seed < 10; ++scene.seed)
    for (const int n : {2, 3, 5}) {
      scene.difference = SceneDifference::root;
      EXPECT_NE(odd_call(scene, n).root, scene.calls[0].root % n);
      EXPECT_LT(odd_call(scene, n).root, n);
      scene.difference = SceneDifference::algorithm;
      EXPECT_NE(odd_call(scene, n).algorithm, "direct");
      EXPECT_EQ(odd_call(scene, n).root, 2 % n);
    }
}

TEST(Scenes, RefuseWhatCannotBe) {
  const auto refused = [](const std::string& text) {
    try {
      parse_scene(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(refused(R"({"n":1,"calls":[{"call":"all_reduce","algorithm":"ring","count":1}]})"),
            "scene: n is 1, not within 2..4096");
  EXPECT_EQ(refused(R"({"n":-5,"fabric":"switch","calls":[{"call":"all_reduce","algorithm":"ring","count":1}]})"),
            "scene: n is -5, not within 2..4096");
  EXPECT_EQ(refused(R"({"n":2,"calls":[]})"), "scene: there are no calls");
  EXPECT_EQ(refused(R"({"n":2,"calls":[{"call":"all_reduce","algorithm":"rung","count":1}]})"),
            "scene: all_reduce has no algorithm \"rung\"");
  EXPECT_EQ(refused(R"({"n":2,"calls":[{"call":"allreduce","algorithm":"ring","count":1}]})"),
            "scene: \"allreduce\" is no collective");
  EXPECT_EQ(refused(R"({"n":2,"calls":[{"call":"broadcast","algorithm":"direct","count":1,"root":2}]})"),
            "scene: root 2 is no rank of 2");
  EXPECT_EQ(refused(R"({"n":2,"calls":[{"call":"all_reduce","algorithm":"ring","count":1}],
                        "faults":[{"kind":"earthquake","rank":0}]})"),
            "scene: \"earthquake\" is no fault");
  EXPECT_EQ(refused(R"({"n":2,"calls":[{"call":"all_reduce","algorithm":"ring","count":1}],"difference":"mood"})"),
            "scene: difference \"mood\" is not count, root, algorithm or left_out");
  EXPECT_EQ(refused(R"({"n":2,"calls":[{"call":"all_reduce","algorithm":"ring","count":1,"strict":true}]})"),
            "scene: all_reduce/ring does not add in the order of ranks");
  EXPECT_NE(refused(R"({"n":2,"fabric":"web:3","calls":[{"call":"all_reduce","algorithm":"ring","count":1}]})").find("web"),
            std::string::npos);
  EXPECT_NE(refused("{").find("parse error"), std::string::npos);
}

}  // namespace
}  // namespace tutti
