// What every rank of an algorithm does, as small operations, made while they are needed: of a million ranks, whole
// schedules would not fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/algorithm.h"

namespace tutti {

// One part of a step. Slices are chunks of the whole buffer's division.
struct Op {
  enum class Kind : uint8_t {
    wait,    // for the next message from `peer`
    step,    // a step begins to work on its slice: `peer` operands are reduced; one is copied where the result is stored
    copy,
    send     // the slice to `peer`
  };
  uint32_t peer = 0;  // step: operands
  uint32_t first = 0;
  uint32_t count : 30 = 0;
  Kind kind : 2 = Kind::wait;

  constexpr Op() = default;
  constexpr Op(Kind is, uint32_t who, uint32_t first_chunk, uint32_t chunks)
      : peer(who), first(first_chunk), count(chunks & 0x3fffffff), kind(is) {}
};
static_assert(sizeof(Op) == 12);

// The programs of all ranks of one algorithm. Of few ranks they are lowered plans, of many the schedules as they are
// written; each rank keeps a window of its own, and what comes after it is recorded anew.
class Programs {
 public:
  // `memory_max`: bytes for all windows. group.rank is ignored; group.host_of outlives this.
  Programs(const Algorithm& algorithm, const Group& group, size_t memory_max = size_t{2} << 30);

  const Shape& shape() const { return shape_; }
  // Operation `index` of a rank's program; null where it is past its end.
  const Op* at(uint32_t rank, uint32_t index) {
    Window& window = windows_[rank];
    if (index - window.first >= window.count) [[unlikely]] {
      if (window.last && index >= window.first + window.count) return nullptr;
      fill(rank, index);
      if (index - window.first >= window.count) return nullptr;
    }
    return &ops_[size_t(rank) * window_ops_ + (index - window.first)];
  }
  // Sends of all ranks in one run; of many ranks, what a few of them suggest.
  double messages() const { return messages_; }

  // The operations of one rank, whole.
  void record(uint32_t rank, std::vector<Op>& ops);

  static constexpr int lowered_ranks_max = 512;

 private:
  struct Window {
    uint32_t first = 0;
    uint32_t count = 0;
    bool last = false;  // nothing comes after it
  };
  void fill(uint32_t rank, uint32_t index);

  const Algorithm& algorithm_;
  Group group_;
  Shape shape_;
  double messages_ = 0;
  size_t window_ops_ = 0;
  std::vector<Window> windows_;
  std::vector<Op> ops_;
  std::vector<Op> recorded_;
  Schedule schedule_;
};

}  // namespace tutti
