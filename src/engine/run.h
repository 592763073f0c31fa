// The interpreter of a plan's steps over one channel of an operation. Of engine.cc alone, which cuts calls into channels
// and tiles.
#pragma once

#include <algorithm>

#include "engine/turns.h"

namespace tutti {

// Moves one channel of one operation. Every function may be called again where it stopped. v_form: blocks have sizes of
// their own. multiplied: the input is made of the caller's, tile by tile.
template <bool v_form, bool multiplied>
class Engine::Run : public Engine::Turns<v_form, multiplied> {
  using Base = Engine::Turns<v_form, multiplied>;

 protected:
  using Base::begins_by_sending, Base::bytes_of_later_tiles, Base::bytes_sent_on, Base::channel_, Base::copies_own_in_turn,
      Base::copies_to_caches, Base::copy_store, Base::could_stream, Base::divisor, Base::elements, Base::endpoints_, Base::ends_tile,
      Base::expect, Base::fold_all, Base::goes_from_end, Base::is_local, Base::lends_from, Base::local, Base::may_begin_early,
      Base::may_copy_in_turn, Base::may_lend_on, Base::may_stream, Base::operand_bytes, Base::past_caches,
      Base::plan_, Base::read_at, Base::receive_and_send_beside, Base::receive_and_send_next, Base::release_all, Base::say_what_follows,
      Base::send_and_receive_beside, Base::sender, Base::sends_beside, Base::signature, Base::step_elements, Base::store, Base::streams,
      Base::streams_copies, Base::vector_stride_bytes, Base::view_all, Base::work_, Base::write_at;

 public:
  using Base::Base, Base::begin_step, Base::begin_tile;

  Status move() noexcept {
    return move_with([this](const Fold& fold) { return move_step(fold); });
  }

  // How a step is moved is the caller's.
  template <class Step>
  Status move_with(Step move_one) noexcept {
    const std::span<const Fold> steps = plan_.steps;
    for (;;) {
      while (channel_.step < steps.size()) {
        const Status status = move_one(steps[channel_.step]);
        if (status != Status::done) return status;
        ++channel_.step;
        begin_step();
      }
      if (channel_.tile + 1 == channel_.tiles) return channel_.flushes ? flush() : Status::done;
      begin_tile(channel_.tile + 1);
      if (work_.takes_turns) [[unlikely]] return Status::again;
    }
  }

  // The steps before that one.
  Status move_to(uint32_t step) noexcept {
    for (; channel_.step < step; ++channel_.step, begin_step()) {
      const Status status = move_step(plan_.steps[channel_.step]);
      if (status != Status::done) return status;
    }
    return Status::done;
  }

  // Memory that the current step will write to, if it is in one piece.
  std::span<const std::byte> next_written() const noexcept {
    const Fold& fold = plan_.steps[channel_.step];
    if (fold.dst.count == 0 || channel_.apart) return {};
    return {write_at(fold.dst), step_elements(fold) * work_.element_bytes};
  }

 protected:
  Status move_step(const Fold& fold) noexcept {
    const size_t count = step_elements(fold), bytes = count * work_.element_bytes;
    // Nothing is left of these blocks for this tile and all that follow, and both sides know. Messages that neither
    // side waits for make nobody wait, so the proof still holds.
    if (v_form && count == 0 && channel_.tile > 0) return Status::done;
    if (channel_.apart && (fold.a.count > 1 || fold.dst.count > 1)) return move_apart(fold, count);
    // What is only sent is sent from where it lies, unless a division or a sum comes before.
    const bool as_it_lies = fold.dst.count > 0 || divisor(fold) == 0;
    if (fold.n_from == 0 && fold.b.count == 0 && as_it_lies) return move_local(fold, count);
    if (fold.n_from == 1 && fold.a.count == 0 && divisor(fold) == 0) {
      if (fold.n_to == 0) return receive(fold, bytes);
      return bytes < lent_bytes_min ? forward(fold, bytes) : receive_and_send(fold, bytes);
    }
    const bool to_memory = fold.dst.count > 0 && !passes_on_past_caches(fold);
    return to_memory || count == 0 ? reduce_to_memory(fold, count) : reduce_to_slots(fold, count);
  }

