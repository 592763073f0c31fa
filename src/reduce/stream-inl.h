// Copying past the caches. Compiled once per instruction set.
#if defined(TUTTI_REDUCE_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_STREAM_INL_H_
#undef TUTTI_REDUCE_STREAM_INL_H_
#else
#define TUTTI_REDUCE_STREAM_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {

constexpr size_t cache_line_bytes = 64;

// Whole cache lines of the output are streamed, what is before and after them is stored as usual. No final fence.
HWY_INLINE void stream_bytes(uint8_t* output, const uint8_t* input, size_t bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128) {
    std::memcpy(output, input, bytes);
  } else {
    const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(output) % cache_line_bytes);
    if (head > 0) std::memcpy(output, input, head);
    const hn::CappedTag<uint8_t, cache_line_bytes> d;
    const size_t step = hn::Lanes(d);
    size_t i = head;
    for (; i + cache_line_bytes <= bytes; i += cache_line_bytes)
      for (size_t j = 0; j < cache_line_bytes; j += step)
        hn::Stream(hn::LoadU(d, input + i + j), d, output + i + j);
    if (i < bytes) std::memcpy(output + i, input + i, bytes - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#endif
