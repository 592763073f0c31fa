// What the engine makes in its receivers' slots and outboxes, and what it sends from memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "engine/engine.h"
#include "engine/plan_by_hand.h"
#include "engine/planner.h"
#include "engine/run.h"

namespace tutti {
namespace {

// A peer that has sent a message already, and takes one slot at most. Slots of processes on one host are so.
class OneSlot final : public Endpoint {
 public:
  explicit OneSlot(size_t bytes) : message(bytes / 4), slot(bytes / 4) {}
  Status send(const std::byte* data, size_t bytes, uint64_t, size_t& bytes_done) noexcept override {
    if (!has_room && room_for-- <= 0) return Status::again;
    std::memcpy(slot.data(), data, bytes);
    bytes_done = bytes;
    ++sent;
    keep(bytes);
    return Status::done;
  }
  Status recv(std::byte* data, size_t bytes, uint64_t, size_t& bytes_done) noexcept override {
    std::memcpy(data, message.data(), bytes);
    bytes_done = bytes;
    ++received;
    return release();
  }
  std::byte* reserve(size_t) noexcept override {
    if (answers) return reinterpret_cast<std::byte*>(message.data());
    return has_room ? reinterpret_cast<std::byte*>(slot.data()) : nullptr;
  }
  std::byte* reserve_viewed(size_t) noexcept override {
    answers = answers_where_it_lies;
    return answers ? reinterpret_cast<std::byte*>(message.data()) : nullptr;
  }
  void commit(size_t bytes, uint64_t) noexcept override {
    ++committed;
    if (std::exchange(answers, false)) slot = message;
    keep(bytes);
  }
  Status flush() noexcept override { return Status::done; }
  bool stages() const noexcept override { return false; }
  Store slot_store(size_t) const noexcept override { return store; }
  bool learns_from_next() noexcept override { return learns; }
  void may_be_awaited() noexcept override { ++awaited; }
  void may_send_on(size_t bytes) noexcept override { behind.push_back(bytes); }
  Outbox* outbox() noexcept override { return shared; }
  Status view(size_t, uint64_t, const std::byte*& data) noexcept override {
    data = reinterpret_cast<const std::byte*>(message.data());
    return Status::done;
  }
  Status release() noexcept override {
    ++released;
    return revoked ? Status::failed : Status::done;
  }
  const Fault& fault() const noexcept override { return fault_; }
  std::vector<float> message, slot;
  std::vector<std::vector<float>> messages;  // that came here
  bool has_room = true, answers_where_it_lies = false, revoked = false;
  Store store = Store::cached;
  bool learns = false;
  Outbox* shared = nullptr;
  int room_for = 0;  // so many messages all the same
  int sent = 0, received = 0, committed = 0, released = 0, awaited = 0;
  std::vector<size_t> behind;  // as may_send_on() was told

 private:
  bool answers = false;  // the reserved place is the message's
  void keep(size_t bytes) { messages.emplace_back(slot.begin(), slot.begin() + ptrdiff_t(bytes / 4)); }
  Fault fault_;
};

int looked_at = 0;
bool cold(const void*, size_t, bool) noexcept { return ++looked_at > 0; }

// Rank 1 of three adds what comes from rank 0, keeps the sum and sends it to rank 2.
struct PassingOn {
  explicit PassingOn(size_t count, bool in_place) : from(4 * count), to(4 * count), input(count, 1.0f), output(count, -1.0f) {
    std::iota(from.message.begin(), from.message.end(), 0.0f);
    work.plan = &plan;
    work.output = reinterpret_cast<std::byte*>(output.data());
    if (in_place) output = input;
    work.input = in_place ? work.output : reinterpret_cast<const std::byte*>(input.data());
    work.count = count;
    work.element_bytes = 4;
    work.reduce = reduce_function(DataType::float32, ReduceOp::sum);
    engine.start(operation, work, 0, 1);
  }
  void expect_sums() const {
    for (size_t i = 0; i < output.size(); ++i) {
      ASSERT_EQ(output[i], float(i) + 1) << i;
      ASSERT_EQ(to.slot[i], output[i]) << i;
    }
    EXPECT_EQ(from.released, 1);
  }

