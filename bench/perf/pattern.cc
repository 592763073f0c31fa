// Input values whose reductions are exact, and the comparison with what came out.
#include "bench/perf/pattern.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#include <tutti/tutti.h>

namespace tutti::perf {
namespace {

constexpr std::byte watched_byte{0xA5};

// A well mixed number for each (seed, rank, index): splitmix64's finisher.
uint64_t mixed(uint64_t seed, uint64_t rank, uint64_t index) {
  uint64_t z = seed * 0x9E3779B97F4A7C15u + rank * 0xC2B2AE3D27D4EB4Fu + index * 0x165667B19E3779F9u + 0x27D4EB2F;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Up to this, the type holds every whole number.
int64_t exact_max(const Type& type) {
  if (type.mantissa_bits > 0) return int64_t{1} << std::min(type.mantissa_bits + 1, 40);
  return std::min<int64_t>((int64_t{1} << (std::min<size_t>(type.part_bytes(), 4) * 8 - 1)) - 1, int64_t{1} << 30);
}

// From -limit (0 for unsigned types) to limit.
int64_t spread(const Type& type, uint64_t random, int64_t limit) {
  if (!type.is_signed) return int64_t(random % uint64_t(limit + 1));
  return int64_t(random % uint64_t(2 * limit + 1)) - limit;
}

// No partial sum leaves what the type holds: either all ranks give little, or, where even 1 each is too much, only as
// many ranks as may, others by turns.
int64_t sum_value(const Type& type, int64_t ranks, int64_t rank, uint64_t random, uint64_t index) {
  const int64_t limit = std::min<int64_t>(7, exact_max(type) / ranks);
  if (limit >= 1) return spread(type, random, limit);
  const int64_t stride = (ranks + exact_max(type) - 1) / exact_max(type);
  return rank % stride == int64_t(index) % stride ? spread(type, random, 1) : 0;
}

// Powers of two, few of them above 1, so that the product stays in the range of the smallest type.
int64_t prod_value(const Type& type, int64_t ranks, int64_t rank, uint64_t random) {
  constexpr int64_t doublings_max = 6;
  const int64_t stride = (ranks + doublings_max - 1) / doublings_max;
  const int64_t size = rank % stride == 0 && (random & 1) != 0 ? 2 : 1;
  return type.is_signed && (random & 2) != 0 ? -size : size;
}

// For floating types: a mean that is a whole number, from which pairs of ranks differ by the same, up and down.
int64_t avg_value(const Type& type, int64_t ranks, int64_t rank, uint64_t seed, uint64_t index) {
  if (type.mantissa_bits == 0) return sum_value(type, ranks, rank, mixed(seed, uint64_t(rank), index), index);
  const int64_t limit = std::min<int64_t>(7, exact_max(type) / ranks);
  if (limit < 1) return rank < 2 ? (rank == 0 ? 1 : -1) : 0;
  const int64_t mean = spread(type, mixed(seed, 1u << 30, index), (limit + 1) / 2);
  const int64_t off = int64_t(mixed(seed, uint64_t(rank / 2), index) % uint64_t(limit / 2 + 1));
  if (rank == ranks - 1 && ranks % 2 == 1) return mean;
  return rank % 2 == 0 ? mean + off : mean - off;
}

int64_t value_of(const Type& type, tuttiRedOp_t op, int ranks, int rank, uint64_t seed, uint64_t index) {
  const uint64_t random = mixed(seed, uint64_t(rank), index);
  if (type.family() == Family::boolean) return int64_t(random & 1);
  if (op == tuttiSum) return sum_value(type, ranks, rank, random, index);
  if (op == mul_sum) return sum_value(type, 2 * ranks, rank, random, index);  // they double at most
  if (op == tuttiProd) return prod_value(type, ranks, rank, random);
  if (op == tuttiAvg) return avg_value(type, ranks, rank, seed, index);
  return spread(type, random, 7);
}

void encode_float(const Type& type, int64_t value, std::byte* element) {
  const uint64_t size = uint64_t(value < 0 ? -value : value);
  uint64_t bits = 0;
  if (size != 0) {
    const int exponent = std::bit_width(size) - 1;
    const uint64_t rest = size ^ (uint64_t{1} << exponent);  // without the leading one
    const int shift = type.mantissa_bits - exponent;
    const uint64_t mantissa = shift >= 0 ? rest << shift : rest >> -shift;
    const int bias = (1 << (type.exponent_bits - 1)) - 1;
    bits = uint64_t(exponent + bias) << type.mantissa_bits | mantissa;
  }
  if (value < 0) bits |= uint64_t{1} << (type.part_bytes() * 8 - 1);
  std::memcpy(element, &bits, type.part_bytes());
}

// What two values give; unsigned, so that they may wrap.
uint64_t joined(tuttiRedOp_t op, uint64_t a, uint64_t b) {
  switch (op) {
    case tuttiProd: return a * b;
    case tuttiMax:
    case tuttiMaxloc: return uint64_t(std::max(int64_t(a), int64_t(b)));
    case tuttiMin:
    case tuttiMinloc: return uint64_t(std::min(int64_t(a), int64_t(b)));
    case tuttiBand: return a & b;
    case tuttiBor: return a | b;
    case tuttiBxor: return a ^ b;
    case tuttiLand: return a != 0 && b != 0;
    case tuttiLor: return a != 0 || b != 0;
    default: return a + b;
  }
}

// A rank's value as it is joined.
uint64_t operand_of(const Type& type, tuttiRedOp_t op, int ranks, int rank, uint64_t seed, uint64_t index) {
  const int64_t value = value_of(type, op, ranks, rank, seed, index);
  return uint64_t(op == mul_sum ? value * multiplier(rank) : value);
}

}  // namespace

void encode(const Type& type, int64_t value, int64_t second, std::byte* element) {
  static_assert(std::endian::native == std::endian::little);
  const size_t part = type.part_bytes();
  if (type.family() == Family::boolean) value = value != 0;
  if (type.mantissa_bits > 0) encode_float(type, value, element);
  else std::memcpy(element, &value, part);
  if (type.family() == Family::complex) encode_float(type, second, element + part);
  if (type.family() == Family::pair) std::memcpy(element + part, &second, part);
}

Period input_period(const Type& type, const std::optional<Operator>& op, int ranks, int rank, uint64_t seed) {
  Period result(period * type.bytes);
  for (size_t i = 0; i < period; ++i) {
    const uint64_t random = mixed(seed, uint64_t(rank), i);
    std::byte* const element = &result[i * type.bytes];
    if (op)
      encode(type, value_of(type, op->op, ranks, rank, seed, i), type.family() == Family::pair ? rank : 0, element);
    else std::memcpy(element, &random, std::min(sizeof random, type.bytes));
  }
  return result;
}

Period shifted(const Period& period_bytes, size_t first, size_t element_bytes) {
  Period result = period_bytes;
  std::rotate(result.begin(), result.begin() + long(first % period * element_bytes), result.end());
  return result;
}

Period reduced_period(const Type& type, const Operator& op, int ranks, uint64_t seed, int joined_ranks) {
  Period result(period * type.bytes);
  for (size_t i = 0; i < period; ++i) {
    uint64_t value = operand_of(type, op.op, ranks, 0, seed, i);
    int64_t first = 0;  // the first rank that has the least or greatest value
    for (int rank = 1; rank < joined_ranks; ++rank) {
      const uint64_t before = value;
      value = joined(op.op, value, operand_of(type, op.op, ranks, rank, seed, i));
      if (type.family() == Family::pair && value != before) first = rank;
    }
    if (op.op == tuttiAvg) value = uint64_t(int64_t(value) / joined_ranks);
    if (op.op == tuttiLand || op.op == tuttiLor) value = value != 0;
    encode(type, int64_t(value), first, &result[i * type.bytes]);
  }
  return result;
}

void fill(std::span<std::byte> buffer, const Period& period_bytes) {
  for (size_t at = 0; at < buffer.size(); at += period_bytes.size())
    std::memcpy(buffer.data() + at, period_bytes.data(), std::min(period_bytes.size(), buffer.size() - at));
}

size_t count_wrong(std::span<const std::byte> buffer, const Period& period_bytes, size_t element_bytes) {
  size_t wrong = 0;
  for (size_t at = 0; at < buffer.size(); at += period_bytes.size()) {
    const size_t bytes = std::min(period_bytes.size(), buffer.size() - at);
    if (std::memcmp(buffer.data() + at, period_bytes.data(), bytes) == 0) continue;
    for (size_t i = 0; i < bytes; i += element_bytes)
      wrong += std::memcmp(buffer.data() + at + i, period_bytes.data() + i, element_bytes) != 0;
  }
  return wrong;
}

WatchedBuffer::WatchedBuffer(size_t bytes, SharedMemory memory)
    : bytes_(bytes), memory_(nullptr, Free{memory.release != nullptr ? memory.release : std::free}) {
  const size_t whole = (bytes + 2 * margin_bytes + 4095) / 4096 * 4096;
  memory_.reset(static_cast<std::byte*>(memory.allocate != nullptr ? memory.allocate(whole) : std::aligned_alloc(4096, whole)));
  if (memory_ == nullptr) throw std::bad_alloc();
}

std::span<std::byte> WatchedBuffer::use(size_t bytes) {
  used_ = std::min(bytes, bytes_);
  std::memset(memory_.get(), int(watched_byte), margin_bytes);
  std::memset(memory_.get() + margin_bytes + used_, int(watched_byte), margin_bytes);
  return {memory_.get() + margin_bytes, used_};
}

size_t WatchedBuffer::count_touched() const {
  const auto touched = [this](size_t at) {
    const std::byte* begin = memory_.get() + at;
    return size_t(std::count_if(begin, begin + margin_bytes, [](std::byte b) { return b != watched_byte; }));
  };
  return touched(0) + touched(margin_bytes + used_);
}

}  // namespace tutti::perf
