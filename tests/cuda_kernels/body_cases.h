// What the tests of bodies have in common: every type and operator of a choice, in many places and launches.
#pragma once

#include <cstdlib>

#include <gtest/gtest.h>

#include "../reduce/cases.h"
#include "host_kernels.h"
#include "reduce/scale.h"

namespace tutti::test {

using Choose = const HostBody<ReduceArguments> (*)(const KernelCall&, int);

inline bool everything() { return std::getenv("TUTTI_TEST_EVERYTHING") != nullptr; }

inline std::vector<uint32_t> divisors_of(ReduceOp op, DataType type, int n_inputs) {
  if (op == ReduceOp::avg) return {uint32_t(n_inputs), 3000000000u};
  if (gives_truth(op, type)) return {0, 1};
  return op == ReduceOp::sum ? std::vector<uint32_t>{0, 7} : std::vector<uint32_t>{0};
}

// Every operator of a type, 1 to 8 inputs, counts around everything that the arithmetic divides by, random places.
inline void expect_bits_of_host(Choose choose, DataType type) {
  std::mt19937_64 random(seed);
  const size_t counts[] = {0, 1, 2, 15, 16, 17, 31, 33, 47, 64, 100, 255, 257, 1000, 4099};
  std::vector<std::vector<uint8_t>> all;
  for (int k = 0; k < kernel_inputs_max; ++k) all.push_back(mixed_elements(type, 4099, random));
  for (const ReduceOp op : ops_of(type))
    for (int n = 1; n <= kernel_inputs_max; ++n)
      for (const uint32_t divisor : divisors_of(op, type, n))
        for (const size_t count : counts)
          for (int turn = 0; turn < (count < 100 ? 3 : 1); ++turn) {
            const std::vector<std::vector<uint8_t>> data(all.begin(), all.begin() + n);
            const Places places = random_places(n, element_bytes(type), random);
            ASSERT_EQ(reduce_as_device(choose, type, op, data, count, divisor, places, random), "") << "seed " << seed;
          }
}

// Sums of every count from 0 to 5000, with random numbers of inputs, places and launches.
inline void expect_every_count(Choose choose, DataType type) {
  std::mt19937_64 random(seed + 1);
  std::vector<std::vector<uint8_t>> all;
  for (int k = 0; k < kernel_inputs_max; ++k) all.push_back(mixed_elements(type, 5000, random));
  const ReduceOp op = family(type) == Family::pair ? ReduceOp::minloc : ReduceOp::sum;
  const int turns = everything() ? 40 : few_cases ? 1 : 2;
  for (size_t count = 0; count <= 5000; count += few_cases ? 7 : 1)
    for (int turn = 0; turn < turns; ++turn) {
      const int n = 2 + int(random() % (turn % 2 == 0 ? 2 : 7));
      const std::vector<std::vector<uint8_t>> data(all.begin(), all.begin() + n);
      const Places places = random_places(n, element_bytes(type), random);
      ASSERT_EQ(reduce_as_device(choose, type, op, data, count, 0, places, random), "") << "seed " << seed;
    }
}

// The product with one scalar, against the host's scale().
inline void expect_scaled(const HostBody<ScaleArguments>& body, DataType type) {
  ASSERT_NE(body.run, nullptr) << name(type);
  std::mt19937_64 random(seed + 2);
  const size_t width = element_bytes(type);
  const std::vector<uint8_t> data = mixed_elements(type, 1031, random), scalar = mixed_elements(type, 64, random);
  for (const size_t count : {0, 1, 3, 16, 33, 64, 255, 1031})
    for (size_t turn = 0; turn < 64; ++turn) {
      const Places places = random_places(1, width, random);
      Bytes input(data, count * width, places.input_shifts[0]), apart(data, count * width, places.output_shift);
      std::byte* const output = places.in_place < 0 ? apart.begin() : input.begin();
      std::vector<uint8_t> expected(count * width);
      scale(type, &scalar[turn * width], input.begin(), expected.data(), count);
      const ScaleArguments arguments = plan_scale(type, &scalar[turn * width], input.begin(), output, count);
      CheckedMemory memory({output, count * width}, {{input.begin(), count * width}});
      run(body, arguments, random_launch(arguments.parts, body.unrolled, random), memory);
      ASSERT_EQ(memory.wrong(), "") << name(type) << ", count " << count << ", seed " << seed;
      ASSERT_TRUE(count == 0 || std::memcmp(output, expected.data(), count * width) == 0)
          << name(type) << ", count " << count << ", scalar " << turn << ", seed " << seed;
    }
}

}  // namespace tutti::test
