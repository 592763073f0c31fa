// The engine: cuts a call into channels and tiles, and interprets a plan's steps over each.
#include "engine/engine.h"

#include <algorithm>

namespace tutti {
namespace {

// Outputs at least this large are stored past the caches: by the time they are complete, their first part would have
// been evicted anyway.
constexpr size_t streaming_bytes_min = size_t{8} << 20;

// More operands than one reduction pass takes are folded block by block, so that the partial result stays in the
// first-level cache.
constexpr size_t block_bytes = 4096;

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Room for one chunk of scratch. Chunks are rounded up to 64 bytes, and never larger than a message.
size_t scratch_chunk_bytes(const Plan& plan, size_t message_bytes_max) {
  return std::min(message_bytes_max, round_up(message_bytes_max / plan.message_chunks_max, 64) + 64);
}

size_t scratch_channel_bytes(const Plan& plan, size_t message_bytes_max) {
  return plan.shape.scratch == 0 ? 0 : round_up(plan.shape.scratch * scratch_chunk_bytes(plan, message_bytes_max), 64);
}

}  // namespace

// Moves one channel of one operation. Every function may be called again where it stopped.
class Engine::Run {
 public:
  Run(const Work& work, Operation::Channel& channel) noexcept
      : work_(work), plan_(*work.plan), channel_(channel), endpoints_(channel.endpoints) {}

  // A tile starts: its part of the share, divided into the plan's chunks.
  void begin_tile(size_t tile) noexcept {
    const size_t first = tile * channel_.tile_elements;
    const size_t count = std::min(channel_.tile_elements, channel_.share_count - first);
    channel_.tile = tile;
    channel_.tile_first = channel_.share_first + first;
    channel_.chunks = Chunks(count, plan_.shape.output, work_.element_bytes);
    channel_.step = 0;
    begin_step();
  }

  Status move() noexcept {
    for (;;) {
      while (channel_.step < plan_.steps.size()) {
        const Status status = move_step(plan_.steps[channel_.step]);
        if (status != Status::done) return status;
        ++channel_.step;
        begin_step();
      }
      if (channel_.tile + 1 == channel_.tiles) return flush();
      begin_tile(channel_.tile + 1);
    }
  }

 private:
  void begin_step() noexcept {
    channel_.next_in = 0;
    channel_.next_out = 0;
    channel_.bytes_done = 0;
    channel_.stored = false;
  }

  Status move_step(const Fold& fold) noexcept {
    const size_t count = step_elements(fold), bytes = count * work_.element_bytes;
    if (fold.n_from == 0) return move_local(fold, count);
    if (fold.n_from == 1 && fold.a.count == 0 && divisor(fold) == 0) {
      return fold.n_to == 0 ? receive(fold, bytes) : forward(fold, bytes);
    }
    return fold.dst.count > 0 || count == 0 ? reduce_to_memory(fold, count) : reduce_to_slots(fold, count);
  }

  // No message comes in: a local copy, sends, or both.
  Status move_local(const Fold& fold, size_t count) noexcept {
    const std::byte* source = read_at(fold.a);
    if (fold.dst.count > 0) {
      std::byte* target = write_at(fold.dst);
      const void* inputs[] = {source};
      if (!channel_.stored && count > 0) fold_all(fold, inputs, target, count, store(fold));
      channel_.stored = true;
      source = target;
    }
    return send_to_all(fold, source, count * work_.element_bytes);
  }

  Status receive(const Fold& fold, size_t bytes) noexcept {
    return sender(fold, 0).recv(write_at(fold.dst), bytes, work_.signature, channel_.bytes_done);
  }

  // Sends on first, for the sake of those who wait; keeps a copy while it has to wait, or at last.
  Status forward(const Fold& fold, size_t bytes) noexcept {
    const std::byte* message = nullptr;
    const Status arrived = sender(fold, 0).view(bytes, work_.signature, message);
    if (arrived != Status::done) return arrived;
    channel_.next_in = 1;
    const Status sent = send_to_all(fold, message, bytes);
    if (sent == Status::failed) return sent;
    if (fold.dst.count > 0 && !channel_.stored) {
      copy_bytes(write_at(fold.dst), message, bytes, store(fold));
      channel_.stored = true;
    }
    if (sent == Status::done) sender(fold, 0).release();
    return sent;
  }

