// Repeatable randomness for simulations: one seed, one sequence, on every machine.
#pragma once

#include <cstdint>

namespace tutti {

// SplitMix64 (Steele, Lea, Flood 2014): a few ns a number, cheap to make by the thousand.
class Random {
 public:
  explicit constexpr Random(uint64_t seed) : state_(seed) {}

  constexpr uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0 .. n - 1; the bias is that of a remainder. n >= 1.
  constexpr uint64_t below(uint64_t n) { return next() % n; }
  // lowest .. highest.
  constexpr int64_t between(int64_t lowest, int64_t highest) {
    return lowest + int64_t(below(uint64_t(highest - lowest) + 1));
  }
  constexpr bool chance(double probability) { return double(next() >> 11) * 0x1p-53 < probability; }

 private:
  uint64_t state_;
};

}  // namespace tutti
