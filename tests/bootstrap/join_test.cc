// Ranks as threads join, exchange bytes and connect to each other.
#include <sys/socket.h>

#include <fcntl.h>
#include <poll.h>

#include <numeric>
#include <set>

#include <fmt/format.h>

#include "bootstrap/control.h"
#include "support.h"

namespace tutti::test {
namespace {

class Join : public ::testing::TestWithParam<int> {};

TEST_P(Join, EveryRankLearnsOfEveryOtherAndGathersItsBytes) {
  const int size = GetParam();
  const JobId id = open_place();
  expect_all_succeed(on_threads(size, [&](int rank) {
    const auto bootstrap = join(id, rank, size);
    EXPECT_EQ(bootstrap->rank(), rank);
    EXPECT_EQ(bootstrap->size(), size);
    EXPECT_EQ(bootstrap->key(), id.key);
    for (int peer = 0; peer < size; ++peer)
      EXPECT_TRUE(bootstrap->describe(peer).starts_with(fmt::format("rank {} (host ", peer)))
          << bootstrap->describe(peer);
    for (int round = 0; round < 3; ++round) {
      const std::string mine = fmt::format("{}", rank) + std::string(size_t(rank * 1000 * round), 'x');
      const std::vector<Bytes> all = bootstrap->all_gather(bytes_of(mine));
      ASSERT_EQ(all.size(), size_t(size));
      for (int peer = 0; peer < size; ++peer)
        EXPECT_EQ(text_of(all[size_t(peer)]),
                  fmt::format("{}", peer) + std::string(size_t(peer * 1000 * round), 'x'));
      bootstrap->barrier();
    }
    bootstrap->leave();
  }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Join, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33));

TEST(Join, ABarrierEndsOnlyWhenAllHaveCome) {
  const JobId id = open_place();
  std::atomic<int> arrived{0};
  expect_all_succeed(on_threads(5, [&](int rank) {
    const auto bootstrap = join(id, rank, 5);
    for (int round = 1; round <= 20; ++round) {
      arrived.fetch_add(1);
      bootstrap->barrier();
      EXPECT_GE(arrived.load(), 5 * round);
      bootstrap->barrier();
    }
    bootstrap->leave();
  }));
}

TEST(Join, LargeGathersArriveWhole) {
  const JobId id = open_place();
  expect_all_succeed(on_threads(4, [&](int rank) {
    const auto bootstrap = join(id, rank, 4);
    const Bytes mine(gather_bytes_max, std::byte(rank + 1));
    const std::vector<Bytes> all = bootstrap->all_gather(mine);
    for (int peer = 0; peer < 4; ++peer) EXPECT_EQ(all[size_t(peer)], Bytes(gather_bytes_max, std::byte(peer + 1)));
    const Bytes too_much(gather_bytes_max + 1);
    EXPECT_THROW(bootstrap->all_gather(too_much), Error);
    bootstrap->leave();
  }));
}

TEST(Join, SeveralJobsOfTheSameRanksDoNotMix) {
  const JobId a = open_place(), b = open_place();
  expect_all_succeed(on_threads(3, [&](int rank) {
    const auto first = join(a, rank, 3);
    const auto second = join(b, 2 - rank, 3);
    EXPECT_EQ(text_of(second->all_gather(bytes_of(fmt::format("{}", second->rank())))[1]), "1");
    EXPECT_EQ(text_of(first->all_gather(bytes_of(fmt::format("{}", rank)))[2]), "2");
    first->leave();
    second->leave();
  }));
}

// Says "rank:tag" over each connection and hears the peer's.
void talk(Bootstrap& bootstrap, const std::vector<Bootstrap::Wish>& wishes, const std::vector<Fd>& fds) {
  ASSERT_EQ(fds.size(), wishes.size());
  for (size_t i = 0; i < fds.size(); ++i) {
    EXPECT_NE(::fcntl(fds[i].get(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(fds[i].get(), F_GETFD) & FD_CLOEXEC, 0);
    const uint32_t word[2] = {uint32_t(bootstrap.rank()), wishes[i].tag};
    ASSERT_EQ(::send(fds[i].get(), word, sizeof word, MSG_NOSIGNAL), ssize_t(sizeof word));
  }
  for (size_t i = 0; i < fds.size(); ++i) {
    uint32_t word[2] = {};
    pollfd wait{fds[i].get(), POLLIN, 0};
    ASSERT_EQ(::poll(&wait, 1, 10'000), 1);
    ASSERT_EQ(::recv(fds[i].get(), word, sizeof word, MSG_WAITALL), ssize_t(sizeof word));
    EXPECT_EQ(int(word[0]), wishes[i].peer);
    EXPECT_EQ(word[1], wishes[i].tag);
  }
}

class Connect : public ::testing::TestWithParam<int> {};

TEST_P(Connect, EveryPairGetsAConnectionPerTagInWhateverOrderTheyAsk) {
  const int size = GetParam();
  const JobId id = open_place();
  expect_all_succeed(on_threads(size, [&](int rank) {
    const auto bootstrap = join(id, rank, size);
    std::vector<Bootstrap::Wish> wishes;
    for (int i = 1; i < size; ++i)
      for (uint32_t tag = 0; tag < 3; ++tag) wishes.push_back({(rank + i) % size, rank % 2 == 0 ? tag : 2 - tag});
    talk(*bootstrap, wishes, bootstrap->connect(wishes));
    talk(*bootstrap, wishes, bootstrap->connect(wishes));
    bootstrap->leave();
  }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Connect, ::testing::Values(2, 3, 5, 9));

TEST(Connect, APeerThatNeverAsksIsNamedAtTheDeadline) {
  const JobId id = open_place();
  const std::vector<Outcome> outcomes = on_threads(2, [&](int rank) {
    const auto bootstrap = join(id, rank, 2, quick_options(ns_per_s));
    const Bootstrap::Wish wish{1, 7};
    if (rank == 0) bootstrap->connect({&wish, 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    bootstrap->leave();
  });
  EXPECT_EQ(outcomes[0].code, Code::timeout);
  EXPECT_NE(outcomes[0].sentence.find("rank 1 (host "), std::string::npos) << outcomes[0].sentence;
  EXPECT_NE(outcomes[0].sentence.find("tag 7"), std::string::npos) << outcomes[0].sentence;
}

TEST(Connect, ARankThatIsNoneIsRefused) {
  const JobId id = open_place();
  const auto alone = join(id, 0, 1);
  for (const int peer : {-1, 0, 1}) {
    const Bootstrap::Wish wish{peer, 0};
    EXPECT_THROW(alone->connect({&wish, 1}), Error);
  }
}

TEST(Join, ArgumentsThatCannotBeAreRefused) {
  const JobId id = open_place();
  EXPECT_THROW(join(id, 0, 0), Error);
  EXPECT_THROW(join(id, -1, 2), Error);
  EXPECT_THROW(join(id, 2, 2), Error);
  EXPECT_THROW(join(JobId{}, 0, 1), Error);
}

TEST(Join, RanksMeetAtAnAgreedPortAgainAndAgain) {
  const Key key = derive_key("a job's secret");
  for (int job = 0; job < 5; ++job)
    expect_all_succeed(on_threads(4, [&](int rank) {
      if (rank == 0) open_meeting_place_at("localhost", 29411, key, now_ns() + 20 * ns_per_s);
      const auto bootstrap = join(agreed_meeting_place("localhost", 29411, key), rank, 4);
      bootstrap->barrier();
      bootstrap->leave();
    }));
}

}  // namespace
}  // namespace tutti::test
