// The bodies of kernels run on the host, thread by thread, over memory that counts and checks what they touch.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cuda_kernels/families.h"
#include "cuda_kernels/plan.h"
#include "reduce/reduce.h"

namespace tutti::test {

struct Range {
  const std::byte* begin;
  size_t bytes;
  bool holds(const std::byte* at, size_t n) const { return at >= begin && at + n <= begin + bytes; }
};

// What DeviceMemory is on the device. Keeps the first sentence of what was wrong.
class CheckedMemory {
 public:
  CheckedMemory(Range output, std::vector<Range> inputs) : CheckedMemory(std::vector<Range>{output}, std::move(inputs)) {}
  CheckedMemory(std::vector<Range> outputs, std::vector<Range> inputs)
      : outputs_(std::move(outputs)), inputs_(std::move(inputs)) {
    for (const Range& output : outputs_) writes_.emplace_back(output.bytes);
  }

  template <class Word>
  Word load(const std::byte* from) {
    check_aligned(from, sizeof(Word));
    const bool inside = std::any_of(inputs_.begin(), inputs_.end(), [&](const Range& r) { return r.holds(from, sizeof(Word)); });
    Word word{};
    if (inside) std::memcpy(&word, from, sizeof word);
    else fail(fmt::format("{} bytes are read outside of the inputs", sizeof(Word)));
    return word;
  }
  template <class Word>
  void store(std::byte* to, Word word) {
    check_aligned(to, sizeof(Word));
    const auto output = std::find_if(outputs_.begin(), outputs_.end(), [&](const Range& r) { return r.holds(to, sizeof word); });
    if (output == outputs_.end()) return fail(fmt::format("{} bytes are written outside of the outputs", sizeof word));
    std::memcpy(to, &word, sizeof word);
    std::vector<uint8_t>& writes = writes_[size_t(output - outputs_.begin())];
    for (size_t i = 0; i < sizeof word; ++i) ++writes[size_t(to - output->begin) + i];
  }

  // "" where every access was in its place and every byte of the output was written once.
  std::string wrong() const {
    if (!wrong_.empty()) return wrong_;
    for (const std::vector<uint8_t>& writes : writes_)
      for (size_t i = 0; i < writes.size(); ++i)
        if (writes[i] != 1) return fmt::format("byte {} of an output was written {} times", i, writes[i]);
    return "";
  }

 private:
  void check_aligned(const std::byte* at, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(at) % bytes != 0) fail(fmt::format("{} bytes at no multiple of that", bytes));
  }
  void fail(std::string sentence) {
    if (wrong_.empty()) wrong_ = std::move(sentence);
  }

  std::vector<Range> outputs_, inputs_;
  std::vector<std::vector<uint8_t>> writes_;
  std::string wrong_;
};

// Runs a body for one thread of a launch.
template <class Arguments>
struct HostBody {
  void (*run)(const Arguments&, GridPosition, CheckedMemory&) = nullptr;
  uint32_t unrolled = 1;
};

struct MakeHostReduction {
  using Body = HostBody<ReduceArguments>;
  template <class In, class Out, class Op, int inputs_max, uint32_t unrolled>
  static Body reduce() {
    return {reduce_body<In, Out, Op, inputs_max, unrolled, CheckedMemory>, unrolled};
  }
};

struct MakeHostScaling {
  using Body = HostBody<ScaleArguments>;
  template <class Element, class Op>
  static Body scale() {
    return {scale_body<Element, Op, CheckedMemory>, 1};
  }
};

// How a kernel is launched. Blocks run in any order on a device: here forwards or backwards.
struct Launch {
  uint32_t threads, blocks;
  bool backwards;
};

inline Launch random_launch(const Partition& parts, uint32_t unrolled, std::mt19937_64& random) {
  constexpr uint32_t thread_counts[] = {32, 96, kernel_threads}, block_limits[] = {1, 2, 3, 7, 132};
  const uint32_t threads = thread_counts[random() % 3];
  return {threads, blocks_for(parts, threads, unrolled, block_limits[random() % 5]), random() % 2 == 0};
}

