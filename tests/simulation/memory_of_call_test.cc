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

TEST(MemoryOfCall, LetsOneRankCallOtherwise) {
  for (const uint64_t seed : {0, 2}) {
    MemoryOfCall memory({Collective::all_reduce, "ring", 10, 0, false}, 2, seed);
    EXPECT_NE(pack(memory.request(0, true).call), pack(memory.request(1, false).call));
  }
}

}  // namespace
}  // namespace tutti
