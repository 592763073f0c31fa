// Elements and operators of reductions, one element at a time: plain loops on the host and kernels on devices share them.
//
// An Element says how a type is read into a lane that it can be computed in (float for the small floats) and written
// back; an Op joins two lanes, apply(a, b), and says what becomes of a result, finished(a). What they must give stands
// in reduce.h. Nothing here may be contracted: compile without fused multiply-add.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/host_device.h"

namespace tutti {

// --- Floats -----------------------------------------------------------------------------------------------------------

template <class F>
TUTTI_HOST_DEVICE constexpr bool is_nan(F a) {
  return a != a;
}
TUTTI_HOST_DEVICE constexpr bool has_sign(float a) { return std::bit_cast<uint32_t>(a) >> 31 != 0; }
TUTTI_HOST_DEVICE constexpr bool has_sign(double a) { return std::bit_cast<uint64_t>(a) >> 63 != 0; }

// The one quiet NaN, whatever NaN it was.
TUTTI_HOST_DEVICE constexpr float canonical(float a) { return is_nan(a) ? std::bit_cast<float>(0x7fc00000u) : a; }
TUTTI_HOST_DEVICE constexpr double canonical(double a) {
  return is_nan(a) ? std::bit_cast<double>(uint64_t{0x7ff8} << 48) : a;
}

// --- Compound elements ------------------------------------------------------------------------------------------------

template <class F>
struct Complex {
  F real, imaginary;
};

template <class V, class I>
struct Pair {
  V value;
  I index;
};

// --- Elements ---------------------------------------------------------------------------------------------------------

// Computed as it is stored. Integers are divided truncating.
template <class T>
struct PlainElement {
  using Stored = T;
  using Lane = T;
  TUTTI_HOST_DEVICE static constexpr Lane load(Stored a) { return a; }
  TUTTI_HOST_DEVICE static constexpr Stored store(Lane a) {
    if constexpr (std::is_floating_point_v<T>) return canonical(a);
    else return a;
  }
  TUTTI_HOST_DEVICE static constexpr Lane divided(Lane a, uint32_t divisor) {
    if constexpr (std::is_floating_point_v<T>) {
      return a / static_cast<T>(divisor);
    } else if constexpr (!std::is_integral_v<T>) {
      return a;
    } else {
      // By the magnitude: no quotient of a negative number by an unsigned one is asked for.
      using Magnitude = std::conditional_t<sizeof(T) < 8, uint32_t, uint64_t>;
      const bool negative = std::is_signed_v<T> && a < T{0};
      const Magnitude quotient = (negative ? Magnitude{0} - static_cast<Magnitude>(a) : static_cast<Magnitude>(a)) / divisor;
      return static_cast<T>(negative ? Magnitude{0} - quotient : quotient);
    }
  }
};

// Computed in float, rounded once to nearest even.
struct ScalarBfloat16 {
  using Stored = uint16_t;
  using Lane = float;
  TUTTI_HOST_DEVICE static constexpr Lane load(Stored a) { return std::bit_cast<float>(uint32_t{a} << 16); }
  TUTTI_HOST_DEVICE static constexpr Stored store(Lane a) {
    const uint32_t bits = std::bit_cast<uint32_t>(canonical(a));
    return static_cast<Stored>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
  TUTTI_HOST_DEVICE static constexpr Lane divided(Lane a, uint32_t divisor) { return a / static_cast<float>(divisor); }
};

// --- Operators on numbers ---------------------------------------------------------------------------------------------

namespace scalar {

// What most operators have in common.
struct Operator {
  static constexpr bool divides = false;
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T finished(T a) {
    return a;
  }
};

// Integers wrap: they are joined as unsigned ones of at least 32 bits, so that nothing is promoted to a signed type.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) < 8, uint32_t, uint64_t>;

struct Sum : Operator {
  static constexpr bool divides = true;
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    else return a + b;
  }
};

struct Prod : Operator {
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    else return a * b;
  }
  template <class F>
  TUTTI_HOST_DEVICE static constexpr Complex<F> apply(Complex<F> a, Complex<F> b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  }
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T finished(T a) {
    return a;
  }
  template <class F>
  TUTTI_HOST_DEVICE static constexpr Complex<F> finished(Complex<F> a) {
    return {canonical(a.real), canonical(a.imaginary)};
  }
};

// NaN if any is NaN; -0 is less than +0.
struct Max : Operator {
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (is_nan(a)) return a;
      if (a == b) return has_sign(a) ? b : a;
    }
    return a > b ? a : b;  // b where it is NaN
  }
};

struct Min : Operator {
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (is_nan(a)) return a;
      if (a == b) return has_sign(a) ? a : b;
    }
    return a < b ? a : b;
  }
};

struct BitAnd : Operator {
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct BitOr : Operator {
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct BitXor : Operator {
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// --- Operators on truth values ----------------------------------------------------------------------------------------

struct Truth : Operator {
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T finished(T a) {
    return static_cast<T>(a != 0);
  }
};

struct And : Truth {
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T apply(T a, T b) {
    return static_cast<T>((a != 0) & (b != 0));
  }
};

struct Or : Truth {
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T apply(T a, T b) {
    return static_cast<T>((a != 0) | (b != 0));
  }
};

struct Differ : Truth {
  template <class T>
  TUTTI_HOST_DEVICE static constexpr T apply(T a, T b) {
    return static_cast<T>((a != 0) != (b != 0));
  }
};

// --- Operators on pairs of a value and an index -------------------------------------------------------------------------

// Whether a stands before b in the order of min: NaN before all numbers, -0 before +0.
template <class V>
TUTTI_HOST_DEVICE constexpr bool less(V a, V b) {
  if constexpr (std::is_floating_point_v<V>) {
    if (is_nan(a) || is_nan(b)) return is_nan(a) && !is_nan(b);
    if (a == b) return has_sign(a) && !has_sign(b);
  }
  return a < b;
}
// In the order of max: NaN before all numbers, then the greatest.
template <class V>
TUTTI_HOST_DEVICE constexpr bool greater(V a, V b) {
  if constexpr (std::is_floating_point_v<V>)
    if (is_nan(a) || is_nan(b)) return is_nan(a) && !is_nan(b);
  return less(b, a);
}

template <bool greatest>
struct Locate {
  static constexpr bool divides = false;
  template <class V, class I>
  TUTTI_HOST_DEVICE static constexpr Pair<V, I> apply(Pair<V, I> a, Pair<V, I> b) {
    const bool a_first = greatest ? greater(a.value, b.value) : less(a.value, b.value);
    const bool b_first = greatest ? greater(b.value, a.value) : less(b.value, a.value);
    return a_first || (!b_first && a.index <= b.index) ? a : b;
  }
  template <class V, class I>
  TUTTI_HOST_DEVICE static constexpr Pair<V, I> finished(Pair<V, I> a) {
    if constexpr (std::is_floating_point_v<V>) a.value = canonical(a.value);
    return a;
  }
};

}  // namespace scalar
}  // namespace tutti
