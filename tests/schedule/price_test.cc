// Prices equal the closed forms of the textbook where those are exact.
#include "schedule/price.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "algorithms/catalog.h"

namespace tutti {
namespace {

constexpr double latency = 500, message = 100, byte = 0.1, step = 5, copy = 0.05, reduce = 0.03;
constexpr uint64_t message_bytes_max = 1 << 18;

CostModel uniform(int n) {
  CostModel costs;
  costs.n = n;
  costs.classes = {{.latency_ns = latency, .message_ns = message, .byte_ns = byte}};
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

TEST(Price, OfAReductionInNearCachesIsLess) {
  Group group;
  group.n = 3;
  CostModel costs = uniform(3);
  costs.near_reduce_bytes = 1000;
  costs.near_reduce_byte_ns = reduce / 4;
  const auto plans = plans_of(*find_algorithm(Collective::all_reduce, "one_shot"), group);
  for (const double b : {0.0, 300.0, 1000.0}) {
    const double read = 3 * b, near = std::min(read, 1000.0);
    const double reduced = near * reduce / 4 + (read - near) * reduce;
    const double expected = step + 2 * (message + byte * b) + latency + step + reduced;
    EXPECT_NEAR(price(plans, costs, uint64_t(b), message_bytes_max).time_ns, expected, 1e-6) << b;
  }
}

// Pieces are no nearer than the whole.
TEST(Price, OfAReductionInPiecesKeepsAsLittleNear) {
  Group group;
  group.n = 2;
  CostModel costs = uniform(2);
  costs.classes = {{}};
  costs.step_ns = 0;
  costs.near_reduce_bytes = 1000;
  const double b = 10'000;
  for (const int pipeline : {1, 4, 16}) {
    group.pipeline = pipeline;
    const auto plans = plans_of(*find_algorithm(Collective::reduce, "chain"), group);
    const Price found = price(plans, costs, uint64_t(b), message_bytes_max);
    EXPECT_NEAR(found.time_ns, (2 * b - 1000) * reduce, 1e-6) << pipeline;
    EXPECT_NEAR(found.pace_ns, (2 * b - 1000) * reduce, 1e-6) << "the next call begins anew";
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

TEST(Price, OfSharedCoresIsTheLongerOfTheChainAndTheSharedWork) {
  // Of n ranks the root alone sends, the others store.
  for (int n = 2; n <= 5; ++n) {
    const double b = 1000;
    Group group;
    group.n = n;
    const auto plans = plans_of(*find_algorithm(Collective::broadcast, "direct"), group);
    CostModel costs = uniform(n);
    const double alone = price(plans, costs, uint64_t(b), message_bytes_max).time_ns;
    const double root = step + b * copy + (n - 1) * (message + byte * b), other = step + b * copy;
    costs.switch_ns = 40;  // each of the others waits for its message
    for (const double contention : {1.0, 3.0, 20.0}) {
      costs.contention = contention;
      EXPECT_NEAR(price(plans, costs, uint64_t(b), message_bytes_max).time_ns,
                  std::max(alone, contention * (root + (n - 1) * (other + 40)) / n), 1e-6);
    }
  }
  // Where all ranks work alike, about so many times as much.
  Group group;
  group.n = 4;
  const auto plans = plans_of(*find_algorithm(Collective::all_reduce, "two_shot"), group);
  CostModel costs = uniform(4);
  const double alone = price(plans, costs, 8 << 20, message_bytes_max).time_ns;
  costs.contention = 2;
  EXPECT_GT(price(plans, costs, 8 << 20, message_bytes_max).time_ns, 1.8 * alone);
}

TEST(Price, OfSharedCoresThatAreKnownIsWhatTheFullestOneWorks) {
  // The root alone sends; the others store.
  const double b = 1000;
  Group group;
  group.n = 4;
  const auto plans = plans_of(*find_algorithm(Collective::broadcast, "direct"), group);
  const double root = step + b * copy + 3 * (message + byte * b), other = step + b * copy;
  for (const std::vector<int>& cores : {std::vector{0, 0, 2, 2}, std::vector{0, 1, 0, 1}, std::vector{0, 1, 1, 1}, std::vector{0, 0, 0, 0}}) {
    CostModel costs = uniform(4);
    costs.contention = 2;
    costs.core_of = cores;
    const double alone = price(plans, uniform(4), uint64_t(b), message_bytes_max).time_ns;
    const auto beside_root = std::count(cores.begin() + 1, cores.end(), 0);
    EXPECT_NEAR(price(plans, costs, uint64_t(b), message_bytes_max).time_ns, std::max(alone, root + double(beside_root) * other), 1e-6);
  }
}

TEST(Price, CountsTheReceiversWork) {
  const double b = 1000, sent = step + b * copy + message + byte * b, stored = step + b * copy;
  Group group;
  group.n = 2;
  const auto plans = plans_of(*find_algorithm(Collective::broadcast, "direct"), group);
  CostModel costs = uniform(2);
  costs.classes[0].receive_ns = 70;
  costs.classes[0].bulk_ns = 300;
  costs.classes[0].inline_bytes = 1000;
  EXPECT_NEAR(price(plans, costs, 1000, message_bytes_max).time_ns, sent + latency + 70 + stored, 1e-6);
  costs.classes[0].inline_bytes = 999;
  EXPECT_NEAR(price(plans, costs, 1000, message_bytes_max).time_ns, sent + latency + 370 + stored, 1e-6);
}

TEST(Price, PaceIsTheBusiestRanksWorkWhereNobodyWaitsForAnAnswer) {
  const double b = 1000, root = step + b * copy + 3 * (message + byte * b);
  const Price seen = price_of(Collective::broadcast, "direct", 4, uint64_t(b));
  EXPECT_NEAR(seen.pace_ns, root, 1e-6);
  EXPECT_NEAR(seen.time_ns, root + latency + step + b * copy, 1e-6);
  // In a ring everybody waits for everybody: a call begins when the last is over, but for its first message.
  const Price ring = price_of(Collective::all_reduce, "ring", 4, 64 * 4);
  EXPECT_GT(ring.pace_ns, 0.8 * ring.time_ns);
  // Many tiles: the pace is theirs.
  const Price tiles = price_of(Collective::broadcast, "chain", 2, message_bytes_max * 1000);
  EXPECT_NEAR(tiles.pace_ns, tiles.time_ns - (latency + step + double(message_bytes_max) * copy), 1e-3);
}

TEST(Price, OfMessagesThatShareAQueueIsHigher) {
  const double b = 900, fan_out = 0.5;
  const auto time_of = [&](Collective collective, std::string_view name, double fan_out_byte_ns) {
    Group group;
    group.n = 3;
    CostModel costs = uniform(3);
    costs.classes[0].fan_out_byte_ns = fan_out_byte_ns;
    return price(plans_of(*find_algorithm(collective, name), group), costs, uint64_t(b), message_bytes_max).time_ns;
  };
  // The root's second block goes to another rank than its first; in a ring none does.
  // (Which is not all on the way of the last rank to be done: the root copies its own block last.)
  EXPECT_GT(time_of(Collective::scatter, "direct", fan_out), time_of(Collective::scatter, "direct", 0) + 100);
  EXPECT_EQ(time_of(Collective::all_gather, "ring", fan_out), time_of(Collective::all_gather, "ring", 0));
}

TEST(Price, OfAMessageToSeveralIsOneCopyWhereTheyShareIt) {
  const double b = 900;
  const int n = 5;
  Group group;
  group.n = n;
  CostModel costs = uniform(n);
  const auto plans = plans_of(*find_algorithm(Collective::broadcast, "direct"), group);
  const double apart = price(plans, costs, uint64_t(b), message_bytes_max).time_ns;
  costs.classes[0].shared_bytes = uint64_t(b);
  EXPECT_NEAR(price(plans, costs, uint64_t(b), message_bytes_max).time_ns, apart - (n - 2) * b * byte, 1e-6);
  costs.classes[0].shared_bytes = uint64_t(b) + 1;  // it is too small
  EXPECT_EQ(price(plans, costs, uint64_t(b), message_bytes_max).time_ns, apart);
  costs.classes[0].shared_bytes = 1;
  costs.classes.push_back(uniform(n).classes[0]);
  costs.link_class[n - 1] = 1;  // the last rank is not among them
  EXPECT_EQ(price(plans, costs, uint64_t(b), message_bytes_max).time_ns, apart);
}

TEST(Price, OfWhatTheQueueHoldsIsNotHigher) {
  const double b = 900;
  Group group;
  group.n = 3;
  CostModel costs = uniform(3);
  const auto plans = plans_of(*find_algorithm(Collective::scatter, "direct"), group);
  const double alone = price(plans, costs, uint64_t(b), message_bytes_max).time_ns;
  costs.classes[0].fan_out_byte_ns = 0.5;
  costs.classes[0].queued_bytes = 300;  // one block
  EXPECT_EQ(price(plans, costs, uint64_t(b), message_bytes_max).time_ns, alone);
  costs.classes[0].queued_bytes = 100;
  EXPECT_GT(price(plans, costs, uint64_t(b), message_bytes_max).time_ns, alone);
}

TEST(Price, OfSmallMessagesIsThatOfANearCache) {
  Group group;
  group.n = 2;
  CostModel costs = uniform(2);
  costs.classes[0].near_bytes = 1000;
  costs.classes[0].near_byte_ns = byte / 4;
  const auto plans = plans_of(*find_algorithm(Collective::broadcast, "direct"), group);
  for (const double b : {0.0, 400.0, 1000.0, 5000.0}) {
    const double near = std::min(b, 1000.0), stored = step + b * copy;
    const double sent = stored + message + near * byte / 4 + (b - near) * byte;
    EXPECT_NEAR(price(plans, costs, uint64_t(b), message_bytes_max).time_ns, sent + latency + stored, 1e-6) << b;
  }
}

// Of two ranks: one_shot has what it sends beforehand, two_shot sends sums, too.
TEST(Price, OfWhatIsWrittenInARowIsLess) {
  Group group;
  group.n = 2;
  const auto time_of = [&](std::string_view name, uint64_t bytes, double row_byte_ns) {
    CostModel costs = uniform(2);
    costs.classes[0].row_byte_ns = row_byte_ns;
    return price(plans_of(*find_algorithm(Collective::all_reduce, name), group), costs, bytes, message_bytes_max).time_ns;
  };
  const uint64_t two = 2 * message_bytes_max;
  EXPECT_NEAR(time_of("one_shot", two, byte) - time_of("one_shot", two, byte / 4), double(two) * byte * 3 / 4, 1e-6);
  EXPECT_EQ(time_of("one_shot", two, 2 * byte), time_of("one_shot", two, byte)) << "no more than there is";
  EXPECT_EQ(time_of("one_shot", message_bytes_max, byte / 4), time_of("one_shot", message_bytes_max, byte)) << "one message";
  EXPECT_EQ(time_of("two_shot", two, byte / 4), time_of("two_shot", two, byte));
}

// What a network card sends keeps no core: ranks that share one send beside each other.
TEST(Price, OfSharedCoresLeavesOutWhatTheCardDoes) {
  const double b = 1000, core_byte = 0.01;
  Group group;
  group.n = 2;
  CostModel costs = uniform(2);
  const auto plans = plans_of(*find_algorithm(Collective::broadcast, "direct"), group);
  const double alone = price(plans, costs, uint64_t(b), message_bytes_max).time_ns;
  costs.classes[0].core_byte_ns = core_byte;
  costs.contention = 20;
  const double work = 2 * (step + b * copy) + message + b * core_byte;
  EXPECT_NEAR(price(plans, costs, uint64_t(b), message_bytes_max).time_ns, std::max(alone, 20 * work / 2), 1e-6);
  costs.classes[0].core_byte_ns = 10 * byte;  // no more than there is
  EXPECT_NEAR(price(plans, costs, uint64_t(b), message_bytes_max).time_ns,
              20 * (2 * (step + b * copy) + message + b * byte) / 2, 1e-6);
}

TEST(Price, OfNothingIsStillItsMessages) {
  const Price seen = price_of(Collective::all_reduce, "recursive_doubling", 8, 0);
  EXPECT_NEAR(seen.time_ns, step + message + 3 * (latency + step) + 2 * message, 1e-6);
  EXPECT_EQ(seen.messages, 24u);
}

}  // namespace
}  // namespace tutti
