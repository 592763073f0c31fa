// A schedule: what one rank does in one run of an algorithm, as data. Chunks, never bytes or addresses.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

enum class Buffer : uint8_t { input, output, scratch };

// `count` consecutive chunks of a buffer, from chunk `first`. Only chunks.h knows how many elements that is.
struct Slice {
  uint32_t first = 0;
  uint32_t count = 0;
  Buffer buffer = Buffer::input;

  friend constexpr bool operator==(const Slice&, const Slice&) = default;
};

constexpr Slice in(int first, int count = 1) { return {uint32_t(first), uint32_t(count), Buffer::input}; }
constexpr Slice out(int first, int count = 1) { return {uint32_t(first), uint32_t(count), Buffer::output}; }
constexpr Slice scratch(int first, int count = 1) { return {uint32_t(first), uint32_t(count), Buffer::scratch}; }

// The verbs that an algorithm is written in.
enum class Verb : uint8_t {
  send,         // one message to `peer`: the chunks of a
  recv,         // one message from `peer` into dst
  recv_reduce,  // dst = a op message from `peer`, or message op a where incoming_first
  reduce,       // dst = a op b
  copy,         // dst = a
  finish        // dst is complete here: the operator's last part (avg divides) is applied in place
};

struct Step {
  Verb verb = Verb::copy;
  bool incoming_first = false;
  uint32_t peer = 0;
  Slice a, b, dst;

  friend constexpr bool operator==(const Step&, const Step&) = default;
};

// One rank's steps, run in order.
using Schedule = std::vector<Step>;

}  // namespace tutti
