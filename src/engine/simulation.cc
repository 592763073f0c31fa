// Drives real engines over a simulated network.
#include "engine/simulation.h"

#include <algorithm>

namespace tutti {

Simulation::Simulation(const SimulatedOptions& options, ColdOutputs* cold_outputs, bool at_a_stretch)
    : network_(options) {
  for (int rank = 0; rank < options.n; ++rank) {
    std::vector<Endpoint*> endpoints;
    for (int channel = 0; channel < options.channels; ++channel) {
      for (int peer = 0; peer < options.n; ++peer) {
        endpoints.push_back(network_.transport(rank).endpoint(peer, channel));
      }
    }
    // A moved vector keeps its elements where they are, so the engine may look at them before.
    const Engine engine(options.n, endpoints, options.message_bytes_max, cold_outputs, at_a_stretch);
    ranks_.push_back(std::make_unique<Rank>(Rank{std::move(endpoints), engine, {}, Status::done, 0}));
  }
}

void Simulation::start(int rank, const Work& work, int first_channel, int channels) {
  Rank& state = *ranks_[size_t(rank)];
  state.engine.start(state.operation, work, first_channel, channels);
  state.status = Status::again;
  ++running_;
  network_.wake(rank, network_.now());
}

void Simulation::restart(int rank, const std::byte* input, std::byte* output) {
  Rank& state = *ranks_[size_t(rank)];
  state.status = Status::again;
  ++running_;
  const Status status = state.engine.restart(state.operation, input, output);
  if (status != Status::again) end(rank, status);
  network_.wake(rank, network_.now());
}

void Simulation::end(int rank, Status status) {
  Rank& state = *ranks_[size_t(rank)];
  state.status = status;
  state.ended_at = std::max(network_.now(), network_.busy_until(rank));
  --running_;
}

void Simulation::give_up(int rank) {
  if (status(rank) == Status::again) end(rank, Status::failed);
}

std::optional<SimulatedEvent> Simulation::step() {
  const std::optional<SimulatedEvent> event = network_.next();
  if (!event || event->rank < 0) return event;
  Rank& state = *ranks_[size_t(event->rank)];
  if (state.status == Status::again) {
    const Status status = state.engine.progress(state.operation);
    if (status != Status::again) end(event->rank, status);
  }
  return event;
}

void Simulation::run() {
  while (running_ > 0 && step()) {
  }
}

}  // namespace tutti