  // The result is stored, so it is reduced in place and sent from there: nothing is held while a receiver is awaited.
  Status reduce_to_memory(const Fold& fold, size_t count) noexcept {
    std::byte* const result = fold.dst.count > 0 ? write_at(fold.dst) : nullptr;
    if (!channel_.stored) {
      const void* inputs[reduce_inputs_max];
      const Status arrived = view_all(fold, count, inputs);
      if (arrived != Status::done) return arrived;
      if (count > 0) fold_all(fold, inputs, result, count, store(fold));
      channel_.stored = true;
      release_all(fold);
    }
    return send_to_all(fold, result, count * work_.element_bytes);
  }

  // The result is only passed on: it is reduced straight into the first receiver's slot and copied to the others'.
  Status reduce_to_slots(const Fold& fold, size_t count) noexcept {
    const void* inputs[reduce_inputs_max];
    const Status arrived = view_all(fold, count, inputs);
    if (arrived != Status::done) return arrived;
    const size_t bytes = count * work_.element_bytes;
    const std::span<const uint32_t> to = plan_.to(fold);
    for (; channel_.next_out < to.size(); ++channel_.next_out) {
      Endpoint& receiver = *endpoints_[to[channel_.next_out]];
      if (receiver.reserve(bytes) == nullptr) {
        return receiver.fault().kind == FaultKind::none ? Status::again : Status::failed;
      }
    }
    if (!to.empty()) {
      std::byte* const result = endpoints_[to[0]]->reserve(bytes);
      fold_all(fold, inputs, result, count, Store::cached);
      for (size_t i = 1; i < to.size(); ++i) {
        copy_bytes(endpoints_[to[i]]->reserve(bytes), result, bytes, Store::cached);
      }
    }
    for (const uint32_t peer : to) endpoints_[peer]->commit(bytes, work_.signature);
    release_all(fold);
    return Status::done;
  }

  Status send_to_all(const Fold& fold, const std::byte* data, size_t bytes) noexcept {
    const std::span<const uint32_t> to = plan_.to(fold);
    for (; channel_.next_out < to.size(); ++channel_.next_out, channel_.bytes_done = 0) {
      const Status status =
          endpoints_[to[channel_.next_out]]->send(data, bytes, work_.signature, channel_.bytes_done);
      if (status != Status::done) return status;
    }
    return Status::done;
  }

  static uint32_t operands(const Fold& fold) { return fold.n_from + (fold.a.count > 0 ? 1u : 0u); }

  // done: all messages of the step have arrived. Where one pass takes all operands, `inputs` points at them; who is
  // called again asks for the first ones again, and is given the same places.
  Status view_all(const Fold& fold, size_t count, const void** inputs) noexcept {
    const size_t bytes = count * work_.element_bytes;
    const std::span<const uint32_t> from = plan_.from(fold);
    const bool one_pass = operands(fold) <= uint32_t(reduce_inputs_max);
    const uint32_t place = fold.a.count > 0 ? fold.a_place : fold.n_from;
    for (uint32_t i = one_pass ? 0 : channel_.next_in; i < from.size(); ++i) {
      const std::byte* message = nullptr;
      const Status status = endpoints_[from[i]]->view(bytes, work_.signature, message);
      if (status != Status::done) {
        channel_.next_in = i;
        return status;
      }
      if (one_pass) inputs[i + (i >= place)] = message;
    }
    if (one_pass && fold.a.count > 0) inputs[place] = read_at(fold.a);
    channel_.next_in = fold.n_from;
    return Status::done;
  }

