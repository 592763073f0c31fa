// The kernel of linked plans on the host, threads as blocks: every algorithm that can be linked gives each rank the bits
// that the steps of its plans give.
#include "device/linked_body.h"

#include <thread>

#include "algorithms/catalog.h"
#include "body_cases.h"
#include "cuda_kernels/plan.h"
#include "device/host_block.h"
#include "device/linked_call.h"
#include "schedule/verbs.h"

namespace tutti::test {
namespace {

constexpr uint32_t block_threads = 32;

struct Case {
  Collective collective;
  std::string_view algorithm;
  int n;
  bool in_place;
  DataType type;
  size_t count;
  uint32_t channels;
};

std::vector<Plan> plans_of(const Case& c) {
  const Algorithm& algorithm = *find_algorithm(c.collective, c.algorithm);
  std::vector<Plan> plans;
  for (int rank = 0; rank < c.n; ++rank) {
    const Group group{.rank = rank, .n = c.n, .root = 0, .pipeline = 2, .host_of = {}};
    Schedule schedule;
    Recorder recorder(schedule);
    algorithm.record(recorder, group);
    plans.push_back(lower(schedule, algorithm.shape(group), c.algorithm, c.in_place));
  }
  return plans;
}

// What all ranks have, once with the linked plan on blocks and once with its steps one after the other on the host's
// functions: a second way through the same plan, whose expressions the tests of link() prove.
class Ranks {
 public:
  Ranks(const Case& c, const LinkedPlan& plan, uint32_t divisor, std::mt19937_64& random)
      : c_(c), plan_(plan), width_(element_bytes(c.type)) {
    const uint64_t elements = plan.blocks ? c.count * plan.chunks : c.count;
    const bool odd = random() % 3 == 0;
    for (int r = 0; r < c.n; ++r)
      for (auto* buffers : {&inputs_, &outputs_}) {
        const size_t shift = odd ? random() % 16 / width_ * width_ : 0;
        buffers->emplace_back(mixed_elements(c.type, elements, random), elements * width_, shift);
      }
    workspace_.assign(size_t(c.n) * linked_workspace_bytes(plan, c.type, c.count) / 8 + 1, 0);
    // In place, what is but a rank's own block is that block of the other buffer.
    const Meaning& meant = meaning(c.collective);
    call_ = {&plan, c.type, ReduceOp::sum, c.count, divisor, {}, {}, {}, random() >> 8, {}};
    for (uint32_t r = 0; r < uint32_t(c.n); ++r) {
      const bool is_root = r == 0;
      const size_t block = c.in_place && plan.blocks ? r * c.count * width_ : 0;
      call_.outputs[r] = outputs_[r].begin() + (meant.output_of(is_root) == Part::own ? block : 0);
      call_.inputs[r] = (c.in_place ? outputs_ : inputs_)[r].begin() + (meant.input_of(is_root) == Part::own ? block : 0);
    }
    if (plan.waits || plan.slots > 0) share_workspace(call_, workspace_.data());
    // As the device does it, but for the number of channels, which is any here.
    const KernelCall taken = linked_kernel_call(call_);
    a_ = linked_arguments(call_, {taken.type, taken.count}, 1000);
    a_.part.channels = c.channels;
    for (uint32_t r = 0; r < uint32_t(c.n); ++r)  // of calls before
      if (call_.workspaces[r] != nullptr) std::fill_n(a_.part.progress(r, 0), linked_channels_max, a_.part.epoch);
  }

  template <class Element, class Op>
  void run_blocks(std::mt19937_64& random) {
    std::vector<uint32_t> order(size_t(c_.n) * c_.channels);
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    const auto play = [this](uint32_t index) {
      HostBlock<ReduceArguments> block{index, block_threads};
      HostMemory memory;
      linked_body(a_, block, memory, FoldElements<Element, Op>());
    };
    if (!plan_.waits) {
      for (const uint32_t index : order) play(index);  // any order will do, one after the other too
      return;
    }
    std::vector<std::jthread> blocks;
    for (const uint32_t index : order) blocks.emplace_back(play, index);
  }

  // Step by step, whole chunks, by the host's functions.
  void run_steps(ReduceOp op) {
    call_.op = op;
    run_linked_on_host(call_);
  }

  std::vector<std::vector<uint8_t>> results() {
    std::vector<std::vector<uint8_t>> all;
    const uint64_t bytes = (plan_.blocks ? c_.count * plan_.chunks : c_.count) * width_;
    for (Bytes& output : outputs_) {
      const auto* begin = reinterpret_cast<const uint8_t*>(output.begin());
      all.emplace_back(begin, begin + bytes);
    }
    return all;
  }
  void restore(const std::vector<std::vector<uint8_t>>& outputs) {
    for (size_t r = 0; r < outputs.size(); ++r)
      if (!outputs[r].empty()) std::memcpy(outputs_[r].begin(), outputs[r].data(), outputs[r].size());
  }

