// Real engines on a simulated network: every rank of a communicator in one thread and in virtual time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "transport/simulated/network.h"

namespace tutti {

// The driver starts operations and asks for steps; each step moves the clock to the next event and lets the rank that
// it concerns move what it can.
class Simulation {
 public:
  // cold_outputs: as Engine's, of all ranks; in simulations its look must not be at a clock.
  // at_a_stretch: as Engine's, whatever this processor; so one price is the same on all.
  explicit Simulation(const SimulatedOptions& options, ColdOutputs* cold_outputs = nullptr, bool at_a_stretch = false);

  SimulatedNetwork& network() { return network_; }
  const Engine& engine(int rank) const { return ranks_[size_t(rank)]->engine; }

  // The rank's next operation; its last one must have ended. `plan` and buffers of the work outlive it.
  void start(int rank, const Work& work, int first_channel, int channels);
  // The rank's last operation, which has ended well, once more on other buffers.
  void restart(int rank, const std::byte* input, std::byte* output);
  // The rank's operation ends as failed: it is not moved again.
  void give_up(int rank);

  // One event. nullopt: nothing will ever happen again. An event with rank -1 is the driver's own; any other has been
  // dealt with: see status(event.rank).
  std::optional<SimulatedEvent> step();
  // Until all operations have ended, or nothing more happens. Events of the driver are dropped.
  void run();

  // again while the operation runs. A rank without an operation is done.
  Status status(int rank) const { return ranks_[size_t(rank)]->status; }
  // When it ended, the cost of what it did last included.
  TimeNs ended_at(int rank) const { return ranks_[size_t(rank)]->ended_at; }
  WaitingOn waiting_on(int rank) const { return engine(rank).waiting_on(ranks_[size_t(rank)]->operation); }
  int running() const { return running_; }

 private:
  struct Rank {
    std::vector<Endpoint*> endpoints;
    Engine engine;
    Operation operation;
    Status status = Status::done;
    TimeNs ended_at = 0;
  };

  void end(int rank, Status status);

  SimulatedNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  int running_ = 0;
};

}  // namespace tutti
