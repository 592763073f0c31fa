// Tiles of exchanges that are copied by turns with the next messages, within an operation and of two beside each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/engine.h"
#include "engine/one_slot.h"
#include "engine/plan_by_hand.h"
#include "engine/planner.h"
#include "engine/run.h"

namespace tutti {
namespace {

// Of two ranks that exchange their inputs in tiles, and may keep a copy; the peer's tiles are all alike.
struct Tiles {
  static constexpr size_t in_tile = put_copy_bytes_min / 4 + 16;

  Tiles(size_t tiles, bool keeps_copy, bool at_a_stretch = false)
      : count(tiles * in_tile),
        input(count),
        output(2 * count, -1.0f),
        engine(2, endpoints, 4 * in_tile, nullptr, at_a_stretch) {
    std::iota(peer.message.begin(), peer.message.end(), 1'000'000.0f);
    std::iota(input.begin(), input.end(), 1.0f);
    plan = plan_of({fold(in(0), keeps_copy ? out(0) : Slice{}, 0, 1), fold(Slice{}, out(1), 1, 0)}, {1, 1}, {1, 2, 0, 1, true});
    plan.streamed_bytes_min = 0;
    work.plan = &plan;
    work.input = reinterpret_cast<const std::byte*>(input.data());
    work.output = reinterpret_cast<std::byte*>(output.data());
    work.count = work.block_stride = count;
    work.element_bytes = 4;
    engine.start(operation, work, 0, 1);
  }
  // Counts anew.
  void run_again(const Engine& other) {
    looked_at = peer.received = peer.past_caches = peer.released = 0;
    peer.messages.clear();
    other.rewind(operation);
    EXPECT_EQ(other.progress(operation), Status::done);
  }
  // All of it went each way.
  void expect_all(bool keeps_copy) const {
    ASSERT_EQ(peer.messages.size(), count / in_tile);
    std::vector<float> sent;
    for (const std::vector<float>& message : peer.messages) sent.insert(sent.end(), message.begin(), message.end());
    EXPECT_TRUE(sent == input);
    for (size_t i = 0; i < count; ++i) {
      const float received = 1'000'000.0f + float(i % in_tile);
      ASSERT_EQ(output[i], keeps_copy ? input[i] : -1.0f) << i;
      ASSERT_TRUE(peer.answers_where_it_lies || output[count + i] == received) << i;
    }
    EXPECT_EQ(size_t(peer.released), peer.messages.size());
  }

