// Real communicators in virtual time: thousands of scenes from seeds hold, planted mistakes are found, and one seed is
// one run.
//
// TUTTI_TEST_SEED=N in the environment plays that seed alone; TUTTI_TEST_SEEDS=N plays seeds 0 .. N - 1.
#include "simulation/world.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "simulation/allocation.h"
#include "simulation/fiber.h"
#include "simulation/judgement.h"

// For LeakSanitizer: a process that dies in the midst of something leaves what its fiber holds.
extern "C" const char* __lsan_default_suppressions() { return "leak:tutti::Fiber::begin\n"; }

namespace tutti {
namespace {

// Names that belong to these tests only.
std::optional<uint64_t> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? std::nullopt : std::optional<uint64_t>(std::strtoull(text, nullptr, 10));
}

// Empty, or what is wrong, and how to see it again.
std::string told(const Scene& scene) {
  const std::string problem = play(scene).problem;
  if (problem.empty()) return "";
  const Scene small = shrunk(scene, [](const Scene& one) { return play(one).problem; });
  return fmt::format("seed {}: {}\n  replay: tutti-sim faults --seed {}\n  shrunk: tutti-sim faults --scene '{}'\n",
                     scene.seed, problem, scene.seed, to_text(small));
}

size_t open_descriptors() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

TEST(World, HoldsUnderEveryFaultOfEverySeed) {
  if (const auto seed = number_in("TUTTI_TEST_SEED")) {
    ASSERT_EQ(told(scene_of(*seed)), "");
    return;
  }
  const uint64_t seeds = number_in("TUTTI_TEST_SEEDS").value_or(2000);
  const size_t descriptors = open_descriptors();
  // By fault: all calls ok on all survivors, on some, on none.
  std::map<std::string_view, std::array<uint64_t, 3>> endings;
  std::map<int, uint64_t> regroupings, deaths;
  uint64_t strict = 0, on_fabrics = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const Scene scene = scene_of(seed);
    const WorldResult seen = play(scene);
    if (!seen.problem.empty()) FAIL() << told(scene);
    // What may have happened before the calls were over, or after others ended too, is counted apart.
    const auto ended = std::ranges::count_if(scene.faults, [](const SceneFault& one) { return ends_rank(one.kind); });
    ++regroupings[seen.regroupings];
    ++deaths[int(ended)];
    strict += seen.all_ok > 0 && std::ranges::any_of(scene.calls, &SceneCall::strict);
    on_fabrics += !scene.fabric.empty();
    if (scene.then != SceneThen::end || ended > 1) continue;
    const std::string_view fault = scene.faults.empty() ? "none" : name(scene.faults[0].kind);
    ++endings[fault][seen.all_ok == seen.survivors ? 0 : seen.all_ok > 0 ? 1 : 2];
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  for (const auto& [fault, ends] : endings)
    fmt::print("{:<14} all survivors ok {:>6}, some {:>6}, none {:>6}\n", fault, ends[0], ends[1], ends[2]);
  for (const auto& [times, scenes] : regroupings) fmt::print("went on {} times: {} scenes\n", times, scenes);
  for (const auto& [ranks, scenes] : deaths) fmt::print("{} ranks end: {} scenes\n", ranks, scenes);
  fmt::print("strict calls that were ok: {} scenes; on fabrics: {} scenes\n", strict, on_fabrics);
  EXPECT_GT(strict, seeds / 20);
  EXPECT_GT(on_fabrics, seeds / 4);
  EXPECT_GT(regroupings[1], seeds / 50);
  EXPECT_GT(regroupings[2], 0u);
  EXPECT_GT(deaths[2], seeds / 50);
  EXPECT_GT(deaths[3], seeds / 200);
  // Faults that never end a call would prove nothing; nor would those that may not end one, if they did.
  for (const char* fault : {"death", "silent_death", "stop", "mismatch", "link_cut", "link_lost", "one_way_loss",
                            "bit_flip", "allocation"})
    EXPECT_GT(endings[fault][2], seeds / 500) << fault;
  for (const char* fault : {"none", "pause", "slow", "delay", "duplicate", "reorder"}) {
    EXPECT_GT(endings[fault][0], seeds / 500) << fault;
    EXPECT_EQ(endings[fault][1] + endings[fault][2], 0u) << fault;
  }
}

// How many seeds it takes until a mistake is found.
uint64_t seeds_until_found(SimulatedMistake transport_mistake, SceneMistake mistake, std::string& problem) {
  constexpr uint64_t seeds_max = 10'000;
  for (uint64_t seed = 0; seed < seeds_max; ++seed) {
    Scene scene = scene_of(seed);
    scene.transport_mistake = transport_mistake;
    scene.mistake = mistake;
    problem = play(scene).problem;
    if (!problem.empty()) return seed + 1;
  }
  return 0;
}

TEST(World, FindsEveryPlantedMistakeWithinTenThousandSeeds) {
  using Transport = SimulatedMistake;
  const std::pair<const char*, Transport> of_transport[] = {
      {"slot reused early", Transport::slot_reused_early},
      {"reorder not handled", Transport::reorder_not_handled},
      {"duplicate not dropped", Transport::duplicate_not_dropped},
      {"flip not noticed", Transport::flip_not_noticed},
      {"short send as whole", Transport::short_send_as_whole},
      {"signature not compared", Transport::signature_not_compared},
      {"ring lost", Transport::ring_lost},
  };
  const std::pair<const char*, SceneMistake> of_driver[] = {
      {"deadline ignored", SceneMistake::deadline_ignored},
      {"wrong verdict", SceneMistake::wrong_verdict},
      {"verdict not flooded", SceneMistake::verdict_not_flooded},
      {"doorbell not rung", SceneMistake::doorbell_not_rung},
      {"heartbeat forgotten", SceneMistake::heartbeat_forgotten},
      {"pause not noticed", SceneMistake::pause_not_noticed},
      {"result not finished", SceneMistake::result_not_finished},
      {"votes not awaited", SceneMistake::votes_not_awaited},
      {"waits not told", SceneMistake::waits_not_told},
  };
  std::string problem;
  for (const auto& [what, mistake] : of_transport) {
    const uint64_t seeds = seeds_until_found(mistake, SceneMistake::none, problem);
    EXPECT_GT(seeds, 0u) << what;
    fmt::print("{:<24} {:>5} seeds: {}\n", what, seeds, problem);
  }
  for (const auto& [what, mistake] : of_driver) {
    const uint64_t seeds = seeds_until_found(Transport::none, mistake, problem);
    EXPECT_GT(seeds, 0u) << what;
    fmt::print("{:<24} {:>5} seeds: {}\n", what, seeds, problem);
  }
}

TEST(World, IsTheSameEachTimeItIsPlayed) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const WorldResult a = play(scene_of(seed)), b = play(parse_scene(to_text(scene_of(seed))));
    EXPECT_EQ(a.ended_at, b.ended_at) << seed;
    EXPECT_EQ(a.events, b.events) << seed;
    EXPECT_EQ(a.verdict, b.verdict) << seed;
    EXPECT_EQ(a.all_ok, b.all_ok) << seed;
  }
}

