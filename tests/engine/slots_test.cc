// What the engine makes in its receivers' slots and outboxes, and what it sends from memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "engine/engine.h"
#include "engine/one_slot.h"
#include "engine/plan_by_hand.h"
#include "engine/run.h"

namespace tutti {
namespace {

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
  enum class Past : uint8_t { nothing, copies, all };
  for (const auto& [waits_next, past_caches, at_a_stretch] : std::initializer_list<std::tuple<bool, Past, bool>>{
           {true, Past::nothing, false}, {false, Past::nothing, false}, {false, Past::copies, false}, {false, Past::all, false},
           {true, Past::nothing, true}, {false, Past::all, true}})
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
        if (past_caches == Past::all) plan.streamed_bytes_min = 0;
        if (past_caches == Past::copies) plan.copies_streamed_bytes_min = 4 * count;
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
        const bool is_apt = past_caches != Past::nothing || (waits_next && !at_a_stretch);
        const bool by_blocks = is_apt && !learns && count * 4 >= put_copy_bytes_min;
        EXPECT_EQ(peer.committed, by_blocks ? 1 : 0) << waits_next << int(past_caches) << learns << count;
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

// As those of a call of so many times as many bytes.
TEST(EnginePuts, OutputsThatTheKernelCopiesNothingToAreStoredPastTheCachesSooner) {
  constexpr size_t count = put_block_bytes / 4;
  const LentRegion everywhere{LentRegion::private_number, nullptr, ~size_t{0}};
  enum class Lies : uint8_t { in_file, anywhere, anywhere_and_is_lent, anywhere_and_input_is_lent, where_peers_may_write };
  for (const Lies lies : {Lies::in_file, Lies::anywhere, Lies::anywhere_and_is_lent, Lies::anywhere_and_input_is_lent,
                          Lies::where_peers_may_write}) {
    for (const bool exceeds : {true, false}) {
      PassingOn rank(count, false);
      const LentRegion file{1, rank.work.output, 4 * count};
      if (lies == Lies::in_file) rank.work.output_region = &file;
      if (lies == Lies::anywhere_and_is_lent) rank.work.output_region = &everywhere;
      if (lies == Lies::anywhere_and_input_is_lent) rank.work.input_region = &everywhere;
      if (lies == Lies::where_peers_may_write) rank.work.offers = Offer::declined;
      rank.plan.streamed_bytes_min = 3 * 4 * count + (exceeds ? 0 : 1);
      rank.plan.reached_factor = 3;
      rank.engine.start(rank.operation, rank.work, 0, 1);
      EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
      rank.expect_sums();
      const bool by_ranks = lies == Lies::in_file || lies == Lies::anywhere;
      EXPECT_EQ(rank.to.committed, by_ranks && exceeds ? 1 : 0) << int(lies);
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
  size_t exchanged_bytes_min(size_t receivers) const noexcept override {
    asked_of = receivers;
    return exchanged_min;
  }

  std::vector<float> slot;
  std::vector<uint32_t> asked;
  std::vector<uint64_t> signatures;  // of what was sent
  size_t exchanged_min = exchanged_outbox_bytes_min;
  mutable size_t asked_of = 0;       // so many receivers of an exchange
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
  for (const size_t count : {100, 10'000}) {
    for (const bool adds : {false, true}) {
      for (const bool room_comes : {false, true}) {
        Sharing rank(count, adds);
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
}

// A small exchange, which sends to each also where it begins before its turn.
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

// As the outbox says; and a message of another kind of call lies there in any case, while the sender keeps a copy.
TEST(EngineShares, AMessageOfAnExchangeFromThatSizeOnThatItsOutboxNames) {
  for (const bool exchange : {true, false}) {
    for (const size_t least : {size_t{512}, size_t{9000}}) {
      for (const size_t bytes : {least - 4, least}) {
        Sharing rank(bytes / 4, false);
        rank.outbox.exchanged_min = least;
        if (exchange) rank.plan = plan_of({fold(in(0), {}, 0, 2), fold(in(0), out(0), 2, 0)}, {2, 3, 2, 3});
        else rank.plan = plan_of({fold(in(0), out(0), 0, 2)}, {2, 3});
        rank.engine.start(rank.operation, rank.work, 0, 1);
        EXPECT_EQ(rank.engine.progress(rank.operation), Status::done);
        const bool once = !exchange || bytes == least;
        EXPECT_EQ(rank.sent(), once ? 0 : 2) << bytes;
        EXPECT_EQ(rank.outbox.signatures.size(), once ? 1u : 0u) << bytes;
        EXPECT_EQ(rank.outbox.asked_of, exchange ? 2u : 0u);
        if (once) rank.expect_in(rank.outbox.slot, false);
        for (const OneSlot& one : rank.to)
          if (!once) rank.expect_in(one.slot, false);
        if (!exchange) {
          rank.expect_in(rank.output, false);
        }
      }
    }
  }
}

// Once a receiver has its own message, the others get theirs.
TEST(EngineShares, NoMessageThatSomeHaveAlready) {
  for (const size_t count : {100, 10'000}) {
    Sharing rank(count, false);
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
