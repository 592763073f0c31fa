// The engine: runs plans over endpoints. It owns no thread, reads no clock and waits for nothing: progress() moves what
// can move.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/types.h"
#include "engine/cold_outputs.h"
#include "reduce/custom.h"
#include "reduce/reduce.h"
#include "schedule/chunks.h"
#include "schedule/plan.h"
#include "transport/transport.h"

namespace tutti {

inline constexpr int channels_max = 16;

struct DeviceWork;

inline constexpr size_t multiplied_tiles_alignment = 64;

// An input that is what the caller gave times a scalar, made tile by tile as the call goes on, so that memory is not gone
// through once more. (The product is rounded to the type.)
struct MultipliedInput {
  const std::byte* from = nullptr;      // laid out as the input; may be it, in place
  DataType type{};
  std::array<std::byte, 16> scalar{};
  std::byte* tiles = nullptr;           // Engine::multiplied_tiles_bytes() of memory, aligned; null: it is made in the output,
                                        // which then is the input
};

class Operation;

// What one call does, fixed while it runs.
struct Work {
  const Plan* plan = nullptr;
  const std::byte* input = nullptr;   // may equal output
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;       // scratch_bytes() of it; 64-byte aligned
  const LentRegion* input_region = nullptr;   // where input lies; null: not in memory that can be lent
  const LentRegion* output_region = nullptr;  // likewise output
  size_t count = 0;                   // elements of the whole buffer that the plan's chunks divide; of one block
  const Layout* layout = nullptr;     // v-forms only, instead of the next three; outlives the operation
  size_t block_stride = 0;            // blocks only: elements from one block's first to the next one's
  uint32_t input_first = 0;           // blocks only: the block that input points at, where the caller has but one
  uint32_t output_first = 0;          // likewise output
  size_t element_bytes = 1;
  ReduceFunction reduce = nullptr;
  uint32_t divisor = 0;               // of complete results. 0: none; avg: the number of ranks; truth values: 1
  const CustomReduction* custom = nullptr;  // where not null, instead of reduce; outlives the operation
  // Exact sums only, where `reduce` takes any number of inputs: each finish is one step of all inputs as they were given,
  // divisor is at least 1, and inputs of several vectors are sent from no buffer but the input.
  uint32_t vectors = 1;               // that each rank gives; the k-th one begins at k × vector_stride
  size_t vector_stride = 0;           // elements
  const void** operands = nullptr;    // room for all vectors of all ranks
  bool takes_turns = false;           // progress() says again after each tile but the last, for operations beside it
  Operation* sends_beside = nullptr;  // one that sends and takes turns with this one, which receives: it has begun and is not done, and
                                      // its next message may be made while one is copied here
  Operation* receives_beside = nullptr;  // of one that sends: one that receives, has begun and is not done, and takes turns with this one
  bool only_sends = false;            // to peers who send nothing meanwhile, and have a core to wait on
  DeviceWork* device = nullptr;       // input, output and scratch lie on this one; null: on the host
  const MultipliedInput* multiplied = nullptr;  // what the input is made of, if not null; not of v-forms, nor on a device;
                                                // outlives the operation
  uint64_t signature = 0;
  Puts puts = Puts::nowhere;          // of input that lies in private memory
  Offer offers = Offer::none;         // of output; not of v-forms, nor on a device
  bool alternates = false;            // what the kernel copies goes from its end in every other run on the same memory

  // Of the whole buffer.
  size_t bytes() const noexcept {
    if (layout != nullptr) return layout->elements * element_bytes;
    return count * element_bytes * (plan->shape.blocks ? plan->shape.output : 1);
  }
};

// On whom an operation waits, for verdicts and traces.
struct WaitingOn {
  int peer = -1;
  int channel = 0;
  uint32_t step = 0;
  uint64_t tile = 0;
  const Endpoint* endpoint = nullptr;
  bool sending = false;
  bool on_device = false;  // on no peer, but on its own device
  uint64_t signature = 0;  // of the message
};

struct Awaited {
  bool from_marked;
  bool from_others;
};

// A running operation: its work and, per channel, (tile, step, bytes done). Fixed size, owned by the caller, reusable.
class Operation {
 public:
  const Work& work() const { return work_; }
  // All defaults, to be filled in place and given to Engine::start: a copy of what has just been stored piece by piece
  // would wait for the stores.
  Work& new_work() { return work_ = Work{}; }
  // To be changed where Engine::restart_elsewhere allows it.
  Work& work_of_restart() { return work_; }

