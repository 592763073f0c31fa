// Waits during set-up end: with the verdict, with who is late, or with who has left.
#include <fmt/format.h>

#include "bootstrap/control.h"
#include "support.h"

namespace tutti::test {
namespace {

TEST(Exchange, WhoDoesNotTakePartIsNamedToAll) {
  const JobId id = open_place();
  const std::vector<Outcome> outcomes = on_threads(5, [&](int rank) {
    const auto bootstrap = join(id, rank, 5, quick_options(ns_per_s));
    if (rank != 3) bootstrap->barrier();
    const Verdict* verdict = await_verdict(*bootstrap, 10 * ns_per_s);
    if (verdict != nullptr) throw Error(verdict->code, verdict->sentence);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, Code::timeout) << outcome.sentence;
    EXPECT_NE(outcome.sentence.find("rank 3 (host "), std::string::npos) << outcome.sentence;
  }
}

TEST(Exchange, WhoLeftCannotBeWaitedFor) {
  const JobId id = open_place();
  const std::vector<Outcome> outcomes = on_threads(4, [&](int rank) {
    const auto bootstrap = join(id, rank, 4);
    if (rank == 2) return bootstrap->leave();
    bootstrap->barrier();
  });
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(outcomes[size_t(rank)].code, Code::remote_error) << outcomes[size_t(rank)].sentence;
    EXPECT_NE(outcomes[size_t(rank)].sentence.find("rank 2 (host "), std::string::npos)
        << outcomes[size_t(rank)].sentence;
  }
}

TEST(Exchange, AVerdictEndsEveryWait) {
  const JobId id = open_place();
  const std::vector<Outcome> outcomes = on_threads(3, [&](int rank) {
    const auto bootstrap = join(id, rank, 3);
    const Bootstrap::Wish wish{1, 7};
    if (rank == 0) bootstrap->connect({&wish, 1});
    if (rank == 1) bootstrap->barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    bootstrap->fail({Code::aborted, 2, "rank 2 aborted"});
    EXPECT_STREQ(bootstrap->verdict()->sentence.c_str(), "rank 2 aborted");
    bootstrap->fail({Code::timeout, 1, "too late"});
    throw Error(bootstrap->verdict()->code, bootstrap->verdict()->sentence);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, Code::aborted);
    EXPECT_EQ(outcome.sentence, "rank 2 aborted");
  }
}

}  // namespace
}  // namespace tutti::test