  // A result that is sent on as well: others find it in their slots, so memory is all that its place here need reach. (Were
  // it lent from there, its lines would first be fetched to be written to.)
  bool passes_on_past_caches(const Fold& fold) const noexcept {
    return channel_.streams && fold.n_to > 0 && may_stream(fold);
  }

  // No message comes in: a local copy, sends, or both.
  Status move_local(const Fold& fold, size_t count) noexcept {
    const std::byte* source = read_at(fold.a);
    if (fold.dst.count > 0 && fold.copies_input() && work_.vectors == 1) {
      const size_t bytes = count * work_.element_bytes;
      if (copies_by_blocks(fold, bytes)) {
        const void* input[] = {source};
        put_into_slot(fold, input, write_at(fold.dst), count, copy_store(write_at(fold.dst), bytes));
        commit_all(fold, bytes);
        return Status::done;
      }
      if (work_.offers != Offer::none && fold.n_to == 0 && fold.a.count == 1) {
        // Of all tiles at once: before others are awaited, who write in the meantime.
        if (channel_.tile > 0 || source == write_at(fold.dst)) return Status::done;
        OwnCopy own = own_copy(fold, bytes);
        while (own.left() > 0) own.copy_next(own.from_end ? block_piece_bytes : own.bytes);
        return Status::done;
      }
      if (!copies_own_in_turn() && may_copy_in_turn(fold)) channel_.own = own_copy(fold, bytes);
      // Others wait for the messages; nobody here for the copy.
      const Status sent = send_to_all(fold, source, bytes);
      if (sent == Status::failed || copies_own_in_turn()) return sent;
      std::byte* const target = write_at(fold.dst);
      if (!channel_.stored && count > 0 && source != target) {
        const Store how = copy_store(target, bytes);
        if (how == Store::cached) copy_own(target, source, bytes);
        else copy_bytes(target, source, bytes, how);
      }
      channel_.stored = true;
      return sent;
    }
    if (fold.dst.count > 0) {
      std::byte* target = write_at(fold.dst);
      const void* inputs[] = {source};
      if (!channel_.stored && count > 0) fold_all(fold, inputs, target, count, store(fold, target, count));
      channel_.stored = true;
      source = target;
    } else if (work_.vectors > 1 && fold.a.buffer == Buffer::input && count > 0) [[unlikely]] {
      return send_vectors(fold, count);
    }
    return send_to_all(fold, source, count * work_.element_bytes);
  }

  // Of all tiles, of which this one's has so many bytes.
  OwnCopy own_copy(const Fold& fold, size_t bytes) noexcept {
    std::byte* const target = write_at(fold.dst);
    const size_t all = bytes + bytes_of_later_tiles(fold.dst);
    return {target, read_at(fold.a), all, 0, copy_store(target, bytes), goes_from_end(target, all)};
  }

  // Whether an input that is sent to one rank and copied goes to its slot and to its place here block by block, so that each
  // is read from a near cache the second time: where this rank waits for others next, and so must have made the copy anyway;
  // and past the caches, where reading and writing memory by turns takes longer (root of a broadcast: 0.75 to 0.86 of the time).
  // Not where copies are best at a stretch.
  bool copies_by_blocks(const Fold& fold, size_t bytes) noexcept {
    if (fold.n_to != 1 || bytes < put_copy_bytes_min || channel_.stored || channel_.bytes_done > 0) return false;
    const size_t next = channel_.step + 1;
    const bool awaits_next = next < plan_.steps.size() && plan_.steps[next].n_from > 0;
    if (channel_.at_a_stretch ? !channel_.streams : !awaits_next && !streams_copies() && !streams(write_at(fold.dst), bytes)) return false;
    if (lends_from(fold) != nullptr || work_.device != nullptr) return false;
    Endpoint& receiver = *endpoints_[plan_.to(fold)[0]];
    return !receiver.stages() && !receiver.learns_from_next() && receiver.reserve(bytes) != nullptr;
  }

