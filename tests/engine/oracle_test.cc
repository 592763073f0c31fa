// The oracle matrix: every collective, type, operator and algorithm, 1 to 17 ranks, in place and not, for several counts,
// run by the engine on a simulated network and compared byte by byte with what a naive reference says.
//
// TUTTI_TEST_EVERYTHING runs all of it; without, one case in so many, at random. What makes the whole affordable: a
// rank's input repeats a pattern, so that the reference adds one period only, and the networks are used again and again.
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "engine/collective.h"
#include "sanitizer.h"

namespace tutti {
namespace {

constexpr int ranks_max = 17;
constexpr size_t period = 1009;  // elements
constexpr std::array counts = {size_t{0}, size_t{1}, size_t{7}, size_t{1000}, size_t{65537}};
constexpr size_t guard_bytes = 64;

const bool everything = std::getenv("TUTTI_TEST_EVERYTHING") != nullptr;
constexpr uint64_t sampled_one_in = test::sanitized ? 300 : 25;

using Bytes = std::vector<uint8_t>;

// `elements` elements of a repeated pattern, from element `first` of the repetition on.
void repeat(const Bytes& pattern, size_t width, size_t first, size_t elements, std::byte* to) {
  for (size_t at = 0; at < elements;) {
    const size_t from = (first + at) % period, n = std::min(elements - at, period - from);
    std::memcpy(to + at * width, pattern.data() + from * width, n * width);
    at += n;
  }
}

bool repeats(const Bytes& pattern, size_t width, size_t first, size_t elements, const std::byte* found) {
  for (size_t at = 0; at < elements;) {
    const size_t from = (first + at) % period, n = std::min(elements - at, period - from);
    if (std::memcmp(found + at * width, pattern.data() + from * width, n * width) != 0) return false;
    at += n;
  }
  return true;
}

// One period of every rank's input, and of the sums of the first 1, 2, … ranks.
class Patterns {
 public:
  Patterns(const CollectiveCase& c) : case_(c) {
    Random random(uint64_t(c.type) * 100 + uint64_t(c.op));
    const size_t width = width_of(c);
    const bool byte_float = family(c.type) == Family::floating && width == 1;
    for (int rank = 0; rank < ranks_max; ++rank) {
      Bytes& input = inputs_.emplace_back(period * width);
      for (size_t i = 0; i < period; ++i) exact_element(c, rank, random, &input[i * width]);
      // Sums of more ranks would not be exact in three bits.
      if (byte_float && (c.op == ReduceOp::sum || c.op == ReduceOp::avg) && rank >= 8)
        for (size_t i = 0; i < period; ++i) element_from_double(c.type, 0, &input[i * width]);
    }
  }
  const Bytes& input(int rank) const { return inputs_[size_t(rank)]; }
  // Of the first `joined` ranks, divided where the operator divides.
  const Bytes& sum(uint32_t joined, uint32_t divisor) {
    Bytes& sum = sums_[{joined, divisor}];
    if (sum.empty()) sum = reference_reduce(case_.type, case_.op, {inputs_.begin(), inputs_.begin() + long(joined)}, divisor);
    return sum;
  }

 private:
  CollectiveCase case_;
  std::vector<Bytes> inputs_;
  std::map<std::pair<uint32_t, uint32_t>, Bytes> sums_;
};

// Part of a buffer that repeats a pattern.
struct Stretch {
  const Bytes* pattern;
  size_t first;     // element of the repetition
  size_t elements;
};

// One rank's memory of one case: guard, input, guard, output, guard; in place, one lies in the other.
class RankMemory {
 public:
  void lay_out(const CollectiveCase& c, int rank, Patterns& patterns) {
    const Meaning& means = meaning(c.collective);
    const bool is_root = rank == c.root;
    width_ = width_of(c);
    const Part input = means.input_of(is_root), output = means.output_of(is_root);
    const size_t n = size_t(c.n), own = size_t(rank) * c.count;
    const auto elements = [&](Part part) {
      return part == Part::none ? 0 : part == Part::all && means.blocks ? c.count * n : c.count;
    };
    one_buffer_ = works_in_place(c, rank);
    has_input_ = input != Part::none;
    has_output_ = output != Part::none;
    input_ = {&patterns.input(rank), 0, elements(input)};
    expect(c, rank, output, means, patterns);
    const size_t input_bytes = elements(input) * width_;
    output_bytes_ = elements(output) * width_;
    input_at_ = guard_bytes;
    output_at_ = input_at_ + input_bytes + guard_bytes;
    if (one_buffer_ && means.blocks && output == Part::own) output_at_ = input_at_ + own * width_;
    else if (one_buffer_) input_at_ = output_at_ + (means.blocks && input == Part::own ? own * width_ : 0);
    end_ = std::max(input_at_ + input_bytes, output_at_ + output_bytes_) + guard_bytes;
    if (memory_.size() * 64 < end_) memory_.resize(end_ / 64 + 1);
    std::memset(bytes(), guard, guard_bytes);
    std::memset(bytes() + input_at_ + input_bytes, guard, guard_bytes);
    std::memset(bytes() + output_at_, guard, output_bytes_ + guard_bytes);
    if (has_input_) repeat(*input_.pattern, width_, 0, input_.elements, bytes() + input_at_);
    larger_is_input_ = input == Part::all;
  }

