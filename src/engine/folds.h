// What a step folds: its operands, messages and slices, and where its result is stored to, in the caches or past them. The third
// layer of run.h.
#pragma once

#include <algorithm>

#include "engine/ahead.h"

namespace tutti {

// More operands than one reduction pass takes are folded block by block, so that the partial result stays in the
// first-level cache.
inline constexpr size_t fold_block_bytes = 4096;
static_assert(fold_block_bytes >= opaque_bytes_max);

// Of so many bytes of an output, a part is looked at to see whether they are in a cache.
inline constexpr size_t bytes_a_look = size_t{1} << 20;

template <bool v_form, bool multiplied>
class Engine::Folds : public Engine::Ahead<v_form, multiplied> {
  using Base = Engine::Ahead<v_form, multiplied>;

 protected:
  using Base::channel_, Base::divisor, Base::endpoints_, Base::operand_bytes, Base::plan_, Base::read_at, Base::sender, Base::signature,
      Base::vector_stride_bytes, Base::work_, Base::write_at;

 public:
  using Base::Base;

 protected:
  // Whether the k-th operand is a slice, and which; a second one is only ever the second of two.
  static bool is_local(const Fold& fold, uint32_t k) {
    return fold.b.count > 0 || (fold.a.count > 0 && k == fold.a_place);
  }
  static const Slice& local(const Fold& fold, uint32_t k) { return fold.b.count > 0 && k == 1 ? fold.b : fold.a; }

  // done: all messages of the step have arrived. Where one pass takes all operands, `inputs` points at them; who is
  // called again asks for the first ones again, and is given the same places.
  Status view_all(const Fold& fold, size_t count, const void** inputs) noexcept {
    const size_t bytes = operand_bytes(fold, count);
    const std::span<const uint32_t> from = plan_.from(fold);
    const bool one_pass = fold.operands() <= uint32_t(reduce_inputs_max);
    const uint32_t place = fold.a.count > 0 ? fold.a_place : fold.n_from;
    for (uint32_t i = one_pass ? 0 : channel_.next_in; i < from.size(); ++i) {
      const std::byte* message = nullptr;
      const Status status = endpoints_[from[i]]->view(bytes, signature(fold), message);
      if (status != Status::done) {
        channel_.next_in = i;
        return status;
      }
      if (one_pass) inputs[i + (i >= place)] = message;
    }
    if (one_pass && fold.a.count > 0) inputs[place] = read_at(fold.a);
    if (fold.b.count > 0) inputs[1] = read_at(fold.b);
    channel_.next_in = fold.n_from;
    return Status::done;
  }

  // All operands are there, those of a single pass at `inputs`.
  void fold_all(const Fold& fold, const void* const* inputs, std::byte* result, size_t count, Store how) noexcept {
    const uint32_t n_operands = fold.operands(), divide_by = divisor(fold);
    if (n_operands == 1 && divide_by == 0) {
      // A finish that comes after a send has nothing to do where nothing is divided.
      if (result != inputs[0]) copy_bytes(result, inputs[0], count * work_.element_bytes, how);
    } else if (work_.operands != nullptr) {
      add_exactly(fold, result, count, how);
    } else if (n_operands <= uint32_t(reduce_inputs_max)) {
      reduce(result, inputs, int(n_operands), count, divide_by, how);
    } else {
      const size_t block = fold_block_bytes / work_.element_bytes;
      for (size_t first = 0; first < count; first += block) {
        fold_block(fold, result, count, first, std::min(block, count - first), how);
      }
    }
  }

  void reduce(void* result, const void* const* inputs, int n, size_t count, uint32_t divide_by, Store how) noexcept {
    if (work_.custom == nullptr) [[likely]] work_.reduce(result, inputs, n, count, divide_by, how);
    else reduce_custom(*work_.custom, result, inputs, n, count);
  }

  // All vectors of all operands in one pass, however many they are: nothing is rounded before the end.
  void add_exactly(const Fold& fold, std::byte* result, size_t count, Store how) noexcept {
    const size_t in_message = count * work_.element_bytes;
    int n = 0;
    for (uint32_t i = 0; i < fold.operands(); ++i) {
      const std::byte* const first = operand(fold, i, count);
      const size_t stride = is_local(fold, i) ? vector_stride_bytes() : in_message;
      for (size_t k = 0; k < work_.vectors; ++k) work_.operands[n++] = first + k * stride;
    }
    work_.reduce(result, work_.operands, n, count, divisor(fold), how);
  }

