// One collective call on all ranks of a simulated communicator: buffers, plans, and what must come out.
#pragma once

#include <cmath>
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
#include "reduce/adversary.h"
#include "reduce/exact.h"
#include "reduce/exact_reference.h"
#include "reduce/reduce.h"
#include "reduce/reference.h"
#include "schedule/check.h"
#include "schedule/collective.h"

namespace tutti {

struct CollectiveCase {
  Collective collective = Collective::all_reduce;
  std::string_view algorithm = "one_shot";
  int n = 2;
  int pipeline = 1;
  int root = 0;
  DataType type = DataType::int32;
  ReduceOp op = ReduceOp::sum;
  size_t opaque_bytes = 0;  // of type opaque
  size_t count = 1000;
  bool in_place = false;
  bool exact = true;       // values whose arithmetic is exact in any order, else any bits that are numbers
  bool left_fold = false;  // not exact, but the algorithm claims to fold from the left, which gives one result
  bool multiplied = false; // each rank's input by its own scalar, first
  int vectors = 0;         // not 0: exact sums, rounded once, of so many vectors of each rank; of left_fold's algorithms
  size_t misaligned = 0;   // bytes
  int channels = 1;
  int slots = 2;
  size_t outbox_messages = 0;
  ColdOutputs* cold_outputs = nullptr;
  bool at_a_stretch = false;
  size_t message_bytes_max = 4096;
  double short_probability = 0;
  TimeNs delay_ns_max = 0;
  uint64_t seed = 0;
};

// Whether a rank has both an input and an output, so that it can work in place.
inline bool works_in_place(const CollectiveCase& c, int rank) {
  const Meaning means = meaning(c.collective);
  const bool is_root = rank == c.root;
  return c.in_place && means.input_of(is_root) != Part::none && means.output_of(is_root) != Part::none;
}
// Several vectors are sent from where they lie by the plan for separate buffers. What is multiplied is made in the output,
// where that is as large.
inline bool has_plan_in_place(const CollectiveCase& c, int rank) {
  const Meaning means = meaning(c.collective);
  if (c.multiplied) return !means.blocks && means.output_of(rank == c.root) != Part::none;
  return works_in_place(c, rank) && c.vectors <= 1;
}

// All that is needed to run it again.
inline std::string describe(const CollectiveCase& c) {
  return fmt::format(
      "{} {} n={} pipeline={} root={} {} bytes={} {} count={} multiplied={} vectors={} in_place={} misaligned={} channels={} slots={} "
      "message_bytes_max={} short={} delay={} at_a_stretch={} seed={}",
      name(c.collective), c.algorithm, c.n, c.pipeline, c.root,
      name(c.type), c.opaque_bytes, name(c.op), c.count, c.multiplied, c.vectors, c.in_place, c.misaligned, c.channels, c.slots,
      c.message_bytes_max, c.short_probability, c.delay_ns_max, c.at_a_stretch, c.seed);
}

// Plans of every rank, made once a program.
class PlanStore {
 public:
  const Plan& plan(const CollectiveCase& c, int rank) {
    const Key key{c.collective, c.algorithm, c.n, c.pipeline, c.root, c.in_place && c.vectors <= 1, c.multiplied};
    std::vector<Plan>& plans = plans_[key];
    if (plans.empty()) {
      const Algorithm& algorithm = *find_algorithm(c.collective, c.algorithm);
      std::vector<int>& hosts = hosts_[c.n];
      if (hosts.empty())
        for (int r = 0; r < c.n; ++r) hosts.push_back(r / 3);
      for (int r = 0; r < c.n; ++r) {
        const Group group{r, c.n, c.root, c.pipeline, hosts};
        plans.push_back(lower(record(algorithm, group), algorithm.shape(group), algorithm.name,
                              has_plan_in_place(c, r)));
      }
    }
    return plans[size_t(rank)];
  }

 private:
  using Key = std::tuple<Collective, std::string_view, int, int, int, bool, bool>;
  std::map<Key, std::vector<Plan>> plans_;
  std::map<int, std::vector<int>> hosts_;
};

inline size_t width_of(const CollectiveCase& c) { return c.type == DataType::opaque ? c.opaque_bytes : element_bytes(c.type); }

// An operator on opaque elements that is exact in every order of associating, but does not commute: pairs of bytes (a, b)
// are the maps x → ax + b (modulo 256), which are joined one after the other; a last odd byte is the leftmost operand's.
// custom, which may be taken in any order: bytes are added.
struct OpaqueOperator {
  size_t bytes;
  bool commutes;

