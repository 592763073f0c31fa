// The measurement itself: warm-up, timed loop, single iterations, checked runs.
#pragma once

#include "bench/perf/options.h"
#include "bench/perf/pattern.h"
#include "bench/perf/rank.h"
#include "bench/perf/report.h"

namespace tutti::perf {

// Measures one case after the other on one rank; all ranks must do the same.
class Measurement {
 public:
  // Allocates two buffers of the greatest size. Throws std::bad_alloc.
  Measurement(const Options& options, Rank& rank);

  // Collective. The result is the same on all ranks. Throws LibraryError.
  Row measure(const Case& what);
  // Elements that this very rank found wrong so far.
  int64_t wrong_here() const { return wrong_here_; }

 private:
  struct Place {  // the buffers of one call
    std::byte* send;
    std::byte* recv;
  };
  Place prepare(const Case& what, bool in_place, uint64_t seed);
  void call(const Case& what, const Place& place);
  void call_grouped(const Case& what, const Place& place);
  double mean_us(const Case& what, const Place& place, int iterations);
  int choose_iterations(const Case& what, const Place& place);
  void measure_single(const Case& what, const Place& place, int iterations, Result& result);
  size_t count_wrong_here(const Case& what, bool in_place, uint64_t seed);
  Result measure_half(const Case& what, bool in_place, int& iterations);
  double averaged(double value);

  const Options& options_;
  Rank& rank_;
  WatchedBuffer send_, recv_;
  int64_t wrong_here_ = 0;
};

}  // namespace tutti::perf
