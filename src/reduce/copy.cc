// Copying by vectors, by string instructions and past the caches.
#include "reduce/copy.h"

#include "reduce/families.h"
#include "reduce/targets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/copy.cc"
#include <hwy/foreach_target.h>
#include "reduce/stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

// Four vectors a turn; what is before the output's first whole vector, and after the last turn, overlaps them.
void copy_vectors_here(uint8_t* output, const uint8_t* input, size_t bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<uint8_t> d;
  const size_t step = hn::Lanes(d), turn = 4 * step;
  if constexpr (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128) {
    std::memcpy(output, input, bytes);
  } else if (bytes < 2 * turn) {
    std::memcpy(output, input, bytes);
  } else {
    hn::StoreU(hn::LoadU(d, input), d, output);
    size_t i = step - reinterpret_cast<uintptr_t>(output) % step;
    for (; i + turn <= bytes; i += turn) {
      const auto v0 = hn::LoadU(d, input + i), v1 = hn::LoadU(d, input + i + step);
      const auto v2 = hn::LoadU(d, input + i + 2 * step), v3 = hn::LoadU(d, input + i + 3 * step);
      hn::Store(v0, d, output + i);
      hn::Store(v1, d, output + i + step);
      hn::Store(v2, d, output + i + 2 * step);
      hn::Store(v3, d, output + i + 3 * step);
    }
    for (; i + step <= bytes; i += step) hn::Store(hn::LoadU(d, input + i), d, output + i);
    if (i < bytes) hn::StoreU(hn::LoadU(d, input + bytes - step), d, output + bytes - step);
  }
}

void stream_copy_here(uint8_t* output, const uint8_t* input, size_t bytes) {
  stream_bytes(output, input, bytes);
  hwy::FlushStream();
}

// From registers where all outputs have their cache lines at the same places and a vector is such a line; else while the
// input is in a near cache.
void stream_to_here(void* const* outputs, int n_outputs, const uint8_t* input, size_t bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr size_t block_bytes = 4096, line = cache_line_bytes, turn = 4 * line;
  const auto output = [&](int k) { return static_cast<uint8_t*>(outputs[k]); };
  const auto offset = [&](int k) { return reinterpret_cast<uintptr_t>(outputs[k]) % line; };
  bool alike = true;
  for (int k = 1; k < n_outputs; ++k) alike &= offset(k) == offset(0);
  const hn::CappedTag<uint8_t, line> d;
  size_t i = 0;
  if (alike && hn::Lanes(d) == line) {
    i = std::min(bytes, (line - offset(0)) % line);
    for (int k = 0; k < n_outputs; ++k) std::memcpy(output(k), input, i);
    for (; i + turn <= bytes; i += turn) {
      const auto v0 = hn::LoadU(d, input + i), v1 = hn::LoadU(d, input + i + line);
      const auto v2 = hn::LoadU(d, input + i + 2 * line), v3 = hn::LoadU(d, input + i + 3 * line);
      for (int k = 0; k < n_outputs; ++k) {
        hn::Stream(v0, d, output(k) + i);
        hn::Stream(v1, d, output(k) + i + line);
        hn::Stream(v2, d, output(k) + i + 2 * line);
        hn::Stream(v3, d, output(k) + i + 3 * line);
      }
    }
  }
  for (; i < bytes; i += block_bytes)
    for (int k = 0; k < n_outputs; ++k) stream_bytes(output(k) + i, input + i, std::min(block_bytes, bytes - i));
}

void stream_on_here(uint8_t* output, const uint8_t* input, size_t bytes) { stream_bytes(output, input, bytes); }

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
namespace {

// A string instruction beyond the second-level cache would be slower than what the library does there.
constexpr size_t string_bytes_max = 512 * 1024;
// An input and an output that a first-level cache holds, as a rule.
constexpr size_t near_bytes_max = 16 * 1024;

struct CopyWays {
  CopyWay usual, from_memory;
};

CopyWays find_own_ways() noexcept {
  constexpr CopyWays library{CopyWay::library, CopyWay::library};
#if defined(__x86_64__) && !defined(TUTTI_FEW_TARGETS)  // sanitizers look into the library's
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return library;
  char maker[12];
  std::memcpy(maker, &b, 4);
  std::memcpy(maker + 4, &d, 4);
  std::memcpy(maker + 8, &c, 4);
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return library;
  const unsigned base = a >> 8 & 0xf, family = base == 0xf ? base + (a >> 20 & 0xff) : base;
  const bool has_features = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0;
  constexpr unsigned erms = 1u << 9;
  const bool fast_strings = has_features && (b & erms) != 0;
  const CopyWay usual = copy_way({maker, sizeof maker}, family, fast_strings);
  return {usual, copy_way_from_memory(usual, fast_strings)};
#else
  return library;
#endif
}

const CopyWays& own_ways() noexcept {
  static const CopyWays ways = find_own_ways();
  return ways;
}
CopyWay own_way() noexcept { return own_ways().usual; }

void copy_string(void* output, const void* input, size_t bytes) noexcept {
#if defined(__x86_64__)
  if (bytes <= string_bytes_max) {
    asm volatile("rep movsb" : "+D"(output), "+S"(input), "+c"(bytes) : : "memory");
    return;
  }
#endif
  std::memcpy(output, input, bytes);
}

}  // namespace

