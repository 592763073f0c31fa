// What each mode of determinism promises, over the transports: random numbers of ranks, sizes, splits into calls and
// groups, algorithms, alignments, streams and instruction sets give one result for one input.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "reduce/targets.h"
#include <hwy/targets.h>

#include "base/types.h"
#include "communicator/ranks.h"
#include "reduce/reduce.h"
#include "reduce/reference.h"
#include "sanitizer.h"
#include "schedule/collective.h"
#include "tutti/tutti.h"

namespace tutti {
namespace {

using test::RanksOptions;
using test::run_threads;
using Bytes = std::vector<uint8_t>;
using Random = std::mt19937_64;

const bool everything = std::getenv("TUTTI_TEST_EVERYTHING") != nullptr;
const int worlds = everything ? 300 : test::sanitized ? 6 : 22;
constexpr int calls_each = test::sanitized ? 5 : 25;

#define ASSERT_OK(call) ASSERT_EQ(call, tuttiSuccess) << tuttiGetLastError(nullptr)

size_t below(Random& random, size_t n) { return size_t(random() % n); }

// Magnitudes far apart, and now and then any bits.
Bytes any_elements(DataType type, size_t count, Random& random) {
  const size_t width = element_bytes(type);
  Bytes data(count * width);
  for (size_t at = 0; at < data.size(); at += width) {
    const double value = std::ldexp(double(below(random, 200001)) - 1e5, int(below(random, 20)) - 24);
    element_from_double(type, value, &data[at]);
    if (below(random, 32) == 0)
      for (size_t i = 0; i < width; ++i) data[at + i] = uint8_t(random());
  }
  return data;
}

// One input: all ranks' vectors, and what must come of them.
struct Input {
  Collective kind;
  DataType type;
  ReduceOp op;
  size_t count;  // of the result
  int root;
  std::vector<Bytes> vectors;
  Bytes result;  // reduce_scatter: all blocks
};

Input random_input(int n, Random& random) {
  constexpr Collective kinds[] = {Collective::all_reduce, Collective::all_reduce, Collective::reduce,
                                  Collective::reduce_scatter};
  Input input{kinds[below(random, 4)], {}, {}, 0, int(below(random, size_t(n))), {}, {}};
  do {
    input.type = data_types[below(random, data_types.size())].type;
    input.op = ReduceOp(below(random, 5));
  } while (!defined(input.op, input.type) || (!order_matters(input.op, input.type) && below(random, 5) != 0));
  constexpr size_t scales[] = {4, 100, 2000, 20000};
  input.count = below(random, scales[below(random, 4)]) + 1;
  const size_t blocks = input.kind == Collective::reduce_scatter ? size_t(n) : 1;
  for (int r = 0; r < n; ++r) input.vectors.push_back(any_elements(input.type, input.count * blocks, random));
  const uint32_t divisor = input.op == ReduceOp::avg ? uint32_t(n) : gives_truth(input.op, input.type) ? 1 : 0;
  input.result = reference_left_fold(input.type, input.op, input.vectors, divisor);
  return input;
}

// How one rank makes the calls of an input: choices that all ranks make alike, and some of its own.
struct Way {
  std::vector<size_t> cuts;  // of the result, from 0 to count
  bool grouped, streamed, prepared, asked;
  const char* algorithm;
};

Way random_way(const Input& input, Random& random) {
  Way way{{0, input.count}, below(random, 2) != 0, below(random, 3) == 0, below(random, 6) == 0, below(random, 3) != 0,
          nullptr};
  for (size_t k = below(random, 4); k > 0; --k) way.cuts.push_back(below(random, input.count + 1));
  std::sort(way.cuts.begin(), way.cuts.end());
  if (way.prepared) way.grouped = way.streamed = false;
  if (input.kind == Collective::all_reduce && below(random, 2) != 0) way.algorithm = below(random, 2) ? "one_shot" : "two_shot";
  return way;
}

class Rank {
 public:
  Rank(int n, int rank, tuttiComm_t comm, uint64_t seed) : n_(size_t(n)), rank_(size_t(rank)), comm_(comm), own_(seed) {}

  void run(const Input& input, const Way& way) {
    const size_t width = element_bytes(input.type), blocks = input.kind == Collective::reduce_scatter ? n_ : 1;
    const Bytes& mine = input.vectors[rank_];
    // A piece of the result needs that piece of every block, one after the other.
    std::vector<Bytes> send, recv;
    const auto piece_of = [&](size_t k) { return way.cuts[k + 1] - way.cuts[k]; };
    for (size_t k = 0; k + 1 < way.cuts.size(); ++k) {
      Bytes piece(offset_);
      for (size_t b = 0; b < blocks; ++b) {
        const auto from = mine.begin() + long((b * input.count + way.cuts[k]) * width);
        piece.insert(piece.end(), from, from + long(piece_of(k) * width));
      }
      send.push_back(piece);
      recv.emplace_back(piece_of(k) * width + offset_);
    }
    tuttiStream_t stream = nullptr;
    tuttiPrepared_t prepared = nullptr;
    if (way.streamed) {
      ASSERT_OK(tuttiStreamCreate(&stream));
    }
    if (way.prepared) {
      ASSERT_OK(tuttiPrepareStart());
    }
    if (way.grouped) {
      ASSERT_OK(tuttiGroupStart());
    }
    for (size_t k = 0; k < send.size(); ++k)
      ASSERT_OK(call(input, way, send[k].data() + offset_, recv[k].data() + offset_, piece_of(k), stream));
    if (way.grouped) {
      ASSERT_OK(tuttiGroupEnd());
    }
    if (way.prepared) {
      ASSERT_OK(tuttiPrepareEnd(&prepared));
      ASSERT_OK(tuttiPreparedStart(prepared, nullptr));
      ASSERT_OK(tuttiPreparedDestroy(prepared));
    }
    if (way.streamed) {
      ASSERT_OK(tuttiStreamSynchronize(stream));
    }
    ASSERT_OK(tuttiStreamDestroy(stream));
    compare(input, way, recv);
    offset_ = below(own_, 17);
  }

