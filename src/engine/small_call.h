// Small calls: each step of one tile made ready once, with its memory, lengths and signature found, so that a call which is made
// again has nothing to seek. The steps are the plan's, one for one, and stop and go on in the same places of the channel, so whoever
// asks what an operation waits for, or moves one of its steps as run.h does, need not know.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "engine/places.h"
#include "reduce/copy.h"

namespace tutti {

// Larger messages may be lent, go past the caches, or be read and written block by block. Those of an exchange may be as large as a tile.
inline constexpr size_t small_message_bytes_max = 32 * 1024;
static_assert(small_message_bytes_max <= std::min({lent_bytes_min, cold_bytes_min, awaited_bytes_min}));

// Makes the steps ready, while the first tile is begun.
template <bool v_form>
class Engine::SmallSteps : public Engine::Places<v_form, false> {
  using Base = Engine::Places<v_form, false>;
  using Base::channel_, Base::divisor, Base::plan_, Base::read_at, Base::signature, Base::step_elements, Base::work_, Base::write_at;
  using Step = Operation::SmallStep;

 public:
  using Base::Base;

  // False: some step is of another kind, or too large, or they are too many.
  bool make_ready(std::span<Step> room) const noexcept {
    const std::span<const Fold> folds = plan_.steps;
    if (channel_.tiles > 1 || folds.size() > room.size()) return false;
    for (size_t i = 0; i < folds.size(); ++i) {
      const std::optional<Step> step = ready(folds[i]);
      if (!step) return false;
      room[i] = *step;
    }
    return true;
  }

 private:
  // Everybody sends its whole input and adds what comes, in one pass: what small all_reduces are.
  bool is_exchange() const noexcept {
    const std::span<const Fold> folds = plan_.steps;
    return folds.size() == 2 && plan_.shape.output == 1 && !plan_.shape.blocks && is_send(folds[0]) && folds[0].dst.count == 0 &&
           is_sum(folds[1]) && folds[1].a.count > 0;
  }
  bool is_apart(const Fold& fold) const noexcept { return channel_.apart && (fold.a.count > 1 || fold.dst.count > 1); }
  bool is_send(const Fold& fold) const noexcept {
    if (fold.n_from > 0 || fold.b.count > 0 || is_apart(fold)) return false;
    if (divisor(fold) != 0) return false;
    return fold.dst.count == 0 || fold.n_to == 0 || fold.copies_input();
  }
  bool lies_once(const Fold& fold, size_t bytes) const noexcept {
    if (fold.n_to < 2 || bytes < outbox_bytes_min) return false;
    const std::span<const uint32_t> to = plan_.to(fold);
    const Outbox* const outbox = Sharer::outbox_of(channel_.endpoints, to);
    return outbox != nullptr && (!is_exchange() || bytes >= outbox->exchanged_bytes_min(to.size()));
  }
  bool is_sum(const Fold& fold) const noexcept {
    return fold.n_from > 0 && fold.n_to == 0 && fold.b.count == 0 && fold.dst.count > 0 && !is_apart(fold) &&
           fold.operands() <= uint32_t(reduce_inputs_max);
  }

  std::optional<Step> ready(const Fold& fold) const noexcept {
    const bool sends = is_send(fold);
    if (!sends && !is_sum(fold)) return {};
    const size_t count = step_elements(fold), bytes = count * work_.element_bytes;
    if (bytes >= small_message_bytes_max && !is_exchange()) return {};
    Step step{};
    const bool only_receives = fold.n_from == 1 && (count == 0 || (fold.operands() == 1 && divisor(fold) == 0));  // a barrier adds nothing
    if (sends) step.kind = lies_once(fold, bytes) ? Step::Kind::sends_once : Step::Kind::sends;
    else step.kind = only_receives ? Step::Kind::receives : Step::Kind::adds;
    step.n_peers = sends ? fold.n_to : fold.n_from;
    step.peers = plan_.peers.data() + fold.peers;
    step.count = uint32_t(count);
    step.bytes = uint32_t(bytes);
    step.divisor = divisor(fold);
    step.signature = signature(fold);
    step.has_own = fold.a.count > 0;
    step.own_at = step.has_own ? fold.a_place : step.n_peers;
    step.from_buffer = fold.a.buffer;
    if (fold.a.count > 0) step.from = read_at(fold.a) - base(fold.a.buffer);
    step.to_buffer = fold.dst.buffer;
    if (fold.dst.count > 0) step.to = write_at(fold.dst) - base(fold.dst.buffer);
    step.copies = sends && fold.dst.count > 0 && bytes > 0 && read_at(fold.a) != write_at(fold.dst);
    return step;
  }

