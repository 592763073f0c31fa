// Places that change hands: one owner at a time, the place that was read last is written next, and nobody waits for one.
#include "transport/shm/shm_trade.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "transport/fake_bootstrap.h"
#include "transport/shm/shm.h"

namespace tutti {
namespace {

constexpr size_t message_max = 16 * 1024;

class ShmTradeTest : public testing::Test {
 protected:
  ShmTradeTest() : bootstraps_(fake_bootstraps(2)) {
    transports_ = on_each_rank(bootstraps_, [&](int rank) {
      ShmOptions options;
      options.slot_bytes = message_max;
      return make_shm(*bootstraps_[size_t(rank)], options);
    });
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      Mapped mapped;
      if (std::sscanf(line.c_str(), "%zx-%zx %*s %zx %*s %zu", &mapped.begin, &mapped.end, &mapped.offset, &mapped.file) == 4)
        mapped_.push_back(mapped);
    }
  }

  Endpoint& at(int rank) { return *transports_[size_t(rank)]->endpoint(1 - rank, 0); }

  // One place has two addresses, one on either side: the file, and where in it, tell which it is.
  size_t place_of(const std::byte* address) const {
    const auto at = uintptr_t(address);
    for (const Mapped& mapped : mapped_)
      if (at >= mapped.begin && at < mapped.end) return mapped.file << 40 | (mapped.offset + at - mapped.begin);
    return 0;
  }

  size_t send(int rank, std::byte value, size_t bytes = 4096) {
    std::byte* const place = at(rank).reserve(bytes);
    if (place == nullptr) return 0;
    std::memset(place, int(value), bytes);
    at(rank).commit(bytes, 1);
    return place_of(place);
  }

  size_t receive(int rank, std::byte value, size_t bytes = 4096) {
    const std::byte* place = nullptr;
    EXPECT_EQ(at(rank).view(bytes, 1, place), Status::done);
    if (place == nullptr) return 0;
    for (size_t i = 0; i < bytes; ++i)
      if (place[i] != value) ADD_FAILURE() << "byte " << i << " is " << int(place[i]) << ", not " << int(value), i = bytes;
    EXPECT_EQ(at(rank).release(), Status::done);
    return place_of(place);
  }

  // As a whole, out of memory of its own and into such.
  bool send_whole(int rank, std::byte value, size_t bytes) {
    const std::vector<std::byte> message(bytes, value);
    size_t done = 0;
    return at(rank).send(message.data(), bytes, 1, done) == Status::done;
  }
  void receive_whole(int rank, std::byte value, size_t bytes) {
    std::vector<std::byte> message(bytes);
    size_t done = 0;
    EXPECT_EQ(at(rank).recv(message.data(), bytes, 1, done), Status::done);
    EXPECT_EQ(done, bytes);
    EXPECT_EQ(message, std::vector<std::byte>(bytes, value));
  }

  decltype(fake_bootstraps(1)) bootstraps_;
  std::vector<std::unique_ptr<Transport>> transports_;
  struct Mapped {
    uintptr_t begin = 0, end = 0;
    size_t offset = 0, file = 0;
  };
  std::vector<Mapped> mapped_;
};

TEST_F(ShmTradeTest, WhoHasReadAMessageWritesItsNextOneThere) {
  size_t read[2] = {};
  std::set<size_t> places;
  for (int call = 0; call < 20; ++call) {
    const std::byte value = std::byte(call);
    const size_t sent[2] = {send(0, value), send(1, value)};
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(call == 0 || sent[rank] == read[rank]) << "call " << call << ", rank " << rank;
      places.insert(sent[rank]);
    }
    for (int rank = 0; rank < 2; ++rank) {
      read[rank] = receive(rank, value);
      EXPECT_EQ(read[rank], sent[1 - rank]);
    }
  }
  EXPECT_EQ(places.size(), 2u) << "one place each way is all that such an exchange touches";
}

// Short ones go a way of their own.
TEST_F(ShmTradeTest, AMessageThatIsSentAsAWholeLiesWhereOneAsLongWasRead) {
  for (const size_t bytes : {size_t{105}, size_t{128}, size_t{4096}, size_t{8191}, size_t{8192}, message_max}) {
    size_t read = 0;
    for (int i = 0; i < 6; ++i) {
      ASSERT_TRUE(send_whole(i % 2, std::byte(i), bytes));
      const size_t place = receive(1 - i % 2, std::byte(i), bytes);
      EXPECT_TRUE(i == 0 || place == read) << bytes;
      read = place;
    }
  }
}