  // All operands are there, those of a single pass at `inputs`.
  void fold_all(const Fold& fold, const void* const* inputs, std::byte* result, size_t count, Store how) noexcept {
    const uint32_t n_operands = operands(fold), divide_by = divisor(fold);
    if (n_operands == 1 && divide_by == 0) {
      copy_bytes(result, inputs[0], count * work_.element_bytes, how);
    } else if (n_operands <= uint32_t(reduce_inputs_max)) {
      work_.reduce(result, inputs, int(n_operands), count, divide_by, how);
    } else {
      const size_t block = block_bytes / work_.element_bytes;
      for (size_t first = 0; first < count; first += block) {
        fold_block(fold, result, count, first, std::min(block, count - first), how);
      }
    }
  }

  // Elements [first, first + n_block) of a step with more operands than one pass takes. Passes end at the same operand
  // on every rank, so all round alike.
  void fold_block(const Fold& fold, std::byte* result, size_t count, size_t first, size_t n_block, Store how) noexcept {
    alignas(64) std::byte partial[block_bytes];
    const size_t offset = first * work_.element_bytes;
    const uint32_t n_operands = operands(fold);
    const void* inputs[reduce_inputs_max];
    int filled = 0;
    for (uint32_t i = 0; i < n_operands; ++i) {
      inputs[filled++] = operand(fold, i, count) + offset;
      const bool last = i + 1 == n_operands;
      if (last) {
        work_.reduce(result + offset, inputs, filled, n_block, divisor(fold), how);
      } else if (filled == reduce_inputs_max) {
        work_.reduce(partial, inputs, filled, n_block, 0, Store::cached);
        inputs[0] = partial;
        filled = 1;
      }
    }
  }

  // The i-th operand of a step, counting the local one; its message has arrived.
  const std::byte* operand(const Fold& fold, uint32_t i, size_t count) noexcept {
    if (fold.a.count > 0) {
      if (i == fold.a_place) return read_at(fold.a);
      if (i > fold.a_place) --i;
    }
    const std::byte* message = nullptr;
    sender(fold, i).view(count * work_.element_bytes, work_.signature, message);
    return message;
  }

  void release_all(const Fold& fold) noexcept {
    for (const uint32_t peer : plan_.from(fold)) endpoints_[peer]->release();
  }

  // Hands everything sent out of this process. A plan often sends to one peer in many steps in a row.
  Status flush() noexcept {
    for (; channel_.next_in < plan_.steps.size(); ++channel_.next_in, channel_.next_out = 0) {
      if (plan_.steps[channel_.next_in].n_to == 0) continue;
      const std::span<const uint32_t> to = plan_.to(plan_.steps[channel_.next_in]);
      for (; channel_.next_out < to.size(); ++channel_.next_out) {
        if (to.size() == 1 && channel_.next_in > 0) {
          const std::span<const uint32_t> before = plan_.to(plan_.steps[channel_.next_in - 1]);
          if (before.size() == 1 && before[0] == to[0]) continue;
        }
        const Status status = endpoints_[to[channel_.next_out]]->flush();
        if (status != Status::done) return status;
      }
    }
    return Status::done;
  }

  Endpoint& sender(const Fold& fold, uint32_t i) const noexcept { return *endpoints_[plan_.peers[fold.peers + i]]; }
  uint32_t divisor(const Fold& fold) const noexcept { return fold.finish && work_.divisor > 1 ? work_.divisor : 0; }
  Store store(const Fold& fold) const noexcept {
    const bool read_soon = fold.n_to > 0 || work_.count * work_.element_bytes < streaming_bytes_min;
    return read_soon ? Store::cached : Store::streaming;
  }

  // All slices of a step are the same chunks.
  size_t step_elements(const Fold& fold) const noexcept {
    const Slice& slice = fold.a.count > 0 ? fold.a : fold.dst;
    const uint32_t first = slice.buffer == Buffer::scratch ? slice.first % plan_.shape.output : slice.first;
    return channel_.chunks.size(first, slice.count);
  }

