// Calls as their callers made them, and what is kept of those that are made again.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/signature.h"
#include "communicator/operators.h"
#include "engine/engine.h"
#include "schedule/chunks.h"
#include "schedule/collective.h"

namespace tutti {

class EntryEvent;

// One call as its caller made it; arguments are checked. In place, where a rank's own block of a buffer is the other
// buffer, both point at that buffer's start. Null where the rank has no such part.
struct Request {
  Call call;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  bool in_place = false;
  int peer = -1;          // send_recv
  bool sending = false;   // send_recv
  bool beside_others = false;  // send_recv: other calls of its group go on while it waits, so it may wait for its receiver
  bool lends = false;     // send_recv, beside others: lends its input though that lies in ordinary memory
  std::shared_ptr<const MadeOperator> made{};  // the call's operator, where the caller made it
  std::shared_ptr<const Layout> layout{};      // v-forms: where the blocks lie, from where the pointers point
  Terms terms{};                   // determinism only where it differs from the communicator's
  std::string_view algorithm{};    // of terms.algorithm; outlives the communicator
  size_t vector_stride = 0;        // reductions: elements from one of the rank's terms.inputs vectors to the next
  TimeNs timeout_ns = 0;           // longest wait of this call; 0: the communicator's
  bool on_device = false;          // a buffer lies on the communicator's device
  bool in_reach = false;           // its kernels reach every buffer
  std::shared_ptr<const EntryEvent> entry{};  // what the call comes after on a stream of the device; null: nothing
};

// Of smaller calls, no message would be lent.
inline constexpr size_t lent_call_bytes_min = size_t{64} << 10;

// One side of a v-form's call as its caller gives it: all ranks' blocks, or the rank's own, or none.
struct GivenBlocks {
  Part part = Part::none;
  const size_t* counts = nullptr;         // of all; an own block's is the first
  const size_t* displacements = nullptr;  // of all; null: each follows the one before

  [[gnu::always_inline]] size_t total(size_t ranks) const noexcept {
    size_t sum = 0;
    for (size_t i = 0; i < ranks; ++i) sum += counts[i];
    return sum;
  }

  // Whether they are these. An empty block lies nowhere.
  [[gnu::always_inline]] bool are(const BlockLayout& blocks, size_t rank) const noexcept {
    if (part == Part::none) return true;
    if (part == Part::own) return counts[0] == blocks.sizes[rank];
    size_t next = 0;
    for (size_t i = 0; i < blocks.sizes.size(); ++i) {
      if (counts[i] != blocks.sizes[i]) return false;
      if (counts[i] == 0) continue;
      if ((displacements == nullptr ? next : displacements[i]) != blocks.firsts[i]) return false;
      next = blocks.firsts[i] + counts[i];
    }
    return true;
  }
};

struct GivenSides {
  GivenBlocks send, recv;
};

// A call that was made before: its arguments are checked, its plan is found, its operation prepared.
struct Repeat {
  // Of the whole buffer. From lent_call_bytes_min on it is a large one, whose messages may be lent, so where its buffers lie is looked
  // up each time; beyond bytes_max less than a hundredth would be saved. (Measured, Zen 4, 2 ranks, near, beside the long way: 8 and 16 KiB
  // 0.69 to 0.9 of the time, 32 KiB 0.71 to 0.94, 64 KiB 0.75 to 0.96.)
  static constexpr size_t bytes_max = size_t{256} << 10;

  // Which buffers the rank has, and how they lie: what is left to check.
  enum class Mode : uint8_t { none, disjoint, in_place, in_place_of_block, input_alone, output_alone, no_buffers };

  Mode mode = Mode::none;
  bool asks_shared_path = false;  // of a large one: it may go through the memory of all ranks
  Call call;
  size_t input_bytes = 0, output_bytes = 0;
  const std::byte *input = nullptr, *output = nullptr;  // as last remembered; null where the rank has none
  ptrdiff_t send_ahead = 0;  // of recv, where one buffer is a block of the other; `input` and `output` are then the whole
  std::shared_ptr<const Layout> layout;  // of v-forms
  Operation operation;