// As calls of several sizes by turns.
TEST_F(ShmTradeTest, MessagesOfEachLengthHavePlacesOfTheirOwn) {
  constexpr size_t bytes[] = {message_max, 2048, message_max / 2, 4096};
  std::set<size_t> places[std::size(bytes)], all;
  for (int call = 0; call < 20; ++call)
    for (size_t i = 0; i < std::size(bytes); ++i) {
      for (const int rank : {0, 1}) places[i].insert(send(rank, std::byte(call), bytes[i]));
      for (const int rank : {0, 1}) receive(rank, std::byte(call), bytes[i]);
    }
  for (const std::set<size_t>& of_one : places) {
    EXPECT_EQ(of_one.size(), 2u) << "one each way";
    all.insert(of_one.begin(), of_one.end());
  }
  EXPECT_EQ(all.size(), 2 * std::size(bytes));
}

// As a call of blocks of sizes of their own.
TEST_F(ShmTradeTest, AMessageLiesWhereOneOfItsLengthWasRead) {
  constexpr size_t bytes[] = {message_max, message_max / 4};
  std::set<size_t> places[2];
  for (int call = 0; call < 20; ++call) {
    for (const int rank : {0, 1})
      for (const int i : {0, 1}) places[i].insert(send(rank, std::byte(call), bytes[i]));
    for (const int rank : {0, 1})
      for (const int i : {0, 1}) receive(rank, std::byte(call), bytes[i]);
  }
  EXPECT_EQ(places[0].size(), 2u);
  EXPECT_EQ(places[1].size(), 2u);
  for (const size_t place : places[0]) EXPECT_EQ(places[1].count(place), 0u);
}

// Of more lengths than there are places, long ones may meet in one; none is left to the ring for good.
TEST_F(ShmTradeTest, MoreLengthsThanPlacesShareThem) {
  std::set<size_t> places;
  for (int call = 0; call < 40; ++call)
    for (size_t bytes = 1024; bytes <= message_max; bytes += 1024) {
      for (const int rank : {0, 1}) places.insert(send(rank, std::byte(call), bytes));
      for (const int rank : {0, 1}) receive(rank, std::byte(call), bytes);
    }
  EXPECT_LE(places.size(), 2 * shm_traded_places + 20) << "and hardly any message goes by the ring";
}

TEST_F(ShmTradeTest, WhereMessagesGrowOnBothSidesTheyFindPlacesAgain) {
  size_t read[2] = {};
  for (const size_t bytes : {message_max / 8, message_max / 2, message_max, message_max / 8, message_max}) {
    for (int call = 0; call < 4; ++call) {
      const size_t sent[2] = {send(0, std::byte(call), bytes), send(1, std::byte(call), bytes)};
      for (const int rank : {0, 1}) {
        EXPECT_TRUE(call < 2 || sent[rank] == read[rank]) << bytes << " bytes, call " << call;
        read[rank] = receive(rank, std::byte(call), bytes);
      }
    }
  }
}

// What exceeds the place's near part would be slower to write than all of it elsewhere. Now and then one is tried.
TEST_F(ShmTradeTest, LongMessagesStayOutOfPlacesThatShortOnesFilled) {
  constexpr size_t bytes[] = {message_max, message_max / 4};
  std::set<size_t> short_ones;  // places that one was read from
  int in_short_ones = 0;
  constexpr int calls = 320;
  for (int call = 0; call < calls; ++call) {
    const size_t sent = send(0, std::byte(call), bytes[0]);
    send(1, std::byte(call), bytes[1]);
    if (short_ones.erase(sent) > 0) ++in_short_ones;
    receive(1, std::byte(call), bytes[0]);
    short_ones.insert(receive(0, std::byte(call), bytes[1]));
  }
  EXPECT_GT(in_short_ones, 0);
  EXPECT_LE(in_short_ones, calls / 32 + 1);
}

// The second half of an all_reduce: the result of what is being read goes out before it is let go.
TEST_F(ShmTradeTest, ACallOfTwoMessagesTouchesFourPlaces) {
  std::set<size_t> places;
  for (int call = 0; call < 20; ++call) {
    const std::byte value = std::byte(call);
    for (int rank = 0; rank < 2; ++rank) places.insert(send(rank, value));
    for (int rank = 0; rank < 2; ++rank) {
      const std::byte* message = nullptr;
      ASSERT_EQ(at(rank).view(4096, 1, message), Status::done);
      const size_t seen = place_of(message), sent = send(rank, std::byte(call + 1));
      places.insert(sent);
      EXPECT_NE(sent, seen) << "what is viewed may not be written";
      EXPECT_EQ(message[4095], value);
      ASSERT_EQ(at(rank).release(), Status::done);
    }
    for (int rank = 0; rank < 2; ++rank) receive(rank, std::byte(call + 1));
  }
  EXPECT_EQ(places.size(), 4u);
}

