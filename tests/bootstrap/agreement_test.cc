// What all ranks of a set-up agree on, and what they say together where one of them has a problem.
#include "bootstrap/agreement.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "transport/fake_bootstrap.h"

namespace tutti {
namespace {

// What each rank throws, or "", where one of them has a problem.
std::vector<std::string> sentences(int ranks, int with_problem, int& gave_up) {
  const auto bootstraps = fake_bootstraps(ranks);
  return on_each_rank(bootstraps, [&](int rank) {
    Agreement agreement(*bootstraps[size_t(rank)], "test", [&] { ++gave_up; });
    agreement.attempt([&] {
      if (rank == with_problem) throw Error(Code::system_error, "no more of it");
    });
    agreement.attempt([&] { EXPECT_NE(rank, with_problem) << "goes on after its problem"; });
    try {
      const std::vector<int> all = agreement.gather_values(10 * rank);
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(all[size_t(r)], 10 * r);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::system_error);
      return std::string(error.what());
    }
    return std::string();
  });
}

TEST(Agreement, RanksWithoutProblemsGetAllValues) {
  int gave_up = 0;
  EXPECT_EQ(sentences(3, -1, gave_up), std::vector<std::string>(3));
  EXPECT_EQ(gave_up, 0);
}

TEST(Agreement, OneRanksProblemIsEverybodys) {
  int gave_up = 0;
  EXPECT_EQ(sentences(3, 1, gave_up), std::vector<std::string>(3, "rank 1 (thread): no more of it"));
  EXPECT_EQ(gave_up, 1);
}

}  // namespace
}  // namespace tutti