TEST(World, ShrinksWhatFailsToLessThatFailsToo) {
  int shrunk_scenes = 0;
  for (uint64_t seed = 0; seed < 200 && shrunk_scenes < 3; ++seed) {
    Scene scene = scene_of(seed);
    scene.mistake = SceneMistake::result_not_finished;
    const auto problem = [](const Scene& one) { return play(one).problem; };
    if (scene.n < 4 || scene.calls.size() < 2 || problem(scene).empty()) continue;
    const Scene small = shrunk(scene, problem);
    EXPECT_NE(problem(small), "");
    EXPECT_EQ(small.n, 2);
    EXPECT_EQ(small.calls.size(), 1u);
    EXPECT_TRUE(small.faults.empty());
    EXPECT_EQ(small.calls[0].count, 1u);
    ++shrunk_scenes;
  }
  EXPECT_EQ(shrunk_scenes, 3);
}

// Two ranks find at the same time that their link is broken, and many that a deadline has passed: what all survivors say
// is one of their sentences.
TEST(World, AgreesOnOneOfSeveralVerdicts) {
  for (const SceneFaultKind kind : {SceneFaultKind::link_cut, SceneFaultKind::link_lost}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      Scene scene;
      scene.seed = seed;
      scene.n = 8;
      scene.calls = {{Collective::all_reduce, "ring", 5000, 0, false}};
      scene.faults = {{kind, int(seed % 8), int((seed + 1) % 8), 1000}};
      const WorldResult seen = play(scene);
      EXPECT_EQ(seen.problem, "") << to_text(scene);
      EXPECT_EQ(seen.all_ok, 0);
      EXPECT_NE(seen.verdict, "");
    }
  }
}