  // A rank's vectors are one message, put together in the first receiver's slot.
  Status send_vectors(const Fold& fold, size_t count) noexcept {
    const size_t part = count * work_.element_bytes, bytes = part * work_.vectors;
    const Status reserved = reserve_all(fold, bytes);
    if (reserved != Status::done) return reserved;
    std::byte* const slot = first_slot(fold, bytes);
    for (size_t k = 0; k < work_.vectors; ++k) {
      copy_bytes(slot + k * part, read_at(fold.a) + k * vector_stride_bytes(), part, Store::cached);
    }
    commit_all(fold, bytes);
    return Status::done;
  }

  Status receive(const Fold& fold, size_t bytes) noexcept {
    if (channel_.own.left() > 0) [[unlikely]] return receive_in_turn(fold, bytes);
    return receive_message(fold, bytes);
  }

  // The own copy goes on until a message comes; then both do, by turns, if that can be read as a block; else it is made at last.
  [[gnu::noinline]] Status receive_in_turn(const Fold& fold, size_t bytes) noexcept {
    OwnCopy& own = channel_.own;
    Endpoint& from = sender(fold, 0);
    while (own.left() > 0 && !from.watch().arrived()) own.copy_next(block_piece_bytes);
    const Status received = receive_message(fold, bytes);
    from.may_read_on(nullptr, 0);  // the copy is the operation's, which may be gone when another message comes
    while (received != Status::failed && own.left() > 0) own.copy_next(block_piece_bytes);
    return received;
  }

  Status receive_message(const Fold& fold, size_t bytes) noexcept {
    Endpoint& from = sender(fold, 0);
    const bool is_cold = could_stream() && fold.n_to == 0 && streams(write_at(fold.dst), bytes);
    const Store how = is_cold && !copies_to_caches() ? Store::streaming : Store::cached;
    const bool beside = work_.sends_beside != nullptr && sends_beside(bytes);
    const bool by_turns = beside || (ends_tile(fold) && begins_by_sending() && bytes >= put_copy_bytes_min);
    const bool is_viewed = by_turns || (is_cold && how == Store::cached);
    if (expect(from, fold, bytes) || !is_viewed || from.stages() || from.copies_to_view()) {
      if (bytes >= lent_bytes_min && fold.early > 0) say_what_follows(from, fold, bytes);
      return how == Store::cached ? from.recv(write_at(fold.dst), bytes, signature(fold), channel_.bytes_done)
                                  : from.recv_past_caches(write_at(fold.dst), bytes, signature(fold), channel_.bytes_done);
    }
    // Where it will be copied to be viewed, that is seen only once it has come.
    if (const Watch watch = from.watch(); watch.word != nullptr && !watch.arrived() && from.fault().kind == FaultKind::none)
      return Status::again;
    const std::byte* message = nullptr;
    const Status arrived = from.view(bytes, signature(fold), message);
    if (arrived != Status::done) return arrived;
    if (beside || (ends_tile(fold) && may_begin_early())) {
      const Received received{from, message, write_at(fold.dst), bytes, how};
      const Status both = beside ? receive_and_send_beside(received) : receive_and_send_next(received);
      if (both != Status::again) return both;
    }
    if (message != write_at(fold.dst)) copy_bytes(write_at(fold.dst), message, bytes, how);
    return from.release();
  }

  // Sends on first, for the sake of those who wait; keeps a copy while it has to wait, or at last. Only what is too small
  // to be lent: what was lent is not known to be right before it is released.
  Status forward(const Fold& fold, size_t bytes) noexcept {
    const std::byte* message = nullptr;
    const Status arrived = sender(fold, 0).view(bytes, signature(fold), message);
    if (arrived != Status::done) return arrived;
    channel_.next_in = 1;
    const Status sent = send_to_all(fold, message, bytes);
    if (sent == Status::failed) return sent;
    if (fold.dst.count > 0 && !channel_.stored) {
      copy_bytes(write_at(fold.dst), message, bytes, Store::cached);
      channel_.stored = true;
    }
    return sent == Status::done ? release_all(fold) : sent;
  }

