// Signatures: every call survives packing, and is shown as its caller would write it.
#include "base/signature.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace tutti {
namespace {

TEST(Signature, EveryKindTypeAndOperatorSurvivesPacking) {
  for (size_t kind = 1; kind < collective_names.size(); ++kind)
    for (const DataTypeInfo& row : data_types)
      for (size_t op = 0; op < reduce_op_count; ++op)
        for (uint32_t root : {0u, 1u, signature_root_max})
          for (uint64_t count : {uint64_t{0}, uint64_t{1}, signature_count_max}) {
            const Call call{Collective(kind), row.type, ReduceOp(op), root, count};
            EXPECT_EQ(unpack(pack(call)), call);
            EXPECT_EQ(describe(call).find("does not know"), std::string::npos) << kind;
            for (const uint64_t other : {uint64_t{0}, uint64_t{12345}, signature_count_max}) {
              Call changed = call;
              changed.count = other;
              EXPECT_EQ(with_count(pack(call), other), pack(changed));
            }
          }
}

TEST(Signature, ChecksumsTellSizesAndTheirOrderApart) {
  std::set<uint64_t> seen;
  size_t made = 0;
  for (size_t a = 0; a < 30; ++a)
    for (size_t b = 0; b < 30; ++b)
      for (size_t c = 0; c < 30; ++c, ++made) seen.insert(checksum(std::array{a, b << 20, c << 40}));
  EXPECT_EQ(seen.size(), made);
  EXPECT_NE(checksum(std::array<size_t, 2>{0, 0}), checksum(std::array<size_t, 3>{0, 0, 0}));
  for (const uint64_t sum : seen) EXPECT_LE(sum, signature_count_max);
}

TEST(Signature, CallsReadAsTheirCallersWroteThem) {
  EXPECT_EQ(describe({Collective::all_reduce, DataType::float32, ReduceOp::max, 0, 12}),
            "all_reduce(count 12, float32, max)");
  EXPECT_EQ(describe({Collective::broadcast, DataType::int8, ReduceOp::sum, 3, 5}), "broadcast(count 5, int8, root 3)");
  EXPECT_EQ(describe({Collective::barrier}), "barrier()");
  EXPECT_EQ(describe({Collective::reduce, DataType::int8, ReduceOp::sum, 3, 5}), "reduce(count 5, int8, sum, root 3)");
  EXPECT_EQ(describe({Collective::all_gather, DataType::int8, ReduceOp::sum, 0, 5}), "all_gather(count 5, int8)");
  EXPECT_EQ(describe({Collective::reduce_scatter, DataType::int8, ReduceOp::min, 0, 5}),
            "reduce_scatter(count 5, int8, min)");
  EXPECT_EQ(describe({Collective::gather, DataType::int8, ReduceOp::sum, 1, 5}), "gather(count 5, int8, root 1)");
  EXPECT_EQ(describe({Collective::scatter, DataType::int8, ReduceOp::sum, 1, 5}), "scatter(count 5, int8, root 1)");
  EXPECT_EQ(describe({Collective::all_to_all, DataType::int8, ReduceOp::sum, 0, 5}), "all_to_all(count 5, int8)");
  EXPECT_EQ(describe({Collective::all_gather_v, DataType::int8, ReduceOp::sum, 0, 0x5f}),
            "all_gather_v(counts with checksum 5f, int8)");
  EXPECT_EQ(describe({Collective::reduce_scatter_v, DataType::int8, ReduceOp::max, 0, 0x5f}),
            "reduce_scatter_v(counts with checksum 5f, int8, max)");
  EXPECT_EQ(describe({Collective::gather_v, DataType::int8, ReduceOp::sum, 1, 5}), "gather_v(count 5, int8, root 1)");
  EXPECT_EQ(describe({Collective::all_to_all_v, DataType::int8, ReduceOp::sum, 0, 5}), "all_to_all_v(count 5, int8)");
}

TEST(Signature, OpaqueElementsKeepTheirSize) {
  for (const uint16_t bytes : {uint16_t{1}, uint16_t{12}, uint16_t(opaque_bytes_max)})
    for (const uint64_t count : {uint64_t{0}, uint64_t{7}, signature_opaque_count_max}) {
      const Call call{Collective::all_reduce, DataType::opaque, ReduceOp::custom_in_order, 0, count, bytes};
      EXPECT_EQ(unpack(pack(call)), call);
      EXPECT_EQ(unpack(with_count(pack(call), 3)).count, 3u);
      EXPECT_EQ(unpack(with_count(pack(call), 3)).opaque_bytes, bytes);
    }
  EXPECT_EQ(describe({Collective::all_reduce, DataType::opaque, ReduceOp::custom, 0, 5, 12}),
            "all_reduce(count 5, elements of 12 bytes, the caller's operator)");
  EXPECT_EQ(describe({Collective::broadcast, DataType::opaque, ReduceOp::sum, 2, 5, 3}),
            "broadcast(count 5, elements of 3 bytes, root 2)");
  EXPECT_EQ(describe({Collective::all_reduce, DataType::float32, ReduceOp::premulsum, 0, 5}),
            "all_reduce(count 5, float32, premulsum)");
}

TEST(Signature, TermsSurvivePackingBesideAnyCall) {
  for (Collective kind : {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::barrier})
    for (const DataType type : {DataType::int8, DataType::int64_int64, DataType::opaque})
      for (const uint8_t algorithm : {uint8_t{0}, uint8_t{1}, uint8_t(signature_algorithm_max)})
        for (const uint16_t inputs : {uint16_t{1}, uint16_t{2}, uint16_t(signature_inputs_max)})
          for (size_t mode = 0; mode < determinism_names.size(); ++mode) {
            const uint16_t bytes = type == DataType::opaque ? opaque_bytes_max : 0;
            if (bytes > 0 && inputs > 1) continue;  // there are no sums of opaque elements
            const Call call{kind, type, ReduceOp::custom_in_order, has_root(kind) ? 777u : 0u, 127, bytes};
            const Terms terms{Determinism(mode), algorithm, inputs};
            const uint64_t signature = pack(call, terms);
            EXPECT_EQ(unpack_with_terms(signature).call, call);
            EXPECT_EQ(unpack_with_terms(signature).terms, terms);
            EXPECT_EQ(unpack_with_terms(with_count(signature, 5)).terms, terms);
            EXPECT_EQ(unpack(with_count(signature, 5)).count, 5u);
            EXPECT_EQ(signature == pack(call), terms == Terms{}) << "told apart from a call without terms";
          }
}

TEST(Signature, CountsBesideTermsKeepAsManyBitsAsThereAre) {
  const auto kept = [](const Call& call, const Terms& terms) { return unpack_with_terms(pack(call, terms)).call.count; };
  const Terms strict{Determinism::strict}, all{Determinism::invariant, 3, 32};
  const uint64_t many = ~uint64_t{0};
  EXPECT_EQ(kept({Collective::all_reduce, DataType::float32, ReduceOp::sum, 0, many}, strict), many >> 28);
  EXPECT_EQ(kept({Collective::all_reduce, DataType::float32, ReduceOp::sum, 0, many}, all), many >> 40);
  EXPECT_EQ(kept({Collective::reduce, DataType::float32, ReduceOp::sum, 0, many}, strict), many >> 44);
  EXPECT_EQ(kept({Collective::reduce, DataType::float32, ReduceOp::sum, 0, many}, all), many >> 56);
}

TEST(Signature, TermsReadAsTheirCallersWroteThem) {
  const Call call{Collective::all_reduce, DataType::float32, ReduceOp::sum, 0, 12};
  EXPECT_EQ(describe(call, {}), "all_reduce(count 12, float32, sum)");
  EXPECT_EQ(describe(call, {Determinism::strict}), "all_reduce(count 12, float32, sum, strict)");
  EXPECT_EQ(describe(call, {Determinism::bitwise, 2}, "tree"),
            "all_reduce(count 12, float32, sum, bitwise, algorithm tree)");
  EXPECT_EQ(describe(call, {Determinism::invariant, 0, 7}), "all_reduce(count 12, float32, sum, invariant, 7 inputs)");
  EXPECT_EQ(describe_signature(pack(call, {Determinism::as_communicator, 2})),
            "all_reduce(count 12, float32, sum, algorithm number 2)");
  EXPECT_EQ(describe({Collective::barrier}, {Determinism::as_communicator, 1}, "ring"), "barrier(algorithm ring)");
}

TEST(Signature, GarbageIsDescribedAndNotRead) {
  EXPECT_NE(describe(unpack(~uint64_t{0})).find("does not know"), std::string::npos);
  EXPECT_NE(describe_signature(~uint64_t{0}).find("does not know"), std::string::npos);
  // A call that no rank makes: several inputs of opaque elements.
  constexpr uint64_t too_much = uint64_t(Collective::reduce) | signature_with_terms << 5 | ~uint64_t{0} << 27 |
                                uint64_t(DataType::opaque) << 14;
  constexpr CallWithTerms read = unpack_with_terms(too_much);  // by the compiler, which refuses what is not defined
  EXPECT_EQ(read.call.type, DataType::opaque);
  EXPECT_EQ(read.call.opaque_bytes, 0u);
}

}  // namespace
}  // namespace tutti
