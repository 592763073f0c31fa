// Where a channel begins a tile and a step; and two messages at once, by turns: one that has come is copied while one that goes is
// made. The fourth layer of run.h.
#pragma once

#include <algorithm>
#include <optional>

#include "engine/folds.h"
#include "reduce/scale.h"

namespace tutti {

// A result that is stored and sent is made so much at a time, and copied on while it is in a near cache.
inline constexpr size_t put_block_bytes = 8 * 1024;

// An input that is sent and copied is read so much at a time, where the whole would leave a first-level cache.
inline constexpr size_t put_copy_bytes_min = 4 * put_block_bytes;

// A message that has come, and where and how it is to be copied.
struct Received {
  Endpoint& from;
  const std::byte* message;
  std::byte* target;
  size_t bytes;
  Store how;
};

template <bool v_form, bool multiplied>
class Engine::Turns : public Engine::Folds<v_form, multiplied> {
  using Base = Engine::Folds<v_form, multiplied>;

 protected:
  using Base::channel_, Base::copies_to_caches, Base::copy_store, Base::divisor, Base::endpoints_, Base::lends_from, Base::plan_,
      Base::read_at, Base::sender, Base::signature, Base::step_elements, Base::streams, Base::went_past_caches, Base::work_,
      Base::write_at;

 public:
  using Base::Base;

  // A tile starts: its part of the share, divided into the plan's chunks; or that part of every block.
  void begin_tile(size_t tile) noexcept {
    const size_t first = tile * channel_.tile_elements;
    const size_t count = v_form ? 0 : std::min(channel_.tile_elements, channel_.share_count - first);
    channel_.tile = tile;
    channel_.streams = tile < channel_.streamed_tiles;
    if constexpr (!v_form) channel_.tile_first = channel_.share_first + first;
    channel_.apart = false;
    if constexpr (v_form) {
      channel_.chunks = Chunks::equal(channel_.tile_elements, plan_.shape.output);  // in scratch memory
      channel_.apart = true;
    } else if (plan_.shape.blocks) {
      channel_.chunks = Chunks::equal(count, plan_.shape.output);
      channel_.apart = count != work_.block_stride && count > 0;
    } else {
      channel_.chunks = Chunks(count, plan_.shape.output, work_.element_bytes);
    }
    channel_.step = 0;
    begin_step();
    if constexpr (multiplied) make_input();
  }

  void begin_step() noexcept {
    channel_.next_in = 0;
    channel_.next_out = 0;
    channel_.bytes_done = 0;
    channel_.stored = false;
    channel_.shares_wait = false;
    channel_.stage = Operation::Stage::gathering;
  }

  // The operation's message, if it has but one, and that goes past the caches as the last one did there.
  std::optional<Meanwhile> meanwhile() noexcept {
    const Fold& fold = plan_.steps[0];
    if (work_.device != nullptr || channel_.tiles > 1 || channel_.step > 0 || fold.n_from != 1) return std::nullopt;
    const size_t bytes = step_elements(fold) * work_.element_bytes;
    std::byte* const target = write_at(fold.dst);
    if (copies_to_caches() || bytes < put_copy_bytes_min || (!channel_.streams && !went_past_caches(target))) return std::nullopt;
    if (!streams(target, bytes)) return std::nullopt;
    return Meanwhile{sender(fold, 0), target, bytes, signature(fold), channel_.bytes_done};
  }

  // Sends the first step's message while a message that has come is copied. The new one may lie where the old one lay. again: nothing
  // was done.
  Status send_by_turns(const Received& received) noexcept {
    const Fold& next = plan_.steps[0];
    const size_t bytes = received.bytes, next_bytes = step_elements(next) * work_.element_bytes;
    Endpoint& to = *endpoints_[plan_.to(next)[0]];
    if (next_bytes < put_copy_bytes_min) return Status::again;
    std::byte* slot = &to == &received.from ? to.reserve_viewed(next_bytes) : nullptr;
    if (slot == nullptr) slot = to.reserve(next_bytes);
    if (slot == nullptr) return Status::again;
    const std::byte* const source = read_at(next.a);
    std::byte* const copy = next.dst.count > 0 ? write_at(next.dst) : nullptr;
    const Store copy_how = copy != nullptr ? copy_store(copy, next_bytes) : Store::cached, slot_how = to.slot_store(next_bytes);
    const size_t longer = std::max(bytes, next_bytes), turn_bytes = copies_to_caches() ? longer : put_block_bytes;
    for (size_t at = 0; at < longer; at += turn_bytes) {
      if (at < bytes) copy_bytes_on(received.target + at, received.message + at, std::min(turn_bytes, bytes - at), received.how);
      if (at >= next_bytes) continue;
      const size_t block = std::min(turn_bytes, next_bytes - at);
      if (copy != nullptr) copy_bytes_on(copy + at, source + at, block, copy_how);
      copy_bytes_on(slot + at, source + at, block, slot_how);
    }
    stream_end();
    if (received.from.release() != Status::done) return Status::failed;
    to.commit(next_bytes, signature(next));
    return Status::done;
  }

