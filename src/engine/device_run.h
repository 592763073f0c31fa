// The interpreter of a plan's steps where the buffers lie on a device: the same messages as run.h's, produced and taken
// by a stream of the device. Of engine.cc alone.
//
// A step waits on the host for its messages and for room to send, puts its work on the channel's stream, and returns;
// once the stream has passed it, slots are given back and messages sent off. So what a step needs of steps before it is
// there by the order of the stream, and a channel waits while others move.
#pragma once

#include <atomic>

#include "engine/device_work.h"
#include "engine/run.h"

namespace tutti {

template <bool v_form>
class Engine::DeviceRun : public Engine::Run<v_form> {
  using Base = Engine::Run<v_form>;
  using Base::channel_, Base::plan_, Base::work_;

 public:
  DeviceRun(const Work& work, Operation::Channel& channel) noexcept
      : Base(work, channel), task_(*work.device), lane_(task_.lanes[channel.lane]) {}

  Status move() noexcept {
    if (channel_.stage != Stage::draining) {
      const Status moved = Base::move_with([this](const Fold& fold) { return move_step(fold); });
      if (moved != Status::done) return moved;
      if (!mark()) return Status::failed;
      channel_.stage = Stage::draining;
    }
    return passed();
  }

 private:
  using Stage = Operation::Stage;

  Status move_step(const Fold& fold) noexcept {
    const size_t count = Base::step_elements(fold);
    if (v_form && count == 0 && channel_.tile > 0) return Status::done;
    if (channel_.stage == Stage::gathering && lends(fold, count)) {
      if (!mark()) return Status::failed;
      channel_.stage = Stage::readying;
    }
    if (channel_.stage == Stage::readying) {
      if (const Status status = passed(); status != Status::done) return status;
      channel_.stage = Stage::lending;
    }
    if (channel_.stage == Stage::lending) return lend(fold, count);
    if (channel_.stage == Stage::gathering) {
      const Status gathered = gather(fold, count);
      if (gathered != Status::done) return gathered;
      const bool by_host = joins(fold) && !task_.folds;
      if (!(by_host ? fetch(fold, count) : launch(fold, count)) || !mark()) return Status::failed;
      // What touches no message is in order by the stream alone.
      if (fold.n_from == 0 && fold.n_to == 0 && !by_host) return Status::done;
      channel_.stage = by_host ? Stage::fetching : Stage::running;
    }
    const Status status = passed();
    if (status != Status::done) return status;
    if (channel_.stage == Stage::fetching) {
      if (!join_on_host(fold, count) || !mark()) return Status::failed;
      channel_.stage = Stage::running;
      if (const Status stored = passed(); stored != Status::done) return stored;
    }
    if (Base::release_all(fold) != Status::done) return Status::failed;
    Base::commit_all(fold, message_bytes(fold, count));
    return Status::done;
  }

  // What is only sent, and stays as it is to the end of the call, is sent from where it lies where all receivers'
  // transports reach it.
  bool lends(const Fold& fold, size_t count) const noexcept {
    const DeviceRegion* const region = region_of(fold);
    const bool is_one_piece = !channel_.apart || fold.a.count <= 1;
    if (region == nullptr || !is_one_piece || !fold.keeps || fold.n_from > 0 || fold.n_to == 0 || fold.dst.count > 0 ||
        fold.b.count > 0 || work_.vectors > 1 || Base::divisor(fold) > 0 || count == 0)
      return false;
    const size_t bytes = count * work_.element_bytes;
    const std::span<const uint32_t> to = plan_.to(fold);
    return region->memory.holds(Base::read_at(fold.a), bytes) && std::all_of(to.begin(), to.end(), [&](uint32_t peer) {
      return channel_.endpoints[peer]->reaches(*region, bytes);
    });
  }

  const DeviceRegion* region_of(const Fold& fold) const noexcept {
    if (fold.a.count == 0 || fold.a.buffer == Buffer::scratch) return nullptr;
    return (fold.a.buffer == Buffer::input ? task_.input_region : task_.output_region).get();
  }

  // The stream has passed what the steps before put on it.
  Status lend(const Fold& fold, size_t count) noexcept {
    const std::span<const uint32_t> to = plan_.to(fold);
    for (; channel_.next_out < to.size(); ++channel_.next_out) {
      const Status lent = channel_.endpoints[to[channel_.next_out]]->lend_from_device(
          *region_of(fold), Base::read_at(fold.a), count * work_.element_bytes, Base::signature(fold));
      if (lent != Status::done) return lent;
    }
    return Status::done;
  }

  // done: all messages have come, and there is room for those that go out.
  Status gather(const Fold& fold, size_t count) noexcept {
    const void* inputs[reduce_inputs_max];
    const Status arrived = Base::view_all(fold, count, inputs);
    if (arrived != Status::done) return arrived;
    return Base::reserve_all(fold, message_bytes(fold, count));
  }

