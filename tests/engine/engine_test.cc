// The engine on plans made by hand: how a call is cut, what each kind of step does, what it says while it waits.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/run.h"
#include "engine/simulation.h"

namespace tutti {
namespace {

// Sums of int32, and how often the engine asked for one.
void add_int32(void* output, const void* const* inputs, int n_inputs, size_t count, uint32_t divisor, Store) noexcept {
  int32_t* const sums = static_cast<int32_t*>(output);
  for (size_t i = 0; i < count; ++i) {
    int32_t sum = 0;
    for (int k = 0; k < n_inputs; ++k) sum += static_cast<const int32_t*>(inputs[k])[i];
    sums[i] = divisor > 1 ? sum / int32_t(divisor) : sum;
  }
}

Plan plan_of(std::vector<Fold> steps, std::vector<uint32_t> peers, Shape shape = {}) {
  Plan plan;
  plan.algorithm = "by hand";
  plan.shape = shape;
  plan.steps = std::move(steps);
  plan.peers = std::move(peers);
  return plan;
}

Fold fold(Slice a, Slice dst, uint16_t n_from, uint16_t n_to, uint32_t peers = 0) {
  Fold f;
  f.a = a;
  f.dst = dst;
  f.n_from = n_from;
  f.n_to = n_to;
  f.peers = peers;
  return f;
}

// One buffer pair of int32 a rank.
class EngineTest : public ::testing::Test {
 protected:
  void make(int n, size_t count, size_t message_bytes_max = 4096) {
    SimulatedOptions options;
    options.n = n;
    options.channels = 2;
    options.message_bytes_max = message_bytes_max;
    simulation_ = std::make_unique<Simulation>(options);
    for (int rank = 0; rank < n; ++rank) {
      inputs_.emplace_back(count);
      std::iota(inputs_.back().begin(), inputs_.back().end(), 1000 * (rank + 1));
      outputs_.emplace_back(count, -1);
    }
  }
  Work work(int rank, const Plan& plan) {
    Work work;
    work.plan = &plan;
    work.input = reinterpret_cast<const std::byte*>(inputs_[size_t(rank)].data());
    work.output = reinterpret_cast<std::byte*>(outputs_[size_t(rank)].data());
    work.count = inputs_[size_t(rank)].size();
    work.element_bytes = 4;
    work.reduce = add_int32;
    work.signature = 42;
    return work;
  }
  void start(int rank, const Plan& plan, int channels = 1) { simulation_->start(rank, work(rank, plan), 0, channels); }
  void run_all() {
    simulation_->run();
    for (size_t rank = 0; rank < inputs_.size(); ++rank) ASSERT_EQ(simulation_->status(int(rank)), Status::done);
  }

