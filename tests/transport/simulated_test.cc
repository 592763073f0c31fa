// The simulated transport, held to the conformance suite, and its own promises: virtual time, bounded slots, faults.
#include "transport/simulated/network.h"

#include <gtest/gtest.h>

#include "transport/conformance.h"

namespace tutti {
namespace {

class SimulatedSet final : public TransportSet {
 public:
  explicit SimulatedSet(const SimulatedOptions& options) : network_(options) {}
  Transport& transport(int rank) override { return network_.transport(rank); }
  void pass_time() override { network_.next(); }

 private:
  SimulatedNetwork network_;
};

TransportCase simulated_case(const char* name, double short_probability, TimeNs delay_ns_max, int slots) {
  const auto make = [=](int ranks, int channels) -> std::unique_ptr<TransportSet> {
    SimulatedOptions options;
    options.n = ranks;
    options.channels = channels;
    options.slots = slots;
    options.seed = 1;
    options.short_probability = short_probability;
    options.delay_ns_max = delay_ns_max;
    return std::make_unique<SimulatedSet>(options);
  };
  return {name, make, false, false};
}

// One message of `bytes` bytes from 0 to 1, and the time when it can be read.
TimeNs arrival(SimulatedNetwork& network, size_t bytes) {
  const std::vector<std::byte> data(bytes);
  size_t done = 0;
  EXPECT_EQ(network.transport(0).endpoint(1, 0)->send(data.data(), bytes, 1, done), Status::done);
  while (const auto event = network.next())
    if (event->rank == 1) return event->time;
  return -1;
}

TEST(SimulatedNetwork, TakesLatencyPlusBytesOverBandwidth) {
  SimulatedOptions options;
  options.link = {5000, 300, 0.5};
  SimulatedNetwork network(options);
  EXPECT_EQ(arrival(network, 1000), 5000 + 300 + 500);
}

TEST(SimulatedNetwork, SaysAgainWhenAllSlotsAreTakenAndWakesTheSenderWhenOneIsFree) {
  SimulatedOptions options;
  options.slots = 1;
  SimulatedNetwork network(options);
  arrival(network, 8);
  Endpoint& out = *network.transport(0).endpoint(1, 0);
  Endpoint& in = *network.transport(1).endpoint(0, 0);
  std::byte data[8]{};
  size_t done = 0;
  EXPECT_EQ(out.send(data, 8, 1, done), Status::again);
  done = 0;
  EXPECT_EQ(in.recv(data, 8, 1, done), Status::done);
  const auto event = network.next();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->rank, 0);
  done = 0;
  EXPECT_EQ(out.send(data, 8, 1, done), Status::done);
}

TEST(SimulatedNetwork, DeliversWhatADeadRankSentThenSaysClosed) {
  SimulatedNetwork network({});
  std::byte data[8]{};
  size_t done = 0;
  ASSERT_EQ(network.transport(0).endpoint(1, 0)->send(data, 8, 1, done), Status::done);
  network.kill(0, 10);
  while (network.next()) {
  }
  Endpoint& in = *network.transport(1).endpoint(0, 0);
  done = 0;
  EXPECT_EQ(in.recv(data, 8, 1, done), Status::done);
  done = 0;
  EXPECT_EQ(in.recv(data, 8, 1, done), Status::failed);
  EXPECT_EQ(in.fault().kind, FaultKind::closed);
}

TEST(SimulatedNetwork, DrivesNoStoppedRankUntilItIsResumed) {
  SimulatedNetwork network({});
  network.stop(1);
  network.wake(1, 100);
  EXPECT_FALSE(network.next());
  network.resume(1);
  const auto event = network.next();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->rank, 1);
}

TEST(SimulatedNetwork, RunsTheSameWayFromTheSameSeed) {
  SimulatedOptions options;
  options.delay_ns_max = 1'000'000;
  options.seed = 77;
  SimulatedNetwork one(options), two(options);
  options.seed = 78;
  SimulatedNetwork other(options);
  const TimeNs time = arrival(one, 64);
  EXPECT_EQ(time, arrival(two, 64));
  EXPECT_NE(time, arrival(other, 64));
}

}  // namespace

std::vector<TransportCase> transport_cases() {
  return {simulated_case("simulated", 0, 0, 2), simulated_case("simulated_stumbling", 0.3, 5000, 2),
          simulated_case("simulated_many_slots", 0.1, 100, 16)};
}

}  // namespace tutti