  // Of what a step sends: of inputs that are to be added exactly, all vectors.
  size_t message_bytes(const Fold& fold, size_t count) const noexcept {
    return count * work_.element_bytes * (sends_vectors(fold) ? work_.vectors : 1);
  }
  bool sends_vectors(const Fold& fold) const noexcept {
    return work_.vectors > 1 && fold.n_from == 0 && fold.dst.count == 0 && fold.a.buffer == Buffer::input &&
           fold.b.count == 0 && Base::divisor(fold) == 0;
  }
  bool joins(const Fold& fold) const noexcept { return fold.operands() > 1 || Base::divisor(fold) > 0; }

  // Calls part(bytes before it in a message, elements, which of the slices' chunks) for each stretch of the step that
  // lies in one piece in memory. False as soon as a part says so.
  template <class Part>
  bool for_each_part(const Fold& fold, size_t count, Part part) noexcept {
    if (!channel_.apart || (fold.a.count <= 1 && fold.dst.count <= 1)) return count == 0 || part(size_t{0}, count, -1);
    size_t offset = 0;
    for (uint32_t i = 0; i < named_slice(fold).count; ++i) {
      const size_t block = Base::elements({named_slice(fold).first + i, 1, named_slice(fold).buffer});
      if (block > 0 && !part(offset, block, int(i))) return false;
      offset += block * work_.element_bytes;
    }
    return true;
  }
  // A slice's part, as for_each_part numbers them.
  static Slice part_of_slice(const Slice& slice, int i) {
    return i < 0 ? slice : Slice{slice.first + uint32_t(i), 1, slice.buffer};
  }

  // Puts the step on the stream.
  bool launch(const Fold& fold, size_t count) noexcept {
    std::byte* const slot = fold.n_to > 0 ? Base::first_slot(fold, message_bytes(fold, count)) : nullptr;
    if (sends_vectors(fold)) return copy_vectors(fold, count, slot);
    return for_each_part(fold, count, [&](size_t offset, size_t n, int i) {
      std::byte* const target = fold.dst.count > 0 ? Base::write_at(part_of_slice(fold.dst, i)) : nullptr;
      return joins(fold) ? launch_fold(fold, count, offset, n, i, target, slot)
                         : launch_copy(fold, count, offset, n, i, target, slot);
    });
  }

  // The one operand goes where the result does. A message is passed on by the host, who has it.
  bool launch_copy(const Fold& fold, size_t count, size_t offset, size_t n, int i, std::byte* target,
                   std::byte* slot) noexcept {
    const size_t bytes = n * work_.element_bytes;
    const bool local = fold.a.count > 0;
    const std::byte* const source = local ? Base::read_at(part_of_slice(fold.a, i)) : Base::operand(fold, 0, count) + offset;
    if (target != nullptr && target != source && !copy(target, source, bytes)) return false;
    if (slot == nullptr) return true;
    if (local) return copy(slot + offset, source, bytes);
    copy_bytes(slot + offset, source, bytes, Store::cached);
    return true;
  }

  bool copy_vectors(const Fold& fold, size_t count, std::byte* slot) noexcept {
    const size_t part = count * work_.element_bytes;
    for (size_t k = 0; k < work_.vectors && part > 0; ++k)
      if (!copy(slot + k * part, Base::read_at(fold.a) + k * Base::vector_stride_bytes(), part)) return false;
    return true;
  }

  // By the device: straight to memory, or to the slot where the device reaches it. Passes end at the same operand as
  // the host's do.
  bool launch_fold(const Fold& fold, size_t count, size_t offset, size_t n, int i, std::byte* target,
                   std::byte* slot) noexcept {
    const size_t bytes = n * work_.element_bytes;
    const bool to_slot = target == nullptr && slot != nullptr && task_.pinned->holds(slot + offset, bytes);
    std::byte* const result = target != nullptr ? target : to_slot ? slot + offset : place(result_place);
    DeviceReduction pass;
    pass.type = task_.type;
    pass.op = task_.op;
    pass.count = n;
    const uint32_t n_operands = fold.operands();
    for (uint32_t k = 0; k < n_operands; ++k) {
      const void* const operand = operand_on_device(fold, k, count, offset, bytes, i, pass.n_inputs);
      if (operand == nullptr) return false;
      pass.inputs[size_t(pass.n_inputs++)] = operand;
      const bool last = k + 1 == n_operands;
      if (!last && pass.n_inputs < DeviceReduction::inputs_max) continue;
      pass.output = last ? result : place(result_place);
      pass.divisor = last ? Base::divisor(fold) : 0;
      if (!note(task_.device->reduce(lane_.stream, pass))) return false;
      pass.inputs[0] = pass.output;
      pass.n_inputs = 1;
    }
    if (slot == nullptr || to_slot) return true;
    return copy(slot + offset, result, bytes);
  }