  size_t count;
  OneSlot peer{4 * in_tile};
  std::vector<float> input, output;
  Endpoint* endpoints[2] = {nullptr, &peer};
  const Engine engine;
  Plan plan;
  Work work;
  Operation operation;
};

TEST(EngineTiles, EndTogetherWithTheNextOnesBeginning) {
  for (const auto& [streams, at_a_stretch] :
       std::initializer_list<std::pair<bool, bool>>{{false, false}, {false, true}, {true, false}, {true, true}}) {
    for (const bool keeps_copy : {false, true}) {
      for (const size_t tiles : {2, 3, 6}) {
        Tiles rank(tiles, keeps_copy, at_a_stretch);
        rank.plan.streamed_bytes_min = streams ? 0 : ~uint64_t{0};
        rank.engine.start(rank.operation, rank.work, 0, 1);
        EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
        rank.expect_all(keeps_copy);
        const bool by_blocks = keeps_copy && (streams || !at_a_stretch);  // the first, too
        EXPECT_EQ(rank.peer.committed, int(tiles) - 1 + int(by_blocks));
      }
    }
  }
}

// Of a peer whose block lies with it: what the last run has touched last is where the next one begins, unless no cache has it any
// more, and this machine may be busy.
TEST(EngineTiles, GoToAndFroWhereTheKernelCopies) {
  for (const bool alternates : {true, false}) {
    Tiles rank(8, false);
    rank.peer.lends = true;
    rank.plan.streamed_bytes_min = ~uint64_t{0};
    rank.plan.steps[1].early = 1;
    rank.work.alternates = alternates;
    int from_end = 0;
    for (int run = 0; run < 20; ++run) {
      rank.peer.messages.clear();
      rank.peer.blocks.clear();
      rank.peer.released = 0;
      if (run % 5 == 0) rank.engine.start(rank.operation, rank.work, 0, 1);
      else rank.engine.rewind(rank.operation);
      ASSERT_EQ(rank.engine.progress(rank.operation), Status::done);
      rank.expect_all(false);
      ASSERT_EQ(rank.peer.blocks.size(), 7u) << "the last one is a block of one message";
      for (size_t k = 0; k < rank.peer.blocks.size(); ++k) {
        const OneSlot::Block& block = rank.peer.blocks[k];
        EXPECT_EQ(block.data, reinterpret_cast<const std::byte*>(rank.output.data() + rank.count + k * Tiles::in_tile));
        EXPECT_EQ(block.bytes, (8 - k) * Tiles::in_tile * 4);
        EXPECT_EQ(block.own, nullptr);
        EXPECT_EQ(block.from_end, rank.peer.blocks[0].from_end) << "all of a run alike";
      }
      EXPECT_FALSE(run % 2 == 0 && rank.peer.blocks[0].from_end) << run;
      from_end += rank.peer.blocks[0].from_end;
    }
    EXPECT_EQ(from_end > 0, alternates);
  }
}

// The rank's own block, of 512 KiB or more, goes by turns with the peer's, and what is left of it is copied at last.
TEST(EngineTiles, CopyTheOwnBlockWithThePeers) {
  const LentRegion everywhere{LentRegion::private_number, nullptr, ~size_t{0}};
  for (const size_t tiles : {8, 17}) {
    Tiles rank(tiles, true);
    rank.peer.lends = true;
    rank.plan.streamed_bytes_min = ~uint64_t{0};
    rank.plan.steps[0].keeps = true;
    rank.plan.steps[1].early = 1;
    rank.work.input_region = &everywhere;
    rank.work.alternates = true;
    for (int run = 0; run < 6; ++run) {
      std::fill(rank.output.begin(), rank.output.end(), -1.0f);
      rank.peer.messages.clear();
      rank.peer.blocks.clear();
      rank.peer.released = 0;
      rank.engine.start(rank.operation, rank.work, 0, 1);
      ASSERT_EQ(rank.engine.progress(rank.operation), Status::done);
      rank.expect_all(true);
      ASSERT_EQ(rank.peer.blocks.size(), tiles - 1);
      EXPECT_EQ(rank.peer.blocks[0].own != nullptr, tiles == 17);
      for (size_t k = 1; k < rank.peer.blocks.size(); ++k) EXPECT_EQ(rank.peer.blocks[k].own, nullptr);
      EXPECT_EQ(rank.peer.block.own, nullptr) << "nobody keeps it";
    }
  }
}

// Each block of the message is copied before the answer takes its place.
TEST(EngineTiles, MayBeginWhereTheMessageThatEndedTheLastOneLies) {
  Tiles rank(2, false);
  rank.peer.answers_where_it_lies = true;
  const std::vector<float> first = rank.peer.message;
  EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
  rank.expect_all(false);
  for (size_t i = 0; i < Tiles::in_tile; ++i) {
    ASSERT_EQ(rank.output[rank.count + i], first[i]);
    ASSERT_EQ(rank.output[rank.count + Tiles::in_tile + i], rank.input[Tiles::in_tile + i]) << "what lay there by then";
  }
}

// Rank 0 of two sends so many tiles of its own to the other by one operation, and receives so many by another, in turns.
struct Exchange {
  static constexpr size_t in_tile = put_copy_bytes_min / 4 + 16;

  Exchange(size_t sends, size_t receives, bool at_a_stretch = false, ColdOutputs* looks = nullptr)
      : input(sends * in_tile), output(receives * in_tile, -1.0f), engine(2, endpoints, 4 * in_tile, looks, at_a_stretch) {
    std::iota(peer.message.begin(), peer.message.end(), 1'000'000.0f);
    std::iota(input.begin(), input.end(), 1.0f);
    const auto begin = [&](Operation& operation, const Plan& plan, size_t count) {
      Work work;
      work.plan = &plan;
      work.input = reinterpret_cast<const std::byte*>(input.data());
      work.output = reinterpret_cast<std::byte*>(output.data());
      work.count = count;
      work.element_bytes = 4;
      work.takes_turns = true;
      if (&operation == &receive) work.sends_beside = &send;
      engine.start(operation, work, 0, 1);
    };
    begin(send, plans_send.whole, input.size());
    begin(receive, plans_receive.whole, output.size());
  }

