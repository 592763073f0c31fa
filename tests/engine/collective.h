// One collective call on all ranks of a simulated communicator: buffers, plans, and what must come out.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "algorithms/catalog.h"
#include "base/signature.h"
#include "engine/simulation.h"
#include "reduce/reduce.h"
#include "reduce/reference.h"
#include "schedule/check.h"

namespace tutti {

struct CollectiveCase {
  Collective collective = Collective::all_reduce;
  std::string_view algorithm = "one_shot";
  int n = 2;
  int pipeline = 1;
  int root = 0;
  DataType type = DataType::int32;
  ReduceOp op = ReduceOp::sum;
  size_t count = 1000;
  bool in_place = false;
  bool exact = true;       // values whose arithmetic is exact in any order, else any bits that are numbers
  size_t misaligned = 0;   // bytes
  int channels = 1;
  int slots = 2;
  size_t message_bytes_max = 4096;
  double short_probability = 0;
  TimeNs delay_ns_max = 0;
  uint64_t seed = 0;
};

// All that is needed to run it again.
inline std::string describe(const CollectiveCase& c) {
  return fmt::format(
      "{} {} n={} pipeline={} root={} {} {} count={} in_place={} misaligned={} channels={} slots={} "
      "message_bytes_max={} short={} delay={} seed={}",
      c.collective == Collective::broadcast ? "broadcast" : "all_reduce", c.algorithm, c.n, c.pipeline, c.root,
      name(c.type), name(c.op), c.count, c.in_place, c.misaligned, c.channels, c.slots, c.message_bytes_max,
      c.short_probability, c.delay_ns_max, c.seed);
}

// Plans of every rank, made once a program.
class PlanStore {
 public:
  const Plan& plan(const CollectiveCase& c, int rank) {
    const Key key{c.collective, c.algorithm, c.n, c.pipeline, c.root, c.in_place};
    std::vector<Plan>& plans = plans_[key];
    if (plans.empty()) {
      const Algorithm& algorithm = *find_algorithm(c.collective, c.algorithm);
      std::vector<int>& hosts = hosts_[c.n];
      if (hosts.empty())
        for (int r = 0; r < c.n; ++r) hosts.push_back(r / 3);
      for (int r = 0; r < c.n; ++r) {
        const Group group{r, c.n, c.root, c.pipeline, hosts};
        plans.push_back(lower(record(algorithm, group), algorithm.shape(group), algorithm.name, c.in_place));
      }
    }
    return plans[size_t(rank)];
  }

 private:
  using Key = std::tuple<Collective, std::string_view, int, int, int, bool>;
  std::map<Key, std::vector<Plan>> plans_;
  std::map<int, std::vector<int>> hosts_;
};

// A rank's value of one element, small enough that folds of up to 9 ranks are exact in any order (integers wrap).
inline double exact_value(const CollectiveCase& c, int rank, Random& random) {
  const bool byte_float = element_bytes(c.type) == 1 && info(c.type).is_float;
  if (c.op == ReduceOp::prod && info(c.type).is_float) return random.below(2) ? 1 : -1;
  if (c.op == ReduceOp::max || c.op == ReduceOp::min) return double(random.below(5));
  if (byte_float) return double(random.below(2)) * (rank % 2 == 0 ? 1 : -1);
  if (element_bytes(c.type) == 1) return double(random.below(100));
  return double(random.below(21)) - (info(c.type).is_float ? 10 : 0);
}

// The network that a case runs on.
inline SimulatedOptions network_of(const CollectiveCase& c) {
  SimulatedOptions options;
  options.n = c.n;
  options.channels = c.channels;
  options.slots = c.slots;
  options.message_bytes_max = c.message_bytes_max;
  options.seed = c.seed;
  options.short_probability = c.short_probability;
  options.delay_ns_max = c.delay_ns_max;
  return options;
}

// All ranks' memory of one call.
class CollectiveBuffers {
 public:
  CollectiveBuffers(const CollectiveCase& c, PlanStore& plans)
      : case_(c), plans_(plans), memory_(size_t(c.n)), scratch_(size_t(c.n)) {
    fill();
    bytes_ = c.count * element_bytes(c.type);
    for (int rank = 0; rank < c.n; ++rank) lay_out(rank);
    expect();
  }

  Work work(int rank, const Engine& engine) {
    const Plan& plan = plans_.plan(case_, rank);
    Call call{case_.collective, case_.type, case_.op, uint32_t(case_.root), case_.count};
    Work work;
    work.plan = &plan;
    work.output = memory_[size_t(rank)].data() + output_at_;
    work.input = case_.in_place ? work.output : memory_[size_t(rank)].data() + input_at_;
    if (case_.collective == Collective::broadcast && rank != case_.root) work.input = nullptr;
    scratch_[size_t(rank)].resize(engine.scratch_bytes(plan, case_.channels) / 64 + 1);
    work.scratch = reinterpret_cast<std::byte*>(scratch_[size_t(rank)].data());
    work.count = case_.count;
    work.element_bytes = element_bytes(case_.type);
    work.reduce = reduce_function(case_.type, case_.op);
    work.divisor = case_.op == ReduceOp::avg ? uint32_t(case_.n) : 0;
    work.signature = pack(call);
    return work;
  }

