// All ranks' buffers of one simulated call, and what must be in them afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "communicator/communicator.h"
#include "simulation/scene.h"

namespace tutti {

// Elements are int32 and operators sums, whose results are the same in every order; all_reduces with an even seed take
// float32, of whole numbers that are small enough to be exact. Strict calls take fractions in float32, whose sum must be the
// one in the order of ranks, bit by bit.
class MemoryOfCall {
 public:
  MemoryOfCall(const SceneCall& call, int n, uint64_t seed);

  const SceneCall& call() const { return call_; }
  // What the rank asks for. differs: one element more than the others ask for, or by another operator.
  Request request(int rank, bool differs);
  // Empty where the rank's output is right and nothing around it has changed.
  std::string wrong(int rank) const;
  // The caller overwrites its buffers, as it may once the call is over.
  void spoil(int rank);
  // Changes the last element of the rank's output.
  void mar(int rank);

 private:
  static constexpr size_t guard = 16;  // elements on both sides
  static constexpr int32_t guard_value = 0x5a5a5a5a;

  struct Buffers {
    std::vector<int32_t> input, output;
  };
  size_t elements(Part part) const;
  int32_t value(int rank, size_t index) const;
  int32_t stored(int rank, size_t index) const;  // an input's element, its bits
  int32_t stored_sum(uint32_t joined, size_t index) const;
  int32_t expected(int rank, size_t index) const;
  bool in_place(int rank) const;
  Part input_of(int rank) const;
  Part output_of(int rank) const;
  std::vector<int32_t>& result(int rank);
  const std::vector<int32_t>& result(int rank) const { return const_cast<MemoryOfCall*>(this)->result(rank); }

  const SceneCall call_;
  const Meaning& means_;
  const int n_;
  const uint64_t seed_;
  const bool floats_;
  std::vector<int32_t> sums_;  // of all ranks' inputs
  std::vector<Buffers> ranks_;
};

}  // namespace tutti