  // Of each operation as far as it goes, for so many rounds at most; an operation that is done is none that others go beside.
  Status run(int rounds) {
    Status sent = Status::again, received = Status::again;
    for (int round = 0; round < rounds && (sent != Status::done || received != Status::done); ++round) {
      if (sent != Status::done) sent = engine.progress(send);
      if (sent == Status::done) receive.work_of_restart().sends_beside = nullptr;
      if (received != Status::done) received = engine.progress(receive);
      if (sent == Status::failed || received == Status::failed) return Status::failed;
    }
    return sent == Status::done && received == Status::done ? Status::done : Status::again;
  }
  void expect_all() const {
    std::vector<float> sent;
    for (const std::vector<float>& message : peer.messages) sent.insert(sent.end(), message.begin(), message.end());
    EXPECT_TRUE(sent == input);
    for (size_t i = 0; i < output.size(); ++i) ASSERT_EQ(output[i], 1'000'000.0f + float(i % in_tile)) << i;
    EXPECT_EQ(size_t(peer.released), output.size() / in_tile);
  }

  const PointToPointPlans plans_send{1, true, size_t{1} << 30, false}, plans_receive{1, false, size_t{1} << 30, false};
  OneSlot peer{4 * in_tile};
  std::vector<float> input, output;
  Endpoint* endpoints[2] = {nullptr, &peer};
  const Engine engine;
  Operation send, receive;
};

// All but the first message are made while one that has come is copied, as far as one comes.
TEST(EngineExchanges, MakeMessagesWhileOthersAreCopied) {
  constexpr int rounds = 100;
  for (const auto& [sends, receives] : std::initializer_list<std::pair<int, int>>{{2, 2}, {3, 3}, {6, 6}, {2, 5}, {5, 2}, {1, 3}, {3, 1}}) {
    Exchange rank(size_t(sends), size_t(receives), false);
    EXPECT_EQ(rank.run(rounds), Status::done);
    rank.expect_all();
    EXPECT_EQ(rank.peer.committed, std::min(sends - 1, receives)) << sends << " and " << receives;
    Exchange plain(size_t(sends), size_t(receives), true);
    EXPECT_EQ(plain.run(rounds), Status::done);
    plain.expect_all();
    EXPECT_EQ(plain.peer.committed, 0) << "where copies are best at a stretch";
  }
}

// Where what comes went past the caches the last time, too: then memory is read and written at once.
TEST(EngineExchanges, ReceivePartsBetweenThoseOfAnOnlyMessage) {
  for (const bool at_a_stretch : {false, true})
    for (const auto& [sends, receives] : std::initializer_list<std::pair<int, int>>{{1, 1}, {1, 2}, {2, 1}, {2, 2}}) {
      ColdOutputs cold_outputs(cold, 1);
      Exchange rank(size_t(sends), size_t(receives), at_a_stretch, &cold_outputs);
      rank.send.work_of_restart().receives_beside = &rank.receive;
      for (int run = 0; run < 3; ++run) {
        rank.peer.begun_meanwhile = rank.peer.released = 0;
        rank.peer.messages.clear();
        rank.receive.work_of_restart().sends_beside = &rank.send;
        std::fill(rank.output.begin(), rank.output.end(), -1.0f);
        rank.engine.rewind(rank.send);
        rank.engine.rewind(rank.receive);
        EXPECT_EQ(rank.run(100), Status::done);
        rank.expect_all();
        const bool begins = sends == 1 && receives == 1 && run > 0 && !at_a_stretch;
        EXPECT_EQ(rank.peer.begun_meanwhile, begins ? 1 : 0) << sends << " and " << receives << ", run " << run;
        EXPECT_EQ(rank.peer.meanwhile, nullptr);
      }
    }
}

TEST(EngineExchanges, GoOnWhereThereIsNoRoom) {
  Exchange rank(4, 4);
  rank.peer.has_room = false;
  rank.peer.room_for = 1;
  EXPECT_EQ(rank.run(100), Status::again);
  EXPECT_EQ(rank.peer.sent, 1);
  EXPECT_EQ(rank.peer.released, 4) << "nobody who sends waits for this rank";
  rank.peer.has_room = true;
  EXPECT_EQ(rank.run(100), Status::done);
  rank.expect_all();
}

TEST(EngineExchanges, SendNothingWhereWhatHasComeIsWorthNothing) {
  Exchange rank(3, 3);
  rank.peer.revoked = true;
  EXPECT_EQ(rank.run(100), Status::failed);
  EXPECT_EQ(rank.peer.committed, 0);
  EXPECT_EQ(rank.engine.waiting_on(rank.receive).peer, 1);
}

// Each block of the message is copied before the next message takes its place.
TEST(EngineExchanges, MayAnswerWhereAMessageLies) {
  Exchange rank(2, 1);
  rank.peer.answers_where_it_lies = true;
  const std::vector<float> first = rank.peer.message;
  EXPECT_EQ(rank.run(100), Status::done);
  EXPECT_TRUE(rank.output == first);
  EXPECT_EQ(rank.peer.committed, 1);
  EXPECT_TRUE(std::equal(rank.peer.messages[1].begin(), rank.peer.messages[1].end(), rank.input.begin() + Exchange::in_tile));
}

// How often a run of so many tiles looks: what is written is looked at unless it lies less than bytes_a_look behind what the run has
// looked at.
size_t looks_of(size_t tiles, bool at_copies) {
  constexpr size_t tile_bytes = 4 * Tiles::in_tile;
  std::vector<size_t> looks;
  const auto write = [&](size_t at) {
    if (std::none_of(looks.begin(), looks.end(), [&](size_t look) { return at - look < bytes_a_look; })) looks.push_back(at);
  };
  for (size_t tile = 0; tile < tiles; ++tile) {
    if (at_copies) write(tile * tile_bytes);
    write((tiles + tile) * tile_bytes);
  }
  return looks.size();
}

TEST(EngineTiles, AreLookedAtNowAndThen) {
  constexpr size_t tile_bytes = 4 * Tiles::in_tile, tiles_a_look = bytes_a_look / tile_bytes + 1;
  for (const size_t tiles : {size_t{1}, tiles_a_look, tiles_a_look + 1, 3 * tiles_a_look + 1}) {
    Tiles rank(tiles, true);
    ColdOutputs cold_outputs(cold, 1);
    const Engine engine(2, rank.endpoints, tile_bytes, &cold_outputs, false);
    rank.plan.streamed_bytes_min = ~uint64_t{0};
    engine.start(rank.operation, rank.work, 0, 1);
    for (int run = 0; run < 2; ++run) {
      looked_at = 0;
      rank.peer.messages.clear();
      rank.peer.released = rank.peer.committed = 0;
      EXPECT_EQ(engine.progress(rank.operation), Status::done);
      rank.expect_all(true);
      EXPECT_EQ(size_t(looked_at), looks_of(tiles, true));
      EXPECT_EQ(rank.peer.committed, int(tiles)) << "so all of them go past the caches";
      engine.rewind(rank.operation);
    }
  }
}

// A call that sends on what a rank has received.
struct PassingOn {
  explicit PassingOn(const Tiles& rank) : work(rank.work) {
    work.plan = &plan;
    work.input = rank.work.output;
    work.output = nullptr;  // which might take the other's place in what is known of outputs
  }
  void begin(const Engine& engine) { engine.start(operation, work, 0, 1); }

