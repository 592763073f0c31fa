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
#include "reduce/exact_reference.h"
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

// One input: what each rank gives, its vectors one after the other, and what each must get.
struct Input {
  tuttiDeterminism_t mode;
  Collective kind;
  DataType type;
  ReduceOp op;
  size_t count;  // of the result
  int root;
  size_t vectors = 1;  // of each rank
  std::vector<Bytes> given{};
  std::vector<Bytes> results{};  // empty where the rank has none

  size_t blocks() const { return meaning(kind).blocks ? given.size() : 1; }
};

std::vector<Bytes> all_vectors(const Input& input, size_t ranks) {
  std::vector<Bytes> all;
  for (size_t r = 0; r < ranks; ++r) {
    const Bytes& given = input.given[r];
    const auto each = long(given.size() / input.vectors);
    for (auto at = given.begin(); at != given.end(); at += each) all.emplace_back(at, at + each);
  }
  return all;
}

Bytes result_of(const Input& input, size_t joined) {
  const std::vector<Bytes> all = all_vectors(input, joined);
  if (all.empty()) return {};
  const bool exact = input.mode == tuttiDeterminismInvariant && order_matters(input.op, input.type);
  const uint32_t divisor = input.op == ReduceOp::avg ? uint32_t(all.size()) : gives_truth(input.op, input.type) ? 1 : 0;
  return exact ? reference_exact_sum(input.type, all, divisor)
               : reference_left_fold(input.type, input.op, all, divisor);
}

void expect_results(Input& input) {
  const uint32_t n = uint32_t(input.given.size());
  const Meaning& means = meaning(input.kind);
  Bytes whole = result_of(input, n);
  for (uint32_t r = 0; r < n; ++r) {
    if (means.joins != Joins::all) whole = result_of(input, means.joined(r, n));
    const Part part = means.output_of(int(r) == input.root);
    const auto block = whole.begin() + long(whole.size() / n * r);
    if (part == Part::none) input.results.emplace_back();
    else if (part == Part::own) input.results.emplace_back(block, block + long(whole.size() / n));
    else input.results.push_back(whole);
  }
}

Input random_input(int n, tuttiDeterminism_t mode, Random& random) {
  constexpr Collective kinds[] = {Collective::all_reduce,     Collective::all_reduce,       Collective::reduce,
                                  Collective::reduce_scatter, Collective::reduce_scatter_v, Collective::scan,
                                  Collective::exscan};
  const bool invariant = mode == tuttiDeterminismInvariant;
  Input input{mode, kinds[below(random, 7)], {}, {}, 0, 0};
  if (meaning(input.kind).rooted) input.root = int(below(random, size_t(n)));
  do {
    input.type = data_types[below(random, data_types.size())].type;
    input.op = ReduceOp(below(random, 5));
  } while (!defined(input.op, input.type) || (!order_matters(input.op, input.type) && below(random, 5) != 0) ||
           (invariant && input.op == ReduceOp::prod && order_matters(input.op, input.type)));
  constexpr size_t scales[] = {4, 100, 2000, 20000}, short_scales[] = {4, 30, 200, 1500};
  input.count = below(random, (invariant ? short_scales : scales)[below(random, 4)]) + 1;
  if (invariant && below(random, 2) != 0) input.vectors = 2 + below(random, 4);
  const size_t blocks = meaning(input.kind).blocks ? size_t(n) : 1;
  for (int r = 0; r < n; ++r)
    input.given.push_back(any_elements(input.type, input.vectors * input.count * blocks, random));
  expect_results(input);
  return input;
}

// How one rank makes the calls of an input: choices that all ranks make alike, and some of its own.
struct Way {
  std::vector<size_t> cuts;  // of the result, from 0 to count
  bool grouped, streamed, prepared, asked, in_place;
  const char* algorithm;
};

