// What every family's test does: run a reduction in many placements, on each instruction set, and compare all bits.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "reduce/targets.h"
#include <hwy/targets.h>

#include "reduce/reduce.h"
#include "reference.h"
#include "sanitizer.h"

namespace tutti {

inline constexpr uint64_t seed = 20260101;
// Under a sanitizer, which makes this ten times slower, the middle numbers of inputs and most of their places are left out.
inline constexpr bool few_cases = test::sanitized;

// What a type has, of the operators that need not be made.
inline std::vector<ReduceOp> ops_of(DataType type) {
  std::vector<ReduceOp> ops;
  for (size_t op = 0; op < reduce_op_names.size(); ++op)
    if (defined(ReduceOp(op), type)) ops.push_back(ReduceOp(op));
  return ops;
}

// Runs `body` once on each instruction set that is compiled and that this machine has.
template <typename Body>
void on_every_target(Body body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    ASSERT_STREQ(reduce_target(), hwy::TargetName(target));
    SCOPED_TRACE(reduce_target());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

inline std::vector<uint8_t> mixed_elements(DataType type, size_t count, std::mt19937_64& random);

// Values of all kinds, beside few different indices.
inline std::vector<uint8_t> mixed_pairs(DataType type, size_t count, std::mt19937_64& random) {
  constexpr std::pair<DataType, DataType> values[] = {{DataType::float32_int32, DataType::float32},
                                                      {DataType::float64_int64, DataType::float64},
                                                      {DataType::int32_int32, DataType::int32},
                                                      {DataType::int64_int64, DataType::int64}};
  const auto row = std::find_if(std::begin(values), std::end(values), [&](auto& r) { return r.first == type; });
  const std::vector<uint8_t> value = mixed_elements(row->second, count, random);
  const size_t half = element_bytes(type) / 2;
  std::vector<uint8_t> data(2 * value.size());
  for (size_t i = 0; i < count; ++i) {
    const int64_t index = int64_t(random() % 5) - 2;
    std::memcpy(&data[2 * i * half], &value[i * half], half);
    std::memcpy(&data[(2 * i + 1) * half], &index, half);
  }
  return data;
}

// Elements of all kinds: any bits, small whole numbers, zeros, infinities, NaN, subnormals, the largest.
inline std::vector<uint8_t> mixed_elements(DataType type, size_t count, std::mt19937_64& random) {
  if (type == DataType::complex64) return mixed_elements(DataType::float32, 2 * count, random);
  if (type == DataType::complex128) return mixed_elements(DataType::float64, 2 * count, random);
  if (family(type) == Family::pair) return mixed_pairs(type, count, random);
  const bool is_float = family(type) == Family::floating;
  const size_t bytes = element_bytes(type);
  std::vector<uint8_t> data(count * bytes);
  const double specials[] = {0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 1e-8, 6e-5, 448.0, 57344.0, 65504.0, 3.4e38, 1e308,
                             INFINITY, -INFINITY, NAN};
  for (size_t i = 0; i < count; ++i) {
    uint8_t* element = data.data() + i * bytes;
    const uint64_t bits = random(), kind = random() % 16;
    if (kind < 8 || (!is_float && kind == 15)) std::memcpy(element, &bits, bytes);
    else if (kind < 15) element_from_double(type, is_float ? double(bits % 33) / 4 - 4 : double(bits % 7),
                                            element);
    else element_from_double(type, specials[bits % std::size(specials)], element);
  }
  return data;
}

// Where the buffers of one call lie and how it stores.
struct Placement {
  size_t output_shift;  // bytes beyond a cache line
  size_t input_shift;
  int in_place;         // the input that is also the output, or -1
  Store store;
};

// Bytes that begin `shift` after a cache line, with a guard on both sides.
class GuardedBytes {
 public:
  GuardedBytes(size_t bytes, size_t shift) : storage_(bytes + shift + 4 * guard, 0xa5), bytes_(bytes) {
    const size_t past_line = reinterpret_cast<uintptr_t>(storage_.data()) % guard;
    begin_ = storage_.data() + (guard - past_line) + guard + shift;
  }
  uint8_t* data() { return begin_; }
  bool guards_intact() const {
    const auto intact = [](uint8_t byte) { return byte == 0xa5; };
    return std::all_of(storage_.data(), static_cast<const uint8_t*>(begin_), intact) &&
           std::all_of(static_cast<const uint8_t*>(begin_ + bytes_), storage_.data() + storage_.size(), intact);
  }

 private:
  static constexpr size_t guard = 64;
  std::vector<uint8_t> storage_;
  size_t bytes_;
  uint8_t* begin_;
};

// One call on the first `count` elements of `inputs`; true where output and guards are as they must be.
inline bool gives(DataType type, ReduceOp op, const std::vector<std::vector<uint8_t>>& inputs, size_t count,
                  uint32_t divisor, const Placement& placement, const std::vector<uint8_t>& expected) {
  const size_t bytes = count * element_bytes(type);
  std::vector<GuardedBytes> buffers;
  std::vector<const void*> pointers;
  buffers.reserve(inputs.size() + 1);
  for (size_t k = 0; k < inputs.size(); ++k) {
    const bool shared = int(k) == placement.in_place;
    buffers.emplace_back(bytes, shared ? placement.output_shift : placement.input_shift);
    if (bytes > 0) std::memcpy(buffers.back().data(), inputs[k].data(), bytes);
    pointers.push_back(buffers.back().data());
  }
  if (placement.in_place < 0) buffers.emplace_back(bytes, placement.output_shift);
  GuardedBytes& output = placement.in_place < 0 ? buffers.back() : buffers[size_t(placement.in_place)];
  reduce_function(type, op)(output.data(), pointers.data(), int(inputs.size()), count, divisor, placement.store);
  for (size_t k = 0; k < inputs.size(); ++k)
    if (int(k) != placement.in_place && bytes > 0 && std::memcmp(buffers[k].data(), inputs[k].data(), bytes) != 0)
      return false;
  return output.guards_intact() && (bytes == 0 || std::memcmp(output.data(), expected.data(), bytes) == 0);
}

// The placements of one count: aligned, shifted by an element, shifted by a byte; in place on each input; both stores.
inline std::vector<Placement> placements(DataType type, int n_inputs) {
  const size_t bytes = element_bytes(type);
  std::vector<Placement> all;
  for (const Store store : {Store::cached, Store::streaming})
    for (const auto& [output_shift, input_shift] : {std::pair<size_t, size_t>{0, 0}, {3 * bytes, bytes}, {1, 5}})
      for (int in_place = -1; in_place < (few_cases ? std::min(n_inputs, 2) : n_inputs); ++in_place)
        all.push_back({output_shift, input_shift, in_place, store});
  return all;
}

// Every operator, 1 to 8 inputs, every count up to 67 and some larger, every placement, on every instruction set.
inline void expect_exact_everywhere(DataType type) {
  std::vector<size_t> counts;
  for (size_t count = 0; count <= 67; ++count) counts.push_back(count);
  counts.insert(counts.end(), {127, 128, 255, 1031, 4099});
  std::mt19937_64 random(seed);
  for (const ReduceOp op : ops_of(type))
    for (int n_inputs = 1; n_inputs <= reduce_inputs_max; ++n_inputs) {
      if (few_cases && n_inputs > 3 && n_inputs < reduce_inputs_max) continue;
      std::vector<std::vector<uint8_t>> inputs;
      for (int k = 0; k < n_inputs; ++k) inputs.push_back(mixed_elements(type, counts.back(), random));
      std::vector<uint32_t> divisors = {uint32_t(n_inputs)};
      if (op != ReduceOp::avg) divisors = {0};
      if (op == ReduceOp::sum) divisors = {0, 7};
      if (op >= ReduceOp::band || type == DataType::boolean) divisors = {0, 1};
      for (const uint32_t divisor : divisors) {
        const std::vector<uint8_t> expected = reference_reduce(type, op, inputs, divisor);
        on_every_target([&] {
          for (const Placement& placement : placements(type, n_inputs))
            for (const size_t count : counts) {
              if (count > 255 && placement.in_place > 1) continue;
              ASSERT_TRUE(gives(type, op, inputs, count, divisor, placement, expected))
                  << fmt::format("{} {} of {} inputs, count {}, divisor {}, shifts {} and {}, in place {}, {}, seed {}",
                                 name(type), name(op), n_inputs, count, divisor, placement.output_shift,
                                 placement.input_shift, placement.in_place,
                                 placement.store == Store::cached ? "cached" : "streaming", seed);
            }
        });
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
}

// Two inputs given as codes of a small float: all operators on every instruction set, element by element.
template <typename Bits>
void expect_exact_pairs(DataType type, const std::vector<Bits>& first, const std::vector<Bits>& second) {
  const size_t count = first.size();
  std::vector<std::vector<uint8_t>> inputs(2, std::vector<uint8_t>(count * sizeof(Bits)));
  std::memcpy(inputs[0].data(), first.data(), inputs[0].size());
  std::memcpy(inputs[1].data(), second.data(), inputs[1].size());
  const void* pointers[] = {inputs[0].data(), inputs[1].data()};
  std::vector<uint8_t> output(count * sizeof(Bits));
  for (const ReduceOp op : ops_of(type)) {
    const uint32_t divisor = op == ReduceOp::avg ? 2 : 1;
    const std::vector<uint8_t> expected = reference_reduce(type, op, inputs, divisor);
    on_every_target([&] {
      reduce_function(type, op)(output.data(), pointers, 2, count, divisor, Store::cached);
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(read_element<Bits>(output.data() + i * sizeof(Bits)),
                  read_element<Bits>(expected.data() + i * sizeof(Bits)))
            << fmt::format("{} {} of {:#x} and {:#x}", name(type), name(op), first[i], second[i]);
    });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

inline std::string type_name(const ::testing::TestParamInfo<DataType>& row) { return std::string(name(row.param)); }

}  // namespace tutti