// The same where the result is put where what it is made of lies.
TEST_F(ShmTradeTest, AnAnswerLiesWhereTheMessageLay) {
  std::set<size_t> places;
  for (int call = 0; call < 20; ++call) {
    const std::byte value = std::byte(call), answer = std::byte(call + 100);
    for (int rank = 0; rank < 2; ++rank) places.insert(send(rank, value));
    for (int rank = 0; rank < 2; ++rank) {
      const std::byte *message = nullptr, *again = nullptr;
      ASSERT_EQ(at(rank).view(4096, 1, message), Status::done);
      std::byte* const place = at(rank).reserve_viewed(4096);
      ASSERT_EQ(place, message);
      EXPECT_EQ(at(rank).reserve_viewed(4096), nullptr) << "a place is reserved already";
      EXPECT_EQ(at(rank).reserve(4096), place);
      ASSERT_EQ(at(rank).view(4096, 1, again), Status::done);
      ASSERT_EQ(again, message);
      std::memset(place, int(answer), 4096);
      ASSERT_EQ(at(rank).release(), Status::done);
      at(rank).commit(4096, 1);
    }
    for (int rank = 0; rank < 2; ++rank) receive(rank, answer);
  }
  EXPECT_EQ(places.size(), 2u);
}

TEST_F(ShmTradeTest, AnAnswerInItsLineOrToNothingLiesElsewhere) {
  EXPECT_EQ(at(0).reserve_viewed(4096), nullptr) << "nothing is viewed";
  send(1, std::byte{1}, 8);
  const std::byte* message = nullptr;
  ASSERT_EQ(at(0).view(8, 1, message), Status::done);
  EXPECT_EQ(at(0).reserve_viewed(4096), nullptr) << "what is viewed lies in its line";
  ASSERT_EQ(at(0).release(), Status::done);
  send(1, std::byte{1});
  ASSERT_EQ(at(0).view(4096, 1, message), Status::done);
  EXPECT_EQ(at(0).reserve_viewed(8), nullptr) << "the answer has its line";
  ASSERT_EQ(at(0).release(), Status::done);
}

// Places that went to a peer which sends nothing are missed by nobody, and come back with what it sends later.
TEST_F(ShmTradeTest, WhoOwnsNoPlaceSendsAsEver) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_NE(send(0, std::byte(i)), 0u);
    receive(1, std::byte(i));
  }
  std::set<size_t> back;
  for (int i = 0; i < int(2 * shm_traded_places); ++i) {
    back.insert(send(1, std::byte(i)));
    receive(0, std::byte(i));
  }
  EXPECT_EQ(back.size(), 2 * shm_traded_places);
  for (int i = 0; i < int(2 * shm_traded_places); ++i) {
    EXPECT_EQ(back.count(send(0, std::byte(i))), 1u);
    receive(1, std::byte(i));
  }
}

// Messages of all sizes in any order of sending and receiving: none is overwritten before it was read.
TEST_F(ShmTradeTest, NothingIsOverwrittenBeforeItWasRead) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  struct Message {
    std::byte value;
    size_t bytes;
  };
  std::deque<Message> under_way[2];  // to rank
  constexpr size_t lengths[] = {64, 200, 1024, 5000};
  for (int i = 0; i < 20'000; ++i) {
    const int rank = int(random() % 2);
    if (random() % 2 == 0) {
      const Message message{std::byte(random()), random() % 2 == 0 ? lengths[random() % 4] : 1 + random() % message_max};
      const bool whole = random() % 2 == 0;
      if (whole ? send_whole(rank, message.value, message.bytes) : send(rank, message.value, message.bytes) != 0)
        under_way[1 - rank].push_back(message);
    } else if (!under_way[rank].empty()) {
      const Message& message = under_way[rank].front();
      if (random() % 2 == 0) receive_whole(rank, message.value, message.bytes);
      else receive(rank, message.value, message.bytes);
      under_way[rank].pop_front();
    }
    ASSERT_FALSE(HasFailure());
  }
}

// One rank that wants none is enough: all are of one mind.
TEST(ShmTradeOptions, OneRankThatTradesNothing) {
  const auto bootstraps = fake_bootstraps(2);
  const auto transports = on_each_rank(bootstraps, [&](int rank) {
    ShmOptions options;
    options.trades = rank == 0;
    return make_shm(*bootstraps[size_t(rank)], options);
  });
  Endpoint &a = *transports[0]->endpoint(1, 0), &b = *transports[1]->endpoint(0, 0);
  std::vector<std::byte> message(4096), received(message.size());
  for (int i = 0; i < 100; ++i) {
    std::fill(message.begin(), message.end(), std::byte(i));
    for (auto [from, to] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      size_t done = 0;
      ASSERT_EQ(from->send(message.data(), message.size(), 1, done), Status::done);
      done = 0;
      ASSERT_EQ(to->recv(received.data(), received.size(), 1, done), Status::done);
      ASSERT_EQ(received, message);
    }
  }
}

}  // namespace
}  // namespace tutti