  const std::byte* base(Buffer buffer) const noexcept {
    return buffer == Buffer::input ? work_.input : buffer == Buffer::output ? work_.output : channel_.scratch;
  }
};

// Moves them. Functions of an operation, which they have in a register.
class Engine::SmallCall {
  using Step = Operation::SmallStep;

 public:
  [[gnu::always_inline]] static void rewind(Operation& operation) noexcept {
    const Work& work = operation.work_;
    Operation::Channel& channel = operation.channel_[0];
    // Nothing is ever written to the input.
    operation.buffers_ = {const_cast<std::byte*>(work.input), work.output, channel.scratch};
    channel.step = 0;
    begin_step(channel);
  }

  // Moves the steps before that one. done: there are no others. May be called again where it stopped.
  [[gnu::noinline]] static Status move_to(Operation& operation, uint32_t end) noexcept {
    Operation::Channel& channel = operation.channel_[0];
    for (; channel.step < end; ++channel.step, begin_step(channel)) {
      const Step& step = operation.small_steps_[channel.step];
      const Status status = step.kind == Step::Kind::sends      ? send(operation, step)
                            : step.kind == Step::Kind::receives ? receive(operation, step)
                            : step.kind == Step::Kind::adds     ? add(operation, step)
                                                                : send_once(operation, step);
      if (status != Status::done) return status;
    }
    return channel.step == operation.n_small_steps_ ? Status::done : Status::again;
  }
  static Status move(Operation& operation) noexcept {
    const uint32_t step = operation.channel_[0].step;
    if (step + 1 == operation.n_small_steps_) {
      if (operation.ends_with_message_) return receive_last(operation, operation.small_steps_[step]);
      if (operation.ends_with_sum_of_two_) return add_last(operation, operation.small_steps_[step]);
    }
    return move_to(operation, operation.n_small_steps_);
  }

  // As Engine's.
  [[gnu::always_inline]] static Watch watch(const Operation& operation) noexcept {
    const Operation::Channel& channel = operation.channel_[0];
    if (channel.step >= operation.n_small_steps_) return {};
    const Step& step = operation.small_steps_[channel.step];
    if (step.kind == Step::Kind::sends || step.kind == Step::Kind::sends_once) return {};
    return channel.endpoints[step.peers[channel.next_in]]->watch();
  }

  // The first moves of a call: up to the first message that is awaited, if something is sent before it.
  static Status begin(Operation& operation) noexcept {
    if (operation.begins_with_one_message_) return send_first(operation, operation.small_steps_[0]);
    return operation.n_first_sends_ > 0 ? move_to(operation, operation.n_first_sends_) : move(operation);
  }

  // What is on the way from a message's arrival to the next one's leaving, where two ranks answer each other, has code of its own: the
  // last step, which stores one message or adds it to something of the rank's own; and the first one, which sends one message.
  static void find_short_ways(Operation& operation) noexcept {
    const Step &first = operation.small_steps_[0], &last = operation.small_steps_[operation.n_small_steps_ - 1];
    operation.begins_with_one_message_ = first.kind == Step::Kind::sends && first.n_peers == 1;
    operation.ends_with_message_ = last.kind == Step::Kind::receives;
    operation.ends_with_sum_of_two_ = last.kind == Step::Kind::adds && last.n_peers == 1 && last.has_own;
  }

 private:
  [[gnu::always_inline]] static void begin_step(Operation::Channel& channel) noexcept {
    channel.next_in = 0;
    channel.next_out = 0;
    channel.bytes_done = 0;
    channel.stored = false;
  }

  static std::byte* source(const Operation& operation, const Step& step) noexcept {
    return operation.buffers_[size_t(step.from_buffer)] + step.from;
  }
  static std::byte* target(const Operation& operation, const Step& step) noexcept {
    return operation.buffers_[size_t(step.to_buffer)] + step.to;
  }