  const Plan plan = plan_of({fold(in(0), Slice{}, 0, 1)}, {1});
  Work work;
  Operation operation;
};

// What the plan has go past the caches anyway, of what a rank copies: unless calls read it there, as far as it fits.
TEST(EngineTiles, AreNotLookedAtWhereCopiesGoPastTheCachesByThePlan) {
  constexpr size_t tile_bytes = 4 * Tiles::in_tile, tiles = bytes_a_look / tile_bytes + 1;
  EXPECT_LT(looks_of(tiles, false), looks_of(tiles, true));
  for (const bool by_plan : {false, true}) {
    Tiles rank(tiles, true);
    const uint64_t bytes = rank.work.bytes();
    ColdOutputs cold_outputs(cold, 1);
    const Engine engine(2, rank.endpoints, tile_bytes, &cold_outputs, false);
    rank.plan.streamed_bytes_min = ~uint64_t{0};
    rank.plan.copies_streamed_bytes_min = by_plan ? bytes : bytes + 1;
    PassingOn next(rank);
    engine.start(rank.operation, rank.work, 0, 1);
    for (const bool is_read : {false, true, false}) {
      if (is_read) next.begin(engine);
      rank.run_again(engine);
      rank.expect_all(true);
      EXPECT_EQ(size_t(looked_at), is_read ? 0 : looks_of(tiles, !by_plan));
    }
  }
}

// But the last message where it goes to cold memory: the transport would copy it in its own way.
TEST(EngineTiles, GoToColdMemoryAtAStretch) {
  for (const bool is_cold : {false, true}) {
    Tiles rank(3, true);
    ColdOutputs cold_outputs(is_cold ? cold : [](const void*, size_t, bool) noexcept { return false; }, 1);
    const Engine engine(2, rank.endpoints, 4 * Tiles::in_tile, &cold_outputs, true);
    rank.plan.streamed_bytes_min = ~uint64_t{0};
    engine.start(rank.operation, rank.work, 0, 1);
    EXPECT_EQ(engine.progress(rank.operation), Status::done);
    rank.expect_all(true);
    EXPECT_EQ(rank.peer.received, is_cold ? 0 : 1);
  }
}

TEST(EngineTiles, ThatThePlanLeavesToTheCachesAreLookedAtToo) {
  Tiles rank(3, true);
  const uint64_t bytes = rank.work.bytes();
  ColdOutputs cold_outputs(cold, 1);
  const Engine engine(2, rank.endpoints, 4 * Tiles::in_tile, &cold_outputs, false);
  for (const uint64_t from : {bytes / 2, bytes / 4}) {
    rank.plan.streamed_bytes_min = from;
    rank.plan.all_streamed_bytes_min = 4 * from;
    const size_t left = rank.plan.streamed_tiles(bytes, 3) < 3 ? 1 : 0;
    ASSERT_EQ(left, from == bytes / 2 ? 1u : 0u);
    engine.start(rank.operation, rank.work, 0, 1);
    looked_at = rank.peer.released = 0;
    rank.peer.messages.clear();
    EXPECT_EQ(engine.progress(rank.operation), Status::done);
    rank.expect_all(true);
    EXPECT_EQ(looked_at > 0, left > 0);
  }
}

// A rank that passes on what it receives would read from memory what it has just written there.
TEST(EngineTiles, GoToTheCachesWhereTheyWereTheInputOfACallSince) {
  Tiles rank(3, true);
  ColdOutputs cold_outputs(cold, 1);
  const Engine engine(2, rank.endpoints, 4 * Tiles::in_tile, &cold_outputs, true);
  rank.plan.streamed_bytes_min = ~uint64_t{0};
  PassingOn next(rank);
  engine.start(rank.operation, rank.work, 0, 1);
  for (const bool is_read : {false, false, true, true, false}) {
    if (is_read) next.begin(engine);
    rank.run_again(engine);
    rank.expect_all(true);
    EXPECT_EQ(looked_at > 0, !is_read);
    EXPECT_EQ(rank.peer.received, is_read ? 1 : 0);
  }
}

// Not where the caches hold only part of them: when it is read, it is gone.
TEST(EngineTiles, ThatWereAnInputSinceAreLookedAtWhereNotAllOfThemFitTheCaches) {
  Tiles rank(3, true);
  ColdOutputs cold_outputs(cold, 1);
  const Engine engine(2, rank.endpoints, 4 * Tiles::in_tile, &cold_outputs, false);
  PassingOn next(rank);
  const uint64_t bytes = rank.work.bytes();
  for (const bool fits : {true, false}) {
    rank.plan.streamed_bytes_min = fits ? ~uint64_t{0} : bytes / 2;
    rank.plan.all_streamed_bytes_min = ~uint64_t{0};
    ASSERT_EQ(rank.plan.streamed_tiles(bytes, 3) > 0, !fits);
    engine.start(rank.operation, rank.work, 0, 1);
    next.begin(engine);
    rank.run_again(engine);
    rank.expect_all(true);
    EXPECT_EQ(looked_at > 0, !fits);
    EXPECT_EQ(rank.peer.past_caches, fits ? 0 : 1) << "the message that no other is made beside";
  }
}

TEST(EngineTiles, GoOneAfterTheOtherWhereTheTransportLearnsFromSending) {
  Tiles rank(3, false);
  rank.peer.learns = true;
  EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
  rank.expect_all(false);
  EXPECT_EQ(rank.peer.committed, 0);
}

TEST(EngineTiles, WaitForTheNextOnesRoomOnlyOnceTheyHaveEnded) {
  Tiles rank(2, false);
  EXPECT_EQ(rank.peer.released, 0);
  rank.peer.has_room = false;
  EXPECT_EQ(rank.engine.progress(rank.operation), Status::again);
  EXPECT_TRUE(rank.engine.waiting_on(rank.operation).sending);
  rank.peer.room_for = 1;
  EXPECT_EQ(rank.engine.progress(rank.operation), Status::again);
  EXPECT_EQ(rank.peer.released, 1);
  EXPECT_EQ(rank.engine.waiting_on(rank.operation).tile, 1u);
  rank.peer.has_room = true;
  EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
  rank.expect_all(false);
}

// What the peer lent and took back: it is to blame.
TEST(EngineTiles, FailAtTheMessageThatTheyEndWith) {
  Tiles rank(2, false);
  rank.peer.revoked = true;
  EXPECT_EQ(rank.engine.progress(rank.operation), Status::failed);
  const WaitingOn waiting = rank.engine.waiting_on(rank.operation);
  EXPECT_FALSE(waiting.sending);
  EXPECT_EQ(waiting.tile, 0u);
  EXPECT_EQ(rank.peer.messages.size(), 1u);
}

}  // namespace
}  // namespace tutti
