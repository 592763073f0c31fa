// The measurement itself: warm-up, timed loop, single iterations, checked runs.
#pragma once

#include "bench/perf/library.h"
#include "bench/perf/options.h"
#include "bench/perf/pattern.h"
#include "bench/perf/report.h"
#include "schedule/collective.h"

namespace tutti::perf {

// Measures one case after the other on one rank; all ranks must do the same.
class Measurement {
 public:
  // Allocates two buffers of the greatest size. Throws std::bad_alloc.
  Measurement(const Options& options, Library& library);

  // Collective. The result is the same on all ranks. Throws LibraryError.
  Row measure(const Case& what);
  // Elements that this very rank found wrong so far.
  int64_t wrong_here() const { return wrong_here_; }

 private:
  // The blocks of a rank's buffer of all of them, in elements.
  struct Blocks {
    std::vector<size_t> counts, firsts;
  };
  // This rank's parts of the buffers, and where its own block begins.
  struct Parts {
    Part input, output;
    size_t block_bytes, own_at;
    bool one_buffer(bool in_place) const { return in_place && input != Part::none && output != Part::none; }
    // In place, the output is a block of the send buffer, not the input one of the receive buffer.
    bool in_send(bool in_place) const { return one_buffer(in_place) && output == Part::own; }
  };
  Parts parts_of(const Case& what) const;
  Blocks blocks_of(const Case& what, int rank) const;
  Period input_of(const Case& what, int rank, uint64_t seed) const;
  Period result_of(const Case& what, uint64_t seed) const;
  size_t count_wrong_output(const Case& what, std::span<const std::byte> output, uint64_t seed);
  Place prepare(const Case& what, bool in_place, uint64_t seed);
  void call_grouped(const Case& what, const Place& place);
  double mean_us(const Case& what, const Place& place, int iterations);
  void await_common_start();
  std::vector<double> single_us(const Case& what, const Place& place, int iterations);
  int choose_iterations(const Case& what, const Place& place);
  void measure_single(const Case& what, const Place& place, int iterations, Result& result);
  size_t count_wrong_here(const Case& what, bool in_place, uint64_t seed);
  Result measure_half(const Case& what, bool in_place, int& iterations);
  double averaged(double value);

  const Options& options_;
  Library& library_;
  Meaning means_;
  WatchedBuffer send_, recv_;
  Blocks blocks_;  // of the case that was prepared last, on this rank
  int64_t wrong_here_ = 0;
};

}  // namespace tutti::perf
