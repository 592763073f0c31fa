// Plans made by hand, for tests of the engine.
#pragma once

#include <utility>
#include <vector>

#include "schedule/plan.h"

namespace tutti {

inline Plan plan_of(std::vector<Fold> steps, std::vector<uint32_t> peers, Shape shape = {}) {
  Plan plan;
  plan.algorithm = "by hand";
  plan.shape = shape;
  plan.steps = std::move(steps);
  plan.peers = std::move(peers);
  return plan;
}

inline Fold fold(Slice a, Slice dst, uint16_t n_from, uint16_t n_to, uint32_t peers = 0) {
  Fold f;
  f.a = a;
  f.dst = dst;
  f.n_from = n_from;
  f.n_to = n_to;
  f.peers = peers;
  return f;
}

}  // namespace tutti
