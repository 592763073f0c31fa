// Buffers of simulated calls.
#include "simulation/memory_of_call.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "schedule/collective.h"

namespace tutti {

MemoryOfCall::MemoryOfCall(const SceneCall& call, int n, uint64_t seed)
    : call_(call),
      means_(meaning(call.collective)),
      n_(n),
      seed_(seed),
      floats_(call.strict || (call.collective == Collective::all_reduce && seed % 2 == 0)),
      ranks_(size_t(n)) {
  for (size_t i = 0; means_.reduces && i < elements(Part::all); ++i) sums_.push_back(stored_sum(uint32_t(n), i));
  for (int rank = 0; rank < n; ++rank) {
    Buffers& buffers = ranks_[size_t(rank)];
    // One element more, for who asks for more.
    const size_t larger = means_.blocks ? size_t(n) : 1;
    const size_t inputs = elements(input_of(rank)) + larger, outputs = elements(output_of(rank)) + larger;
    buffers.output.assign(std::max(outputs, in_place(rank) ? inputs : 0) + 2 * guard, guard_value);
    if (!in_place(rank)) buffers.input.assign(inputs + 2 * guard, guard_value);
    std::vector<int32_t>& source = in_place(rank) ? buffers.output : buffers.input;
    const bool own = input_of(rank) == Part::own, own_of_all = own && in_place(rank) && output_of(rank) == Part::all;
    const size_t at = own_of_all ? size_t(rank) * call.count : 0;
    for (size_t i = 0; i < elements(input_of(rank)); ++i) source[guard + at + i] = stored(rank, i);
  }
}

Part MemoryOfCall::input_of(int rank) const { return means_.input_of(rank == call_.root); }
Part MemoryOfCall::output_of(int rank) const { return means_.output_of(rank == call_.root); }

bool MemoryOfCall::in_place(int rank) const {
  return call_.in_place && input_of(rank) != Part::none && output_of(rank) != Part::none;
}

size_t MemoryOfCall::elements(Part part) const {
  if (part == Part::none) return 0;
  return part == Part::all && means_.blocks ? call_.count * size_t(n_) : call_.count;
}

// Small, and different for neighbouring ranks and elements.
int32_t MemoryOfCall::value(int rank, size_t index) const {
  return int32_t((uint64_t(rank) * 31 + index * 7 + seed_) % 1009);
}

int32_t MemoryOfCall::stored(int rank, size_t index) const {
  const int32_t whole = value(rank, index);
  if (!floats_) return whole;
  return std::bit_cast<int32_t>(call_.strict ? float(whole - 500) / 7.0f : float(whole));
}

int32_t MemoryOfCall::stored_sum(uint32_t joined, size_t index) const {
  if (joined == 0) return 0;
  int32_t sum = stored(0, index);
  for (uint32_t rank = 1; rank < joined; ++rank) {
    const int32_t next = stored(int(rank), index);
    sum = floats_ ? std::bit_cast<int32_t>(std::bit_cast<float>(sum) + std::bit_cast<float>(next)) : sum + next;
  }
  return sum;
}

// Element `index` of what the rank has as its output.
int32_t MemoryOfCall::expected(int rank, size_t index) const {
  const size_t count = call_.count, block = means_.blocks && count > 0 ? index / count : 0;
  if (means_.reduces) {
    const size_t at = means_.blocks ? size_t(rank) * count + index : index;
    const uint32_t joined = means_.joined(uint32_t(rank), uint32_t(n_));
    return joined == uint32_t(n_) ? sums_[at] : stored_sum(joined, at);
  }
  if (means_.transposes) return stored(int(block), size_t(rank) * count + index % count);
  if (!means_.blocks) return stored(call_.root, index);
  // Blocks keep their number: that of whose input it is, or of whose output it becomes.
  if (means_.rooted && means_.root_input == Part::all) return stored(call_.root, size_t(rank) * count + index);
  return stored(int(block), index % count);
}

std::vector<int32_t>& MemoryOfCall::result(int rank) { return ranks_[size_t(rank)].output; }

Request MemoryOfCall::request(int rank, bool differs) {
  Buffers& buffers = ranks_[size_t(rank)];
  Request request;
  request.call = {call_.collective, floats_ ? DataType::float32 : DataType::int32, ReduceOp::sum, uint32_t(call_.root),
                  call_.count};
  if (differs && means_.reduces && seed_ / 2 % 2 == 0) request.call.op = ReduceOp::max;
  else if (differs) ++request.call.count;
  if (call_.strict) request.terms.determinism = Determinism::strict;
  const auto at = [](std::vector<int32_t>& buffer) { return reinterpret_cast<std::byte*>(buffer.data() + guard); };
  request.in_place = in_place(rank);
  if (output_of(rank) != Part::none) request.output = at(buffers.output);
  if (input_of(rank) != Part::none) request.input = request.in_place ? request.output : at(buffers.input);
  return request;
}

std::string MemoryOfCall::wrong(int rank) const {
  if (output_of(rank) == Part::none) return "";
  const std::vector<int32_t>& memory = result(rank);
  // In place, a rank's own block lies among the others', in the larger of the two buffers.
  const bool among = in_place(rank) && output_of(rank) == Part::own && input_of(rank) == Part::all && means_.blocks;
  const size_t first = guard + (among ? size_t(rank) * call_.count : 0), n = elements(output_of(rank));
  for (size_t i = 0; i < n; ++i)
    if (memory[first + i] != expected(rank, i)) return fmt::format("element {} of {} is wrong", i, n);
  for (size_t i = 0; i < guard; ++i)
    if (memory[i] != guard_value || memory[memory.size() - 1 - i] != guard_value)
      return "memory beside the output has changed";
  return "";
}

void MemoryOfCall::spoil(int rank) {
  for (std::vector<int32_t>* buffer : {&ranks_[size_t(rank)].input, &ranks_[size_t(rank)].output})
    std::fill(buffer->begin(), buffer->end(), 0x0badbeef);
}

void MemoryOfCall::mar(int rank) {
  const size_t n = elements(output_of(rank));
  if (n > 0) result(rank)[guard + n - 1] ^= 1;
}

}  // namespace tutti
