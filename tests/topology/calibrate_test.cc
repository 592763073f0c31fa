// The calibration keeps its budget and gives constants that a machine can have.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/clock.h"
#include "sanitizer.h"
#include "topology/cost.h"

namespace tutti {
namespace {

void expect_plausible(const MachineCosts& costs) {
  for (const MachineCostRow& row : machine_cost_rows()) {
    const double common = MachineCosts{}.*row.value;
    EXPECT_GE(costs.*row.value, common / 10.001) << row.name;
    EXPECT_LE(costs.*row.value, common * 10.001) << row.name;
    std::printf("  %-20s %.3f\n", std::string(row.name).c_str(), costs.*row.value);
  }
}

TEST(Calibrate, GivesPlausibleConstants) {
  const Host host = discover_host();
  expect_plausible(calibrate(25, &host));
}

TEST(Calibrate, KeepsItsBudget) {
  TimeNs best = 1'000'000 * ns_per_ms;
  for (int i = 0; i < 5; ++i) {  // a busy machine may hold one of them up
    const TimeNs start = now_ns();
    calibrate(25);
    best = std::min(best, now_ns() - start);
  }
  EXPECT_LT(best, (test::sanitized ? 1000 : 100) * ns_per_ms);
}

TEST(Calibrate, WorksWhereOnlyOneCoreIsAllowed) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const MachineCosts costs = calibrate(25);
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_TRUE(CPU_EQUAL(&after, &one));  // the caller's affinity is left as it was
  EXPECT_EQ(costs.hop_ns, MachineCosts{}.hop_ns);
  expect_plausible(costs);
}

}  // namespace
}  // namespace tutti
