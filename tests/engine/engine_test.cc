// The engine on plans made by hand: how a call is cut, what each kind of step does, what it says while it waits.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/plan_by_hand.h"
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

// Exchanges of nothing, of one tile and of several.
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

}  // namespace
}  // namespace tutti