 private:
  tuttiResult_t call(const Input& input, const Way& way, const void* send, void* recv, size_t count,
                     tuttiStream_t stream) {
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    if (way.asked) options.determinism = tuttiDeterminismStrict;
    options.algorithm = way.algorithm;
    const auto type = tuttiDataType_t(input.type);
    const auto op = tuttiRedOp_t(input.op);
    if (input.kind == Collective::reduce_scatter)
      return tuttiReduceScatterWith(send, recv, count, type, op, comm_, stream, &options);
    if (input.kind == Collective::reduce)
      return tuttiReduceWith(send, recv, count, type, op, input.root, comm_, stream, &options);
    return tuttiAllReduceWith(send, recv, count, type, op, comm_, stream, &options);
  }

  void compare(const Input& input, const Way& way, const std::vector<Bytes>& recv) const {
    if (input.kind == Collective::reduce && rank_ != size_t(input.root)) return;
    const size_t width = element_bytes(input.type);
    const size_t block = input.kind == Collective::reduce_scatter ? rank_ * input.count : 0;
    for (size_t k = 0; k < recv.size(); ++k) {
      const auto expected = input.result.begin() + long((block + way.cuts[k]) * width);
      ASSERT_TRUE(std::equal(recv[k].begin() + long(offset_), recv[k].end(), expected))
          << fmt::format("{} {} {} count {} rank {} of {}: elements {} to {} on {}", name(input.kind), name(input.type),
                         name(input.op), input.count, rank_, n_, way.cuts[k], way.cuts[k + 1], reduce_target());
    }
  }

  size_t n_, rank_, offset_ = 0;
  tuttiComm_t comm_;
  Random own_;
};

void use_target(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().DeInit();
}

// The setting, or the calls, or both ask for it; a forced algorithm that adds otherwise gives way.
TEST(Strict, GivesOneResultForOneInput) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  Random random(2026'06'02);
  for (int i = 0; i < worlds; ++i) {
    use_target(targets[below(random, targets.size())]);
    constexpr int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11};
    constexpr const char* forced[] = {nullptr, nullptr, "ring", "tree", "double_tree", "two_shot"};
    const int n = sizes[below(random, 10)];
    RanksOptions options;
    options.transport = i % 2 == 0 ? "shm" : "tcp";
    options.algorithm = forced[below(random, 6)];
    options.channels = int(below(random, 3)) + 1;
    options.determinism = below(random, 2) ? tuttiDeterminismStrict : -1;
    std::vector<Input> inputs;
    std::vector<Way> ways;
    for (int k = 0; k < calls_each; ++k) {
      inputs.push_back(random_input(n, random));
      ways.push_back(random_way(inputs.back(), random));
      if (options.determinism == -1) ways.back().asked = true;
    }
    run_threads(n, options, [&](int rank, tuttiComm_t comm) {
      Rank one(n, rank, comm, uint64_t(i * 100 + rank));
      for (size_t k = 0; k < inputs.size() && !testing::Test::HasFatalFailure(); ++k) one.run(inputs[k], ways[k]);
    });
    ASSERT_FALSE(HasFatalFailure()) << "world " << i << " over " << options.transport << ", forced "
                                    << (options.algorithm == nullptr ? "none" : options.algorithm);
  }
  use_target(0);
}

// A caller's operator is folded from the left too, whether it commutes or not: this one is not even associative.
TEST(Strict, FoldsACallersOperatorFromTheLeft) {
  const auto function = [](const void* in, void* inout, size_t count, void*) {
    for (size_t i = 0; i < count; ++i) {
      float left, right;
      std::memcpy(&left, static_cast<const float*>(in) + i, sizeof left);
      std::memcpy(&right, static_cast<float*>(inout) + i, sizeof right);
      right = left * 0.75f - right;
      std::memcpy(static_cast<float*>(inout) + i, &right, sizeof right);
    }
  };
  for (const int n : {2, 5, 8, 9})
    for (const int commutes : {0, 1}) {
      RanksOptions options;
      options.determinism = tuttiDeterminismStrict;
      options.algorithm = "recursive_doubling";
      run_threads(n, options, [&](int rank, tuttiComm_t comm) {
        tuttiRedOp_t op;
        ASSERT_OK(tuttiRedOpCreate(&op, function, tuttiFloat32, commutes, nullptr, comm));
        for (const size_t count : {size_t{1}, size_t{100'000}}) {
          const std::vector<float> in(count, float(rank) + 0.3f);
          std::vector<float> out(count);
          ASSERT_OK(tuttiAllReduce(in.data(), out.data(), count, tuttiFloat32, op, comm, nullptr));
          float expected = 0.3f;
          for (int r = 1; r < n; ++r) expected = expected * 0.75f - (float(r) + 0.3f);
          ASSERT_EQ(out, std::vector<float>(count, expected)) << n << " ranks, commutes " << commutes;
        }
        ASSERT_OK(tuttiRedOpDestroy(op, comm));
      });
    }
}

}  // namespace
}  // namespace tutti
