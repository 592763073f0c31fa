// What a channel tells its peers of messages that are to come: where memory goes on that is lent, read or offered, so that one
// copy takes what many messages would. The second layer of run.h.
#pragma once

#include "engine/places.h"
#include "reduce/cold.h"

namespace tutti {

// Smaller blocks stay in the caches in whatever order, and of larger ones little is left there. (Measured on two cores of 2 MiB each.)
inline constexpr size_t copied_in_turn_bytes_min = size_t{512} << 10, copied_in_turn_bytes_max = size_t{4} << 20;

template <bool v_form, bool multiplied>
class Engine::Ahead : public Engine::Places<v_form, multiplied> {
  using Base = Engine::Places<v_form, multiplied>;

 protected:
  using Base::bytes_behind_tile, Base::bytes_of_later_tiles, Base::channel_, Base::divisor, Base::plan_,
      Base::read_at, Base::sender, Base::signature, Base::step_elements, Base::work_, Base::write_at;

 public:
  using Base::Base;

  // Before the first tile: to each sender, where what it sends first will lie.
  void offer() noexcept {
    if (multiplied || work_.vectors > 1) return;
    if (work_.offers == Offer::reads) return offer_to_read();
    for (uint32_t step = 0; step < plan_.steps.size(); ++step) {
      const Fold& fold = plan_.steps[step];
      if (fold.early == 0 || fold.n_to > 0 || fold.dst.count != 1 || divisor(fold) != 0) continue;
      sender(fold, 0).offer(write_at(fold.dst), bytes_received_on(step), signature(fold), work_.offers);
    }
  }

  // Likewise, of memory that nobody writes to but this rank: who sends the first message is told that it is awaited.
  void offer_to_read() noexcept {
    for (const Fold& fold : plan_.steps) {
      if (fold.n_from != 1) continue;
      sender(fold, 0).offer(nullptr, step_elements(fold) * work_.element_bytes, signature(fold), Offer::reads);
      return;
    }
  }

 protected:
  const LentRegion* lends_from(const Fold& fold) const noexcept {
    if (!fold.keeps) return nullptr;
    return fold.source().buffer == Buffer::input ? work_.input_region : work_.output_region;
  }

  // Whether what it sends lies there when the call begins, of all tiles, and is not copied here tile by tile: both had better read the
  // same tile at a time. A multiplied input is not there yet. (all_gather of 4 to 16 MiB, out of place, 1.01 to 1.06 of the time by reading on.)
  bool may_lend_on(const Fold& fold) const noexcept {
    const bool is_copied = fold.dst.count > 0 && !copies_own_in_turn();
    return !multiplied && fold.n_from == 0 && !is_copied && channel_.step < plan_.first_receiving_step();
  }

  // Whether what the kernel copies to or from there goes from its end. Not where the caches have lost that since the last call:
  // memory is read faster upwards.
  bool goes_from_end(const std::byte* data, size_t bytes) noexcept {
    if (!channel_.from_end || channel_.end_is_looked_at || bytes < cold_bytes_min) return channel_.from_end;
    channel_.end_is_looked_at = true;
    channel_.from_end = !in_no_cache(data + bytes - cold_bytes_min, cold_bytes_min, true);
    return channel_.from_end;
  }

  // Whether the run's copy of the rank's own block is made of all tiles at once, by turns with the block that the next step receives;
  bool copies_own_in_turn() const noexcept { return channel_.own.to != nullptr; }
  // and whether it may be, by the step that copies it.
  bool may_copy_in_turn(const Fold& fold) const noexcept {
    if (multiplied || !work_.alternates || channel_.tiles == 1 || work_.offers != Offer::none) return false;
    if (work_.input_region == nullptr || !work_.input_region->is_private()) return false;
    if (channel_.tile > 0 || channel_.step + 1 >= plan_.steps.size()) return false;
    const Fold& next = plan_.steps[channel_.step + 1];
    if (next.n_from != 1 || next.n_to > 0 || next.a.count > 0 || next.early == 0 || fold.a.count != 1 || fold.dst.count != 1) return false;
    const std::byte* const from = read_at(fold.a);
    const size_t all = step_elements(fold) * work_.element_bytes + bytes_of_later_tiles(fold.dst);
    return from != write_at(fold.dst) && all >= copied_in_turn_bytes_min && all <= copied_in_turn_bytes_max;
  }