  void remember(const Request& request, size_t bytes_in, size_t bytes_out) noexcept {
    input = request.input;
    output = request.output;
    // Of a v-form, a side without a byte beside one that has some is none: it lies nowhere, also where the other lies.
    const bool reads = request.input != nullptr && (bytes_in > 0 || bytes_out == 0);
    const bool writes = request.output != nullptr && (bytes_out > 0 || bytes_in == 0);
    call = request.call;
    input_bytes = bytes_in;
    output_bytes = bytes_out;
    mode = !reads && !writes ? Mode::no_buffers
           : !writes         ? Mode::input_alone
           : !reads          ? Mode::output_alone
           : request.in_place ? Mode::in_place
                              : Mode::disjoint;
  }

  // Where the operation's input and output begin.
  struct Buffers {
    const std::byte* input;
    std::byte* output;
  };
  Buffers buffers(const void* send, void* recv) const noexcept {
    const Buffers given{static_cast<const std::byte*>(send), static_cast<std::byte*>(recv)};
    if (mode != Mode::in_place_of_block) [[likely]] return given;
    std::byte* const whole = given.output + std::min<ptrdiff_t>(send_ahead, 0);
    return {whole, whole};
  }

  // Of v-forms: whether the blocks of each side that the rank has are those of last time. Read after allows().
  [[gnu::always_inline]] bool lies_as(const GivenSides& given, size_t rank) const noexcept {
    return given.send.are(layout->input, rank) && given.recv.are(layout->output, rank);
  }

  // Whether the buffers are the last ones: where others would be looked up, lest they lie on a device.
  bool is_of(const Buffers& again) const noexcept {
    return (input == nullptr || input == again.input) && (output == nullptr || output == again.output);
  }

  // Whether the same call on these buffers needs no further check. Buffers that the rank has no part of do not matter.
  bool allows(const Call& again, const void* send, const void* recv) const noexcept {
    if (call != again) return false;
    const auto a = reinterpret_cast<uintptr_t>(send), b = reinterpret_cast<uintptr_t>(recv);
    switch (mode) {
      case Mode::disjoint: return a != 0 && b != 0 && a - b >= output_bytes && b - a >= input_bytes;
      case Mode::in_place: return a != 0 && a == b;
      case Mode::input_alone: return a != 0;
      case Mode::output_alone: return b != 0;
      case Mode::no_buffers: return a == 0 && b == 0;
      case Mode::in_place_of_block: return a != 0 && b != 0 && a - b == uintptr_t(send_ahead);
      case Mode::none: break;
    }
    return false;
  }
};

// Different for calls that differ, as long as a count has no more than 20 bits and a root no more than 22: a program often
// makes two calls in turns, and none should take the other's place.
constexpr uint64_t key_of_repeat(const Call& call) noexcept {
  return call.count + (uint64_t(call.kind) << 20) + (uint64_t(call.type) << 26) + (uint64_t(call.op) << 32) +
         (uint64_t(call.root) << 38);
}

// Which of so many places, a power of two, keeps a call that is known by `key`: of its count in the end, whose low bits tell
// little, as programs like multiples of powers of two.
constexpr size_t number_of_repeat(uint64_t key, size_t places) noexcept {
  return size_t(key * 0x9E3779B97F4A7C15u >> (64 - std::bit_width(places - 1)));
}

// The calls that are kept, by twos: a call has two places that it may be in, so two that share them stay, even if they are made in
// turns; of more the last two stay.
template <size_t n_places>
class Repeats {
 public:
  // The place that keeps a call like this one, if any does.
  [[gnu::always_inline]] Repeat& find(const Call& call) noexcept {
    const uint64_t key = key_of_repeat(call);
    Pair& pair = pairs_[number(key)];
    return pair.places[pair.keys[0] != key];
  }
  // Where it is to be kept.
  Repeat& place_for(const Call& call) noexcept {
    const uint64_t key = key_of_repeat(call);
    Pair& pair = pairs_[number(key)];
    for (size_t i = 0; i < 2; ++i)
      if (pair.keys[i] == key) return pair.places[i];
    const bool at = std::exchange(pair.next, !pair.next);
    pair.keys[at] = key;
    return pair.places[at];
  }
  void forget() noexcept {
    for (Pair& pair : pairs_)
      for (Repeat& repeat : pair.places) repeat.mode = Repeat::Mode::none;
  }

 private:
  struct Pair {
    std::array<uint64_t, 2> keys{};  // of the calls, which may be alike for calls of very many elements
    bool next = false;               // which place is taken for another call
    std::array<Repeat, 2> places;
  };
  static constexpr size_t number(uint64_t key) noexcept { return number_of_repeat(key, n_places / 2); }
  std::array<Pair, n_places / 2> pairs_;
};

}  // namespace tutti
