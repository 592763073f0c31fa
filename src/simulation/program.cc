// Programs: schedules and plans as small operations, a window at a time.
#include "simulation/program.h"

#include <algorithm>

#include "base/error.h"

namespace tutti {
namespace {

constexpr size_t window_ops_min = 16;

Op wait_for(uint32_t peer) { return {Op::Kind::wait, peer, 0, 0}; }
Op send_to(uint32_t peer, const Slice& slice, uint32_t first) { return {Op::Kind::send, peer, first, slice.count}; }

void add_plan(const Plan& plan, uint32_t chunks, std::vector<Op>& ops) {
  for (const Fold& fold : plan.steps) {
    for (const uint32_t peer : plan.from(fold)) ops.push_back(wait_for(peer));
    const Slice& slice = fold.dst.count > 0 ? fold.dst : fold.a;
    const bool copies = fold.operands() == 1 && fold.dst.count > 0 && !(fold.dst == fold.a);
    const uint32_t operands = fold.operands() > 1 ? fold.operands() : 0;
    ops.emplace_back(copies ? Op::Kind::copy : Op::Kind::step, operands, slice.first % chunks, slice.count);
    for (const uint32_t peer : plan.to(fold)) ops.push_back(send_to(peer, slice, slice.first % chunks));
  }
}

void add_step(const Step& step, uint32_t chunks, std::vector<Op>& ops) {
  const Slice& slice = step.dst.count > 0 ? step.dst : step.a;
  const uint32_t first = slice.first % chunks;
  const bool receives = step.verb == Verb::recv || step.verb == Verb::recv_reduce;
  if (receives) ops.push_back(wait_for(step.peer));
  const uint32_t operands = step.verb == Verb::recv_reduce || step.verb == Verb::reduce ? 2 : 0;
  const bool copies = step.verb == Verb::recv || step.verb == Verb::copy;
  if (step.verb != Verb::finish) ops.emplace_back(copies ? Op::Kind::copy : Op::Kind::step, operands, first, slice.count);
  if (step.verb == Verb::send) ops.push_back(send_to(step.peer, slice, first));
}

}  // namespace

Programs::Programs(const Algorithm& algorithm, const Group& group, size_t memory_max)
    : algorithm_(algorithm), group_(group), shape_(algorithm.shape(group)), windows_(size_t(group.n)) {
  const auto n = uint32_t(group.n);
  TUTTI_ASSERT(n > 0);
  const std::vector<uint32_t> sample =
      n <= uint32_t(lowered_ranks_max) ? std::vector<uint32_t>{} : std::vector<uint32_t>{0, 1, n / 3, n / 2, n - 1};
  size_t longest = 0, sends = 0;
  const auto count = [&](uint32_t rank) {
    recorded_.clear();
    record(rank, recorded_);
    longest = std::max(longest, recorded_.size());
    sends += size_t(std::count_if(recorded_.begin(), recorded_.end(),
                                  [](const Op& op) { return op.kind == Op::Kind::send; }));
  };
  if (sample.empty()) {
    for (uint32_t rank = 0; rank < n; ++rank) count(rank);
  } else {
    for (const uint32_t rank : sample) count(rank);
  }
  messages_ = sample.empty() ? double(sends) : double(sends) / double(sample.size()) * n;
  window_ops_ = std::clamp(memory_max / (n * sizeof(Op)), window_ops_min, std::max(longest, window_ops_min));
  ops_.resize(n * window_ops_);
}

void Programs::record(uint32_t rank, std::vector<Op>& ops) {
  Group group = group_;
  group.rank = int(rank);
  schedule_.clear();
  Recorder recorder(schedule_);
  algorithm_.record(recorder, group);
  const uint32_t chunks = std::max(1u, shape_.output);
  if (group_.n <= lowered_ranks_max) return add_plan(lower(schedule_, shape_, algorithm_.name, false), chunks, ops);
  for (const Step& step : schedule_) add_step(step, chunks, ops);
}

void Programs::fill(uint32_t rank, uint32_t index) {
  recorded_.clear();
  record(rank, recorded_);
  Window& window = windows_[rank];
  const size_t left = recorded_.size() - std::min<size_t>(index, recorded_.size());
  window.first = index;
  window.count = uint32_t(std::min(left, window_ops_));
  window.last = left <= window_ops_;
  std::copy_n(recorded_.begin() + long(recorded_.size() - left), window.count,
              ops_.begin() + long(size_t(rank) * window_ops_));
}

}  // namespace tutti