Way random_way(const Input& input, Random& random) {
  Way way{{0, input.count},       below(random, 2) != 0, below(random, 3) == 0, below(random, 6) == 0,
          below(random, 3) != 0, below(random, 3) == 0, nullptr};
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
    take_pieces(input, way);
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
    for (size_t k = 0; k < send_.size(); ++k)
      ASSERT_OK(call(input, way, send_[k].data() + offset_, result_at(input, way, k), piece(way, k), stream));
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
    compare(input, way);
    offset_ = below(own_, 17);
  }

 private:
  static size_t piece(const Way& way, size_t k) { return way.cuts[k + 1] - way.cuts[k]; }

  // A piece of the result needs that piece of every block of every vector, one after the other.
  void take_pieces(const Input& input, const Way& way) {
    const size_t width = element_bytes(input.type);
    send_.clear();
    recv_.clear();
    for (size_t k = 0; k + 1 < way.cuts.size(); ++k) {
      Bytes& send = send_.emplace_back(offset_);
      for (size_t b = 0; b < input.vectors * input.blocks(); ++b) {
        const auto from = input.given[rank_].begin() + long((b * input.count + way.cuts[k]) * width);
        send.insert(send.end(), from, from + long(piece(way, k) * width));
      }
      recv_.emplace_back(piece(way, k) * width + offset_);
    }
  }

  uint8_t* result_at(const Input& input, const Way& way, size_t k) {
    if (!way.in_place) return recv_[k].data() + offset_;
    const size_t block = meaning(input.kind).blocks ? rank_ : 0;
    return send_[k].data() + offset_ + block * piece(way, k) * element_bytes(input.type);
  }

  tuttiResult_t call(const Input& input, const Way& way, const void* send, void* recv, size_t count,
                     tuttiStream_t stream) {
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    if (way.asked) options.determinism = input.mode;
    options.algorithm = way.algorithm;
    options.inputs = input.vectors;
    const auto type = tuttiDataType_t(input.type);
    const auto op = tuttiRedOp_t(input.op);
    const std::vector<size_t> counts(n_, count);
    switch (input.kind) {
      case Collective::reduce_scatter:
        return tuttiReduceScatterWith(send, recv, count, type, op, comm_, stream, &options);
      case Collective::reduce_scatter_v:
        return tuttiReduceScatterVWith(send, counts.data(), nullptr, recv, count, type, op, comm_, stream, &options);
      case Collective::reduce: return tuttiReduceWith(send, recv, count, type, op, input.root, comm_, stream, &options);
      case Collective::scan: return tuttiScanWith(send, recv, count, type, op, comm_, stream, &options);
      case Collective::exscan: return tuttiExScanWith(send, recv, count, type, op, comm_, stream, &options);
      default: return tuttiAllReduceWith(send, recv, count, type, op, comm_, stream, &options);
    }
  }

  void compare(const Input& input, const Way& way) {
    if (input.results[rank_].empty()) return;
    const size_t width = element_bytes(input.type);
    for (size_t k = 0; k < send_.size(); ++k) {
      const auto expected = input.results[rank_].begin() + long(way.cuts[k] * width);
      const uint8_t* const got = result_at(input, way, k);
      ASSERT_TRUE(std::equal(got, got + piece(way, k) * width, expected))
          << fmt::format("{} {} {} count {} inputs {} rank {} of {}: elements {} to {} on {}", name(input.kind),
                         name(input.type), name(input.op), input.count, input.vectors, rank_, n_, way.cuts[k],
                         way.cuts[k + 1], reduce_target());
    }
  }

  size_t n_, rank_, offset_ = 0;
  tuttiComm_t comm_;
  Random own_;
  std::vector<Bytes> send_, recv_;  // one a piece
};

void use_target(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().DeInit();
}

