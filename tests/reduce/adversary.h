// Inputs of sums of floats that are hard to add: far apart, cancelling, half-way between two results, at the ends of
// the range.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "reference.h"

namespace tutti {

// One element for each of `n` inputs.
class Adversary {
 public:
  Adversary(DataType type, uint64_t seed) : type_(type), random_(seed) {
    for (const double value : {0.0, 1.0, 3.0, 448.0, 57344.0, 65504.0})
      for (const double power : {1.0, 0x1p-9, 0x1p-16, 0x1p-24}) notable_.push_back(value * power);
    double largest = 1, smallest = 1, last = 1;  // largest, smallest, and the distance from 1 to the next
    for (int e = 0; e < 1100 && fits(std::ldexp(1.0, e)); ++e) largest = std::ldexp(1.0, e);
    for (int e = 0; e > -1100 && rounded(std::ldexp(1.0, e)) > 0; --e) smallest = std::ldexp(1.0, e);
    while (rounded(1 + last / 2) > 1) last /= 2;
    exponent_max_ = std::ilogb(largest), exponent_min_ = std::ilogb(smallest), bits_ = 1 - std::ilogb(last);
    notable_.insert(notable_.end(), {smallest, 3 * smallest, rounded(largest * (2 - last)), largest});
  }

  std::vector<double> column(size_t n, uint32_t divisor) {
    std::vector<double> values(n);
    switch (below(11)) {
      case 0:  // like numbers
        for (double& v : values) v = double(int64_t(below(2001)) - 1000) / 7;
        break;
      case 1:  // anywhere in the range
        for (double& v : values) v = anywhere(exponent_min_, exponent_max_);
        break;
      case 2:  // the ends
        for (double& v : values) v = signed_one() * notable_[below(notable_.size())];
        break;
      case 3:  // pairs that cancel, and little beside
        for (size_t i = 0; i < n; ++i) {
          const double value = anywhere(0, exponent_max_);
          values[i] = i % 2 == 1 ? -values[i - 1] : value;
        }
        values[below(n)] = anywhere(exponent_min_, exponent_min_ + bits_);
        break;
      case 4:
      case 5: half_way(values); break;
      case 10: quotient_half_way(values, divisor); break;
      case 6:  // subnormal
        for (double& v : values) v = anywhere(exponent_min_, exponent_min_ + bits_ - 1);
        break;
      case 7:  // zeros of both signs
        for (double& v : values) v = signed_one() * 0.0;
        break;
      case 8:  // two clouds of numbers, further apart than a double is long
        for (double& v : values)
          v = below(2) ? anywhere(exponent_max_ - 3, exponent_max_ - 1) : anywhere(exponent_min_, exponent_min_ + 9);
        break;
      default:  // what is no number, now and then
        for (double& v : values) v = anywhere(-3, 3);
        if (below(2)) values[below(n)] = signed_one() * std::numeric_limits<double>::infinity();
        if (below(4) == 0) values[below(n)] = std::numeric_limits<double>::quiet_NaN();
        if (below(4) == 0) values[below(n)] = -std::numeric_limits<double>::infinity();
    }
    std::shuffle(values.begin(), values.end(), random_);
    return values;
  }

  // n inputs of `count` elements (parts, of complex numbers).
  std::vector<std::vector<uint8_t>> inputs(size_t n, size_t count, uint32_t divisor = 1) {
    const size_t bytes = element_bytes(type_);
    std::vector<std::vector<uint8_t>> all(n, std::vector<uint8_t>(count * bytes));
    for (size_t i = 0; i < count; ++i) {
      const std::vector<double> values = column(n, std::max(divisor, 1u));
      for (size_t k = 0; k < n; ++k) {
        element_from_double(type_, values[k], &all[k][i * bytes]);
        const uint64_t any = random_();
        if (below(64) == 0) std::memcpy(&all[k][i * bytes], &any, bytes);
      }
    }
    return all;
  }

 private:
  size_t below(size_t n) { return size_t(random_() % n); }
  double signed_one() { return below(2) ? -1 : 1; }
  double rounded(double value) const {
    uint8_t element[16];
    element_from_double(type_, value, element);
    return element_to_double(type_, element);
  }
  bool fits(double value) const { return std::isfinite(value) && rounded(value) == value; }
  // A number of the type's length whose highest bit weighs 2^low to 2^high.
  double anywhere(int low, int high) {
    const int exponent = low + int(below(size_t(std::max(high - low, 0) + 1)));
    const double fraction = 1 + double(below(size_t{1} << std::min(bits_ - 1, 52))) / std::ldexp(1.0, bits_ - 1);
    return signed_one() * std::ldexp(fraction, exponent);
  }
  // A number, half of its last bit in pieces, and perhaps the smallest there is: above, below or at the middle.
  void half_way(std::vector<double>& values) {
    std::fill(values.begin(), values.end(), 0.0);
    const int exponent = exponent_min_ + bits_ + int(below(size_t(exponent_max_ - exponent_min_ - bits_)));
    values[0] = anywhere(exponent, exponent);
    const double half = std::ldexp(signed_one(), exponent - bits_);
    if (values.size() > 1) values[1] = half;
    if (values.size() > 2 && below(2)) values[1] = half / 2, values[2] = half / 2;
    if (values.size() > 3 && below(2)) values[3] = signed_one() * std::ldexp(1.0, exponent_min_);
    if (values.size() > 5 && below(2)) values[4] = anywhere(exponent, exponent_max_), values[5] = -values[4];
  }

  // What is half-way between two numbers when it is divided, or as near to that as can be, in pieces of the type.
  void quotient_half_way(std::vector<double>& values, uint32_t divisor) {
    std::fill(values.begin(), values.end(), 0.0);
    const bool subnormal = below(3) == 0;
    const int room = exponent_max_ - exponent_min_ - bits_ - 17;
    const int unit = exponent_min_ + (subnormal ? 0 : int(below(size_t(std::max(room, 0) + 1))));
    uint64_t number = below(size_t{1} << (bits_ - 1));
    if (!subnormal) number += uint64_t{1} << (bits_ - 1);
    unsigned __int128 rest = (static_cast<unsigned __int128>(2 * number + 1) * divisor + below(2)) / 2;
    const double sign = signed_one();
    size_t next = 0;
    for (int shift = 0; rest > 0; shift += bits_, rest >>= bits_) {
      if (next == values.size()) return;
      values[next++] = sign * std::ldexp(double(uint64_t(rest & ((uint64_t{1} << bits_) - 1))), unit + shift);
    }
    const int little = unit - int(below(110));
    if (next < values.size() && below(2) && little >= exponent_min_) values[next] = std::ldexp(signed_one(), little);
  }

  DataType type_;
  std::mt19937_64 random_;
  std::vector<double> notable_;
  int exponent_max_ = 0, exponent_min_ = 0, bits_ = 0;  // bits_: of the mantissa with its leading one
};

}  // namespace tutti
