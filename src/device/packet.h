// Packets of 4, 8 or 16 bytes, the unit of memory access of kernels, and the elements in them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "device/partition.h"

namespace tutti {

template <uint32_t bytes>
struct alignas(bytes) Packet {
  uint32_t words[bytes / 4];
};

// The elements of a packet as they lie in memory.
template <class Stored, uint32_t n>
struct Elements {
  Stored at[n];
};

// An unsigned whole number of so many bytes, up to 8: what memory is read and written as.
template <uint32_t bytes>
struct WordOf;
template <>
struct WordOf<1> {
  using Type = uint8_t;
};
template <>
struct WordOf<2> {
  using Type = uint16_t;
};
template <>
struct WordOf<4> {
  using Type = uint32_t;
};
template <>
struct WordOf<8> {
  using Type = uint64_t;
};

// The 16 bytes that begin `shift` bytes after the beginning of `low`, which `high` follows; shift < 16.
TUTTI_HOST_DEVICE constexpr Packet<16> joined(const Packet<16>& low, const Packet<16>& high, uint32_t shift) {
  uint32_t words[8] = {low.words[0],  low.words[1],  low.words[2],  low.words[3],
                       high.words[0], high.words[1], high.words[2], high.words[3]};
  // By halving: no array is indexed by what only the running program knows, so all stays in registers.
  for (int i = 0; i < 6; ++i) words[i] = shift & 8 ? words[i + 2] : words[i];
  for (int i = 0; i < 5; ++i) words[i] = shift & 4 ? words[i + 1] : words[i];
  const uint32_t bits = shift % 4 * 8;
  Packet<16> result{};
  for (int i = 0; i < 4; ++i)
    result.words[i] = static_cast<uint32_t>((uint64_t{words[i + 1]} << 32 | words[i]) >> bits);
  return result;
}

// --- Elements one by one, wherever they lie. `Memory` loads and stores words at multiples of their size. ----------------

template <class Stored, uint32_t word_bytes, class Memory>
TUTTI_HOST_DEVICE inline Stored read_in_words(Memory& memory, const std::byte* from) {
  using Word = typename WordOf<word_bytes>::Type;
  Elements<Word, sizeof(Stored) / word_bytes> words;
  for (uint32_t i = 0; i < sizeof(Stored) / word_bytes; ++i)
    words.at[i] = memory.template load<Word>(from + i * word_bytes);
  return std::bit_cast<Stored>(words);
}

template <uint32_t word_bytes, class Stored, class Memory>
TUTTI_HOST_DEVICE inline void write_in_words(Memory& memory, std::byte* to, Stored element) {
  using Word = typename WordOf<word_bytes>::Type;
  const auto words = std::bit_cast<Elements<Word, sizeof(Stored) / word_bytes>>(element);
  for (uint32_t i = 0; i < sizeof(Stored) / word_bytes; ++i) memory.store(to + i * word_bytes, words.at[i]);
}

template <class Stored>
inline constexpr uint32_t widest_word = sizeof(Stored) < 8 ? sizeof(Stored) : 8;

template <class Stored, class Memory>
TUTTI_HOST_DEVICE inline Stored read_element(Memory& memory, const std::byte* from) {
  constexpr uint32_t word = widest_word<Stored>;
  if (reinterpret_cast<uintptr_t>(from) % word == 0) return read_in_words<Stored, word>(memory, from);
  return read_in_words<Stored, 1>(memory, from);
}

template <class Stored, class Memory>
TUTTI_HOST_DEVICE inline void write_element(Memory& memory, std::byte* to, Stored element) {
  constexpr uint32_t word = widest_word<Stored>;
  if (reinterpret_cast<uintptr_t>(to) % word == 0) return write_in_words<word>(memory, to, element);
  write_in_words<1>(memory, to, element);
}

}  // namespace tutti