  // Empty where the rank's memory is as it must be after an ok.
  std::string wrong(int rank) const {
    const std::vector<std::byte>& memory = memory_[size_t(rank)];
    const std::vector<std::byte>& before = before_[size_t(rank)];
    if (!std::equal(expected_.begin(), expected_.end(), memory.begin() + ptrdiff_t(output_at_))) {
      size_t i = 0;
      while (memory[output_at_ + i] == expected_[i]) ++i;
      return fmt::format("rank {}: element {} is wrong", rank, i / element_bytes(case_.type));
    }
    for (size_t i = 0; i < memory.size(); ++i) {
      if (i >= output_at_ && i < output_at_ + bytes_) continue;
      if (memory[i] != before[i]) return fmt::format("rank {}: byte {} outside the output has changed", rank, i);
    }
    return "";
  }
  // Where values are not exact: only that all ranks have the same bits.
  std::string differs() const {
    for (int rank = 1; rank < case_.n; ++rank)
      if (std::memcmp(memory_[size_t(rank)].data() + output_at_, memory_[0].data() + output_at_, bytes_) != 0)
        return fmt::format("rank {} has other bits than rank 0", rank);
    return "";
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  void fill() {
    Random random(case_.seed + 1);
    const size_t width = element_bytes(case_.type);
    inputs_.assign(size_t(case_.n), std::vector<uint8_t>(case_.count * width));
    for (int rank = 0; rank < case_.n; ++rank) {
      for (size_t i = 0; i < case_.count; ++i) {
        const double value =
            case_.exact ? exact_value(case_, rank, random) : double(random.between(-99999, 99999)) / 777;
        element_from_double(case_.type, value, inputs_[size_t(rank)].data() + i * width);
      }
    }
  }

  // Guard bytes, the input, guard bytes, the output, guard bytes.
  void lay_out(int rank) {
    constexpr size_t guard = 64;
    input_at_ = guard + case_.misaligned;
    output_at_ = input_at_ + bytes_ + guard + 1;
    std::vector<std::byte>& memory = memory_[size_t(rank)];
    memory.assign(output_at_ + bytes_ + guard, std::byte{0xa5});
    const std::vector<uint8_t>& input = inputs_[size_t(rank)];
    if (bytes_ > 0) std::memcpy(memory.data() + (case_.in_place ? output_at_ : input_at_), input.data(), bytes_);
    before_.push_back(memory);
  }

  void expect() {
    std::vector<uint8_t> result;
    if (case_.collective == Collective::broadcast) {
      result = inputs_[size_t(case_.root)];
    } else {
      result = reference_reduce(case_.type, case_.op, inputs_, case_.op == ReduceOp::avg ? uint32_t(case_.n) : 0);
    }
    expected_.resize(bytes_);
    if (bytes_ > 0) std::memcpy(expected_.data(), result.data(), bytes_);
  }

  CollectiveCase case_;
  PlanStore& plans_;
  size_t bytes_ = 0, input_at_ = 0, output_at_ = 0;
  std::vector<std::vector<uint8_t>> inputs_;
  std::vector<std::vector<std::byte>> memory_, before_;
  std::vector<std::vector<Line>> scratch_;
  std::vector<std::byte> expected_;
};

// Runs it with everybody alive. Empty where all is right.
inline std::string run_collective(const CollectiveCase& c, PlanStore& plans) {
  Simulation simulation(network_of(c));
  CollectiveBuffers buffers(c, plans);
  for (int rank = 0; rank < c.n; ++rank) {
    simulation.start(rank, buffers.work(rank, simulation.engine(rank)), 0, c.channels);
  }
  simulation.run();
  for (int rank = 0; rank < c.n; ++rank) {
    if (simulation.status(rank) == Status::done) continue;
    const WaitingOn waiting = simulation.waiting_on(rank);
    return fmt::format("{}: rank {} {} at tile {} step {} {} rank {}", describe(c), rank,
                       simulation.status(rank) == Status::again ? "waits for ever" : "failed", waiting.tile,
                       waiting.step, waiting.sending ? "sending to" : "receiving from", waiting.peer);
  }
  for (int rank = 0; c.exact && rank < c.n; ++rank) {
    const std::string wrong = buffers.wrong(rank);
    if (!wrong.empty()) return fmt::format("{}: {}", describe(c), wrong);
  }
  const std::string differs = buffers.differs();
  return differs.empty() ? "" : fmt::format("{}: {}", describe(c), differs);
}

}  // namespace tutti
