// Where the slices of a plan's steps lie, in the current tile of a channel, and what a step's messages are. The first layer
// of run.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/signature.h"
#include "engine/engine.h"

namespace tutti {

// Of v-forms. Scratch memory holds blocks whose sizes all ranks know, and then both sides of the layout say them.
inline const BlockLayout& blocks_of(const Work& work, Buffer buffer) {
  return buffer == Buffer::input ? work.layout->input : work.layout->output;
}

// All slices of a step are the same chunks.
inline const Slice& named_slice(const Fold& fold) { return fold.a.count > 0 ? fold.a : fold.dst; }

// Of a step's messages: where only two ranks know how large a block is, each of them says so with every message of it.
inline uint64_t v_form_signature(const Work& work, const Fold& fold) {
  if (!work.layout->of_pairs) return work.signature;
  const Slice& slice = named_slice(fold);
  return with_count(work.signature, blocks_of(work, slice.buffer).sizes[slice.first]);
}

// Whether one message for all receivers of a step has its place; waiting: for whom, the channel's next_out says.
enum class Sharing : uint8_t { ready, waiting, none };

class Engine::Sharer {
 public:
  // That of all these ranks' endpoints; null: they have none in common.
  static Outbox* outbox_of(Endpoint* const* endpoints, std::span<const uint32_t> peers) noexcept {
    Outbox* const outbox = endpoints[peers[0]]->outbox();
    const bool is_common = std::all_of(peers.begin(), peers.end(), [&](uint32_t peer) { return endpoints[peer]->outbox() == outbox; });
    return is_common ? outbox : nullptr;
  }
  // Before any receiver of the channel's step has a message of its own, or part of one.
  static Sharing reserve(Operation::Channel& channel, Outbox& outbox, size_t bytes, std::span<const uint32_t> peers,
                         std::byte*& at) noexcept {
    const Outbox::Place place = outbox.reserve(bytes, peers);
    at = place.at;
    if (at != nullptr) return Sharing::ready;
    if (place.waits_for < 0) return Sharing::none;
    channel.next_out = uint32_t(place.waits_for);
    channel.shares_wait = true;
    return Sharing::waiting;
  }
  // Each time that the step is moved. False: some receiver has its own message.
  static bool may_reserve(Operation::Channel& channel) noexcept {
    if (channel.shares_wait) channel.next_out = 0;  // it said who is awaited
    channel.shares_wait = false;
    return channel.next_out == 0 && channel.bytes_done == 0;
  }
};

template <bool v_form, bool multiplied>
class Engine::Places {
 public:
  Places(const Work& work, Operation::Channel& channel) noexcept
      : work_(work), plan_(*work.plan), channel_(channel), endpoints_(channel.endpoints) {}

 protected:
  uint64_t signature(const Fold& fold) const noexcept {
    if constexpr (v_form) return v_form_signature(work_, fold);
    return work_.signature;
  }
  Endpoint& sender(const Fold& fold, uint32_t i) const noexcept { return *endpoints_[plan_.peers[fold.peers + i]]; }
  uint32_t divisor(const Fold& fold) const noexcept { return fold.finish ? work_.divisor : 0; }

  // Of each of a step's messages that are folded: those that are finished are inputs, of all their vectors.
  size_t operand_bytes(const Fold& fold, size_t count) const noexcept {
    return count * work_.element_bytes * (fold.finish ? work_.vectors : 1);
  }
  size_t vector_stride_bytes() const noexcept { return work_.vector_stride * work_.element_bytes; }

  size_t step_elements(const Fold& fold) const noexcept { return elements(named_slice(fold)); }
  size_t elements(const Slice& slice) const noexcept {
    const uint32_t first = slice.buffer == Buffer::scratch ? slice.first % plan_.shape.output : slice.first;
    if constexpr (v_form) {
      size_t sum = 0;
      for (uint32_t i = first; i < first + slice.count; ++i) sum += part_of(blocks_of(work_, slice.buffer).sizes[i]).size;
      return sum;
    }
    return channel_.chunks.size(first, slice.count);
  }

  // What the tiles that follow take of a block.
  size_t elements_of_later_tiles(size_t block_elements) const noexcept {
    const Chunks shares(block_elements, channel_.shares, work_.element_bytes);
    const BlockPart here = part_of(block_elements);
    return shares.first(channel_.share) + shares.size(channel_.share) - here.first - here.size;
  }

  // What the current tile takes of a block.
  BlockPart part_of(size_t block_elements) const noexcept {
    if (channel_.tiles == 1 && channel_.shares == 1) [[likely]] return {0, block_elements};
    return tile_of_block(block_elements, channel_.share, channel_.shares, channel_.tile, channel_.tile_elements,
                         work_.element_bytes);
  }

  // What lies behind a slice and is its part of the tiles that follow: where its parts of all tiles are one piece of memory.
  size_t bytes_of_later_tiles(const Slice& slice) const noexcept {
    if (slice.count != 1 || !(plan_.shape.blocks || plan_.shape.output == 1)) return 0;
    if constexpr (v_form) {
      const size_t block = slice.buffer == Buffer::scratch ? 0 : blocks_of(work_, slice.buffer).sizes[slice.first];
      return channel_.tiles == 1 ? 0 : elements_of_later_tiles(block) * work_.element_bytes;
    }
    const size_t until = (channel_.tile + 1) * channel_.tile_elements;
    return until < channel_.share_count ? (channel_.share_count - until) * work_.element_bytes : 0;
  }

  // What lies behind the memory of some steps, and is their part of the tiles that follow: where they have all of a tile.
  size_t bytes_behind_tile(size_t bytes) const noexcept {
    const size_t from = channel_.tile * channel_.tile_elements, until = from + channel_.tile_elements;
    const bool has_all = !v_form && !plan_.shape.blocks && until < channel_.share_count &&
                         bytes == channel_.tile_elements * work_.element_bytes;
    return has_all ? (channel_.share_count - until) * work_.element_bytes : 0;
  }

  // Counted from where the caller's pointer points: at block `first_block`, where chunks are blocks of one size.
  size_t element(const Slice& slice, uint32_t first_block) const noexcept {
    if constexpr (v_form) {
      const BlockLayout& blocks = blocks_of(work_, slice.buffer);
      return blocks.firsts[slice.first] + part_of(blocks.sizes[slice.first]).first;
    }
    const size_t chunk_at = plan_.shape.blocks ? (slice.first - first_block) * work_.block_stride
                                               : channel_.chunks.first(slice.first);
    return channel_.tile_first + chunk_at;
  }
  std::byte* scratch_at(const Slice& slice) const noexcept {
    return channel_.scratch + slice.first * channel_.chunks.per_chunk() * work_.element_bytes;
  }
  const std::byte* read_at(const Slice& slice) const noexcept {
    if (slice.buffer == Buffer::scratch) return scratch_at(slice);
    if (slice.buffer == Buffer::output) return write_at(slice);
    if (multiplied && channel_.made_tile != nullptr)
      return channel_.made_tile + channel_.chunks.first(slice.first) * work_.element_bytes;
    return work_.input + element(slice, work_.input_first) * work_.element_bytes;
  }
  std::byte* write_at(const Slice& slice) const noexcept {
    if (slice.buffer == Buffer::scratch) return scratch_at(slice);
    return work_.output + element(slice, work_.output_first) * work_.element_bytes;
  }

  const Work& work_;
  const Plan& plan_;
  Operation::Channel& channel_;
  Endpoint* const* const endpoints_;
};

}  // namespace tutti
