// Every algorithm, type, operator and number of ranks up to 9, run by the engine on a simulated network.
#include "engine/collective.h"

#include <array>

#include <gtest/gtest.h>

#include "sanitizer.h"

namespace tutti {
namespace {

constexpr std::array counts = {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{64}, size_t{333}, size_t{1000}};

// Under a sanitizer everything takes ten times as long: of what is alike but for a number, each third.
bool is_left_out(size_t number) { return test::sanitized && number % 3 != 0; }

// Everything that a case leaves open, at random.
void vary(CollectiveCase& c, Random& random) {
  c.root = meaning(c.collective).rooted ? int(random.below(uint64_t(c.n))) : 0;
  c.pipeline = find_algorithm(c.collective, c.algorithm)->pipelined ? int(random.between(1, 6)) : 1;
  c.in_place = random.chance(0.5);
  c.misaligned = random.below(9);
  c.channels = int(random.between(1, 3));
  c.slots = int(random.between(2, 4));
  c.outbox_messages = random.below(4);
  c.message_bytes_max = size_t{512} << random.below(5);
  c.short_probability = random.chance(0.5) ? 0.2 : 0;
  c.delay_ns_max = random.chance(0.5) ? 20'000 : 0;
  c.at_a_stretch = random.chance(0.5);
  c.seed = random.next();
}

TEST(Collectives, AgreeWithANaiveReferenceForEveryTypeOperatorAlgorithmAndNumberOfRanks) {
  PlanStore plans;
  Random random(20240601);
  int runs = 0;
  for (const Algorithm& algorithm : catalog()) {
    for (const DataTypeInfo& type : data_types) {
      for (size_t i_op = 0; i_op < reduce_op_names.size(); ++i_op) {
        const ReduceOp op = ReduceOp(i_op);
        const bool reduces = meaning(algorithm.collective).reduces;
        if (reduces ? !defined(op, type.type) : op != ReduceOp::sum) continue;
        for (int n = 1; n <= 9; ++n) {
          if (is_left_out(size_t(n) + i_op)) continue;
          for (int i = 0; i < (test::sanitized ? 1 : 3); ++i, ++runs) {
            CollectiveCase c{algorithm.collective, algorithm.name, n};
            c.type = type.type;
            c.op = op;
            c.count = counts[random.below(counts.size())];
            vary(c, random);
            ASSERT_EQ(run_collective(c, plans), "");
          }
        }
      }
    }
  }
  fmt::print("{} runs\n", runs);
}

// Elements of 1 to 4096 bytes, joined by a function that commutes or not.
TEST(Collectives, AgreeWithAReferenceForACallersElementsAndOperators) {
  PlanStore plans;
  Random random(4096);
  int runs = 0, in_order = 0;
  for (const Algorithm& algorithm : catalog()) {
    for (int n = 1; n <= 9; ++n) {
      for (const size_t bytes : {size_t{1}, size_t{2}, size_t{3}, size_t{12}, size_t{24}, size_t{65}, size_t{1000},
                                 size_t{2700}, opaque_bytes_max}) {
        if (is_left_out(size_t(n) + bytes)) continue;
        for (const ReduceOp op : {ReduceOp::custom, ReduceOp::custom_in_order}) {
          CollectiveCase c{algorithm.collective, algorithm.name, n};
          c.type = DataType::opaque;
          c.op = op;
          c.opaque_bytes = bytes;
          c.count = counts[random.below(bytes > 100 ? 4 : counts.size())];
          vary(c, random);
          std::vector<int> hosts;  // as PlanStore has them
          for (int r = 0; r < n; ++r) hosts.push_back(r / 3);
          const Group group{0, n, c.root, c.pipeline, hosts};
          const bool ordered = op == ReduceOp::custom_in_order && meaning(c.collective).reduces;
          if (ordered && !algorithm.claim(group).rank_order) continue;
          c.message_bytes_max = std::max(c.message_bytes_max, algorithm.shape(group).message * (bytes + 64));
          ASSERT_EQ(run_collective(c, plans), "");
          ++runs;
          in_order += ordered;
        }
      }
    }
  }
  fmt::print("{} runs, {} in the order of ranks\n", runs, in_order);
}

TEST(Collectives, AgreeForEveryCountInPlaceAndNotOverManyTilesAndChannels) {
  PlanStore plans;
  Random random(7);
  for (const Algorithm& algorithm : catalog()) {
    for (int n = 1; n <= 9; ++n) {
      for (const size_t count : counts) {
        if (is_left_out(size_t(n) + count)) continue;
        for (const bool in_place : {false, true}) {
          CollectiveCase c{algorithm.collective, algorithm.name, n};
          c.count = count;
          vary(c, random);
          c.in_place = in_place;
          c.message_bytes_max = 512;
          ASSERT_EQ(run_collective(c, plans), "");
        }
      }
    }
  }
}

// Tile by tile, in messages of which a tile's last may be taken while the next tile's first is made, or may not.
TEST(Collectives, AgreeWhereEachRanksInputIsMultipliedFirst) {
  PlanStore plans;
  Random random(13);
  for (const Algorithm& algorithm : catalog()) {
    if (!meaning(algorithm.collective).reduces) continue;
    for (int n = 1; n <= 9; ++n) {
      for (const size_t message_bytes_max : {size_t{512}, size_t{1} << 14, size_t{1} << 16}) {
        if (is_left_out(size_t(n) + message_bytes_max)) continue;
        for (const bool in_place : {false, true}) {
          CollectiveCase c{algorithm.collective, algorithm.name, n};
          vary(c, random);
          c.multiplied = true;
          c.in_place = in_place;
          c.type = random.chance(0.5) ? DataType::int32 : DataType::float32;
          c.message_bytes_max = message_bytes_max;
          c.count = message_bytes_max / 8 * random.below(8) + random.below(100);
          ASSERT_EQ(run_collective(c, plans), "");
        }
      }
    }
  }
}

// They end, however little room there is and however late each is.
TEST(Collectives, AgreeWhereOneMessageToSeveralRanksLiesOnce) {
  PlanStore plans;
  Random random(11);
  for (const Algorithm& algorithm : catalog()) {
    for (int n = 3; n <= 9; ++n) {
      for (size_t outbox_messages = 1; outbox_messages <= 3; ++outbox_messages) {
        if (is_left_out(size_t(n) + outbox_messages)) continue;
        CollectiveCase c{algorithm.collective, algorithm.name, n};
        vary(c, random);
        c.count = 4000 + random.below(4000);
        c.slots = 2;
        c.outbox_messages = outbox_messages;
        c.message_bytes_max = 2048;
        ASSERT_EQ(run_collective(c, plans), "");
      }
    }
  }
}

int looks = 0;
bool mostly_cold(const void*, size_t, bool) noexcept { return ++looks % 3 != 0; }

TEST(Collectives, AgreeWhereOutputsThatAreInNoCacheGoPastThem) {
  PlanStore plans;
  Random random(12);
  looks = 0;
  ColdOutputs cold_outputs(mostly_cold, 1);
  int runs = 0, looking = 0;
  for (const Algorithm& algorithm : catalog()) {
    for (int n = 2; n <= (test::sanitized ? 3 : 5); ++n) {
      for (const auto& [in_place, message_bytes_max] :
           std::initializer_list<std::pair<bool, size_t>>{{false, 1 << 17}, {true, 1 << 17}, {false, 1 << 15}, {true, 1 << 15}}) {
        CollectiveCase c{algorithm.collective, algorithm.name, n};
        vary(c, random);
        c.in_place = in_place;
        c.channels = 1;
        c.short_probability = 0;
        c.message_bytes_max = message_bytes_max;
        c.count = (meaning(c.collective).blocks ? 12'000 : 12'000 * size_t(n)) + random.below(1000);
        c.cold_outputs = &cold_outputs;
        const int before = looks;
        ASSERT_EQ(run_collective(c, plans), "");
        looking += looks > before;
        ++runs;
      }
    }
  }
  EXPECT_GT(looking * 4, runs) << "so many stored something large that no other rank awaits";
}

TEST(Collectives, GiveTheSameBitsOnAllRanksWhereRoundingDependsOnTheOrder) {
  PlanStore plans;
  Random random(99);
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective != Collective::all_reduce) continue;
    for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float32, DataType::float64,
                                DataType::float8e4m3, DataType::float8e5m2}) {
      for (const int n : {2, 3, 5, 7, 8, 9, 12, 17}) {
        CollectiveCase c{algorithm.collective, algorithm.name, n};
        c.type = type;
        c.op = random.chance(0.5) ? ReduceOp::sum : ReduceOp::avg;
        c.count = 777;
        c.exact = false;
        vary(c, random);
        ASSERT_EQ(run_collective(c, plans), "");
      }
    }
  }
}

TEST(Collectives, FoldMoreOperandsThanOnePassTakesInPlace) {
  PlanStore plans;
  for (const int n : {8, 9, 15, 16, 17, 23, 40}) {
    for (const bool in_place : {false, true}) {
      CollectiveCase c;
      c.n = n;
      c.count = 3001;
      c.in_place = in_place;
      c.message_bytes_max = 1 << 20;
      ASSERT_EQ(run_collective(c, plans), "");
    }
  }
}

TEST(Collectives, EndWithOneOrWithEmptyElementsOnManyRanks) {
  PlanStore plans;
  for (const Algorithm& algorithm : catalog()) {
    for (const int n : {16, 31, 64}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{65}}) {
        CollectiveCase c{algorithm.collective, algorithm.name, n};
        c.pipeline = algorithm.pipelined ? 4 : 1;
        c.count = count;
        c.root = meaning(algorithm.collective).rooted ? n - 1 : 0;
        c.op = ReduceOp::max;
        ASSERT_EQ(run_collective(c, plans), "");
      }
    }
  }
}

}  // namespace
}  // namespace tutti