  Work work(const CollectiveCase& c, int rank, const Plan& plan, const Engine& engine) {
    const Meaning& means = meaning(c.collective);
    const bool is_root = rank == c.root;
    Work work;
    work.plan = &plan;
    if (has_input_) work.input = bytes() + input_at_;
    if (has_output_) work.output = bytes() + output_at_;
    if (one_buffer_) {
      work.output = bytes() + (larger_is_input_ ? input_at_ : output_at_);
      work.input = work.output;
    } else if (means.blocks) {
      work.input_first = means.input_of(is_root) == Part::own ? uint32_t(rank) : 0;
      work.output_first = means.output_of(is_root) == Part::own ? uint32_t(rank) : 0;
    }
    work.block_stride = means.blocks ? c.count : 0;
    const size_t scratch_bytes = engine.scratch_bytes(plan, 1);
    if (scratch_.size() * 64 < scratch_bytes) scratch_.resize(scratch_bytes / 64 + 1);
    work.scratch = reinterpret_cast<std::byte*>(scratch_.data());
    work.count = c.count;
    work.element_bytes = width_;
    work.reduce = reduce_function(c.type, c.op);
    if (means.reduces) work.divisor = divisor_of(c, rank);
    work.signature = pack({c.collective, c.type, c.op, uint32_t(c.root), c.count});
    return work;
  }

  std::string wrong() const {
    size_t at = output_at_;
    for (const Stretch& part : expected_) {
      if (!repeats(*part.pattern, width_, part.first, part.elements, bytes() + at)) return "a wrong element";
      at += part.elements * width_;
    }
    if (has_input_ && !one_buffer_ && !repeats(*input_.pattern, width_, 0, input_.elements, bytes() + input_at_))
      return "an input that has changed";
    const auto is_guard = [&](size_t from) {
      for (size_t i = 0; i < guard_bytes; ++i)
        if (bytes()[from + i] != std::byte{guard}) return false;
      return true;
    };
    // In place, the buffer that lies in the other has no guards of its own.
    const bool clean = is_guard(0) && is_guard(end_ - guard_bytes);
    return clean ? "" : "a byte outside the buffers that has changed";
  }

 private:
  static constexpr unsigned char guard = 0xa5;
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  static uint32_t joined(const CollectiveCase& c, int rank) {
    return meaning(c.collective).joined(uint32_t(rank), uint32_t(c.n));
  }
  static uint32_t divisor_of(const CollectiveCase& c, int rank) {
    if (c.op == ReduceOp::avg) return joined(c, rank);
    return gives_truth(c.op, c.type) ? 1 : 0;
  }
  void expect(const CollectiveCase& c, int rank, Part output, const Meaning& means, Patterns& patterns) {
    expected_.clear();
    if (output == Part::none) return;
    const bool one_of_many = means.blocks && output == Part::own;
    const size_t own = size_t(rank) * c.count;
    if (means.reduces) {
      expected_.push_back({&patterns.sum(joined(c, rank), divisor_of(c, rank)), one_of_many ? own : 0, c.count});
    } else if (output == Part::all && means.blocks) {
      for (int r = 0; r < c.n; ++r) {
        const bool gave_all = means.input_of(r == c.root) == Part::all;
        expected_.push_back({&patterns.input(r), gave_all ? own : 0, c.count});
      }
    } else {  // a part of the root's
      expected_.push_back({&patterns.input(c.root), one_of_many ? own : 0, c.count});
    }
  }

