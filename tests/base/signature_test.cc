// Signatures: every call survives packing, and is shown as its caller would write it.
#include "base/signature.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Signature, EveryKindTypeAndOperatorSurvivesPacking) {
  for (Collective kind : {Collective::all_reduce, Collective::broadcast, Collective::barrier, Collective::send_recv})
    for (const DataTypeInfo& row : data_types)
      for (size_t op = 0; op < reduce_op_names.size(); ++op)
        for (uint32_t root : {0u, 1u, signature_root_max})
          for (uint64_t count : {uint64_t{0}, uint64_t{1}, signature_count_max}) {
            const Call call{kind, row.type, ReduceOp(op), root, count};
            EXPECT_EQ(unpack(pack(call)), call);
          }
}

TEST(Signature, CallsReadAsTheirCallersWroteThem) {
  EXPECT_EQ(describe({Collective::all_reduce, DataType::float32, ReduceOp::max, 0, 12}),
            "all_reduce(count 12, float32, max)");
  EXPECT_EQ(describe({Collective::broadcast, DataType::int8, ReduceOp::sum, 3, 5}), "broadcast(count 5, int8, root 3)");
  EXPECT_EQ(describe({Collective::barrier}), "barrier()");
}

TEST(Signature, GarbageIsDescribedAndNotRead) {
  EXPECT_NE(describe(unpack(~uint64_t{0})).find("does not know"), std::string::npos);
}

}  // namespace
}  // namespace tutti