 private:
  friend class Engine;
  // Of a step on a device: its messages are awaited; operands come to the host; its work is on the stream; what it sends
  // from where it lies is awaited, and sent. Draining: all steps are on the stream.
  enum class Stage : uint8_t { gathering, fetching, running, readying, lending, draining };
  struct alignas(64) Channel {
    // The current step; once past the last, the flush of whom it sent to. What every step of every call needs has a cache line.
    uint32_t step;
    uint32_t next_in;           // senders before this one have delivered
    uint32_t next_out;          // receivers before this one are served
    bool shares_wait;           // for room for one message to all: next_out says for whom
    bool stored;                // the step's result lies at dst already
    Stage stage;                // on a device only
    bool streams;               // what is not read again soon is stored past the caches
    size_t bytes_done;          // of the message that is moving
    Endpoint* const* endpoints; // [peer]
    std::byte* scratch;
    // The current tile.
    size_t tile;
    size_t tiles;
    size_t tile_first;          // elements
    Chunks chunks{0, 1, 1};
    bool apart;                 // its parts of neighbouring blocks are no neighbours in memory
    // The share: tiles are runs of the plan over consecutive parts of it.
    size_t share_first;         // elements; of all blocks alike where they are of one size
    size_t share_count;
    uint32_t share, shares;     // v-forms only, instead: which of how many parts of each block
    size_t tile_elements;       // of every tile but the last
    std::byte* made_tile;       // of a multiplied input; null: it is made in the output
    size_t tiles_made;
    size_t streamed_tiles;      // the first ones, which `streams`
    bool streams_copies;        // of all tiles: what is but copied from the caller's input, unless calls read it
    ColdOutputs* looks;         // of tiles that do not: who is asked, now and then; null: nobody
    struct Look {
      const std::byte* at;
      bool streams;
    };
    bool output_is_read;        // by calls: it goes to the caches, where it fits them, and nobody is asked
    uint32_t n_looks;           // in this call; the last ones are
    std::array<Look, 8> looks_kept;
    bool at_a_stretch;          // copies are best so, where they do not go past the caches by the plan
    OwnCopy own;                // of all tiles, that is made while the first message comes; none: each step makes its own
    bool from_end;              // what the kernel copies goes so,
    bool end_is_looked_at;      // as it surely does once that was
    bool flushes;               // what was sent must be flushed at the end
    uint8_t lane;               // on a device only: which of its lanes
    bool done;
  };

  // A step of a small call's plan: it sends something, perhaps once to all its receivers, by an outbox, and may copy it; or stores one
  // message; or adds messages and something of its own. A cache line each.
  struct alignas(64) SmallStep {
    enum class Kind : uint8_t { sends, sends_once, receives, adds };
    const uint32_t* peers;
    uint64_t signature;
    ptrdiff_t from, to;         // where it reads and writes: from the beginning of a buffer, as the call names it
    Buffer from_buffer, to_buffer;
    Kind kind;
    bool copies;                // of a step that sends: `from` to `to`, as well
    bool has_own;               // of one that adds: `from` is its operand number own_at
    uint16_t own_at;
    uint16_t n_peers;
    uint32_t divisor;
    uint32_t count, bytes;      // of each message
  };
  static constexpr size_t small_steps_max = 16;

  Work work_;
  alignas(64) uint32_t n_small_steps_ = 0;  // of a small call, as SmallSteps says; 0: it is none
  uint32_t n_first_sends_ = 0;              // of them, before the first that awaits a message
  std::array<std::byte*, 3> buffers_{};     // of a small call, by Buffer
  // Likewise, as SmallCall says.
  bool begins_with_one_message_ = false, ends_with_message_ = false, ends_with_sum_of_two_ = false;
  bool alone_ = false;          // one channel, no v-form, no device: what most operations are
  bool alone_v_form_ = false;   // one channel, no device
  bool fetches_ = false;        // as fetch_ahead() does
  int blocked_ = 0;             // the last channel that failed or had to wait
  int first_channel_ = 0;
  int channels_ = 0;
  int channels_done_ = 0;
  std::array<Channel, channels_max> channel_;           // only the first channels_ are ever initialised
  std::array<SmallStep, small_steps_max> small_steps_;  // only the first n_small_steps_ say anything
};

class Engine {
 public:
  // endpoints[channel * size + peer]; null for the rank itself. Outlives the engine. message_bytes_max: the smallest
  // of its transports, the same on all ranks: together with plan, count and element size it decides the tiles.
  // cold_outputs: says which outputs go past the caches beside those that its plan says; null: none do. Outlives the engine.
  // at_a_stretch: whether copies are best so, see reduce/copy.h.
  Engine(int size, std::span<Endpoint* const> endpoints, size_t message_bytes_max, ColdOutputs* cold_outputs = nullptr,
         bool at_a_stretch = copies_at_a_stretch());

  // Bytes of scratch that a plan needs for any count: never more than shape.scratch × message_bytes_max per channel.
  size_t scratch_bytes(const Plan& plan, int channels) const noexcept;