// The setting, or the calls, or both ask for it; a forced algorithm that adds otherwise gives way.
void expect_one_result_for_one_input(tuttiDeterminism_t mode, uint64_t seed) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  Random random(seed);
  for (int i = 0; i < worlds; ++i) {
    use_target(targets[below(random, targets.size())]);
    constexpr int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11};
    constexpr const char* forced[] = {nullptr, nullptr, "ring", "tree", "double_tree", "two_shot"};
    const int n = sizes[below(random, 10)];
    RanksOptions options;
    options.transport = i % 2 == 0 ? "shm" : "tcp";
    options.algorithm = forced[below(random, 6)];
    options.channels = int(below(random, 3)) + 1;
    options.determinism = below(random, 2) ? int(mode) : -1;
    std::vector<Input> inputs;
    std::vector<Way> ways;
    for (int k = 0; k < calls_each; ++k) {
      inputs.push_back(random_input(n, mode, random));
      ways.push_back(random_way(inputs.back(), random));
      if (options.determinism == -1) ways.back().asked = true;
    }
    run_threads(n, options, [&](int rank, tuttiComm_t comm) {
      Rank one(n, rank, comm, uint64_t(i * 100 + rank));
      for (size_t k = 0; k < inputs.size() && !testing::Test::HasFatalFailure(); ++k) one.run(inputs[k], ways[k]);
    });
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "world " << i << " over " << options.transport << ", forced "
                                                   << (options.algorithm == nullptr ? "none" : options.algorithm);
  }
  use_target(0);
}

TEST(Strict, GivesOneResultForOneInput) { expect_one_result_for_one_input(tuttiDeterminismStrict, 2026'06'02); }
TEST(Invariant, GivesTheExactSumOfAllInputs) { expect_one_result_for_one_input(tuttiDeterminismInvariant, 2026'11'22); }

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

// Some vectors, in the order given, spread over n ranks, with zeros where n does not divide their number.
Bytes share_of(const std::vector<Bytes>& vectors, size_t each, int rank) {
  Bytes share;
  for (size_t k = size_t(rank) * each; k < (size_t(rank) + 1) * each; ++k) {
    const Bytes vector = k < vectors.size() ? vectors[k] : Bytes(vectors[0].size());
    share.insert(share.end(), vector.begin(), vector.end());
  }
  return share;
}

// One result from 1 to 32 ranks, on every rank; and on the last one of a prefix sum.
TEST(Invariant, DoesNotDependOnTheNumberOfRanksNorOnWhoGivesWhat) {
  constexpr DataType types[] = {DataType::float32, DataType::float64,    DataType::bfloat16,
                                DataType::float16, DataType::float8e5m2, DataType::complex64};
  constexpr size_t count = 60, n_vectors = 32;
  Random random(7);
  std::vector<std::vector<Bytes>> data;
  std::vector<Bytes> sums;
  for (const DataType type : types) {
    auto& vectors = data.emplace_back();
    while (vectors.size() < n_vectors) vectors.push_back(any_elements(type, count, random));
    sums.push_back(reference_exact_sum(type, vectors, 1));
  }
  for (int n = 1; n <= 32; n += everything || n < 4 ? 1 : test::sanitized ? 28 : n < 8 ? 2 : 6) {
    for (auto& vectors : data) std::shuffle(vectors.begin(), vectors.end(), random);
    RanksOptions options;
    options.determinism = tuttiDeterminismInvariant;
    run_threads(n, options, [&](int rank, tuttiComm_t comm) {
      tuttiOptions_t several = TUTTI_OPTIONS_INITIALIZER;
      several.inputs = (n_vectors + size_t(n) - 1) / size_t(n);
      for (size_t i = 0; i < data.size(); ++i) {
        const auto type = tuttiDataType_t(types[i]);
        const Bytes given = share_of(data[i], several.inputs, rank), &expected = sums[i];
        Bytes sum(expected.size()), prefix(expected.size());
        ASSERT_OK(tuttiAllReduceWith(given.data(), sum.data(), count, type, tuttiSum, comm, nullptr, &several));
        EXPECT_EQ(sum, expected) << name(types[i]) << " on " << n << " ranks";
        ASSERT_OK(tuttiScanWith(given.data(), prefix.data(), count, type, tuttiSum, comm, nullptr, &several));
        EXPECT_TRUE(rank + 1 < n || prefix == expected) << name(types[i]) << " on " << n << " ranks";
      }
    });
  }
}

