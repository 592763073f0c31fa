// V-forms, run by the engine on a simulated network: every algorithm that may serve them, type, operator and number of
// ranks up to 9, over blocks of sizes of their own.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "communicator/v_form_case.h"
#include "engine/simulation.h"
#include "reduce/reduce.h"
#include "sanitizer.h"
#include "schedule/check.h"

namespace tutti {
namespace {

using test::VFormCall;
using test::VFormCase;

struct Setting {
  int pipeline = 1;
  int channels = 1;
  size_t message_bytes_max = 4096;
  double short_probability = 0;
};

// One rank: its memory, and what the engine is given.
struct RankOfCase {
  VFormCall call;
  Layout layout;
  Plan plan;
  std::vector<std::byte> scratch;

  RankOfCase(const VFormCase& c, const Algorithm& algorithm, const Group& group)
      : call(c, group.rank),
        plan(lower(record(algorithm, group), algorithm.shape(group), algorithm.name, call.one_buffer())) {
    const Meaning& means = meaning(c.kind);
    const bool by_input = means.input_of(true) == Part::all;
    layout.of_pairs = c.kind != Collective::all_gather_v && c.kind != Collective::reduce_scatter_v;
    layout.input = {call.send().counts, call.send().displacements};
    layout.output = {call.recv().counts, call.recv().displacements};
    if (!layout.of_pairs && by_input) layout.output.sizes = layout.input.sizes;
    else if (!layout.of_pairs) layout.input.sizes = layout.output.sizes;
    if (call.one_buffer() && by_input) layout.output = layout.input;
    else if (call.one_buffer()) layout.input = layout.output;
    for (BlockLayout* side : {&layout.input, &layout.output})
      layout.elements = std::max(layout.elements, std::accumulate(side->sizes.begin(), side->sizes.end(), size_t{0}));
  }