  // Whether the plan's first step sends to one rank what nothing is awaited for, by a slot.
  bool may_begin_early() const noexcept {
    const Fold& first = plan_.steps[0];
    if (!begins_by_sending()) return false;
    if (first.dst.count > 0 ? !first.copies_input() : first.b.count > 0 || divisor(first) != 0) return false;
    if (channel_.apart && (first.a.count > 1 || first.dst.count > 1)) return false;
    Endpoint& to = *endpoints_[plan_.to(first)[0]];
    return lends_from(first) == nullptr && !to.stages() && !to.learns_from_next();
  }

 protected:
  // Whether another tile follows this step.
  bool ends_tile(const Fold& fold) const noexcept {
    return channel_.step + 1 == plan_.steps.size() && channel_.tile + 1 < channel_.tiles && fold.n_to == 0;
  }

  // Where a tile's last step copies a message, and the next tile's first one sends to one rank that has room: both at once, by
  // turns, block by block; then the channel is at that first step. again: nothing was done, the steps go one after the other.
  //
  // Ranks in step would all read memory, and then all write it, and memory does either alone more slowly than both together:
  // on Zen 4 two cores read 37 GB/s, or write 28, and copy 50. Exchanges past the caches gain a fifth. In the caches it is one
  // place instead of two that is read and written, and exchanges of 2 MiB and more gain up to as much.
  [[gnu::noinline]] Status receive_and_send_next(const Received& received) noexcept {
    const Operation::Channel here = channel_;
    begin_tile(channel_.tile + 1);
    const Status both = send_by_turns(received);
    if (both != Status::done) go_back(here);
    return both;
  }

  // Likewise with the next message of the operation beside, whose first and only step is then over.
  [[gnu::noinline]] Status receive_and_send_beside(const Received& received) noexcept {
    Operation::Channel& channel = work_.sends_beside->channel_[0];
    Turns<false> other(work_.sends_beside->work_, channel);
    const Status both = other.send_by_turns(received);
    if (both != Status::done) return both;
    ++channel.step;
    other.begin_step();
    return Status::done;
  }

  // A message that is the only one of its operation, while the only one of the operation beside comes: of that, the parts that are here
  // between its own.
  //
  // (By hand, Zen 4, near, 64 and 128 KiB each way, cold: 8.6 and 17.3 µs one after the other, 7.4 and 13.9 by turns of 16 KiB.)
  [[gnu::noinline]] Status send_and_receive_beside(Endpoint& receiver, const Fold& fold, const std::byte* data, size_t bytes) noexcept {
    Operation::Channel& channel = work_.receives_beside->channel_[0];
    const std::optional<Meanwhile> other = Turns<false>(work_.receives_beside->work_, channel).meanwhile();
    if (other && channel_.tiles == 1) receiver.may_receive_meanwhile(&*other);
    const Status status = receiver.send(data, bytes, signature(fold), channel_.bytes_done);
    receiver.may_receive_meanwhile(nullptr);
    return status;
  }

  // Whether the operation beside has a message to make by a slot.
  bool sends_beside(size_t bytes) const noexcept {
    const Operation& other = *work_.sends_beside;
    Operation::Channel& channel = work_.sends_beside->channel_[0];
    if (bytes < put_copy_bytes_min || copies_to_caches() || !other.alone_ || channel.step > 0 || channel.bytes_done > 0) return false;
    return Turns<false>(other.work_, channel).may_begin_early();
  }

  void go_back(const Operation::Channel& before) noexcept {
    const size_t tiles_made = channel_.tiles_made;
    channel_ = before;
    if constexpr (multiplied) channel_.tiles_made = tiles_made;
  }

  // Whether the plan's first step sends to one rank what nothing is awaited for.
  bool begins_by_sending() const noexcept {
    const Fold& first = plan_.steps[0];
    return first.n_from == 0 && first.n_to == 1 && first.a.buffer != Buffer::scratch && work_.vectors == 1;
  }

  // The tile's part of it, or of each of its blocks. Once, as it may be made where the caller's lies.
  void make_input() noexcept {
    if (channel_.tile < channel_.tiles_made) return;
    channel_.tiles_made = channel_.tile + 1;
    const MultipliedInput& given = *work_.multiplied;
    const bool blocks = plan_.shape.blocks;
    const size_t part = blocks ? channel_.chunks.size(0) : channel_.chunks.size(0, plan_.shape.output);
    for (uint32_t k = 0; k < (blocks ? plan_.shape.input : 1); ++k) {
      const size_t at = (channel_.tile_first + k * work_.block_stride) * work_.element_bytes;
      std::byte* const made = channel_.made_tile == nullptr ? work_.output + at : channel_.made_tile + k * part * work_.element_bytes;
      scale(given.type, given.scalar.data(), given.from + at, made, part);
    }
  }
};

}  // namespace tutti