  OneSlot from, to;
  std::vector<float> input, output;
  Endpoint* endpoints[3] = {&from, nullptr, &to};
  Engine engine{3, endpoints, size_t{1} << 20};
  Plan plan = plan_of({fold(in(0), out(0), 1, 1)}, {0, 2});
  Work work;
  Operation operation;
};

TEST(EnginePuts, ALargeResultIsCopiedToItsSlotWhileItIsMade) {
  for (const bool in_place : {false, true}) {
    for (const size_t blocks : {1, 2, 5}) {
      PassingOn rank(blocks * put_block_bytes / 4 + 3, in_place);
      rank.to.store = blocks == 2 ? Store::cached : Store::streaming;
      EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
      rank.expect_sums();
      EXPECT_EQ(rank.to.committed, 1);
      EXPECT_EQ(rank.to.sent, 0);
    }
  }
}

// Of two ranks that gather: its own input goes to the other, and to its place.
TEST(EnginePuts, ALargeInputIsSentAndCopiedByBlocksPastTheCachesOrWhereOthersAreAwaitedNextAndCopiesNotBestAtAStretch) {
  for (const auto& [waits_next, streams, at_a_stretch] : std::initializer_list<std::tuple<bool, bool, bool>>{
           {true, false, false}, {false, false, false}, {false, true, false}, {true, false, true}, {false, true, true}})
    for (const bool learns : {false, true})
      for (const size_t count : {put_copy_bytes_min / 4 - 1, put_copy_bytes_min / 4, put_copy_bytes_min / 2 + 7}) {
        OneSlot peer(4 * count);
        peer.learns = learns;
        Endpoint* endpoints[2] = {nullptr, &peer};
        const Engine engine(2, endpoints, size_t{1} << 20, nullptr, at_a_stretch);
        std::vector<Fold> steps = {fold(in(0), out(0), 0, 1)};
        if (waits_next) steps.push_back(fold(Slice{}, out(1), 1, 0));
        Plan plan = plan_of(steps, {1, 1});
        plan.shape = {1, 2, 0, 1, true};
        if (streams) plan.streamed_bytes_min = 0;
        std::vector<float> input(count), output(2 * count, -1.0f);
        std::iota(input.begin(), input.end(), 1.0f);
        Work work;
        work.plan = &plan;
        work.input = reinterpret_cast<const std::byte*>(input.data());
        work.output = reinterpret_cast<std::byte*>(output.data());
        work.count = work.block_stride = count;
        work.element_bytes = 4;
        Operation operation;
        engine.start(operation, work, 0, 1);
        EXPECT_EQ(engine.progress(operation), Status::done);
        const bool by_blocks = (streams || (waits_next && !at_a_stretch)) && !learns && count * 4 >= put_copy_bytes_min;
        EXPECT_EQ(peer.committed, by_blocks ? 1 : 0) << waits_next << streams << learns << count;
        EXPECT_EQ(peer.sent, by_blocks ? 0 : 1);
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(peer.slot[i], input[i]) << i;
          ASSERT_EQ(output[i], input[i]) << i;
        }
      }
}

TEST(EnginePuts, ASmallOneIsSentWhenItIsMade) {
  PassingOn rank(put_block_bytes / 4, false);
  EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
  rank.expect_sums();
  EXPECT_EQ(rank.to.sent, 1);
}

// Then it is made in the slot, and only a copy of it is stored past the caches.
TEST(EnginePuts, ASmallOneIsMadeInItsSlotWhereOutputsAreStoredPastTheCaches) {
  constexpr size_t count = put_block_bytes / 4;
  for (const bool exceeds : {false, true}) {
    for (const bool in_place : {false, true}) {
      PassingOn rank(count, in_place);
      rank.plan.streamed_bytes_min = 4 * count + (exceeds ? 0 : 1);
      rank.engine.start(rank.operation, rank.work, 0, 1);
      EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
      rank.expect_sums();
      EXPECT_EQ(rank.to.committed, exceeds && !in_place ? 1 : 0);
      EXPECT_EQ(rank.to.sent, exceeds && !in_place ? 0 : 1);
    }
  }
}

// A large one is made block by block, and each goes to its slot and past the caches from where it was made.
TEST(EnginePuts, ALargeOneIsWholeInBothPlacesWhereOutputsAreStoredPastTheCaches) {
  for (const size_t count : {put_block_bytes / 4 + 1, put_block_bytes / 4 * 3, put_block_bytes + 13}) {
    PassingOn rank(count, false);
    rank.plan.streamed_bytes_min = 0;
    rank.engine.start(rank.operation, rank.work, 0, 1);
    EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
    rank.expect_sums();
    EXPECT_EQ(rank.to.committed, 1);
    EXPECT_EQ(rank.to.sent, 0);
  }
}

// The answer is made block by block where the message lies that it is made of.
TEST(EnginePuts, ALargeOneMayBeMadeWhereItsMessageLies) {
  for (const bool streams : {false, true}) {
    for (const size_t count : {put_block_bytes / 4 + 1, put_block_bytes + 13}) {
      PassingOn rank(count, false);
      rank.plan.peers = {0, 0};
      if (streams) rank.plan.streamed_bytes_min = 0;
      rank.from.answers_where_it_lies = true;
      rank.engine.start(rank.operation, rank.work, 0, 1);
      EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
      ASSERT_EQ(rank.from.messages.size(), 1u);
      EXPECT_TRUE(rank.from.messages[0] == rank.output);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(rank.output[i], float(i) + 1) << i;
      EXPECT_EQ(rank.from.committed, 1);
      EXPECT_EQ(rank.from.released, 1);
    }
  }
}

TEST(EnginePuts, WhereACallOnlySendsALargeMessageMayBeAwaited) {
  for (const size_t bytes : {awaited_bytes_min - 4, awaited_bytes_min}) {
    for (const bool only_sends : {false, true}) {
      OneSlot to(bytes);
      Endpoint* endpoints[2] = {nullptr, &to};
      const Engine engine(2, endpoints, size_t{1} << 20);
      const std::vector<float> input(bytes / 4, 1.0f);
      const Plan plan = plan_of({fold(in(0), Slice{}, 0, 1)}, {1});
      EXPECT_TRUE(plan.only_sends());
      Work work;
      work.plan = &plan;
      work.input = reinterpret_cast<const std::byte*>(input.data());
      work.count = bytes / 4;
      work.element_bytes = 4;
      work.only_sends = only_sends;
      Operation operation;
      engine.start(operation, work, 0, 1);
      EXPECT_EQ(engine.progress(operation), Status::done);
      EXPECT_TRUE(to.slot == input);
      EXPECT_EQ(to.awaited, bytes >= awaited_bytes_min && only_sends ? 1 : 0);
    }
  }
}

TEST(EnginePuts, AResultThatOthersGetIsLookedAt) {
  for (const bool in_place : {false, true}) {
    PassingOn rank(put_block_bytes, in_place);
    ColdOutputs cold_outputs(cold, 1);
    const Engine engine(3, rank.endpoints, size_t{1} << 20, &cold_outputs);
    looked_at = 0;
    engine.start(rank.operation, rank.work, 0, 1);
    EXPECT_EQ(engine.progress(rank.operation), Status::done);
    rank.expect_sums();
    EXPECT_EQ(looked_at, in_place ? 0 : 1) << "in place it has just been read";
  }
}

// The message that it needs is not held while its receiver has no room.
TEST(EnginePuts, WhereThereIsNoRoomTheResultIsStoredAndSentLater) {
  PassingOn rank(put_block_bytes / 4 + 3, true);
  rank.to.has_room = false;
  EXPECT_EQ(rank.engine.progress(rank.operation), Status::again);
  EXPECT_EQ(rank.from.released, 1);
  rank.to.has_room = true;
  EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
  rank.expect_sums();
  EXPECT_EQ(rank.to.sent, 1);
}

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