  // As move_to() does it, after rewind().
  [[gnu::always_inline]] static Status send_first(Operation& operation, const Step& step) noexcept {
    Operation::Channel& channel = operation.channel_[0];
    const Status sent = channel.endpoints[step.peers[0]]->send(source(operation, step), step.bytes, step.signature, channel.bytes_done);
    if (sent != Status::done) return sent;
    channel.step = 1;
    channel.bytes_done = 0;
    if (step.copies) copy_own(target(operation, step), source(operation, step), step.bytes);
    if (operation.n_first_sends_ > 1) return move_to(operation, operation.n_first_sends_);
    return operation.n_small_steps_ == 1 ? Status::done : Status::again;
  }

  // As move_to() does them.
  [[gnu::noinline]] static Status receive_last(Operation& operation, const Step& step) noexcept {
    const Status received = receive(operation, step);
    if (received == Status::done) ++operation.channel_[0].step;
    return received;
  }
  [[gnu::noinline]] static Status add_last(Operation& operation, const Step& step) noexcept {
    Operation::Channel& channel = operation.channel_[0];
    Endpoint& from = *channel.endpoints[step.peers[0]];
    const std::byte* message = nullptr;
    if (const Status arrived = from.view(step.bytes, step.signature, message); arrived != Status::done) return arrived;
    const std::byte* const own = source(operation, step);
    const void* const inputs[] = {step.own_at == 0 ? own : message, step.own_at == 0 ? message : own};
    if (step.count > 0) operation.work_.reduce(target(operation, step), inputs, 2, step.count, step.divisor, Store::cached);
    const Status released = from.release();
    if (released == Status::done) ++channel.step;
    return released;
  }

  // Others wait for the messages; nobody here for the copy.
  [[gnu::always_inline]] static Status send(Operation& operation, const Step& step) noexcept {
    Operation::Channel& channel = operation.channel_[0];
    const std::byte* const data = source(operation, step);
    Status sent = Status::done;
    for (; channel.next_out < step.n_peers; ++channel.next_out, channel.bytes_done = 0) {
      sent = channel.endpoints[step.peers[channel.next_out]]->send(data, step.bytes, step.signature, channel.bytes_done);
      if (sent != Status::done) break;
    }
    if (step.copies && !channel.stored && sent != Status::failed) {
      copy_own(target(operation, step), data, step.bytes);
      channel.stored = true;
    }
    return sent;
  }

  // One message to all, or one to each where it need not wait for a place.
  [[gnu::noinline]] static Status send_once(Operation& operation, const Step& step) noexcept {
    Operation::Channel& channel = operation.channel_[0];
    if (!Sharer::may_reserve(channel) || channel.stored) return send(operation, step);
    Outbox& outbox = *channel.endpoints[step.peers[0]]->outbox();
    std::byte* place = nullptr;
    const Sharing sharing = Sharer::reserve(channel, outbox, step.bytes, {step.peers, step.n_peers}, place);
    if (sharing == Sharing::waiting) return Status::again;
    if (sharing == Sharing::ready) {
      outbox.write(source(operation, step), step.bytes);
      outbox.commit(step.bytes, step.signature);
      channel.next_out = step.n_peers;
    }
    return send(operation, step);
  }

  [[gnu::always_inline]] static Status receive(Operation& operation, const Step& step) noexcept {
    Operation::Channel& channel = operation.channel_[0];
    return channel.endpoints[step.peers[0]]->recv(target(operation, step), step.bytes, step.signature, channel.bytes_done);
  }

  [[gnu::always_inline]] static Status add(Operation& operation, const Step& step) noexcept {
    Operation::Channel& channel = operation.channel_[0];
    const void* inputs[reduce_inputs_max];
    for (uint32_t i = 0; i < step.n_peers; ++i) {
      const std::byte* message = nullptr;
      const Status arrived = channel.endpoints[step.peers[i]]->view(step.bytes, step.signature, message);
      channel.next_in = i;
      if (arrived != Status::done) return arrived;
      inputs[i + (i >= step.own_at)] = message;
    }
    if (step.has_own) inputs[step.own_at] = source(operation, step);
    if (step.count > 0) {
      operation.work_.reduce(target(operation, step), inputs, int(step.n_peers + step.has_own), step.count, step.divisor,
                             Store::cached);
    }
    for (uint32_t i = 0; i < step.n_peers; ++i) {
      if (channel.endpoints[step.peers[i]]->release() == Status::done) continue;
      channel.next_in = i;  // who is to blame
      return Status::failed;
    }
    return Status::done;
  }
};

}  // namespace tutti