  void apply(const uint8_t* left, uint8_t* right) const {
    for (size_t i = 0; commutes && i < bytes; ++i) right[i] = uint8_t(left[i] + right[i]);
    if (commutes) return;
    for (size_t i = 0; i + 1 < bytes; i += 2) {
      right[i + 1] = uint8_t(left[i] * right[i + 1] + left[i + 1]);
      right[i] = uint8_t(left[i] * right[i]);
    }
    if (bytes % 2 == 1) right[bytes - 1] = left[bytes - 1];
  }
  static void apply_all(const void* in, void* inout, size_t count, void* context) {
    const auto& self = *static_cast<const OpaqueOperator*>(context);
    for (size_t i = 0; i < count * self.bytes; i += self.bytes)
      self.apply(static_cast<const uint8_t*>(in) + i, static_cast<uint8_t*>(inout) + i);
  }
  // In the order of ranks.
  std::vector<uint8_t> fold(const std::vector<std::vector<uint8_t>>& inputs) const {
    std::vector<uint8_t> folded = inputs.at(0);
    for (size_t k = 1; k < inputs.size(); ++k) {
      std::vector<uint8_t> right = inputs[k];
      for (size_t i = 0; i < right.size(); i += bytes) apply(&folded[i], &right[i]);
      folded = right;
    }
    return folded;
  }
};

// A rank's value of one element, small enough that folds of up to 9 ranks are exact in any order (integers wrap).
inline double exact_value(const CollectiveCase& c, int rank, Random& random) {
  const bool is_float = family(c.type) == Family::floating, byte_float = element_bytes(c.type) == 1 && is_float;
  if (c.op == ReduceOp::prod && is_float) return random.below(2) ? 1 : -1;
  if (c.op == ReduceOp::prod && family(c.type) == Family::complex) return 1 + double(random.below(2));
  if (c.op == ReduceOp::max || c.op == ReduceOp::min) return double(random.below(5));
  if (byte_float) return double(random.below(2)) * (rank % 2 == 0 ? 1 : -1);
  if (element_bytes(c.type) == 1) return double(random.below(100));
  return double(random.below(21)) - (is_float ? 10 : 0);
}

// One element. Of truth values, indices and bits any will do.
inline void exact_element(const CollectiveCase& c, int rank, Random& random, uint8_t* element) {
  const size_t width = width_of(c);
  const bool bits = c.op >= ReduceOp::band && c.op <= ReduceOp::lor;
  if (c.type == DataType::opaque || (bits && random.chance(0.5))) {
    for (size_t i = 0; i < width; ++i) element[i] = uint8_t(random.next());
    return;
  }
  if (c.type == DataType::boolean) return write_element(element, uint8_t(random.chance(0.5) ? random.next() : 0));
  element_from_double(c.type, exact_value(c, rank, random), element);
  if (family(c.type) != Family::pair) return;
  const int64_t index = random.between(-2, 2);
  std::memcpy(element + width / 2, &index, width / 2);
}

// Magnitudes far apart, and now and then any bits: infinities, not-a-numbers, the smallest.
inline void any_element(DataType type, Random& random, uint8_t* element) {
  const double value = std::ldexp(double(random.between(-99999, 99999)), int(random.between(-24, -4)));
  element_from_double(type, value, element);
  if (random.below(32) == 0)
    for (size_t i = 0; i < element_bytes(type); ++i) element[i] = uint8_t(random.next());
}

// The network that a case runs on.
inline SimulatedOptions network_of(const CollectiveCase& c) {
  SimulatedOptions options;
  options.n = c.n;
  options.channels = c.channels;
  options.slots = c.slots;
  options.message_bytes_max = c.message_bytes_max;
  options.outbox_messages = c.outbox_messages;
  options.lent_bytes_min = 0;
  options.seed = c.seed;
  options.short_probability = c.short_probability;
  options.delay_ns_max = c.delay_ns_max;
  return options;
}

// All ranks' memory of one call.
class CollectiveBuffers {
 public:
  CollectiveBuffers(const CollectiveCase& c, PlanStore& plans)
      : case_(c),
        plans_(plans),
        means_(meaning(c.collective)),
        block_bytes_(c.count * width_of(c)),
        places_(size_t(c.n)),
        memory_(size_t(c.n)),
        scratch_(size_t(c.n)),
        multiplied_(size_t(c.n)),
        tiles_(size_t(c.n)),
        regions_(size_t(c.n)),
        operands_(size_t(c.n * c.vectors)) {
    fill();
    for (int rank = 0; rank < c.n; ++rank) lay_out(rank);
    for (int rank = 0; case_.multiplied && rank < c.n; ++rank) inputs_[size_t(rank)] = product_of(rank);
    expect();
  }