  Exchange(size_t sends, size_t receives, bool at_a_stretch = false)
      : input(sends * in_tile), output(receives * in_tile, -1.0f), engine(2, endpoints, 4 * in_tile, nullptr, at_a_stretch) {
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
    begin(send, plans_send.other, input.size());
    begin(receive, plans_receive.other, output.size());
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

// What is written is looked at unless it lies less than bytes_a_look behind what this run has looked at.
TEST(EngineTiles, AreLookedAtNowAndThen) {
  constexpr size_t tile_bytes = 4 * Tiles::in_tile, tiles_a_look = bytes_a_look / tile_bytes + 1;
  for (const size_t tiles : {size_t{1}, tiles_a_look, tiles_a_look + 1, 3 * tiles_a_look + 1}) {
    Tiles rank(tiles, true);
    std::vector<size_t> looks;
    for (size_t tile = 0; tile < tiles; ++tile)
      for (const size_t at : {tile * tile_bytes, 4 * rank.count + tile * tile_bytes})
        if (std::none_of(looks.begin(), looks.end(), [&](size_t look) { return at - look < bytes_a_look; })) looks.push_back(at);
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
      EXPECT_EQ(size_t(looked_at), looks.size());
      EXPECT_EQ(rank.peer.committed, int(tiles)) << "so all of them go past the caches";
      engine.rewind(rank.operation);
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
  const Plan sends = plan_of({fold(in(0), Slice{}, 0, 1)}, {1});
  Work passing_on = rank.work;  // with no output of its own, which might take the other's place in what is known of outputs
  passing_on.plan = &sends;
  passing_on.input = rank.work.output;
  passing_on.output = nullptr;
  Operation passes_on;
  engine.start(rank.operation, rank.work, 0, 1);
  for (const bool is_read : {false, false, true, true, false}) {
    if (is_read) engine.start(passes_on, passing_on, 0, 1);
    looked_at = rank.peer.received = rank.peer.released = 0;
    rank.peer.messages.clear();
    engine.rewind(rank.operation);
    EXPECT_EQ(engine.progress(rank.operation), Status::done);
    rank.expect_all(true);
    EXPECT_EQ(looked_at > 0, !is_read);
    EXPECT_EQ(rank.peer.received, is_read ? 1 : 0);
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

// What a sender shares with several receivers. waits_for as the next answer has it, where there is no room.
class OneMessage final : public Outbox {
 public:
  explicit OneMessage(size_t bytes) : slot(bytes / 4) {}
  Place reserve(size_t, std::span<const uint32_t> peers) noexcept override {
    asked.assign(peers.begin(), peers.end());
    return has_room ? Place{reinterpret_cast<std::byte*>(slot.data()), -1} : Place{nullptr, waits_for};
  }
  void write(const std::byte* data, size_t bytes) noexcept override { std::memcpy(slot.data(), data, bytes); }
  Store store(size_t) const noexcept override { return Store::cached; }
  void commit(size_t, uint64_t signature) noexcept override { signatures.push_back(signature); }

  std::vector<float> slot;
  std::vector<uint32_t> asked;
  std::vector<uint64_t> signatures;  // of what was sent
  bool has_room = true;
  int waits_for = -1;
};

// Rank 1 of four adds what comes from rank 0 to its input, keeps the sum and sends it to ranks 2 and 3. Or it only sends
// its input to both.
struct Sharing {
  explicit Sharing(size_t count, bool adds) : from(4 * count), to{OneSlot(4 * count), OneSlot(4 * count)}, outbox(4 * count),
      input(count, 1.0f), output(count, -1.0f) {
    std::iota(from.message.begin(), from.message.end(), 0.0f);
    for (OneSlot& one : to) one.shared = &outbox;
    plan = adds ? plan_of({fold(in(0), out(0), 1, 2)}, {0, 2, 3}) : plan_of({fold(in(0), {}, 0, 2)}, {2, 3});
    work.plan = &plan;
    work.input = reinterpret_cast<const std::byte*>(input.data());
    work.output = reinterpret_cast<std::byte*>(output.data());
    work.count = count;
    work.element_bytes = 4;
    work.signature = 99;
    work.reduce = reduce_function(DataType::float32, ReduceOp::sum);
    engine.start(operation, work, 0, 1);
  }
  void expect_in(const std::vector<float>& slot, bool adds) const {
    for (size_t i = 0; i < slot.size(); ++i) ASSERT_EQ(slot[i], adds ? float(i) + 1 : 1.0f) << i;
  }
  int sent() const { return to[0].sent + to[1].sent; }

  OneSlot from;
  std::array<OneSlot, 2> to;
  OneMessage outbox;
  std::vector<float> input, output;
  Endpoint* endpoints[4] = {&from, nullptr, &to[0], &to[1]};
  Engine engine{4, endpoints, size_t{1} << 20};
  Plan plan;
  Work work;
  Operation operation;
};

TEST(EngineShares, OneMessageWithAllReceiversOfAStep) {
  for (const bool adds : {false, true}) {
    for (const size_t bytes : {outbox_bytes_min, size_t{20'000}, 3 * put_block_bytes + 4}) {
      Sharing rank(bytes / 4, adds);
      EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
      EXPECT_EQ(rank.outbox.asked, (std::vector<uint32_t>{2, 3}));
      EXPECT_EQ(rank.outbox.signatures, std::vector<uint64_t>{99});
      EXPECT_EQ(rank.sent(), 0);
      rank.expect_in(rank.outbox.slot, adds);
      if (adds) rank.expect_in(rank.output, true);
    }
  }
}

TEST(EngineShares, NotWhatIsSmallNorAmongReceiversOfSeveralTransports) {
  Sharing small(outbox_bytes_min / 4 - 1, false);
  EXPECT_EQ(small.engine.progress(small.operation), Status::done);
  EXPECT_EQ(small.sent(), 2);
  Sharing mixed(10'000, true);
  mixed.to[1].shared = nullptr;
  EXPECT_EQ(mixed.engine.progress(mixed.operation), Status::done);
  EXPECT_EQ(mixed.sent(), 2);
  EXPECT_TRUE(small.outbox.asked.empty() && mixed.outbox.asked.empty());
}

TEST(EngineShares, SaysForWhomItWaitsAndSendsToEachWhereItNeedNot) {
  for (const bool adds : {false, true}) {
    for (const bool room_comes : {false, true}) {
      Sharing rank(10'000, adds);
      rank.outbox.has_room = false;
      rank.outbox.waits_for = 1;
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(rank.engine.progress(rank.operation), Status::again);
        const WaitingOn waiting = rank.engine.waiting_on(rank.operation);
        EXPECT_EQ(waiting.peer, 3);
        EXPECT_TRUE(waiting.sending);
      }
      rank.outbox.has_room = room_comes;
      rank.outbox.waits_for = -1;
      EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
      EXPECT_EQ(rank.sent(), room_comes ? 0 : 2);
      EXPECT_EQ(rank.outbox.signatures.size(), room_comes ? 1u : 0u);
      for (const OneSlot& one : rank.to)
        if (!room_comes) rank.expect_in(one.slot, adds);
      EXPECT_EQ(rank.from.released, adds ? 1 : 0);
    }
  }
}

// An exchange of a middling size, which sends to each also where it begins before its turn.
TEST(EngineShares, NoMessageOfASmallExchangeThatFollowsAnother) {
  Sharing rank(outbox_bytes_min / 4, false);
  rank.plan = plan_of({fold(in(0), {}, 0, 2), fold(in(0), out(0), 2, 0)}, {2, 3, 2, 3});
  rank.plan.sends_first = true;
  rank.engine.start(rank.operation, rank.work, 0, 1);
  Operation next;
  rank.engine.start(next, rank.work, 0, 1);
  rank.outbox.has_room = false;
  rank.outbox.waits_for = 1;
  for (OneSlot& one : rank.to) one.has_room = false;
  EXPECT_EQ(rank.engine.follow(next, rank.operation, true), Status::again);
  for (OneSlot& one : rank.to) one.has_room = true;
  EXPECT_EQ(rank.engine.progress(next), Status::done);
  EXPECT_EQ(rank.to[0].sent, 1);
  EXPECT_EQ(rank.to[1].sent, 1);
  EXPECT_TRUE(rank.outbox.asked.empty());
}

// Once a receiver has its own message, the others get theirs.
TEST(EngineShares, NoMessageThatSomeHaveAlready) {
  Sharing rank(10'000, false);
  rank.outbox.has_room = false;
  rank.to[1].has_room = false;
  EXPECT_EQ(rank.engine.progress(rank.operation), Status::again);
  EXPECT_EQ(rank.to[0].sent, 1);
  rank.outbox.has_room = rank.to[1].has_room = true;
  EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
  EXPECT_EQ(rank.to[0].sent, 1);
  EXPECT_EQ(rank.to[1].sent, 1);
  EXPECT_TRUE(rank.outbox.signatures.empty());
}

// Rank 0 of two sends its input and adds what comes to it, of which each tile overwrites what has just been sent where that is in place:
// either way it says what follows.
TEST(EngineSends, SayWhatFollowsInPlaceToo) {
  constexpr size_t tile = 2, tiles = 3;
  for (const Buffer from : {Buffer::input, Buffer::output}) {
    std::vector<float> input{1, 2, 3, 4, 5}, output{1, 2, 3, 4, 5};
    OneSlot peer(tile * 4);
    peer.message = {10, 20};
    Fold sends = fold(Slice{0, 1, from}, Slice{}, 0, 1), adds = fold(Slice{0, 1, from}, out(0), 1, 0);
    sends.given = true;
    Plan plan = plan_of({sends, adds}, {1});
    plan.one_message_each = plan.sends_first = true;
    Endpoint* endpoints[2] = {nullptr, &peer};
    Engine engine{2, endpoints, tile * 4};
    Work work;
    work.plan = &plan;
    work.input = reinterpret_cast<const std::byte*>(from == Buffer::input ? input.data() : output.data());
    work.output = reinterpret_cast<std::byte*>(output.data());
    work.count = input.size();
    work.element_bytes = 4;
    work.reduce = reduce_function(DataType::float32, ReduceOp::sum);
    Operation operation;
    engine.start(operation, work, 0, 1);
    EXPECT_EQ(engine.progress(operation), Status::done);
    EXPECT_EQ(output, (std::vector<float>{11, 22, 13, 24, 15}));
    EXPECT_EQ(peer.sent, int(tiles));
    EXPECT_EQ(peer.behind, (std::vector<size_t>{3 * 4, 4})) << "nothing follows the last";
  }
}

// Rank 0 of two sends its input and keeps a copy, then takes what comes: stores it, or adds it to its input.
struct SmallCalls {
  SmallCalls(bool copies, bool adds) : copied(copies) {
    const Slice to = copies ? out(0) : Slice{};
    Fold last = fold(adds ? in(0) : Slice{}, out(1), 1, 0);
    last.a_place = 1;
    plan = plan_of({fold(in(0), to, 0, 1), last}, {1});
    plan.shape = {1, 2, 0, 1, true};
    peer.message = {10, 20};
    work.plan = &plan;
    work.input = reinterpret_cast<const std::byte*>(input.data());
    work.output = reinterpret_cast<std::byte*>(output.data());
    work.count = work.block_stride = 2;
    work.element_bytes = 4;
    work.reduce = reduce_function(DataType::float32, ReduceOp::sum);
    engine.start(operation, work, 0, 1);
    EXPECT_EQ(engine.progress(operation), Status::done);
    output = {-1, -1, -1, -1};
    peer.sent = peer.released = 0;
  }
  Status restart() { return engine.restart(operation, work.input, work.output); }
  std::vector<float> expected(bool adds) const {
    const float own = adds ? 1.0f : 0.0f;
    return {copied ? 1.0f : -1.0f, copied ? 2.0f : -1.0f, 10 + own, 20 + 2 * own};
  }

  bool copied;
  OneSlot peer{8};
  std::vector<float> input{1, 2}, output{-1, -1, -1, -1};
  Endpoint* endpoints[2] = {nullptr, &peer};
  Engine engine{2, endpoints, size_t{1} << 20};
  Plan plan;
  Work work;
  Operation operation;
};

TEST(EngineSmallCalls, GoOnWhereTheyFoundNoRoom) {
  for (const bool copies : {false, true}) {
    for (const bool adds : {false, true}) {
      SmallCalls rank(copies, adds);
      rank.peer.has_room = false;
      EXPECT_EQ(rank.restart(), Status::again);
      EXPECT_EQ(rank.peer.sent, 0);
      EXPECT_TRUE(rank.engine.waiting_on(rank.operation).sending);
      EXPECT_EQ(rank.engine.progress(rank.operation), Status::again);
      rank.peer.has_room = true;
      EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
      EXPECT_EQ(rank.output, rank.expected(adds));
      EXPECT_EQ(rank.peer.sent, 1);
      EXPECT_EQ(rank.peer.slot, rank.input);
    }
  }
}

TEST(EngineSmallCalls, SayWhomTheyAwaitAndWhoFailed) {
  for (const bool adds : {false, true}) {
    SmallCalls rank(true, adds);
    EXPECT_EQ(rank.restart(), Status::again);
    EXPECT_EQ(rank.peer.sent, 1);
    const auto expect_awaits = [&] {
      const WaitingOn waiting = rank.engine.waiting_on(rank.operation);
      EXPECT_EQ(waiting.peer, 1);
      EXPECT_EQ(waiting.step, 1u);
      EXPECT_FALSE(waiting.sending);
    };
    expect_awaits();
    rank.peer.revoked = true;
    EXPECT_EQ(rank.engine.progress(rank.operation), Status::failed);
    expect_awaits();
    rank.peer.revoked = false;
    EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
    EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);  // and stays so
    EXPECT_EQ(rank.output, rank.expected(adds));
    EXPECT_EQ(rank.peer.sent, 1);
    EXPECT_EQ(rank.peer.released, 2);
  }
}

}  // namespace
}  // namespace tutti