  Work work(const VFormCase& c, const Engine& engine, int channels) {
    Work work;
    work.plan = &plan;
    work.input = call.send_data();
    work.output = call.recv_data();
    if (call.one_buffer()) {
      const bool in_send = call.send().part == Part::all;
      work.output = call.memory() + (in_send ? call.send().at : call.recv().at);
      work.input = work.output;
    }
    scratch.resize(engine.scratch_bytes(plan, channels) + 64);
    work.scratch = scratch.data();
    work.layout = &layout;
    work.element_bytes = element_bytes(c.type);
    work.reduce = reduce_function(c.type, c.op);
    work.divisor = c.op == ReduceOp::avg ? uint32_t(c.n) : 0;
    work.signature = pack({c.kind, c.type, c.op, uint32_t(c.root), 0});
    return work;
  }
};

std::string run(const VFormCase& c, const Algorithm& algorithm, const Setting& setting) {
  SimulatedOptions network;
  network.n = c.n;
  network.channels = setting.channels;
  network.message_bytes_max = setting.message_bytes_max;
  network.short_probability = setting.short_probability;
  network.delay_ns_max = 20'000;
  network.seed = c.seed;
  Simulation simulation(network);
  std::vector<int> hosts;
  for (int r = 0; r < c.n; ++r) hosts.push_back(r / 3);
  std::vector<std::unique_ptr<RankOfCase>> ranks;
  for (int r = 0; r < c.n; ++r) {
    ranks.push_back(std::make_unique<RankOfCase>(c, algorithm, Group{r, c.n, c.root, setting.pipeline, hosts}));
    simulation.start(r, ranks.back()->work(c, simulation.engine(r), setting.channels), 0, setting.channels);
  }
  simulation.run();
  for (int r = 0; r < c.n; ++r) {
    if (simulation.status(r) != Status::done)
      return fmt::format("{} by {}: rank {} did not end", describe(c), algorithm.name, r);
    const std::string wrong = ranks[size_t(r)]->call.wrong();
    if (!wrong.empty()) return fmt::format("by {}, {} channels, messages of {}: {}", algorithm.name, setting.channels,
                                           setting.message_bytes_max, wrong);
  }
  return "";
}

// Where only two ranks know a block's size, it must go straight from the one to the other.
bool may_serve(const Algorithm& algorithm, Collective kind, const Group& group) {
  if (algorithm.collective != served_as(kind)) return false;
  if (kind == Collective::all_gather_v || kind == Collective::reduce_scatter_v) return true;
  return algorithm.shape(group).scratch == 0 && algorithm.claim(group).rounds <= 1;
}

TEST(VForms, AgreeWithAReferenceForEveryAlgorithmTypeAndNumberOfRanks) {
  Random random(77);
  int runs = 0;
  for (const Collective kind : test::v_forms)
    for (const Algorithm& algorithm : catalog())
      for (int n = 1; n <= 9; ++n) {
        Group group;
        group.n = n;
        if (!may_serve(algorithm, kind, group)) continue;
        for (int i = 0; i < (test::sanitized ? 20 : 60); ++i, ++runs) {
          VFormCase c{kind, n};
          c.root = meaning(kind).rooted ? int(random.below(uint64_t(n))) : 0;
          c.type = data_types[random.below(data_types.size())].type;
          if (meaning(kind).reduces) {
            while (!defined(ReduceOp::sum, c.type)) c.type = data_types[random.below(data_types.size())].type;
            c.op = ReduceOp(random.below(4));
            if (!defined(c.op, c.type)) c.op = ReduceOp::sum;
          }
          const size_t sizes[] = {0, 1, 9, 300, 3000};
          c.size_max = sizes[random.below(5)];
          c.in_place = random.chance(0.5);
          c.dense = random.chance(0.3);
          c.seed = random.next() >> 20;
          Setting setting;
          setting.pipeline = algorithm.pipelined ? int(random.between(1, 5)) : 1;
          setting.channels = int(random.between(1, 3));
          setting.message_bytes_max = size_t{1024} << random.below(4);
          setting.short_probability = random.chance(0.5) ? 0.2 : 0;
          ASSERT_EQ(run(c, algorithm, setting), "");
        }
      }
  fmt::print("{} runs\n", runs);
  EXPECT_GT(runs, test::sanitized ? 1600 : 5000);
}

// One block alone holds everything: as many tiles as it needs, and nobody waits for the empty ones.
TEST(VForms, EndWhereOneRankHasItAll) {
  for (const Collective kind : test::v_forms)
    for (const Algorithm& algorithm : catalog())
      for (const int n : {2, 3, 16, 31}) {
        Group group;
        group.n = n;
        if (!may_serve(algorithm, kind, group)) continue;
        for (uint64_t seed = 1; seed <= (test::sanitized ? 1 : 4); ++seed) {
          VFormCase c{kind, n, n - 1};
          if (!meaning(kind).rooted) c.root = 0;
          c.size_max = 5000;
          c.seed = seed;
          ASSERT_EQ(run(c, algorithm, {}), "");
        }
      }
}

// The rank that waits and the rank it waits for disagree about one block: whoever receives sees it in the first
// message.
TEST(VForms, OfPairsSayTheSizeOfABlockInEveryMessage) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{5000}}) {
    const uint64_t signature = pack({Collective::all_to_all_v, DataType::float32, ReduceOp::sum, 0, 77});
    const Call call = unpack(with_count(signature, count));
    EXPECT_EQ(call.count, count);
    EXPECT_EQ(call.kind, Collective::all_to_all_v);
    EXPECT_EQ(call.type, DataType::float32);
  }
}

TEST(VForms, TakeEveryElementOnceInTilesAndChannels) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{1000}})
    for (const uint32_t shares : {1u, 2u, 3u, 7u})
      for (const size_t tile_max : {size_t{1}, size_t{16}, size_t{999}}) {
        std::vector<int> taken(size, 0);
        for (uint32_t share = 0; share < shares; ++share)
          for (size_t tile = 0; tile * tile_max < size; ++tile) {
            const BlockPart part = tile_of_block(size, share, shares, tile, tile_max, 4);
            EXPECT_LE(part.size, tile_max);
            for (size_t i = part.first; i < part.first + part.size; ++i) ++taken.at(i);
          }
        EXPECT_EQ(taken, std::vector<int>(size, 1)) << size << " in " << shares << " of " << tile_max;
      }
}

}  // namespace
}  // namespace tutti