  Status receive_and_send(const Fold& fold, size_t bytes) noexcept {
    if (!channel_.stored) {
      const Status received = receive(fold, bytes);
      if (received != Status::done) return received;
      channel_.stored = true;
      channel_.next_in = 1;
      channel_.bytes_done = 0;
    }
    return send_to_all(fold, write_at(fold.dst), bytes);
  }

  // The result is stored, so it is reduced in place and sent from there: nothing is held while a receiver is awaited.
  Status reduce_to_memory(const Fold& fold, size_t count) noexcept {
    std::byte* const result = fold.dst.count > 0 ? write_at(fold.dst) : nullptr;
    if (!channel_.stored) {
      const void* inputs[reduce_inputs_max];
      const Status arrived = view_all(fold, count, inputs);
      if (arrived != Status::done) return arrived;
      if (puts_into_slot(fold, count)) {
        const size_t bytes = count * work_.element_bytes;
        put_into_slot(fold, inputs, result, count, may_stream(fold) ? past_caches(result, bytes) : Store::cached);
        if (release_all(fold) != Status::done) return Status::failed;
        commit_all(fold, count * work_.element_bytes);
        return Status::done;
      }
      if (count > 0) fold_all(fold, inputs, result, count, store(fold, result, count));
      channel_.stored = true;
      if (release_all(fold) != Status::done) return Status::failed;
    }
    return send_to_all(fold, result, count * work_.element_bytes);
  }

  // Whether a result that is stored and sent goes to its slot block by block, as it is made, instead of being read again as
  // a whole: where the message would be copied once anyway, is large enough, and has room now.
  bool puts_into_slot(const Fold& fold, size_t count) noexcept {
    const size_t bytes = count * work_.element_bytes;
    if (fold.n_to == 0 || fold.operands() > uint32_t(reduce_inputs_max) || work_.operands != nullptr) return false;
    if (bytes <= put_block_bytes || lends_from(fold) != nullptr) return false;
    if (fold.n_to > 1) return reserve_shared(fold, bytes) == Sharing::ready;
    Endpoint& receiver = *endpoints_[plan_.to(fold)[0]];
    if (receiver.stages()) return false;
    const bool answers = fold.n_from == 1 && &sender(fold, 0) == &receiver;
    return (answers && receiver.reserve_viewed(bytes) != nullptr) || receiver.reserve(bytes) != nullptr;
  }

  // The slot's lines were last in the receiver's caches. How they are best overwritten differs between processors and
  // distances (reduce/copy.h, Endpoint::slot_store), and a copy does what is best: on Zen 5, between cores that are far
  // from each other, it is twice as fast as stores from a reduction's registers. So the result passes through its place
  // here; what is but copied to a place past the caches does not. here: the store to that place.
  [[gnu::noinline]] void put_into_slot(const Fold& fold, const void** inputs, std::byte* result, size_t count,
                                       Store here) noexcept {
    alignas(64) std::byte stage[put_block_bytes];
    std::byte* slot = first_slot(fold, count * work_.element_bytes);
    const Store how = first_slot_store(fold, count * work_.element_bytes);
    const size_t block = put_block_bytes / work_.element_bytes;
    const bool copies = fold.operands() == 1 && divisor(fold) == 0, copied = here == Store::streaming && copies;
    const bool made_in_slot = here == Store::streaming && how == Store::cached && !copied;
    for (size_t left = count; left > 0;) {
      const size_t part = std::min(block, left), bytes = part * work_.element_bytes;
      std::byte* const made = here == Store::cached ? result : made_in_slot ? slot : stage;
      if (copies && !copied) copy_own(made, inputs[0], bytes);
      else if (!copied) fold_all(fold, inputs, made, part, Store::cached);
      const void* const from = copied ? inputs[0] : made;
      // In this order: what comes from memory does so faster beside stores past the caches than beside stores to near lines.
      if (here == Store::streaming) stream_bytes_on(result, from, bytes);
      if (!made_in_slot) copy_bytes(slot, from, bytes, how);
      for (uint32_t k = 0; k < fold.operands(); ++k) inputs[k] = static_cast<const std::byte*>(inputs[k]) + bytes;
      result += bytes;
      slot += bytes;
      left -= part;
    }
    if (here == Store::streaming) stream_end();
  }

