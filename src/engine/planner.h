// From a call to a plan: prices the catalog once, keeps thresholds, and looks plans up in a few nanoseconds.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/signature.h"
#include "schedule/plan.h"
#include "schedule/price.h"

namespace tutti {

// One algorithm's prediction for one call.
struct Candidate {
  std::string_view algorithm;
  int pipeline = 1;
  double time_ns = 0;
};

struct PlannerOptions {
  int rank = 0;
  int n = 1;
  CostModel costs;             // the same on all ranks: every rank chooses alone and all must choose alike
  std::vector<int> host_of;    // of every rank
  size_t message_bytes_max = 256 * 1024;
  std::string forced;          // an algorithm's name for every collective that has it; "" none
};

// Not thread-safe: used by the thread that drives the communicator.
class Planner {
 public:
  // Throws Error(invalid_argument) where `forced` names no algorithm of any collective; the sentence lists the names.
  explicit Planner(PlannerOptions options);
  ~Planner();

  // The plan for a call of `bytes` bytes: the whole buffer's. in_place: input and output are the same memory.
  // The first call of a (kind, size class, root, in_place) records and lowers; later ones only look up.
  const Plan& plan(Collective collective, size_t bytes, int root, bool in_place);

  // All candidates for a call, best first, priced now. For tutti-topo --explain.
  std::vector<Candidate> explain(Collective collective, size_t bytes, int root) const;

 private:
  struct Table;
  PlannerOptions options_;
  std::unique_ptr<Table> table_;
};

}  // namespace tutti