  // Null: the device failed. A message that no kernel reaches is copied aside, to the place of its number in the pass.
  const void* operand_on_device(const Fold& fold, uint32_t k, size_t count, size_t offset, size_t bytes, int i,
                                int number) noexcept {
    if (Base::is_local(fold, k)) return Base::read_at(part_of_slice(Base::local(fold, k), i));
    const std::byte* const where = Base::operand(fold, k, count) + offset;
    if (task_.pinned->holds(where, bytes)) return where;
    std::byte* const aside = place(number);
    return copy(aside, where, bytes) ? aside : nullptr;
  }

  // What only the host can join: the device's operands are brought to it, packed as a message is.
  bool fetch(const Fold& fold, size_t count) noexcept {
    const size_t vectors = fold.finish ? work_.vectors : 1, in_message = count * work_.element_bytes;
    if (vectors * in_message > lane_.pinned_bytes) return note({Code::internal_error, "an operand is larger than its pinned memory"});
    for (uint32_t k = 0; k < fold.operands(); ++k) {
      if (!Base::is_local(fold, k)) continue;
      const Slice& slice = Base::local(fold, k);
      const bool fetched = for_each_part(fold, count, [&](size_t offset, size_t n, int i) {
        for (size_t v = 0; v < vectors; ++v)
          if (!copy(fetched_at(fold, k) + v * in_message + offset,
                    Base::read_at(part_of_slice(slice, i)) + v * Base::vector_stride_bytes(), n * work_.element_bytes))
            return false;
        return true;
      });
      if (!fetched) return false;
    }
    return true;
  }

  // Where fetch puts a local operand: the second of two beside the first.
  std::byte* fetched_at(const Fold& fold, uint32_t k) const noexcept {
    return lane_.pinned + (fold.b.count > 0 && k == 1 ? lane_.pinned_bytes : 0);
  }
  const std::byte* operand_on_host(const Fold& fold, uint32_t k, size_t count) noexcept {
    return Base::is_local(fold, k) ? fetched_at(fold, k) : Base::operand(fold, k, count);
  }

  bool join_on_host(const Fold& fold, size_t count) noexcept {
    std::byte* const result = lane_.pinned + 2 * lane_.pinned_bytes;
    if (count > 0) fold_on_host(fold, result, count);
    if (fold.n_to > 0)
      copy_bytes(Base::first_slot(fold, count * work_.element_bytes), result, count * work_.element_bytes, Store::cached);
    if (fold.dst.count == 0) return true;
    return for_each_part(fold, count, [&](size_t offset, size_t n, int i) {
      return copy(Base::write_at(part_of_slice(fold.dst, i)), result + offset, n * work_.element_bytes);
    });
  }

  void fold_on_host(const Fold& fold, std::byte* result, size_t count) noexcept {
    const uint32_t n_operands = fold.operands(), divide_by = Base::divisor(fold);
    if (work_.operands != nullptr) {
      int n = 0;
      for (uint32_t k = 0; k < n_operands; ++k)
        for (size_t v = 0; v < work_.vectors; ++v)
          work_.operands[n++] = operand_on_host(fold, k, count) + v * count * work_.element_bytes;
      return work_.reduce(result, work_.operands, n, count, divide_by, Store::cached);
    }
    const void* inputs[reduce_inputs_max];
    int filled = 0;
    for (uint32_t k = 0; k < n_operands; ++k) {
      inputs[filled++] = operand_on_host(fold, k, count);
      const bool last = k + 1 == n_operands;
      if (!last && filled < reduce_inputs_max) continue;
      Base::reduce(result, inputs, filled, count, last ? divide_by : 0, Store::cached);
      inputs[0] = result;
      filled = 1;
    }
  }

  static constexpr int result_place = DeviceReduction::inputs_max;
  std::byte* place(int number) const noexcept { return lane_.aside + size_t(number) * task_.place_bytes; }

  bool copy(std::byte* to, const std::byte* from, size_t bytes) noexcept {
    return note(task_.device->copy(lane_.stream, to, from, bytes));
  }
  // The stream's work up to here.
  bool mark() noexcept { return note(task_.device->write_flag(lane_.stream, lane_.passed, ++lane_.marks)); }
  // What fails on the stream leaves the word as it is: so the device is asked now and then.
  Status passed() noexcept {
    constexpr uint32_t looks_between = 256;
    if (std::atomic_ref(*lane_.passed).load(std::memory_order_acquire) == lane_.marks) return Status::done;
    if (++lane_.looks % looks_between != 0) return Status::again;
    Outcome outcome = task_.device->query_stream(lane_.stream);
    return outcome.code == Code::in_progress || note(std::move(outcome)) ? Status::again : Status::failed;
  }
  bool note(Outcome outcome) noexcept {
    if (outcome.ok()) return true;
    if (task_.failure.ok()) task_.failure = std::move(outcome);
    return false;
  }

  DeviceWork& task_;
  DeviceLane& lane_;
};

}  // namespace tutti
