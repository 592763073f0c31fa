// Which samples a rank sees in an epoch: as PyTorch's DistributedSampler does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mlp {

// All n indices, shuffled by (seed, epoch) alike on all ranks, padded from the front so that every rank gets equally
// many, dealt out in turn: rank r gets places r, r + ranks, … . Every index is seen at least once by somebody.
std::vector<size_t> sample_indices(size_t n, int ranks, int rank, uint64_t seed, int epoch, bool shuffle = true);

}  // namespace mlp