  // The result is passed on: it is reduced straight into the first receiver's slot and copied to the others', and past the
  // caches to its place here, if it has one. To one receiver and a place here it goes block by block, which between cores
  // that are far from each other takes half the time.
  Status reduce_to_slots(const Fold& fold, size_t count) noexcept {
    const void* inputs[reduce_inputs_max];
    const Status arrived = view_all(fold, count, inputs);
    if (arrived != Status::done) return arrived;
    const size_t bytes = count * work_.element_bytes;
    if (fold.dst.count > 0 && fold.n_to == 1 && puts_into_slot(fold, count)) {
      put_into_slot(fold, inputs, write_at(fold.dst), count, Store::streaming);
      if (release_all(fold) != Status::done) return Status::failed;
      commit_all(fold, bytes);
      return Status::done;
    }
    const Status reserved = reserve_all(fold, bytes);
    if (reserved != Status::done) return reserved;
    const bool read_again = (fold.n_to > 1 && shared_ == nullptr) || fold.dst.count > 0;
    const Store how = read_again || fold.n_to == 0 ? Store::cached : first_slot_store(fold, bytes);
    if (fold.n_to > 0) fold_all(fold, inputs, first_slot(fold, bytes), count, how);
    if (fold.dst.count > 0) copy_bytes(write_at(fold.dst), first_slot(fold, bytes), bytes, Store::streaming);
    if (release_all(fold) != Status::done) return Status::failed;
    commit_all(fold, bytes);
    return Status::done;
  }

  // Several blocks that lie apart: a message is taken apart from its slot, and put together in the receiver's. Lowering
  // leaves such a step at most one message and one local operand.
  Status move_apart(const Fold& fold, size_t count) noexcept {
    const void* inputs[reduce_inputs_max];
    const size_t bytes = count * work_.element_bytes;
    const Status arrived = view_all(fold, count, inputs);
    if (arrived != Status::done) return arrived;
    const Status reserved = reserve_all(fold, bytes);
    if (reserved != Status::done) return reserved;
    std::byte* const slot = fold.n_to > 0 ? first_slot(fold, bytes) : nullptr;
    size_t offset = 0, block_bytes = 0;  // of the block's part in the message
    for (uint32_t i = 0; i < named_slice(fold).count; ++i, offset += block_bytes) {
      const size_t block = elements({named_slice(fold).first + i, 1, named_slice(fold).buffer});
      block_bytes = block * work_.element_bytes;
      if (block == 0) continue;
      const void* operands_of_block[reduce_inputs_max];
      for (uint32_t k = 0; k < fold.operands(); ++k) {
        const Slice& slice = local(fold, k);
        operands_of_block[k] = is_local(fold, k) ? read_at({slice.first + i, 1, slice.buffer})
                                                 : static_cast<const std::byte*>(inputs[k]) + offset;
      }
      std::byte* const result = fold.dst.count > 0 ? write_at({fold.dst.first + i, 1, fold.dst.buffer}) : slot + offset;
      fold_all(fold, operands_of_block, result, block, store(fold, result, block));
      if (slot != nullptr && fold.dst.count > 0) copy_bytes(slot + offset, result, block_bytes, Store::cached);
    }
    if (release_all(fold) != Status::done) return Status::failed;
    commit_all(fold, bytes);
    return Status::done;
  }

  // Devices make messages while other steps go on, and each for itself.
  Sharing reserve_shared(const Fold& fold, size_t bytes) noexcept {
    if (!Sharer::may_reserve(channel_) || fold.n_to < 2 || bytes < outbox_bytes_min || work_.device != nullptr) return Sharing::none;
    const std::span<const uint32_t> to = plan_.to(fold);
    outbox_ = Sharer::outbox_of(endpoints_, to);
    return outbox_ == nullptr ? Sharing::none : Sharer::reserve(channel_, *outbox_, bytes, to, shared_);
  }