  Work work(int rank, const Engine& engine) {
    const Plan& plan = plans_.plan(case_, rank);
    const Place& place = places_[size_t(rank)];
    std::byte* const memory = memory_[size_t(rank)].data();
    const Call call{case_.collective,    case_.type,  case_.op,
                    uint32_t(case_.root), case_.count, uint16_t(case_.opaque_bytes)};
    Work work;
    work.plan = &plan;
    if (place.output != Part::none) work.output = memory + place.output_at;
    if (place.input != Part::none) work.input = memory + place.input_at;
    if (case_.multiplied) {
      if (has_plan_in_place(case_, rank)) work.input = work.output;
      if (means_.blocks) work.output_first = uint32_t(rank);
    } else if (works_in_place(case_, rank)) {
      // The larger of the two, from its first block on.
      work.output = memory + (place.input == Part::all ? place.input_at : place.output_at);
      work.input = work.output;
    } else if (means_.blocks) {
      work.input_first = place.input == Part::own ? uint32_t(rank) : 0;
      work.output_first = place.output == Part::own ? uint32_t(rank) : 0;
    }
    if (case_.seed % 2 == 1) {  // half of the cases lend
      regions_[size_t(rank)] = {uint64_t(rank), memory, memory_[size_t(rank)].size(), -1};
      work.input_region = work.output_region = &regions_[size_t(rank)];
    }
    work.block_stride = means_.blocks ? case_.count : 0;
    scratch_[size_t(rank)].resize(engine.scratch_bytes(plan, case_.channels) / 64 + 1);
    work.scratch = reinterpret_cast<std::byte*>(scratch_[size_t(rank)].data());
    work.count = case_.count;
    work.element_bytes = width_of(case_);
    work.reduce = reduce_function(case_.type, case_.op);
    if (means_.reduces) work.divisor = divisor(rank);
    if (is_custom()) work.custom = &custom_;
    if (case_.vectors > 0) {
      work.reduce = exact_sum_function(case_.type);
      work.vectors = uint32_t(case_.vectors);
      work.vector_stride = bytes(place.input) / work.element_bytes;
      work.operands = operands_.data();
    }
    if (case_.multiplied) multiply(work, rank, engine);
    work.signature = pack(call);
    return work;
  }