  std::unique_ptr<Simulation> simulation_;
  std::vector<std::vector<int32_t>> inputs_, outputs_;
};

TEST_F(EngineTest, SendsFromAndReceivesIntoUserMemory) {
  make(2, 100);
  const Plan send = plan_of({fold(in(0), {}, 0, 1)}, {1}), recv = plan_of({fold({}, out(0), 1, 0)}, {0});
  start(0, send);
  start(1, recv);
  run_all();
  EXPECT_EQ(outputs_[1], inputs_[0]);
}

TEST_F(EngineTest, SendsEmptyMessagesSinceTheyCarrySignatures) {
  make(2, 0);
  const Plan send = plan_of({fold(in(0), {}, 0, 1)}, {1}), recv = plan_of({fold({}, out(0), 1, 0)}, {0});
  start(1, recv);
  simulation_->run();
  EXPECT_EQ(simulation_->status(1), Status::again);
  start(0, send);
  run_all();
}

// Nothing comes in and nothing is stored: a division, or a sum of two slices, goes straight into the message.
TEST_F(EngineTest, DividesAndAddsWhatItOnlySends) {
  for (const bool two : {false, true}) {
    inputs_.clear();
    outputs_.clear();
    make(2, 1000, 1024);
    Fold sends = fold(in(0), {}, 0, 1);
    sends.finish = !two;
    if (two) sends.b = in(0);
    const Plan plan = plan_of({sends}, {1}), recv = plan_of({fold({}, out(0), 1, 0)}, {0});
    Work divided = work(0, plan);
    divided.divisor = 2;
    simulation_->start(0, divided, 0, 1);
    start(1, recv);
    run_all();
    for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(outputs_[1][i], two ? 2 * inputs_[0][i] : inputs_[0][i] / 2);
    EXPECT_EQ(inputs_[0][999], 1999);
  }
}

// Plans of one step, of several, of several tiles; and the exchange, which has a way of its own.
TEST_F(EngineTest, RunsAnOperationAgainOnOtherBuffers) {
  const auto rank_of_exchange = [](uint32_t other, uint16_t place) {
    Fold adds = fold(in(0), out(0), 1, 0);
    adds.a_place = place;
    return plan_of({fold(in(0), {}, 0, 1), adds}, {other});
  };
  for (const size_t count : {0, 1, 100, 5000}) {
    inputs_.clear();
    outputs_.clear();
    make(2, count, 1024);
    const Plan plans[] = {rank_of_exchange(1, 0), rank_of_exchange(0, 1)};
    start(0, plans[0]);
    start(1, plans[1]);
    run_all();
    for (int round = 0; round < 10; ++round) {
      std::vector<std::vector<int32_t>> in(2, std::vector<int32_t>(count)), out(2, std::vector<int32_t>(count, -1));
      for (int rank = 0; rank < 2; ++rank)
        std::iota(in[size_t(rank)].begin(), in[size_t(rank)].end(), round * (rank + 1));
      for (const int rank : {round % 2, 1 - round % 2}) {
        simulation_->restart(rank, reinterpret_cast<const std::byte*>(in[size_t(rank)].data()),
                             reinterpret_cast<std::byte*>(out[size_t(rank)].data()));
      }
      run_all();
      EXPECT_EQ(out[0], out[1]);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[0][i], 3 * round + 2 * int32_t(i)) << "count " << count;
    }
  }
}

TEST_F(EngineTest, SaysOnWhomAnExchangeWaits) {
  make(3, 1);
  Fold adds = fold(in(0), out(0), 2, 0, 2);
  const Plan plan = plan_of({fold(in(0), {}, 0, 2), adds}, {1, 2, 1, 2});
  const Plan answer = plan_of({fold(in(0), {}, 0, 1)}, {0});
  start(0, plan);
  start(1, answer);
  simulation_->run();
  const WaitingOn waiting = simulation_->waiting_on(0);
  EXPECT_EQ(simulation_->status(0), Status::again);
  EXPECT_EQ(waiting.peer, 2);
  EXPECT_FALSE(waiting.sending);
  EXPECT_EQ(waiting.step, 1u);
}

TEST_F(EngineTest, CutsACallIntoTilesWhoseMessagesFitOnSeveralChannels) {
  for (const int channels : {1, 2}) {
    inputs_.clear();
    outputs_.clear();
    make(2, 100'003, 1024);
    const Plan send = plan_of({fold(in(0, 2), {}, 0, 1), fold(in(2), {}, 0, 1)}, {1}, {3, 3, 0, 2});
    const Plan recv = plan_of({fold({}, out(0, 2), 1, 0), fold({}, out(2), 1, 0)}, {0}, {3, 3, 0, 2});
    Plan sends = send, recvs = recv;
    sends.message_chunks_max = recvs.message_chunks_max = 2;
    if (channels == 2) sends.message_bytes_max = recvs.message_bytes_max = 256;
    start(0, sends, channels);
    start(1, recvs, channels);
    run_all();
    EXPECT_EQ(outputs_[1], inputs_[0]);
  }
}

TEST_F(EngineTest, ForwardsWhatItReceivesAndKeepsACopy) {
  make(4, 1000, 512);
  const Plan first = plan_of({fold(in(0), out(0), 0, 1)}, {1});
  const Plan middle = plan_of({fold({}, out(0), 1, 2)}, {0, 2, 3});
  const Plan last = plan_of({fold({}, out(0), 1, 0)}, {1});
  start(0, first);
  start(1, middle);
  start(2, last);
  start(3, last);
  run_all();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(outputs_[size_t(rank)], inputs_[0]);
}

TEST_F(EngineTest, ReducesWhatOnlyPassesThroughStraightIntoSlots) {
  make(4, 1000, 512);
  const Plan leaf = plan_of({fold(in(0), {}, 0, 1)}, {1});
  Plan middle = plan_of({fold(in(0), {}, 1, 2)}, {0, 2, 3});
  middle.steps[0].a_place = 1;
  const Plan last = plan_of({fold({}, out(0), 1, 0)}, {1});
  start(0, leaf);
  start(1, middle);
  start(2, last);
  start(3, last);
  run_all();
  for (size_t i = 0; i < 1000; ++i) EXPECT_EQ(outputs_[2][i], inputs_[0][i] + inputs_[1][i]);
  EXPECT_EQ(outputs_[2], outputs_[3]);
  EXPECT_EQ(outputs_[1][0], -1);
}

TEST_F(EngineTest, DividesWhereAStepFinishes) {
  make(2, 10);
  const Plan send = plan_of({fold(in(0), {}, 0, 1)}, {1});
  Plan add = plan_of({fold(in(0), out(0), 1, 0)}, {0});
  add.steps[0].finish = true;
  start(0, send);
  Work averaging = work(1, add);
  averaging.divisor = 2;
  simulation_->start(1, averaging, 0, 1);
  run_all();
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(outputs_[1][i], (inputs_[0][i] + inputs_[1][i]) / 2);
}

TEST_F(EngineTest, KeepsChunksInScratch) {
  make(3, 300, 256);
  const Plan send = plan_of({fold(in(0), {}, 0, 1)}, {1});
  const Plan hold = plan_of({fold({}, scratch(0), 1, 0), fold(scratch(0), {}, 0, 1, 1)}, {0, 2}, {1, 1, 1, 1});
  const Plan recv = plan_of({fold({}, out(0), 1, 0)}, {1});
  const size_t scratch_bytes = simulation_->engine(1).scratch_bytes(hold, 2);
  EXPECT_EQ(scratch_bytes, 2 * 256u);
  alignas(64) std::byte memory[2 * 256];
  start(0, send, 2);
  Work holding = work(1, hold);
  holding.scratch = memory;
  simulation_->start(1, holding, 0, 2);
  start(2, recv, 2);
  run_all();
  EXPECT_EQ(outputs_[2], inputs_[0]);
}

TEST_F(EngineTest, SaysOnWhomItWaits) {
  make(3, 8);
  const Plan plan = plan_of({fold(in(0), {}, 0, 1), fold({}, out(0), 1, 0, 1)}, {1, 2});
  start(0, plan);
  simulation_->run();
  const WaitingOn waiting = simulation_->waiting_on(0);
  EXPECT_EQ(waiting.peer, 2);
  EXPECT_EQ(waiting.step, 1u);
  EXPECT_FALSE(waiting.sending);
  EXPECT_EQ(waiting.endpoint, simulation_->network().transport(0).endpoint(2, 0));
}

TEST_F(EngineTest, SaysToWhomItCannotSend) {
  make(2, 1000, 64);
  const Plan plan = plan_of({fold(in(0), {}, 0, 1)}, {1});
  start(0, plan);
  simulation_->run();
  EXPECT_EQ(simulation_->status(0), Status::again);
  EXPECT_TRUE(simulation_->waiting_on(0).sending);
  EXPECT_EQ(simulation_->waiting_on(0).peer, 1);
  EXPECT_EQ(simulation_->waiting_on(0).tile, 2u);
}

TEST_F(EngineTest, FailsAndShowsBothCallsWhereTheyDoNotMatch) {
  make(2, 100);
  const Plan send = plan_of({fold(in(0), {}, 0, 1)}, {1}), recv = plan_of({fold({}, out(0), 1, 0)}, {0});
  Work other = work(0, send);
  other.signature = 43;
  simulation_->start(0, other, 0, 1);
  start(1, recv);
  simulation_->run();
  ASSERT_EQ(simulation_->status(1), Status::failed);
  const Endpoint* endpoint = simulation_->waiting_on(1).endpoint;
  ASSERT_NE(endpoint, nullptr);
  EXPECT_EQ(endpoint->fault().kind, FaultKind::mismatch);
  EXPECT_EQ(endpoint->fault().signature, 43u);
  EXPECT_EQ(endpoint->fault().bytes, 400u);
}

TEST_F(EngineTest, FailsWhereThePeerIsGone) {
  make(2, 100);
  const Plan recv = plan_of({fold({}, out(0), 1, 0)}, {0});
  start(1, recv);
  simulation_->network().kill(0, 1000);
  simulation_->run();
  ASSERT_EQ(simulation_->status(1), Status::failed);
  EXPECT_EQ(simulation_->waiting_on(1).endpoint->fault().kind, FaultKind::closed);
}

TEST_F(EngineTest, IsDoneAtOnceAloneOnACopy) {
  make(1, 50);
  const Plan plan = plan_of({fold(in(0), out(0), 0, 0)}, {});
  start(0, plan);
  run_all();
  EXPECT_EQ(outputs_[0], inputs_[0]);
}

// A peer from whom nothing comes until the test says so.
class Quiet final : public Endpoint {
 public:
  Status send(const std::byte*, size_t bytes, uint64_t, size_t& bytes_done) noexcept override {
    bytes_done = bytes;
    return Status::done;
  }
  Status recv(std::byte*, size_t, uint64_t, size_t&) noexcept override { return Status::again; }
  std::byte* reserve(size_t) noexcept override { return nullptr; }
  void commit(size_t, uint64_t) noexcept override {}
  Status flush() noexcept override { return Status::done; }
  Status view(size_t, uint64_t, const std::byte*&) noexcept override { return Status::again; }
  Status release() noexcept override { return Status::done; }
  Watch watch() const noexcept override { return {&arrived, 1}; }
  const Fault& fault() const noexcept override { return fault_; }
  std::atomic<uint32_t> arrived{0};

 private:
  Fault fault_;
};

TEST(EngineAwaits, TellsMarkedRanksFromOthersWherePlansSendFirst) {
  Quiet peers[3];
  Endpoint* const endpoints[] = {nullptr, &peers[0], &peers[1], &peers[2]};
  const Engine engine(4, endpoints, 4096);
  Fold adds = fold(in(0), out(0), 3, 0);
  Plan plan = plan_of({fold(in(0), {}, 0, 3), adds}, {1, 2, 3});
  const std::vector<uint8_t> marked = {0, 0, 1, 0};
  std::vector<int32_t> input(8), output(8);
  Operation operation;
  const auto awaited = [&](bool sends_first) {
    for (Quiet& peer : peers) peer.arrived = 0;
    plan.sends_first = sends_first;
    Work work;
    work.plan = &plan;
    work.input = reinterpret_cast<const std::byte*>(input.data());
    work.output = reinterpret_cast<std::byte*>(output.data());
    work.count = input.size();
    work.element_bytes = 4;
    work.reduce = add_int32;
    engine.start(operation, work, 0, 1);
    EXPECT_EQ(engine.progress(operation), Status::again);
    return engine.awaited(operation, marked);
  };
  const auto expect = [&](Awaited found, bool from_marked, bool from_others) {
    EXPECT_EQ(found.from_marked, from_marked);
    EXPECT_EQ(found.from_others, from_others);
  };
  expect(awaited(true), true, true);
  peers[0].arrived = 1;
  expect(engine.awaited(operation, marked), true, true);
  peers[2].arrived = 1;
  expect(engine.awaited(operation, marked), true, false);
  peers[1].arrived = 1;
  expect(engine.awaited(operation, marked), false, false);
  peers[0].arrived = 0;
  expect(engine.awaited(operation, marked), false, true);
  awaited(false);
  for (Quiet& peer : peers) peer.arrived = 1;
  expect(engine.awaited(operation, marked), true, true);
}

// A peer that has sent a message already, and takes one slot at most. Slots of processes on one host are so.
class OneSlot final : public Endpoint {
 public:
  explicit OneSlot(size_t bytes) : message(bytes / 4), slot(bytes / 4) {}
  Status send(const std::byte* data, size_t bytes, uint64_t, size_t& bytes_done) noexcept override {
    if (!has_room) return Status::again;
    std::memcpy(slot.data(), data, bytes);
    bytes_done = bytes;
    ++sent;
    return Status::done;
  }
  Status recv(std::byte*, size_t, uint64_t, size_t&) noexcept override { return Status::failed; }
  std::byte* reserve(size_t) noexcept override { return has_room ? reinterpret_cast<std::byte*>(slot.data()) : nullptr; }
  void commit(size_t, uint64_t) noexcept override { ++committed; }
  Status flush() noexcept override { return Status::done; }
  bool stages() const noexcept override { return false; }
  Store slot_store(size_t) const noexcept override { return store; }
  bool learns_from_next() noexcept override { return learns; }
  Outbox* outbox() noexcept override { return shared; }
  Status view(size_t, uint64_t, const std::byte*& data) noexcept override {
    data = reinterpret_cast<const std::byte*>(message.data());
    return Status::done;
  }
  Status release() noexcept override {
    ++released;
    return Status::done;
  }
  const Fault& fault() const noexcept override { return fault_; }
  std::vector<float> message, slot;
  bool has_room = true;
  Store store = Store::cached;
  bool learns = false;
  Outbox* shared = nullptr;
  int sent = 0, committed = 0, released = 0;

 private:
  Fault fault_;
};

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
TEST(EnginePuts, ALargeInputIsSentAndCopiedByBlocksWhereOthersAreAwaitedNext) {
  for (const bool waits_next : {true, false})
    for (const bool learns : {false, true})
      for (const size_t count : {put_copy_bytes_min / 4 - 1, put_copy_bytes_min / 4, put_copy_bytes_min / 2 + 7}) {
        OneSlot peer(4 * count);
        peer.learns = learns;
        Endpoint* endpoints[2] = {nullptr, &peer};
        const Engine engine(2, endpoints, size_t{1} << 20);
        std::vector<Fold> steps = {fold(in(0), out(0), 0, 1)};
        if (waits_next) steps.push_back(fold(Slice{}, out(1), 1, 0));
        Plan plan = plan_of(steps, {1, 1});
        plan.shape = {1, 2, 0, 1, true};
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
        engine.progress(operation);  // which fails where it is to receive: this peer sends nothing that way
        const bool by_blocks = waits_next && !learns && count * 4 >= put_copy_bytes_min;
        EXPECT_EQ(peer.committed, by_blocks ? 1 : 0) << waits_next << learns << count;
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

}  // namespace
}  // namespace tutti