  // done: every receiver of the step has room for its message, or the one for all of them has.
  Status reserve_all(const Fold& fold, size_t bytes) noexcept {
    const Sharing sharing = reserve_shared(fold, bytes);
    if (sharing != Sharing::none) return sharing == Sharing::ready ? Status::done : Status::again;
    const std::span<const uint32_t> to = plan_.to(fold);
    for (; channel_.next_out < to.size(); ++channel_.next_out) {
      Endpoint& receiver = *endpoints_[to[channel_.next_out]];
      if (receiver.reserve(bytes) == nullptr) {
        return receiver.fault().kind == FaultKind::none ? Status::again : Status::failed;
      }
    }
    return Status::done;
  }

  std::byte* first_slot(const Fold& fold, size_t bytes) noexcept {
    return shared_ != nullptr ? shared_ : endpoints_[plan_.to(fold)[0]]->reserve(bytes);
  }

  Store first_slot_store(const Fold& fold, size_t bytes) const noexcept {
    return shared_ != nullptr ? outbox_->store(bytes) : endpoints_[plan_.to(fold)[0]]->slot_store(bytes);
  }

  // The message lies in the first receiver's slot, or in that of all: copies it to the others', and sends it off.
  void commit_all(const Fold& fold, size_t bytes) noexcept {
    if (shared_ != nullptr) {
      outbox_->commit(bytes, signature(fold));
      shared_ = nullptr;
      return;
    }
    const std::span<const uint32_t> to = plan_.to(fold);
    for (size_t i = 1; i < to.size(); ++i) {
      Endpoint& receiver = *endpoints_[to[i]];
      copy_bytes(receiver.reserve(bytes), endpoints_[to[0]]->reserve(bytes), bytes, receiver.slot_store(bytes));
    }
    for (const uint32_t peer : to) endpoints_[peer]->commit(bytes, signature(fold));
  }

  // Where the region that data lies in is known, and it is not written again, it is lent.
  Status send_to_all(const Fold& fold, const std::byte* data, size_t bytes) noexcept {
    const std::span<const uint32_t> to = plan_.to(fold);
    const LentRegion* const region = lends_from(fold);
    const bool lends = region != nullptr && data == read_at(fold.source()) && region->holds(data, bytes);
    const Sharing sharing = lends ? Sharing::none : reserve_shared(fold, bytes);
    if (sharing == Sharing::waiting) return Status::again;
    if (sharing == Sharing::ready) {
      outbox_->write(data, bytes);
      commit_all(fold, bytes);
      return Status::done;
    }
    const bool lends_on = lends && region->is_private() && may_lend_on(fold);
    const size_t all = !lends_on ? bytes : to.size() == 1 ? bytes_sent_on(fold, data, bytes) : bytes + bytes_of_later_tiles(fold.source());
    const bool at_leisure = lends && work_.puts == Puts::at_leisure;
    Puts puts = at_leisure || (lends_on && to.size() == 1) ? work_.puts : Puts::nowhere;
    if (puts != Puts::nowhere && !at_leisure && (channel_.tile > 0 || channel_.step > 0))
      puts = puts == Puts::else_lends ? Puts::nowhere : Puts::goes_on;
    const size_t behind = data == read_at(fold.source()) ? Base::bytes_behind_message(fold) : 0;
    for (; channel_.next_out < to.size(); ++channel_.next_out, channel_.bytes_done = 0) {
      Endpoint& receiver = *endpoints_[to[channel_.next_out]];
      if (behind > 0) receiver.may_send_on(behind);
      const bool from_end = puts != Puts::nowhere && goes_from_end(data, all);
      if (all > bytes || puts != Puts::nowhere) receiver.may_lend_on(data, all, puts, from_end);
      if (bytes >= awaited_bytes_min && work_.only_sends) receiver.may_be_awaited();
      const Status status = lends ? receiver.lend(*region, data, bytes, signature(fold), channel_.bytes_done)
                            : work_.receives_beside != nullptr ? send_and_receive_beside(receiver, fold, data, bytes)
                                  : receiver.send(data, bytes, signature(fold), channel_.bytes_done);
      if (status != Status::done) return status;
    }
    return Status::done;
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

  Outbox* outbox_ = nullptr;      // in which
  std::byte* shared_ = nullptr;   // one message for all receivers of the step is being made
};

}  // namespace tutti