 private:
  const Case c_;
  const LinkedPlan& plan_;
  const size_t width_;
  std::vector<Bytes> inputs_, outputs_;
  std::vector<uint64_t> workspace_;
  LinkedCall call_;
  LinkedArguments a_{};
};

// False where the case cannot be linked.
template <class Element, class Op>
bool gives_the_bits(const Case& c, ReduceOp op, std::mt19937_64& random) {
  const std::vector<Plan> plans = plans_of(c);
  constexpr bool yes[] = {true, true, true, true, true, true, true, true}, no[linked_ranks_max] = {};
  static LinkedPlan plan;
  if (!link(c.collective, plans, 0, std::span(c.in_place ? yes : no).first(size_t(c.n)), &plan)) return false;
  const uint32_t divisor = op == ReduceOp::avg ? uint32_t(c.n) : 0;
  Ranks ranks(c, plan, divisor, random);
  const auto before = ranks.results();
  ranks.run_steps(op == ReduceOp::avg ? ReduceOp::sum : op);
  const auto expected = ranks.results();
  ranks.restore(before);
  ranks.run_blocks<Element, Op>(random);
  EXPECT_EQ(ranks.results(), expected) << name(c.collective) << "/" << c.algorithm << " of " << c.n << " ranks, "
                                       << c.count << " elements, " << c.channels << " channels"
                                       << (c.in_place ? ", in place" : "") << ", seed " << seed;
  return true;
}

TEST(LinkedBody, GivesTheBitsOfThePlansForEveryAlgorithm) {
  std::mt19937_64 random(seed + 6);
  int linked = 0;
  for (const Algorithm& algorithm : catalog())
    for (int n = 1; n <= (few_cases ? 5 : int(linked_ranks_max)); ++n)
      for (const bool in_place : {false, true})
        for (const size_t count : {size_t{1}, size_t{100}, size_t(random() % 3000)}) {
          const Case c{algorithm.collective, algorithm.name, n, in_place, DataType::float32, count, 1 + uint32_t(random() % 3)};
          linked += gives_the_bits<PlainElement<float>, scalar::Sum>(c, ReduceOp::avg, random);
          ASSERT_FALSE(HasFailure());
        }
  EXPECT_GT(linked, few_cases ? 250 : 450);
}

TEST(LinkedBody, AddsEveryTypeFromTheLeft) {
  std::mt19937_64 random(seed + 7);
  for (const std::string_view algorithm : {"one_shot", "two_shot"})
    for (const bool in_place : {false, true}) {
      const auto c = [&](DataType type) {
        return Case{Collective::all_reduce, algorithm, 8, in_place, type, 1 + random() % 5000, 4};
      };
      EXPECT_TRUE((gives_the_bits<ScalarBfloat16, scalar::Sum>(c(DataType::bfloat16), ReduceOp::sum, random)));
      EXPECT_TRUE((gives_the_bits<PlainElement<double>, scalar::Max>(c(DataType::float64), ReduceOp::max, random)));
      EXPECT_TRUE((gives_the_bits<PlainElement<int8_t>, scalar::Sum>(c(DataType::int8), ReduceOp::sum, random)));
      EXPECT_TRUE((gives_the_bits<PlainElement<uint64_t>, scalar::Prod>(c(DataType::uint64), ReduceOp::prod, random)));
    }
}

TEST(LinkedBody, SharesEachElementOfAChunkOnce) {
  for (uint64_t count = 0; count < 700; ++count)
    for (uint32_t channels = 1; channels < 9; ++channels) {
      uint64_t next = 0;
      for (uint32_t channel = 0; channel < channels; ++channel) {
        const ElementRange range = share(count, channel, channels, 4);
        EXPECT_EQ(range.first, next);
        EXPECT_TRUE(range.first % 16 == 0 || range.count == 0);
        next += range.count;
      }
      EXPECT_EQ(next, count);
    }
}

TEST(LinkedBody, HasNoMoreBlocksThanAreUnderWayAtOnceAndNoMoreThanItHasWorkFor) {
  const std::vector<Plan> plans = plans_of({Collective::all_reduce, "two_shot", 8, false, DataType::float32, 1, 1});
  constexpr bool no[linked_ranks_max] = {};
  static LinkedPlan plan;
  ASSERT_TRUE(link(Collective::all_reduce, plans, 0, no, &plan));
  const auto channels = [&](size_t count, uint32_t blocks_max) {
    LinkedCall call;
    call.plan = &plan, call.count = count;
    return linked_arguments(call, {call.type, count}, blocks_max).part.channels;
  };
  EXPECT_EQ(channels(1, 264), 1u);
  EXPECT_EQ(channels(size_t{64} << 20, 264), 33u);
  EXPECT_EQ(channels(size_t{64} << 20, 1 << 20), linked_channels_max);
  EXPECT_EQ(channels(size_t{64} << 20, 3), 1u);  // the launch then says that it cannot be
}

TEST(LinkedBody, FitsAKernelsParameters) {
  EXPECT_LE(sizeof(LinkedArguments), 32764u);
  EXPECT_LE(sizeof(PacketArguments), 4096u);
}

}  // namespace
}  // namespace tutti::test