  std::byte* bytes() { return reinterpret_cast<std::byte*>(memory_.data()); }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(memory_.data()); }

  std::vector<Line> memory_, scratch_;
  std::vector<Stretch> expected_;
  Stretch input_{};
  size_t width_ = 1, input_at_ = 0, output_at_ = 0, output_bytes_ = 0, end_ = 0;
  bool one_buffer_ = false, has_input_ = false, has_output_ = false, larger_is_input_ = false;
};

// What one thread keeps between cases.
class Bench {
 public:
  // Empty where all is right.
  std::string run(const CollectiveCase& c, Patterns& patterns) {
    Simulation& simulation = network(c);
    for (int rank = 0; rank < c.n; ++rank) {
      RankMemory& memory = ranks_[size_t(rank)];
      memory.lay_out(c, rank, patterns);
      simulation.start(rank, memory.work(c, rank, plans_.plan(c, rank), simulation.engine(rank)), 0, 1);
    }
    simulation.run();
    for (int rank = 0; rank < c.n; ++rank) {
      if (simulation.status(rank) != Status::done) return fmt::format("{}: rank {} does not end", describe(c), rank);
      const std::string wrong = ranks_[size_t(rank)].wrong();
      if (!wrong.empty()) return fmt::format("{}: rank {} has {}", describe(c), rank, wrong);
    }
    return "";
  }

 private:
  Simulation& network(const CollectiveCase& c) {
    std::unique_ptr<Simulation>& simulation = networks_[{c.n, c.message_bytes_max}];
    if (simulation == nullptr) simulation = std::make_unique<Simulation>(network_of(c));
    return *simulation;
  }

  PlanStore plans_;
  std::array<RankMemory, size_t(ranks_max)> ranks_;
  std::map<std::pair<int, size_t>, std::unique_ptr<Simulation>> networks_;
};

struct Outcome {
  std::atomic<uint64_t> cases{0};
  std::atomic<bool> stopped{false};
  std::mutex mutex;
  std::string problem;

  void add(const std::string& found) {
    cases.fetch_add(1, std::memory_order_relaxed);
    if (found.empty()) return;
    const std::lock_guard lock(mutex);
    if (!stopped.exchange(true)) problem = found;
  }
};

// All algorithms and numbers of ranks of one collective, type and operator.
void run_all(CollectiveCase c, Bench& bench, Random& random, Outcome& outcome) {
  Patterns patterns(c);
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective != c.collective) continue;
    c.algorithm = algorithm.name;
    c.pipeline = algorithm.pipelined ? 3 : 1;
    for (c.n = 1; c.n <= ranks_max; ++c.n) {
      c.root = meaning(c.collective).rooted ? c.n / 2 : 0;
      for (const size_t count : counts) {
        // A count is the whole buffer's: where it has a block for each rank, those share it.
        c.count = meaning(c.collective).blocks ? (count + size_t(c.n) - 1) / size_t(c.n) : count;
        c.message_bytes_max = count > 1000 ? 65536 : 4096;
        for (const bool in_place : {false, true}) {
          c.in_place = in_place;
          if (outcome.stopped) return;
          if (everything || random.below(sampled_one_in) == 0) outcome.add(bench.run(c, patterns));
        }
      }
    }
  }
}

TEST(Oracle, EveryCollectiveTypeOperatorAlgorithmNumberOfRanksAndCountInPlaceAndNot) {
  std::vector<CollectiveCase> cases;
  for (const Collective collective : planned_collectives)
    for (const DataTypeInfo& type : data_types)
      for (size_t op = 0; op < reduce_op_names.size(); ++op) {
        const bool reduces = meaning(collective).reduces;
        if (reduces ? !defined(ReduceOp(op), type.type) : ReduceOp(op) != ReduceOp::sum) continue;
        CollectiveCase& c = cases.emplace_back();
        c.collective = collective;
        c.type = type.type;
        c.op = ReduceOp(op);
      }
  Outcome outcome;
  std::atomic<size_t> next{0};
  const auto work = [&] {
    Bench bench;
    for (size_t i = next++; i < cases.size() && !outcome.stopped; i = next++) {
      Random random(i);
      run_all(cases[i], bench, random, outcome);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  }
  EXPECT_EQ(outcome.problem, "");
  fmt::print("{} cases\n", outcome.cases.load());
  EXPECT_GT(outcome.cases.load(), test::sanitized ? 500u : 10'000u);
}

}  // namespace
}  // namespace tutti
