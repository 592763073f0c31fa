// Thousands of simulated faults, each from one seed: no wrong "ok", no wait without end, no innocent blamed.
//
// TUTTI_TEST_SEED=N in the environment runs that seed alone; TUTTI_TEST_SEEDS=N runs seeds 0 .. N - 1.
#include <cstdlib>

#include <gtest/gtest.h>

#include "simulation/faulty_world.h"

namespace tutti {
namespace {

// Names that belong to these tests only.
std::optional<uint64_t> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? std::nullopt : std::optional<uint64_t>(std::strtoull(text, nullptr, 10));
}

struct Scene {
  std::vector<CollectiveCase> calls;
  WorldFault fault;
};

Scene scene_of(uint64_t seed) {
  Random random(seed * 2 + 1);
  Scene scene;
  scene.fault.kind = WorldFault::Kind(random.below(7));
  CollectiveCase c;
  c.n = int(random.between(2, random.chance(0.1) ? 24 : 9));
  c.channels = int(random.between(1, 2));
  c.slots = int(random.between(2, 3));
  c.outbox_messages = random.below(4);
  c.message_bytes_max = size_t{512} << random.below(4);
  c.short_probability = random.chance(0.5) ? 0.1 : 0;
  c.delay_ns_max = random.chance(0.5) ? 20'000 : 0;
  c.seed = seed;
  scene.fault.rank = int(random.below(uint64_t(c.n)));
  scene.fault.at = TimeNs(random.below(uint64_t{1} << random.between(8, 19)));
  for (uint64_t i = random.between(1, 3); i > 0; --i) {
    const Algorithm& algorithm = catalog()[random.below(catalog().size())];
    c.collective = algorithm.collective;
    c.algorithm = algorithm.name;
    // A broadcast's root learns of nothing: it may be ok with another count.
    if (scene.fault.kind == WorldFault::Kind::mismatch && c.collective != Collective::all_reduce) {
      c.collective = Collective::all_reduce;
      c.algorithm = "ring";
    }
    c.pipeline = algorithm.pipelined ? int(random.between(1, 4)) : 1;
    c.root = meaning(c.collective).rooted ? int(random.below(uint64_t(c.n))) : 0;
    c.in_place = random.chance(0.5);
    c.type = random.chance(0.5) ? DataType::int32 : DataType::float32;
    c.count = random.chance(0.2) ? random.below(3) : random.below(3000);
    scene.calls.push_back(c);
  }
  return scene;
}

// How the seeds ended: a test whose faults never cut a call would prove nothing.
struct Tally {
  int cut = 0;    // no survivor was ok with all calls
  int mixed = 0;  // some were, some were not
  int ok = 0;     // all were
};

std::string play(uint64_t seed, PlanStore& plans, Tally& tally) {
  const Scene scene = scene_of(seed);
  FaultyWorld world(scene.calls, scene.fault, plans);
  const std::string problem = world.run();
  (world.all_ok() == 0 ? tally.cut : world.all_ok() == world.survivors() ? tally.ok : tally.mixed) += 1;
  if (problem.empty()) return "";
  std::string text = fmt::format("{}\n  replay: TUTTI_TEST_SEED={} ./faults_test\n  {} of rank {} at {} ns", problem,
                                 seed, name(scene.fault.kind), scene.fault.rank, scene.fault.at);
  for (const CollectiveCase& call : scene.calls) text += "\n  " + describe(call);
  return text;
}

TEST(SimulatedFaults, NeverGiveTwoDifferentOksNorBlameAnInnocentAndEveryCallEndsByItsDeadline) {
  PlanStore plans;
  Tally tally;
  if (const auto seed = number_in("TUTTI_TEST_SEED")) {
    ASSERT_EQ(play(*seed, plans, tally), "");
    return;
  }
  const uint64_t seeds = number_in("TUTTI_TEST_SEEDS").value_or(10'000);
  for (uint64_t seed = 0; seed < seeds; ++seed) ASSERT_EQ(play(seed, plans, tally), "");
  fmt::print("{} seeds: all survivors ok in {}, some in {}, none in {}\n", seeds, tally.ok, tally.mixed, tally.cut);
  EXPECT_GT(tally.cut + tally.mixed, int(seeds / 4));
}

}  // namespace
}  // namespace tutti