template <class Arguments>
void run(const HostBody<Arguments>& body, const Arguments& arguments, const Launch& launch, CheckedMemory& memory) {
  const uint32_t all = launch.blocks * launch.threads;
  for (uint32_t i = 0; i < all; ++i) {
    const uint32_t thread = launch.backwards ? all - 1 - i : i;
    body.run(arguments, {thread / launch.threads, launch.blocks, thread % launch.threads, launch.threads}, memory);
  }
}

// Some bytes that begin at any address.
class Bytes {
 public:
  Bytes(const std::vector<uint8_t>& data, size_t bytes, size_t shift) : storage_(bytes + 64) {
    begin_ = storage_.data() + (16 - reinterpret_cast<uintptr_t>(storage_.data()) % 16) % 16 + shift;
    if (bytes > 0) std::memcpy(begin_, data.data(), bytes);
  }
  std::byte* begin() { return begin_; }

 private:
  std::vector<std::byte> storage_;
  std::byte* begin_;
};

// Where the buffers of one case lie: bytes past a multiple of 16, and the input that is the output too, or -1.
struct Places {
  std::vector<size_t> input_shifts;
  size_t output_shift = 0;
  int in_place = -1;
};

// All alike, all at multiples of the element, or anywhere.
inline Places random_places(int n_inputs, size_t element, std::mt19937_64& random) {
  Places places;
  const size_t kind = random() % 4, unit = kind == 3 ? 1 : element;
  const size_t common = random() % 16 / unit * unit;
  const auto next = [&] { return kind < 2 ? common : random() % 16 / unit * unit; };
  for (int k = 0; k < n_inputs; ++k) places.input_shifts.push_back(next());
  places.output_shift = next();
  if (random() % 4 == 0) {
    places.in_place = int(random() % uint64_t(n_inputs));
    places.input_shifts[size_t(places.in_place)] = places.output_shift;
  }
  return places;
}

// One reduction as the device would do it. "" where all went right and all bits are those of the host's function.
inline std::string reduce_as_device(const HostBody<ReduceArguments> (*choose)(const KernelCall&, int), DataType type,
                                    ReduceOp op, const std::vector<std::vector<uint8_t>>& data, size_t count,
                                    uint32_t divisor, const Places& places, std::mt19937_64& random) {
  const size_t bytes = count * element_bytes(type);
  const int n = int(data.size());
  std::vector<Bytes> inputs;
  for (size_t k = 0; k < data.size(); ++k) inputs.emplace_back(data[k], bytes, places.input_shifts[k]);
  Bytes apart(data[0], bytes, places.output_shift);
  std::byte* const output = places.in_place < 0 ? apart.begin() : inputs[size_t(places.in_place)].begin();
  DeviceReduction r{type, op, n, {}, output, count, divisor};
  std::vector<Range> ranges;
  for (int k = 0; k < n; ++k) {
    r.inputs[size_t(k)] = inputs[size_t(k)].begin();
    ranges.push_back({inputs[size_t(k)].begin(), bytes});
  }
  std::vector<uint8_t> expected(bytes);
  reduce_function(type, op)(expected.data(), r.inputs.data(), n, count, divisor, Store::cached);
  const ReducePlan plan = plan_reduce(r);
  if (plan.copies) return "";  // no kernel runs
  const HostBody<ReduceArguments> body = choose(plan.call, n);
  if (body.run == nullptr) return "there is no body";
  CheckedMemory memory({output, bytes}, ranges);
  const Launch launch = random_launch(plan.arguments.parts, body.unrolled, random);
  run(body, plan.arguments, launch, memory);
  std::string wrong = memory.wrong();
  if (wrong.empty() && bytes > 0 && std::memcmp(output, expected.data(), bytes) != 0) wrong = "the bits differ";
  if (wrong.empty()) return "";
  return fmt::format("{} {} of {} inputs, count {}, divisor {}, {} blocks of {} threads, output at {}, in place {}: {}",
                     name(type), name(op), n, count, divisor, launch.blocks, launch.threads, places.output_shift,
                     places.in_place, wrong);
}

}  // namespace tutti::test
