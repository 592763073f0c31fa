// float16 and both float8 by the toolkit's conversions, which are instructions on the device.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "base/host_device.h"
#include "reduce/elements.h"

namespace tutti {

// What they have in common: computed in float, rounded once to nearest even.
struct SmallFloatElement {
  using Lane = float;
  TUTTI_HOST_DEVICE static Lane divided(Lane a, uint32_t divisor) { return a / static_cast<float>(divisor); }
};

struct ScalarFloat16 : SmallFloatElement {
  using Stored = uint16_t;
  TUTTI_HOST_DEVICE static Lane load(Stored a) { return __half2float(__half(__half_raw{a})); }
  TUTTI_HOST_DEVICE static Stored store(Lane a) {
    if (is_nan(a)) return 0x7e00;
    return static_cast<__half_raw>(__float2half_rn(a)).x;
  }
};

// Saturating, infinities too: the type has none.
struct ScalarFloat8e4m3 : SmallFloatElement {
  using Stored = uint8_t;
  TUTTI_HOST_DEVICE static Lane load(Stored a) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(a, __NV_E4M3))); }
  TUTTI_HOST_DEVICE static Stored store(Lane a) {
    if (is_nan(a)) return 0x7f;
    return __nv_cvt_float_to_fp8(a, __NV_SATFINITE, __NV_E4M3);
  }
};

// Finite results saturate; an infinity stays one. No product of eight finite elements leaves float, so an infinity came
// from an input.
struct ScalarFloat8e5m2 : SmallFloatElement {
  using Stored = uint8_t;
  TUTTI_HOST_DEVICE static Lane load(Stored a) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(a, __NV_E5M2))); }
  TUTTI_HOST_DEVICE static Stored store(Lane a) {
    if (is_nan(a)) return 0x7e;
    const uint32_t bits = std::bit_cast<uint32_t>(a);
    if ((bits & 0x7fffffffu) == 0x7f800000u) return static_cast<Stored>(0x7cu | (bits >> 24 & 0x80u));
    return __nv_cvt_float_to_fp8(a, __NV_SATFINITE, __NV_E5M2);
  }
};

}  // namespace tutti
