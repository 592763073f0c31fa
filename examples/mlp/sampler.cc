// Shuffling, padding and dealing.
#include "sampler.h"

#include <numeric>
#include <random>
#include <utility>

namespace mlp {

std::vector<size_t> sample_indices(size_t n, int ranks, int rank, uint64_t seed, int epoch, bool shuffle) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  if (shuffle) {
    // Fisher-Yates by hand: std::shuffle differs between standard libraries.
    std::mt19937_64 random(seed * 1'000'003 + uint64_t(epoch));
    for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  }
  std::vector<size_t> mine;
  const size_t each = (n + size_t(ranks) - 1) / size_t(ranks);
  for (size_t k = 0; k < each && n != 0; ++k) mine.push_back(order[(k * size_t(ranks) + size_t(rank)) % n]);
  return mine;
}

}  // namespace mlp