  size_t element(const Slice& slice) const noexcept {
    return channel_.tile_first + channel_.chunks.first(slice.first);
  }
  std::byte* scratch_at(const Slice& slice) const noexcept {
    return channel_.scratch + slice.first * channel_.chunks.per_chunk() * work_.element_bytes;
  }
  const std::byte* read_at(const Slice& slice) const noexcept {
    if (slice.buffer == Buffer::scratch) return scratch_at(slice);
    const std::byte* base = slice.buffer == Buffer::input ? work_.input : work_.output;
    return base + element(slice) * work_.element_bytes;
  }
  std::byte* write_at(const Slice& slice) const noexcept {
    if (slice.buffer == Buffer::scratch) return scratch_at(slice);
    return work_.output + element(slice) * work_.element_bytes;
  }

  const Work& work_;
  const Plan& plan_;
  Operation::Channel& channel_;
  Endpoint* const* const endpoints_;
};

Engine::Engine(int size, std::span<Endpoint* const> endpoints, size_t message_bytes_max)
    : size_(size), endpoints_(endpoints), message_bytes_max_(message_bytes_max) {}

size_t Engine::scratch_bytes(const Plan& plan, int channels) const noexcept {
  return scratch_channel_bytes(plan, message_bytes_max_) * size_t(channels);
}

void Engine::start(Operation& operation, const Work& work, int first_channel, int channels) const noexcept {
  if (&work != &operation.work_) operation.work_ = work;
  operation.first_channel_ = first_channel;
  operation.channels_ = channels;
  operation.channels_done_ = 0;
  operation.blocked_ = 0;
  // A small call is one tile, whose messages fit because all of it does.
  const bool small = work.count <= message_bytes_max_ / 8;
  const size_t tile_max =
      small ? work.count
            : tile_elements_max(work.plan->shape.output, work.plan->message_chunks_max, work.element_bytes,
                                message_bytes_max_);
  const Chunks shares(work.count, uint32_t(channels), work.element_bytes);  // no division where there is one channel
  for (int i = 0; i < channels; ++i) {
    Operation::Channel& channel = operation.channel_[size_t(i)];
    channel.share_first = shares.first(uint32_t(i));
    channel.share_count = shares.size(uint32_t(i));
    channel.tiles = channel.share_count <= tile_max ? 1 : (channel.share_count + tile_max - 1) / tile_max;
    channel.tile_elements = tile_max;
    channel.endpoints = endpoints_.data() + size_t(first_channel + i) * size_t(size_);
    if (work.plan->shape.scratch > 0) {
      channel.scratch = work.scratch + size_t(i) * scratch_channel_bytes(*work.plan, message_bytes_max_);
    }
    channel.done = false;
    Run(operation.work_, channel).begin_tile(0);
  }
}

Status Engine::progress(Operation& operation) const noexcept {
  for (int i = 0; i < operation.channels_; ++i) {
    Operation::Channel& channel = operation.channel_[size_t(i)];
    if (channel.done) continue;
    const Status status = Run(operation.work_, channel).move();
    if (status == Status::done) {
      channel.done = true;
      ++operation.channels_done_;
      continue;
    }
    operation.blocked_ = i;
    if (status == Status::failed) return status;
  }
  return operation.channels_done_ == operation.channels_ ? Status::done : Status::again;
}

WaitingOn Engine::waiting_on(const Operation& operation) const noexcept {
  const Operation::Channel& channel = operation.channel_[size_t(operation.blocked_)];
  const Plan& plan = *operation.work_.plan;
  WaitingOn waiting;
  waiting.channel = operation.first_channel_ + operation.blocked_;
  waiting.tile = channel.tile;
  waiting.step = channel.step;
  // Past the last step, next_in is the step whose receivers are being flushed.
  const bool flushing = channel.step >= plan.steps.size();
  const size_t step = flushing ? channel.next_in : channel.step;
  if (channel.done || step >= plan.steps.size()) return waiting;
  const Fold& fold = plan.steps[step];
  waiting.sending = flushing || channel.next_in >= fold.n_from;
  if (!waiting.sending) {
    waiting.peer = int(plan.from(fold)[channel.next_in]);
  } else if (channel.next_out < fold.n_to) {
    waiting.peer = int(plan.to(fold)[channel.next_out]);
  }
  if (waiting.peer >= 0) waiting.endpoint = channel.endpoints[waiting.peer];
  return waiting;
}

}  // namespace tutti

