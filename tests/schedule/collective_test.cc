// What collectives mean: whom a rank cannot do without.
#include "schedule/collective.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

// By what is defined of the results, for every rank of up to 5 and every root.
TEST(NeededRanks, AreThoseWhoseInputsAResultIsOf) {
  const auto needs = [](Collective kind, uint32_t root, uint32_t rank, uint32_t other) {
    switch (kind) {
      case Collective::broadcast:
      case Collective::scatter: return other == root;
      case Collective::reduce:
      case Collective::gather: return rank == root;
      case Collective::scan: return other <= rank;
      case Collective::exscan: return other < rank;
      default: return true;
    }
  };
  for (const Collective kind : {Collective::all_reduce, Collective::broadcast, Collective::barrier, Collective::reduce, Collective::all_gather,
                                Collective::reduce_scatter, Collective::gather, Collective::scatter, Collective::all_to_all, Collective::scan,
                                Collective::exscan})
    for (uint32_t n = 1; n <= 5; ++n)
      for (uint32_t root = 0; root < (has_root(kind) ? n : 1); ++root)
        for (uint32_t rank = 0; rank < n; ++rank)
          for (uint32_t other = 0; other < n; ++other) {
            const auto [first, end] = needed_ranks(kind, root, rank, n);
            EXPECT_EQ(other >= first && other < end, needs(kind, root, rank, other))
                << name(kind) << " root " << root << ": rank " << rank << " of " << n << " and " << other;
          }
}

}  // namespace
}  // namespace tutti
