// Joining in virtual time: thousands of scenes from seeds hold, planted mistakes are found, one seed is one run, and ten
// thousand ranks need few messages each.
//
// TUTTI_TEST_SEED=N in the environment plays that seed alone; TUTTI_TEST_SEEDS=N plays seeds 0 .. N - 1.
#include "simulation/joining.h"

#include <array>
#include <cstdlib>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

// Names that belong to these tests only.
std::optional<uint64_t> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? std::nullopt : std::optional<uint64_t>(std::strtoull(text, nullptr, 10));
}

std::string told(const JoiningScene& scene) {
  const std::string problem = play(scene).problem;
  if (problem.empty()) return "";
  const JoiningScene small = shrunk(scene, [](const JoiningScene& one) { return play(one).problem; });
  return fmt::format("seed {}: {}\n  replay: tutti-sim joining --seed {}\n  shrunk: tutti-sim joining --scene '{}'\n", scene.seed,
                     problem, scene.seed, to_text(small));
}

class Joining : public testing::Test {
 protected:
  // What ranks would say of strangers and descriptors.
  void SetUp() override { ::setenv("TUTTI_LOG", "off", 1); }
};

TEST_F(Joining, HoldsUnderEveryFaultOfEverySeed) {
  if (const auto seed = number_in("TUTTI_TEST_SEED")) {
    ASSERT_EQ(told(joining_scene_of(*seed)), "");
    return;
  }
  const uint64_t seeds = number_in("TUTTI_TEST_SEEDS").value_or(2000);
  // By fault, of scenes with one: all survivors joined, some, none.
  std::map<std::string_view, std::array<uint64_t, 3>> endings;
  uint64_t grown = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const JoiningScene scene = joining_scene_of(seed);
    const JoiningResult seen = play(scene);
    if (!seen.problem.empty()) FAIL() << told(scene);
    grown += scene.newcomers > 0 && seen.joined == seen.survivors;
    if (scene.faults.size() > 1) continue;
    const std::string_view fault = scene.faults.empty() ? "none" : name(scene.faults[0].kind);
    ++endings[fault][seen.joined == seen.survivors ? 0 : seen.joined > 0 ? 1 : 2];
  }
  for (const auto& [fault, ends] : endings)
    fmt::print("{:<18} all survivors joined {:>6}, some {:>6}, none {:>6}\n", fault, ends[0], ends[1], ends[2]);
  EXPECT_GT(grown, seeds / 10);
  for (const char* fault : {"death", "silent_death", "stop", "absent", "twice", "other_size", "other_version", "other_key",
                            "cut", "descriptors"})
    EXPECT_GT(endings[fault][1] + endings[fault][2], 0u) << fault;
  for (const char* fault : {"none", "pause", "late", "port_held", "silent_stranger", "babbling_stranger", "lying_stranger", "crowd"}) {
    EXPECT_GT(endings[fault][0], 0u) << fault;
    EXPECT_EQ(endings[fault][1] + endings[fault][2], 0u) << fault;
  }
}

// Each was a violation once (docs/simulation.md).
TEST_F(Joining, HoldsWhereItDidNotOnce) {
  const char* scenes[] = {
      // Who gave up closed links that others already counted on.
      R"({"seed":7417,"n":7,"spread_ns":0,"faults":[{"kind":"descriptors","rank":1,"at_ns":14116637}],"place_apart":true})",
      R"({"seed":7432,"n":6,"spread_ns":0,"faults":[{"kind":"descriptors","rank":2,"at_ns":9955792}]})",
      R"({"seed":9262,"n":9,"spread_ns":5790296,"faults":[{"kind":"death","rank":8,"at_ns":5952055}]})",
      // The meeting place had died, and the parent had given up.
      R"({"seed":42946,"n":4,"agreed_port":true,"spread_ns":10153535,"faults":[{"kind":"death","rank":0,"at_ns":88279572},
          {"kind":"crowd","rank":1,"at_ns":11490712}]})",
      R"({"seed":78350,"n":6,"agreed_port":true,"spread_ns":12231884,"faults":[{"kind":"death","rank":0,"at_ns":42897204},
          {"kind":"pause","rank":4,"at_ns":13110578}]})",
      // A rank had linked and gone, and the meeting place counted who had not (only AddressSanitizer could see it).
      R"({"seed":861,"n":9,"agreed_port":true,"spread_ns":18826211,"faults":[{"kind":"silent_death","rank":7,"at_ns":31325490},
          {"kind":"babbling_stranger","rank":1,"peer":7,"at_ns":20138438}]})",
      // Late twice was too late, and nobody's mistake.
      R"({"seed":9412,"n":2,"spread_ns":0,"faults":[{"kind":"late","rank":0,"at_ns":1},{"kind":"late","rank":0,"at_ns":2}]})"};
  for (const char* text : scenes) EXPECT_EQ(told(parse_joining_scene(text)), "");
}

// Where ranks meet is one thread of one process; what it hears is counted there.
void expect_few_messages(int n) {
  JoiningScene scene;
  scene.n = n;
  scene.place_apart = true;
  scene.spread_ns = 10 * ns_per_ms;
  const TimeNs begun = now_ns();
  const JoiningResult seen = play(scene);
  EXPECT_EQ(seen.problem, "");
  EXPECT_EQ(seen.joined, n);
  fmt::print("{} ranks joined in {:.1f} s; messages of one rank: {:.1f} on average, {} at most; virtual time {:.1f} ms\n", n,
             double(now_ns() - begun) / 1e9, seen.messages_mean, seen.messages_max, double(seen.ended_at) / 1e6);
  int log2 = 0;
  while (n >> (log2 + 1) > 0) ++log2;
  EXPECT_LE(seen.messages_max, size_t(20 + 6 * log2));
}

TEST_F(Joining, TakesFewMessagesOfEachOfAThousandRanks) { expect_few_messages(1000); }
TEST_F(Joining, TakesFewMessagesOfEachOfTenThousandRanks) { expect_few_messages(10'000); }

TEST_F(Joining, IsTheSameEachTimeItIsPlayed) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const JoiningResult a = play(joining_scene_of(seed)), b = play(parse_joining_scene(to_text(joining_scene_of(seed))));
    EXPECT_EQ(a.ended_at, b.ended_at) << seed;
    EXPECT_EQ(a.events, b.events) << seed;
    EXPECT_EQ(a.sentence, b.sentence) << seed;
  }
}

TEST_F(Joining, FindsEveryPlantedMistake) {
  constexpr uint64_t seeds_max = 10'000;
  const std::pair<const char*, ProcessMistake> mistakes[] = {
      {"end misrouted", ProcessMistake::end_misrouted},     {"wake-up lost", ProcessMistake::wake_up_lost},
      {"bytes reordered", ProcessMistake::bytes_reordered}, {"refusal lost", ProcessMistake::refusal_lost},
      {"descriptor kept", ProcessMistake::descriptor_kept}, {"key leaked", ProcessMistake::none}};
  for (const auto& [what, mistake] : mistakes) {
    std::string problem;
    uint64_t seed = 0;
    for (; problem.empty() && seed < seeds_max; ++seed) {
      JoiningScene scene = joining_scene_of(seed);
      scene.mistake = mistake;
      scene.key_leaked = mistake == ProcessMistake::none;
      problem = play(scene).problem;
    }
    EXPECT_NE(problem, "") << what;
    fmt::print("{:<18} {:>5} seeds: {}\n", what, seed, problem);
  }
}

}  // namespace
}  // namespace tutti