HWY_EXPORT(copy_vectors_here);
HWY_EXPORT(stream_copy_here);
HWY_EXPORT(stream_on_here);
HWY_EXPORT(stream_to_here);

CopyWay copy_way(std::string_view maker, unsigned family, bool fast_strings) noexcept {
  constexpr unsigned zen = 0x17, zen_5 = 0x1a;
  if (maker != "AuthenticAMD" || family < zen) return CopyWay::library;
  if (family < zen_5) return CopyWay::vectors;
  return fast_strings ? CopyWay::string : CopyWay::library;
}

CopyWay copy_way_from_memory(CopyWay way, bool fast_strings) noexcept {
  return way == CopyWay::vectors && fast_strings ? CopyWay::string : way;
}

void copy_by(CopyWay way, void* output, const void* input, size_t bytes) noexcept {
  switch (way) {
    case CopyWay::library: std::memcpy(output, input, bytes); return;
    case CopyWay::string: copy_string(output, input, bytes); return;
    case CopyWay::vectors:
      HWY_DYNAMIC_DISPATCH(copy_vectors_here)(static_cast<uint8_t*>(output), static_cast<const uint8_t*>(input), bytes);
  }
}

void copy_large(void* output, const void* input, size_t bytes) noexcept {
  copy_by(own_way(), output, input, bytes);
}

bool copies_at_a_stretch() noexcept { return own_way() == CopyWay::string; }
bool copies_as_library() noexcept { return own_way() == CopyWay::library; }
bool strings_copy_well() noexcept { return own_way() != CopyWay::vectors; }

namespace {

void copy_without_strings(void* output, const void* input, size_t bytes) noexcept {
  const CopyWay own = own_way();
  copy_by(own == CopyWay::string ? CopyWay::vectors : own, output, input, bytes);
}

// Not where the output lies a little behind the input in its page. (Measured, Zen 4: 28 to 44 GB/s, but 3.5 where it is 1 to 15 bytes.)
bool suits_strings(const void* output, const void* input) noexcept {
  constexpr size_t page_bytes = 4096, line_bytes = HWY_NAMESPACE::cache_line_bytes;
  const auto at = reinterpret_cast<uintptr_t>(output), from = reinterpret_cast<uintptr_t>(input);
  return at % line_bytes == 0 && (at - from - 1) % page_bytes >= line_bytes - 1;
}

}  // namespace

void copy_large_own(void* output, const void* input, size_t bytes) noexcept {
  if (bytes > near_bytes_max) copy_large(output, input, bytes);
  else copy_without_strings(output, input, bytes);
}

void copy_large_passing(void* output, const void* input, size_t bytes) noexcept {
  copy_without_strings(output, input, bytes);
}

void copy_large_from_memory(void* output, const void* input, size_t bytes) noexcept {
  copy_by(suits_strings(output, input) ? own_ways().from_memory : own_way(), output, input, bytes);
}

void copy_bytes(void* output, const void* input, size_t bytes, Store store) noexcept {
  if (output == input || bytes == 0) return;
  if (store == Store::streaming && bytes >= streaming_bytes_min)
    HWY_DYNAMIC_DISPATCH(stream_copy_here)(static_cast<uint8_t*>(output), static_cast<const uint8_t*>(input), bytes);
  else
    copy_memory(output, input, bytes);
}

void stream_bytes_on(void* output, const void* input, size_t bytes) noexcept {
  HWY_DYNAMIC_DISPATCH(stream_on_here)(static_cast<uint8_t*>(output), static_cast<const uint8_t*>(input), bytes);
}

void stream_bytes_to(void* const* outputs, int n_outputs, const void* input, size_t bytes) noexcept {
  HWY_DYNAMIC_DISPATCH(stream_to_here)(outputs, n_outputs, static_cast<const uint8_t*>(input), bytes);
}

void stream_end() noexcept { hwy::FlushStream(); }

}  // namespace tutti
#endif