  // Elements [first, first + n_block) of a step with more operands than one pass takes. Passes end at the same operand
  // on every rank, so all round alike.
  void fold_block(const Fold& fold, std::byte* result, size_t count, size_t first, size_t n_block, Store how) noexcept {
    alignas(64) std::byte partial[fold_block_bytes];
    const size_t offset = first * work_.element_bytes;
    const uint32_t n_operands = fold.operands();
    const void* inputs[reduce_inputs_max];
    int filled = 0;
    for (uint32_t i = 0; i < n_operands; ++i) {
      inputs[filled++] = operand(fold, i, count) + offset;
      const bool last = i + 1 == n_operands;
      if (last) {
        reduce(result + offset, inputs, filled, n_block, divisor(fold), how);
      } else if (filled == reduce_inputs_max) {
        reduce(partial, inputs, filled, n_block, 0, Store::cached);
        inputs[0] = partial;
        filled = 1;
      }
    }
  }

  // The i-th operand of a step, counting the local one; its message has arrived.
  const std::byte* operand(const Fold& fold, uint32_t i, size_t count) noexcept {
    if (is_local(fold, i)) return read_at(local(fold, i));
    if (fold.a.count > 0 && i > fold.a_place) --i;
    const std::byte* message = nullptr;
    sender(fold, i).view(operand_bytes(fold, count), signature(fold), message);
    return message;
  }

  // Before anything that was made of the messages is sent.
  Status release_all(const Fold& fold) noexcept {
    const std::span<const uint32_t> from = plan_.from(fold);
    for (uint32_t i = 0; i < from.size(); ++i) {
      if (endpoints_[from[i]]->release() == Status::done) continue;
      channel_.next_in = i;  // who is to blame
      return Status::failed;
    }
    return Status::done;
  }

  // Not to where an operand of the same step lies: it is read first, and so in the caches.
  bool may_stream(const Fold& fold) const noexcept {
    return fold.dst.buffer == Buffer::output && (fold.a.count == 0 || read_at(fold.a) != write_at(fold.dst));
  }

  bool could_stream() const noexcept { return channel_.streams || channel_.looks != nullptr; }
  // Whether what is about to be written at `target` goes past the caches if it is not read again soon. The same until the
  // step ends.
  bool streams(const std::byte* target, size_t bytes) noexcept {
    if (channel_.streams || channel_.looks == nullptr || bytes < cold_bytes_min || stays_in_caches()) [[likely]] return channel_.streams;
    return output_streams(target, bytes);
  }
  // Whether what was written there the last time did. To ask costs less than to look.
  bool went_past_caches(const std::byte* target) const noexcept {
    return channel_.looks != nullptr && channel_.looks->went_past_caches(target);
  }
  // Of what does not stream: it will be read, and all of it fits the caches.
  bool stays_in_caches() const noexcept { return channel_.output_is_read && channel_.streamed_tiles == 0; }
  // What was said of an output's part holds for what follows it: a look takes as long as a few lines from memory.
  [[gnu::noinline]] bool output_streams(const std::byte* target, size_t bytes) noexcept {
    auto& looks = channel_.looks_kept;
    for (size_t i = 0; i < std::min(size_t{channel_.n_looks}, looks.size()); ++i)
      if (uintptr_t(target) - uintptr_t(looks[i].at) < bytes_a_look) return looks[i].streams;
    const bool streams = channel_.looks->past_caches(target, bytes);
    looks[channel_.n_looks++ % looks.size()] = {target, streams};
    return streams;
  }
  Store past_caches(const std::byte* target, size_t bytes) noexcept {
    return streams(target, bytes) ? Store::streaming : Store::cached;
  }
  // Of what is but copied there, from the caller's input: as all of it does by the plan, or as any other.
  bool streams_copies() const noexcept { return channel_.streams_copies && !channel_.output_is_read; }
  Store copy_store(const std::byte* target, size_t bytes) noexcept {
    if (streams_copies()) return Store::streaming;
    return copies_to_caches() ? Store::cached : past_caches(target, bytes);
  }
  // Whether what is but copied goes to the caches, also where the output lies in none.
  bool copies_to_caches() const noexcept { return channel_.at_a_stretch && !channel_.streams; }
  Store store(const Fold& fold, const std::byte* target, size_t count) noexcept {
    if (!could_stream() || fold.n_to > 0 || !may_stream(fold)) return Store::cached;
    return past_caches(target, count * work_.element_bytes);
  }
};

}  // namespace tutti
