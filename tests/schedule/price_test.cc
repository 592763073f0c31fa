// Prices equal the closed forms of the textbook where those are exact.
#include "schedule/price.h"

#include <gtest/gtest.h>

#include <bit>

#include "algorithms/catalog.h"

namespace tutti {
namespace {

constexpr double latency = 500, message = 100, byte = 0.1, step = 5, copy = 0.05, reduce = 0.03;
constexpr uint64_t message_bytes_max = 1 << 18;

CostModel uniform(int n) {
  CostModel costs;
  costs.n = n;
  costs.classes = {{latency, message, byte}};
  costs.link_class.assign(size_t(n) * size_t(n), 0);
  costs.step_ns = step;
  costs.copy_byte_ns = copy;
  costs.reduce_byte_ns = reduce;
  return costs;
}

Price price_of(Collective collective, std::string_view name, int n, uint64_t bytes, int pipeline = 1) {
  Group group;
  group.n = n;
  group.pipeline = pipeline;
  return price(plans_of(*find_algorithm(collective, name), group), uniform(n), bytes, message_bytes_max);
}

TEST(Price, OfARingIsItsClosedForm) {
  for (int n = 2; n <= 17; ++n) {
    const double b = 64 * 100;  // bytes of a chunk
    const double send = message + byte * b, hop = latency + step;
    // n - 1 additions, of which the last is stored at no cost of its own, then n - 1 stores.
    const double expected =
        step + send + (n - 1) * (hop + 2 * b * reduce + send) + (n - 1) * (hop + b * copy) + (n - 2) * send;
    const Price seen = price_of(Collective::all_reduce, "ring", n, uint64_t(b) * uint64_t(n));
    EXPECT_NEAR(seen.time_ns, expected, 1e-6) << n;
    EXPECT_EQ(seen.messages, uint64_t(2 * n * (n - 1)));
    EXPECT_EQ(seen.bytes, uint64_t(2 * n * (n - 1)) * uint64_t(b));
  }
}

TEST(Price, OfOneShotIsItsClosedForm) {
  for (int n = 2; n <= 17; ++n) {
    const double b = 1000;
    const double expected = step + (n - 1) * (message + byte * b) + latency + step + n * b * reduce;
    EXPECT_NEAR(price_of(Collective::all_reduce, "one_shot", n, uint64_t(b)).time_ns, expected, 1e-6) << n;
  }
}

TEST(Price, OfABinomialBroadcastIsItsClosedForm) {
  for (int n = 2; n <= 64; n *= 2) {
    const double b = 1000, send = message + byte * b;
    // The last leaf hears over log2 n hops from ranks whose first message it is.
    const int rounds = std::bit_width(unsigned(n)) - 1;
    const double expected = step + b * copy + rounds * (send + latency + step + b * copy);
    EXPECT_NEAR(price_of(Collective::broadcast, "binomial", n, uint64_t(b)).time_ns, expected, 1e-6) << n;
  }
}

TEST(Price, CutsIntoTilesAndGoesOnAtTheirPace) {
  // A chain of two: the sender is the slower one, so each tile costs its send.
  const double b = double(message_bytes_max), tile = step + b * copy + message + b * byte;
  for (int tiles : {1, 3, 16, 17, 1000}) {
    const Price seen = price_of(Collective::broadcast, "chain", 2, message_bytes_max * uint64_t(tiles));
    EXPECT_NEAR(seen.time_ns, tiles * tile + latency + step + b * copy, 1e-3) << tiles;
    EXPECT_EQ(seen.messages, uint64_t(tiles));
    EXPECT_EQ(seen.bytes, uint64_t(tiles) * message_bytes_max);
  }
}

TEST(Price, FallsWithAPipeline) {
  const double whole = price_of(Collective::broadcast, "chain", 8, 1 << 18).time_ns;
  EXPECT_LT(price_of(Collective::broadcast, "chain", 8, 1 << 18, 16).time_ns, 0.4 * whole);
  const double tree = price_of(Collective::all_reduce, "double_tree", 32, 1 << 18).time_ns;
  EXPECT_LT(price_of(Collective::all_reduce, "double_tree", 32, 1 << 18, 16).time_ns, 0.5 * tree);
}

TEST(Price, OfSharedCoresIsHigher) {
  Group group;
  group.n = 4;
  const auto plans = plans_of(*find_algorithm(Collective::all_reduce, "two_shot"), group);
  CostModel costs = uniform(4);
  const double alone = price(plans, costs, 1 << 20, message_bytes_max).time_ns;
  costs.contention = 2;
  EXPECT_GT(price(plans, costs, 1 << 20, message_bytes_max).time_ns, 1.8 * alone);
}

TEST(Price, OfNothingIsStillItsMessages) {
  const Price seen = price_of(Collective::all_reduce, "recursive_doubling", 8, 0);
  EXPECT_NEAR(seen.time_ns, step + message + 3 * (latency + step) + 2 * message, 1e-6);
  EXPECT_EQ(seen.messages, 24u);
}

}  // namespace
}  // namespace tutti