  // Bytes of memory for the tiles of a multiplied input that has no place in the output.
  size_t multiplied_tiles_bytes(const Work& work, int channels) const noexcept {
    return multiplied_tile_bytes(work) * size_t(channels);
  }

  // Prepares an operation on channels [first_channel, first_channel + channels). Touches no endpoint, but to offer it memory. The plan's
  // message_chunks_max must be that of the largest message of any rank, so that all ranks cut alike.
  void start(Operation& operation, const Work& work, int first_channel, int channels) const noexcept;

  // Prepares an operation that has come to its end for another run on the same buffers.
  void rewind(Operation& operation) const noexcept;

  // Runs an operation that has come to its end once more, on other buffers of the same sizes that are in place alike:
  // prepares it, and moves what can move. It may say again where another look would find it done: what it waits for is
  // awaited at watch() with the least delay.
  Status restart(Operation& operation, const std::byte* input, std::byte* output) const noexcept;

  // As restart(), where the buffers in its work, and the regions in which they lie, have been replaced.
  Status restart_elsewhere(Operation& operation) const noexcept;

  // Moves what can move. done: the result is in place and the caller's buffers are free. failed: waiting_on() names
  // the endpoint, whose fault() says why.
  Status progress(Operation& operation) const noexcept;

  // Moves what can move of an operation that follows another one over the same endpoints, which is not done: so far as all
  // messages between two ranks stay in the order of the operations. all_sent: the other one and all before it have sent
  // everything. Not failed: it may move on once the other one has.
  Status follow(Operation& operation, const Operation& other, bool all_sent) const noexcept;
  // Whether everything is sent, and only messages are awaited. Known of plans whose sends come first; false of others.
  bool has_sent(const Operation& operation) const noexcept;
  // Whether all that is left is that what was sent leaves this process: what follows need not wait for that, or who is to read
  // it might wait for what follows. Not of what was lent.
  bool has_passed(const Operation& operation) const noexcept;
  // Whether some endpoint has what was sent wait in this process.
  bool stages() const noexcept { return flushes_; }
  // A number that is another one once something has moved, most likely.
  uint64_t position(const Operation& operation) const noexcept;

  // While progress() says again or failed.
  WaitingOn waiting_on(const Operation& operation) const noexcept;

  // While progress() says again: where the awaited message's arrival can be seen. Of operations of several channels,
  // whichever was looked at last.
  Watch watch(const Operation& operation) const noexcept;

  // While progress() says again: brings memory that the awaited message will be written to, if it is of a middling size, into
  // the caches until the message arrives. Who waits has nothing better to do, and buffers of a program are seldom there.
  void fetch_ahead(Operation& operation) const noexcept {
    if (operation.fetches_) fetch_next(operation);
  }

  // While progress() says again: whether messages have yet to come from ranks that `marked` has (1; 0: not; one entry a
  // rank), and from others. Known of plans whose sends come first, where ranks whose message has come have done all
  // that this operation needs of them but to receive; of other operations it says both.
  Awaited awaited(const Operation& operation, std::span<const uint8_t> marked) const noexcept;

 private:
  class Sharer;
  template <bool v_form, bool multiplied>
  class Places;
  template <bool v_form, bool multiplied>
  class Ahead;
  template <bool v_form, bool multiplied>
  class Folds;
  template <bool v_form, bool multiplied = false>
  class Turns;
  template <bool v_form, bool multiplied = false>
  class Run;
  template <bool v_form>
  class DeviceRun;
  template <bool v_form>
  class SmallSteps;
  class SmallCall;
  Status progress_channels(Operation& operation) const noexcept;
  Status progress_channel(Operation& operation, Operation::Channel& channel) const noexcept;
  void begin_channel(Operation& operation, int channel) const noexcept;
  void begin_looks(Operation& operation) const noexcept;
  void begin_reads(Operation& operation) const noexcept;
  void offer(Operation& operation) const noexcept;
  void fetch_next(Operation& operation) const noexcept;
  void share_out(Operation& operation) const noexcept;
  void make_small_steps_ready(Operation& operation) const noexcept;
  bool is_small(const Work& work) const noexcept;
  static bool is_for_kernel(const Work& work) noexcept;
  size_t longest_tile(const Work& work, bool small) const noexcept;
  size_t multiplied_tile_bytes(const Work& work) const noexcept;
  int size_;
  std::span<Endpoint* const> endpoints_;
  size_t message_bytes_max_;
  ColdOutputs* cold_outputs_;
  bool at_a_stretch_;
  bool flushes_;  // some endpoint stages what it sends
  mutable uint64_t turned_ = 0;  // atomic; by outputs' addresses: whether the next call that reads blocks does so from their end
};

}  // namespace tutti