  // Empty where the rank's memory is as it must be after an ok.
  std::string wrong(int rank) const {
    const std::vector<std::byte>& memory = memory_[size_t(rank)];
    const std::vector<std::byte>& before = before_[size_t(rank)];
    const std::vector<std::byte>& expected = expected_[size_t(rank)];
    const size_t at = places_[size_t(rank)].output_at;
    for (size_t i = 0; i < memory.size(); ++i) {
      const bool inside = i >= at && i < at + expected.size();
      if (inside && memory[i] != expected[i - at])
        return fmt::format("rank {}: element {} is wrong", rank, (i - at) / width_of(case_));
      if (!inside && memory[i] != before[i])
        return fmt::format("rank {}: byte {} outside the output has changed", rank, i);
    }
    return "";
  }
  // Where values are not exact: only that all ranks that have the whole result have the same bits.
  std::string differs() const {
    if (means_.transposes || means_.output != Part::all || means_.joins != Joins::all) return "";
    const size_t bytes = expected_[0].size();
    const auto result = [&](int rank) { return memory_[size_t(rank)].data() + places_[size_t(rank)].output_at; };
    for (int rank = 1; bytes > 0 && rank < case_.n; ++rank)
      if (std::memcmp(result(rank), result(0), bytes) != 0)
        return fmt::format("rank {} has other bits than rank 0", rank);
    return "";
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  // A rank's parts of the two buffers, and where in its memory they begin.
  struct Place {
    Part input, output;
    size_t input_at = 0, output_at = 0;
  };

  bool is_custom() const { return case_.op == ReduceOp::custom || case_.op == ReduceOp::custom_in_order; }
  uint32_t joined(int rank) const { return means_.joined(uint32_t(rank), uint32_t(case_.n)); }
  uint32_t divisor(int rank) const {
    if (case_.vectors > 0) return case_.op == ReduceOp::avg ? std::max(1u, joined(rank) * uint32_t(case_.vectors)) : 1;
    if (case_.op == ReduceOp::avg) return joined(rank);
    return gives_truth(case_.op, case_.type) ? 1 : 0;
  }
  static int32_t scalar(int rank) { return rank % 3 + 2; }

  std::vector<uint8_t> product_of(int rank) const {
    std::vector<uint8_t> product = inputs_[size_t(rank)];
    const size_t width = width_of(case_);
    for (size_t at = 0; at < product.size(); at += width)
      element_from_double(case_.type, element_to_double(case_.type, &product[at]) * scalar(rank), &product[at]);
    return product;
  }

  void multiply(Work& work, int rank, const Engine& engine) {
    MultipliedInput& input = multiplied_[size_t(rank)];
    input = {memory_[size_t(rank)].data() + places_[size_t(rank)].input_at, case_.type, {}};
    element_from_double(case_.type, scalar(rank), reinterpret_cast<uint8_t*>(input.scalar.data()));
    work.multiplied = &input;
    if (has_plan_in_place(case_, rank)) return;
    std::vector<Line>& tiles = tiles_[size_t(rank)];
    tiles.resize(engine.multiplied_tiles_bytes(work, case_.channels) / sizeof(Line));
    work.input = input.tiles = reinterpret_cast<std::byte*>(tiles.data());
    work.input_region = nullptr;
  }

  // What a rank's result joins.
  std::vector<uint8_t> sum_of(int rank) const {
    const std::vector<std::vector<uint8_t>> inputs(inputs_.begin(), inputs_.begin() + long(joined(rank)));
    if (is_custom()) return opaque_.fold(inputs);
    if (case_.vectors > 0) return reference_exact_sum(case_.type, vectors_of(inputs), divisor(rank));
    if (case_.left_fold) return reference_left_fold(case_.type, case_.op, inputs, divisor(rank));
    return reference_reduce(case_.type, case_.op, inputs, divisor(rank));
  }

  size_t bytes(Part part) const {
    if (part == Part::none) return 0;
    return part == Part::all && means_.blocks ? block_bytes_ * size_t(case_.n) : block_bytes_;
  }

  std::vector<std::vector<uint8_t>> vectors_of(const std::vector<std::vector<uint8_t>>& inputs) const {
    std::vector<std::vector<uint8_t>> vectors;
    for (const std::vector<uint8_t>& input : inputs)
      for (size_t k = 0, each = input.size() / size_t(case_.vectors); k < size_t(case_.vectors); ++k)
        vectors.emplace_back(input.begin() + long(k * each), input.begin() + long((k + 1) * each));
    return vectors;
  }

  // Sums that are hard to get right.
  void fill_with_vectors() {
    const DataType part = case_.type == DataType::complex64    ? DataType::float32
                          : case_.type == DataType::complex128 ? DataType::float64
                                                               : case_.type;
    const size_t vectors = size_t(case_.vectors), each = bytes(Part::all);
    const auto all = Adversary(part, case_.seed)
                         .inputs(size_t(case_.n) * vectors, each / element_bytes(part), divisor(case_.n - 1));
    for (size_t rank = 0; rank < size_t(case_.n); ++rank) {
      std::vector<uint8_t>& input = inputs_.emplace_back();
      for (size_t k = 0; k < vectors; ++k)
        input.insert(input.end(), all[rank * vectors + k].begin(), all[rank * vectors + k].end());
    }
  }

  void fill() {
    for (int rank = 0; rank < case_.n; ++rank) {
      const bool is_root = rank == case_.root;
      places_[size_t(rank)] = {means_.input_of(is_root), means_.output_of(is_root)};
    }
    if (case_.vectors > 0) return fill_with_vectors();
    Random random(case_.seed + 1);
    const size_t width = width_of(case_);
    for (int rank = 0; rank < case_.n; ++rank) {
      inputs_.emplace_back(bytes(places_[size_t(rank)].input));
      for (size_t at = 0; at < inputs_.back().size(); at += width) {
        uint8_t* const element = inputs_.back().data() + at;
        if (case_.exact) exact_element(case_, rank, random, element);
        else if (case_.left_fold) any_element(case_.type, random, element);
        else element_from_double(case_.type, double(random.between(-99999, 99999)) / 777, element);
      }
    }
  }

  // Guard bytes, the input, guard bytes, the output, guard bytes. In place, one lies in the other.
  void lay_out(int rank) {
    constexpr size_t guard = 64;
    Place& place = places_[size_t(rank)];
    const size_t input_bytes = inputs_[size_t(rank)].size(), output_bytes = bytes(place.output);
    place.input_at = guard + case_.misaligned;
    place.output_at = place.input_at + input_bytes + guard + 1;
    const size_t end = place.output_at + std::max(input_bytes, output_bytes) + guard, own_at = size_t(rank) * block_bytes_;
    if (works_in_place(case_, rank)) {
      if (place.output == Part::own) place.output_at = place.input_at + own_at;
      else place.input_at = place.output_at + (place.input == Part::own ? own_at : 0);
    }
    std::vector<std::byte>& memory = memory_[size_t(rank)];
    memory.assign(end, std::byte{0xa5});
    if (input_bytes > 0) std::memcpy(memory.data() + place.input_at, inputs_[size_t(rank)].data(), input_bytes);
    before_.push_back(memory);
  }

  // Block `block` of a rank's input, or the only one that it has.
  void append_block(std::vector<uint8_t>& to, const std::vector<uint8_t>& from, int block) const {
    const auto begin = from.begin() + (from.size() > block_bytes_ ? long(size_t(block) * block_bytes_) : 0);
    to.insert(to.end(), begin, begin + long(block_bytes_));
  }

  void expect() {
    std::vector<uint8_t> sum;
    const bool alike = means_.joins == Joins::all;
    if (means_.reduces && alike) sum = sum_of(0);
    for (int rank = 0; rank < case_.n; ++rank) {
      std::vector<uint8_t> result;
      const Part part = places_[size_t(rank)].output;
      if (!alike && part != Part::none) sum = sum_of(rank);
      if (part == Part::all && !means_.blocks) {
        result = means_.reduces ? sum : inputs_[size_t(case_.root)];
      } else if (part == Part::own) {
        append_block(result, means_.reduces ? sum : inputs_[size_t(case_.root)], rank);
      } else if (part == Part::all) {
        for (int r = 0; r < case_.n; ++r) append_block(result, inputs_[size_t(r)], rank);
      }
      expected_.emplace_back(result.size());
      if (!result.empty()) std::memcpy(expected_.back().data(), result.data(), result.size());
    }
  }

  CollectiveCase case_;
  PlanStore& plans_;
  Meaning means_;
  OpaqueOperator opaque_{case_.opaque_bytes, case_.op == ReduceOp::custom};
  CustomReduction custom_{OpaqueOperator::apply_all, &opaque_, case_.opaque_bytes};
  size_t block_bytes_;  // of what `count` counts
  std::vector<Place> places_;
  std::vector<std::vector<uint8_t>> inputs_;
  std::vector<std::vector<std::byte>> memory_, before_, expected_;
  std::vector<std::vector<Line>> scratch_;
  std::vector<MultipliedInput> multiplied_;
  std::vector<std::vector<Line>> tiles_;
  std::vector<LentRegion> regions_;
  std::vector<const void*> operands_;  // of all ranks: one thread runs them
};

// Runs it with everybody alive. Empty where all is right.
inline std::string run_collective(const CollectiveCase& c, PlanStore& plans) {
  Simulation simulation(network_of(c), c.cold_outputs, c.at_a_stretch);
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
  for (int rank = 0; (c.exact || c.left_fold || c.vectors > 0) && rank < c.n; ++rank) {
    const std::string wrong = buffers.wrong(rank);
    if (!wrong.empty()) return fmt::format("{}: {}", describe(c), wrong);
  }
  const std::string differs = buffers.differs();
  return differs.empty() ? "" : fmt::format("{}: {}", describe(c), differs);
}

}  // namespace tutti
