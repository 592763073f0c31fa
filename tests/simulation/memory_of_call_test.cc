// Buffers of simulated calls: what is right is taken, and what is not is found.
#include "simulation/memory_of_call.h"

#include <cstring>

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(MemoryOfCall, KnowsABroadcastsResult) {
  MemoryOfCall memory({Collective::broadcast, "direct", 100, 1, false}, 3, 7);
  const Request root = memory.request(1, false);
  for (const int rank : {0, 1, 2}) {
    EXPECT_NE(memory.wrong(rank), "");
    std::memcpy(memory.request(rank, false).output, root.input, 400);
    EXPECT_EQ(memory.wrong(rank), "");
  }
  memory.mar(2);
  EXPECT_EQ(memory.wrong(2), "element 99 of 100 is wrong");
  EXPECT_EQ(memory.wrong(0), "");
  memory.spoil(0);
  EXPECT_NE(memory.wrong(0), "");
}

TEST(MemoryOfCall, SeesWhatIsWrittenBesideTheOutput) {
  MemoryOfCall memory({Collective::all_gather, "ring", 2, 0, false}, 2, 1);
  for (const int rank : {0, 1}) {
    const Request request = memory.request(rank, false);
    for (const int from : {0, 1}) std::memcpy(request.output + from * 8, memory.request(from, false).input, 8);
    EXPECT_EQ(memory.wrong(rank), "");
  }
  *(memory.request(0, false).output - 1) = std::byte{1};
  EXPECT_EQ(memory.wrong(0), "memory beside the output has changed");
}

// ((x0 + x1) + x2) and no other order, where they differ.
TEST(MemoryOfCall, WantsAStrictSumInTheOrderOfRanks) {
  MemoryOfCall memory({Collective::all_reduce, "one_shot", 200, 0, false, true}, 3, 7);
  const float* inputs[3];
  for (const int rank : {0, 1, 2}) inputs[rank] = reinterpret_cast<const float*>(memory.request(rank, false).input);
  auto* const output = reinterpret_cast<float*>(memory.request(0, false).output);
  EXPECT_EQ(memory.request(0, false).terms.determinism, Determinism::strict);
  for (size_t i = 0; i < 200; ++i) output[i] = inputs[0][i] + inputs[1][i] + inputs[2][i];
  EXPECT_EQ(memory.wrong(0), "");
  for (size_t i = 0; i < 200; ++i) output[i] = inputs[2][i] + inputs[1][i] + inputs[0][i];
  EXPECT_NE(memory.wrong(0), "");
}

TEST(MemoryOfCall, LetsOneRankCallOtherwise) {
  for (const uint64_t seed : {0, 2}) {
    MemoryOfCall memory({Collective::all_reduce, "ring", 10, 0, false}, 2, seed);
    EXPECT_NE(pack(memory.request(0, true).call), pack(memory.request(1, false).call));
  }
}

}  // namespace
}  // namespace tutti