// Long before the deadline, also where no message of one call meets one of the other.
TEST(World, TellsMismatchesOfEveryKindSoon) {
  std::map<SceneDifference, int> scenes, by_numbers;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    const Scene scene = scene_of(seed);
    if (!has_fault(scene, SceneFaultKind::mismatch)) continue;
    const WorldResult seen = play(scene);
    EXPECT_EQ(seen.problem, "") << to_text(scene);
    EXPECT_LT(seen.all_ok, seen.survivors) << to_text(scene);
    EXPECT_NE(seen.verdict.find(" called "), std::string::npos) << seen.verdict;
    EXPECT_LT(seen.ended_at, WorldTimes::timeout_ns / 2) << to_text(scene);
    ++scenes[scene.difference];
    by_numbers[scene.difference] += seen.verdict.find("both as collective call 1 of") != std::string::npos;
  }
  for (const auto& [difference, count] : scenes) {
    fmt::print("difference {}: {} scenes, {} told by their numbers\n", int(difference), count, by_numbers[difference]);
    EXPECT_GT(count, 100);
  }
  EXPECT_EQ(scenes.size(), 4u);
  EXPECT_EQ(by_numbers[SceneDifference::count], 0) << "there a message of one meets one of the other";
  EXPECT_GT(by_numbers[SceneDifference::root], 20);
}

// All are through with gathers to different roots, and stand in the sum after them: what nobody takes of the former fills the
// way to a rank.
TEST(World, TellsOfCallsThatAllHaveGoneOnFrom) {
  const WorldResult seen = play(parse_scene(
      R"({"seed":30559,"n":7,"slots":2,"outbox_messages":2,"message_bytes_max":1024,"delay_ns":20000,"fabric":"torus,link=10G",
          "calls":[{"call":"gather","algorithm":"binomial","count":100,"root":3},{"call":"all_reduce","algorithm":"one_shot","count":2000}],
          "faults":[{"kind":"mismatch","rank":3,"peer":4,"at_ns":1835}],"difference":"root"})"));
  EXPECT_EQ(seen.problem, "");
  EXPECT_NE(seen.verdict.find("both as collective call 1 of this communicator"), std::string::npos) << seen.verdict;
}

// Messages so small and so many that no wait is long, but all of them are.
TEST(World, EndsACallThatMovesAllTheTimeByItsDeadlineToo) {
  Scene scene;
  scene.message_bytes_max = 64;
  scene.delay_ns_max = 4000;
  scene.calls = {{Collective::all_reduce, "recursive_doubling", 1 << 20, 0, false}};
  const WorldResult seen = play(scene);
  EXPECT_NE(seen.verdict.find("waited 100 ms in all_reduce"), std::string::npos) << seen.verdict << seen.problem;
  EXPECT_LT(seen.ended_at, WorldTimes::timeout_ns + 10 * ns_per_ms);
}

// The engine's own messages wait for each other where they share links; where they do not, the fabric takes no time.
TEST(World, SendsOverTheLinksOfAFabric) {
  const auto time_on = [](const char* fabric) {
    Scene scene;
    scene.n = 16;
    scene.calls = {{Collective::all_to_all, "pairwise", 20'000, 0, false}};
    scene.fabric = fabric;
    const WorldResult seen = play(scene);
    EXPECT_EQ(seen.problem, "") << fabric;
    EXPECT_EQ(seen.all_ok, 16) << fabric;
    return double(seen.ended_at);
  };
  const double alone = time_on(""), switched = time_on("switch,link=1000G,hop=0"), full = time_on("fat-tree:4x4,link=2G"),
               narrow = time_on("fat-tree:4x4,link=2G,oversubscription=4");
  EXPECT_NEAR(switched, alone, 0.05 * alone);
  EXPECT_GT(full, 1.3 * alone);
  EXPECT_GT(narrow, 1.15 * full);
  // 12 of 16 messages of each rank leave its leaf, by the one way up that four ranks share.
  EXPECT_GT(narrow, 4 * 12 * 20'000 * 4 * 4.0);
}

TEST(World, RunsAThousandRealEngines) {
  Scene scene;
  scene.n = 1024;
  scene.message_bytes_max = 4096;
  scene.calls = {{Collective::all_reduce, "halving_doubling", 20'000, 0, false}};
  const WorldResult seen = play(scene);
  EXPECT_EQ(seen.problem, "");
  EXPECT_EQ(seen.all_ok, 1024);
}

TEST(Fibers, RunInTurnsAndEnd) {
  std::string order;
  Fiber* self = nullptr;
  Fiber fiber([&] {
    order += 'a';
    self->wait();
    order += 'b';
  });
  self = &fiber;
  fiber.run();
  order += '1';
  EXPECT_FALSE(fiber.ended());
  fiber.run();
  EXPECT_TRUE(fiber.ended());
  EXPECT_EQ(order, "a1b");
}

TEST(Allocations, FailOnceWhereTheyAreAsked) {
  fail_allocation(1);
  void* const first = ::operator new(8);
  bool failed = false;
  try {
    ::operator delete(::operator new(8));
  } catch (const std::bad_alloc&) {
    failed = true;
  }
  void* const third = ::operator new(8);
  EXPECT_TRUE(failed);
  EXPECT_TRUE(allow_allocations());
  EXPECT_FALSE(allow_allocations());
  ::operator delete(first);
  ::operator delete(third);
}

}  // namespace
}  // namespace tutti
