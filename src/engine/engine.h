// The engine: runs plans over endpoints. It owns no thread, reads no clock and waits for nothing: progress() moves what
// can move.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/types.h"
#include "reduce/reduce.h"
#include "schedule/chunks.h"
#include "schedule/plan.h"
#include "transport/transport.h"

namespace tutti {

inline constexpr int channels_max = 16;

// What one call does, fixed while it runs.
struct Work {
  const Plan* plan = nullptr;
  const std::byte* input = nullptr;   // may equal output
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;       // scratch_bytes() of it; 64-byte aligned
  size_t count = 0;                   // elements of the whole buffer that the plan's output (or input) chunks divide
  size_t element_bytes = 1;
  ReduceFunction reduce = nullptr;
  uint32_t divisor = 0;               // 0: none; avg: the number of ranks
  uint64_t signature = 0;
};

// On whom an operation waits, for verdicts and traces.
struct WaitingOn {
  int peer = -1;
  int channel = 0;
  uint32_t step = 0;
  uint64_t tile = 0;
  const Endpoint* endpoint = nullptr;
  bool sending = false;
};

// A running operation: its work and, per channel, (tile, step, bytes done). Fixed size, owned by the caller, reusable.
class Operation {
 public:
  const Work& work() const { return work_; }

 private:
  friend class Engine;
  struct Channel {
    size_t tile = 0;            // tiles are runs of the plan over consecutive parts of this channel's share
    size_t tiles = 0;
    size_t share_first = 0;     // elements
    size_t share_count = 0;
    Chunks chunks{0, 1, 1};     // of the current tile
    size_t tile_first = 0;      // elements
    uint32_t step = 0;
    size_t bytes_done = 0;      // of the current step's message
    bool done = false;
  };
  Work work_;
  size_t tile_elements_ = 0;
  int channels_ = 0;
  int channels_done_ = 0;
  bool flushing_ = false;
  std::array<Channel, channels_max> channel_;
};

class Engine {
 public:
  // endpoints[channel * size + peer]; null for the rank itself. Outlives the engine. message_bytes_max: the smallest
  // of its transports.
  Engine(int size, std::span<Endpoint* const> endpoints, size_t message_bytes_max);

  // Bytes of scratch that a plan needs for a count: never more than shape.scratch × message_bytes_max per channel.
  size_t scratch_bytes(const Plan& plan, int channels) const noexcept;

  // Prepares an operation on channels [first_channel, first_channel + channels). Touches no endpoint.
  void start(Operation& operation, const Work& work, int first_channel, int channels) const noexcept;

  // Moves what can move. done: the result is in place and the caller's buffers are free. failed: waiting_on() names
  // the endpoint, whose fault() says why.
  Status progress(Operation& operation) const noexcept;

  WaitingOn waiting_on(const Operation& operation) const noexcept;

 private:
  int size_;
  std::span<Endpoint* const> endpoints_;
  size_t message_bytes_max_;
};

}  // namespace tutti