// Blocks of sizes of their own with gaps between them; vectors that are multiplied first; both kinds of sums.
TEST(Invariant, TakesVectorsOfUnevenBlocksAndMultipliesThem) {
  constexpr size_t n = 3, vectors = 3, counts[] = {5, 0, 7}, firsts[] = {2, 0, 9}, stride = 16;
  run_threads(int(n), {}, [&](int rank, tuttiComm_t comm) {
    const double scalar = 3;
    tuttiRedOp_t triple;
    ASSERT_OK(tuttiRedOpCreatePreMulSum(&triple, const_cast<double*>(&scalar), tuttiFloat64, tuttiScalarHostImmediate,
                                        comm));
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    options.determinism = tuttiDeterminismInvariant;
    options.inputs = vectors;
    const size_t mine = counts[rank], own = firsts[rank];
    for (const bool multiplied : {false, true}) {
      std::vector<double> send(stride * vectors, 1e300);
      for (size_t k = 0; k < vectors; ++k)
        for (size_t b = 0; b < n; ++b)
          for (size_t i = 0; i < counts[b]; ++i)
            send[k * stride + firsts[b] + i] = k == 0 ? 0x1p60 : k == 1 ? -0x1p60 : double(rank + 1) * double(i + b);
      std::vector<double> recv(mine), expected(mine);
      for (size_t i = 0; i < mine; ++i) expected[i] = 6 * double(i + size_t(rank)) * (multiplied ? 3 : 1);
      ASSERT_OK(tuttiReduceScatterVWith(send.data(), counts, firsts, recv.data(), mine, tuttiFloat64,
                                        multiplied ? triple : tuttiSum, comm, nullptr, &options));
      EXPECT_EQ(recv, expected);
      ASSERT_OK(tuttiReduceScatterVWith(send.data(), counts, firsts, send.data() + own, mine, tuttiFloat64,
                                        multiplied ? triple : tuttiSum, comm, nullptr, &options));
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), send.begin() + long(own))) << "in place";
      EXPECT_EQ(send[8], 1e300) << "between blocks";
    }
    ASSERT_OK(tuttiRedOpDestroy(triple, comm));
  });
}

// Integers need no other sums, but their vectors are joined and multiplied all the same, each time anew.
TEST(Invariant, JoinsTheVectorsOfIntegersAtEachStartOfAPreparedCall) {
  run_threads(3, {}, [](int rank, tuttiComm_t comm) {
    int32_t scalar = 5, given[20], sum[2] = {}, most[2] = {};
    tuttiRedOp_t times_five;
    ASSERT_OK(tuttiRedOpCreatePreMulSum(&times_five, &scalar, tuttiInt32, tuttiScalarHostImmediate, comm));
    tuttiOptions_t options = TUTTI_OPTIONS_INITIALIZER;
    options.determinism = tuttiDeterminismInvariant;
    options.inputs = 10;
    tuttiPrepared_t prepared;
    ASSERT_OK(tuttiPrepareStart());
    ASSERT_OK(tuttiAllReduceWith(given, sum, 2, tuttiInt32, times_five, comm, nullptr, &options));
    ASSERT_OK(tuttiAllReduceWith(given, most, 2, tuttiInt32, tuttiMax, comm, nullptr, &options));
    ASSERT_OK(tuttiPrepareEnd(&prepared));
    for (int start = 1; start <= 3; ++start) {
      for (int k = 0; k < 20; ++k) given[k] = start * (k / 2 + 10 * rank + 100 * (k % 2));
      ASSERT_OK(tuttiPreparedStart(prepared, nullptr));
      EXPECT_EQ(sum[0], 5 * start * 435);
      EXPECT_EQ(sum[1], 5 * start * 3435);
      EXPECT_EQ(most[0], start * 29);
      EXPECT_EQ(most[1], start * 129);
    }
    ASSERT_OK(tuttiPreparedDestroy(prepared));
    ASSERT_OK(tuttiRedOpDestroy(times_five, comm));
  });
}

}  // namespace
}  // namespace tutti