  // What this step's receiver is sent next from behind its message: what the tiles that follow take of memory that is sent as it is.
  size_t bytes_behind_message(const Fold& fold) const noexcept {
    if (multiplied || work_.vectors > 1) return 0;
    const size_t behind = bytes_of_later_tiles(fold.a);
    return behind > 0 && plan_.sends_in_a_row(channel_.step) ? behind : 0;
  }

  // The message of a step with what the same rank sends next to where the memory goes on: in this tile, and in later ones.
  size_t bytes_received_on(uint32_t first) const noexcept {
    const Fold& fold = plan_.steps[first];
    const std::byte* const data = write_at(fold.dst);
    const size_t bytes = step_elements(fold) * work_.element_bytes;
    size_t all = bytes + (fold.early == 1 ? bytes_of_later_tiles(fold.dst) : 0);  // each message is the next tile's
    for (size_t step = first + 1; step < plan_.steps.size(); ++step) {
      const Fold& next = plan_.steps[step];
      if (next.early == 0 || next.n_to > 0 || &sender(next, 0) != &sender(fold, 0) || write_at(next.dst) != data + all) return all;
      all += step_elements(next) * work_.element_bytes;
    }
    return all > bytes ? all + bytes_behind_tile(all) : all;
  }

  // The same of what is sent on from where it lies.
  size_t bytes_sent_on(const Fold& fold, const std::byte* data, size_t bytes) const noexcept {
    size_t all = bytes + bytes_of_later_tiles(fold.source());
    for (size_t step = channel_.step + 1; step < plan_.steps.size(); ++step) {
      const Fold& next = plan_.steps[step];
      if (next.n_from > 0 || next.dst.count > 0 || next.n_to != 1 || lends_from(next) != lends_from(fold) ||
          plan_.to(next)[0] != plan_.to(fold)[0] || read_at(next.a) != data + all)
        return all;
      all += step_elements(next) * work_.element_bytes;
    }
    return all > bytes ? all + bytes_behind_tile(all) : all;
  }

  // What is passed on is better taken message by message.
  [[gnu::noinline]] void say_what_follows(Endpoint& from, const Fold& fold, size_t bytes) noexcept {
    if (multiplied || work_.vectors > 1 || fold.n_to > 0) return;
    const size_t all = bytes_received_on(channel_.step);
    std::byte* const data = write_at(fold.dst);
    OwnCopy* const own = channel_.own.left() > 0 ? &channel_.own : nullptr;
    if (all > bytes) from.may_read_on(data, all, goes_from_end(data, all), own);
  }

  // Says where the messages of this step will lie, in this tile and the whole ones that follow, so that they may be written
  // there at once. False: they are not.
  bool expect(Endpoint& from, const Fold& fold, size_t bytes) noexcept {
    if (multiplied && channel_.made_tile != nullptr) return false;  // what the next tile is made of may lie there
    if (v_form || fold.early == 0 || work_.output_region == nullptr || work_.vectors > 1 || bytes == 0) return false;
    const size_t whole_tiles = channel_.share_count / channel_.tile_elements;
    ExpectedMessages messages{write_at(fold.dst), bytes, channel_.tile_elements * work_.element_bytes, fold.early, 1};
    if (channel_.tile < whole_tiles) messages.count = uint32_t(whole_tiles - channel_.tile);
    const size_t span = (messages.count - 1) * messages.stride + bytes;
    return work_.output_region->holds(messages.data, span) &&
           from.expect(*work_.output_region, messages, signature(fold));
  }
};

}  // namespace tutti
