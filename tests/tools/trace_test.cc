// tutti-trace on traces made by hand: one clock for all, who was late, and files that are no traces.
#include "tools/trace/trace.h"

#include <fstream>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tutti::trace {
namespace {

// Rank 2 is `late_us` late for every call; hosts' clocks differ by `skew_us`.
std::vector<RankTrace> job(double late_us, double skew_us, size_t calls = 20) {
  std::vector<RankTrace> ranks;
  for (int rank = 3; rank >= 0; --rank) {
    RankTrace trace;
    trace.file = "trace." + std::to_string(rank);
    trace.rank = rank;
    trace.size = 4;
    trace.host = rank < 2 ? "a" : "b";
    for (size_t i = 0; i < calls; ++i) {
      const double clock = rank < 2 ? 0 : skew_us, start = 1000.0 * double(i) + clock;
      Call call{
          i, i % 2 == 0 ? "all_reduce(count 1)" : "broadcast(count 1, root 0)", "ring", 8, start, start + late_us + 5,
          {}};
      if (rank == 2) call.begin_us += late_us;
      else call.waits.push_back({start, start + late_us, 2});
      if (i % 2 == 1 && rank == 0) call.end_us = start + 1;  // a root need not wait
      trace.calls.push_back(call);
    }
    ranks.push_back(trace);
  }
  return ranks;
}

TEST(Trace, HostsComeToOneClockByCallsThatEndTogether) {
  for (const double skew : {0.0, 1e9, -12345.0}) {
    std::vector<RankTrace> ranks = job(100, skew);
    align(ranks);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(ranks[size_t(rank)].rank, rank);
      EXPECT_NEAR(ranks[size_t(rank)].offset_us, rank < 2 ? 0 : -skew, 1e-6);
    }
  }
}

TEST(Trace, TheLateRankIsNamedWithItsLateness) {
  std::vector<RankTrace> ranks = job(100, 5000);
  align(ranks);
  const std::vector<Lateness> calls = lateness(ranks);
  ASSERT_EQ(calls.size(), 20u);
  for (const Lateness& call : calls) {
    EXPECT_EQ(call.last_rank, 2);
    EXPECT_NEAR(call.late_us, 100, 1e-6);
    EXPECT_NEAR(call.took_us, 5, 1e-6);
  }
  const std::vector<RankSummary> totals = summary(ranks, 50);
  ASSERT_EQ(totals.size(), 4u);
  EXPECT_EQ(totals[2].times_last, 20u);
  EXPECT_NEAR(totals[2].late_us, 2000, 1e-6);
  EXPECT_NEAR(totals[2].waited_for_us, 3 * 2000, 1e-6);
  EXPECT_EQ(totals[0].times_last, 0u);
  EXPECT_NEAR(totals[0].waited_us, 2000, 1e-6);
  EXPECT_EQ(summary(ranks, 101)[2].times_last, 0u);
}

TEST(Trace, CallsThatARankDidNotMakeAreLeftOut) {
  std::vector<RankTrace> ranks = job(100, 0);
  ranks[0].calls.resize(7);
  ranks[1].calls[3].name = "all_reduce(count 2)";
  align(ranks);
  EXPECT_EQ(lateness(ranks).size(), 6u);
}

TEST(Trace, TheMergedFileHoldsAllEventsFromTimeZero) {
  std::vector<RankTrace> ranks = job(100, 1e6, 3);
  align(ranks);
  const nlohmann::json merged = nlohmann::json::parse(merged_json(ranks));
  size_t events = 0;
  double first = 1e300;
  for (const auto& event : merged["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++events;
    first = std::min(first, event["ts"].get<double>());
  }
  EXPECT_EQ(events, 4u * 3 + 3u * 3);
  EXPECT_NEAR(first, 0, 1e-3);
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Trace, WrongFilesAreNamed) {
  const std::string file = ::testing::TempDir() + "tutti-no-trace.json";
  EXPECT_NE(message_of([] { read_trace("/nowhere/x.json"); }).find("/nowhere/x.json"), std::string::npos);
  for (const char* text : {"", "{}", "[1,2", "{\"metadata\": {\"rank\": \"x\"}}"}) {
    std::ofstream(file) << text;
    EXPECT_NE(message_of([&] { read_trace(file); }).find(file), std::string::npos) << text;
  }
  std::vector<RankTrace> twice = job(1, 0);
  twice[0].rank = 1;
  EXPECT_NE(message_of([&] { align(twice); }).find("both of rank 1"), std::string::npos);
  std::vector<RankTrace> other = job(1, 0);
  other[0].size = 5;
  EXPECT_NE(message_of([&] { align(other); }).find("of 5"), std::string::npos);
}

}  // namespace
}  // namespace tutti::trace
