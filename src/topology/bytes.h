// Plain data as bytes for other ranks, least significant byte first, read back defensively.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tutti {

template <class T>
void put(std::vector<std::byte>& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes.push_back(std::byte(uint64_t(value) >> (8 * i)));
}

class ByteReader {
 public:
  // `what` names the thing read, for the sentence: "a rank's place".
  ByteReader(std::span<const std::byte> bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  template <class T>
  T take() {
    if (bytes_.size() < sizeof(T)) refuse("it is too short");
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t(bytes_[i]) << (8 * i);
    bytes_ = bytes_.subspan(sizeof(T));
    return T(value);
  }
  void end() const {
    if (!bytes_.empty()) refuse("it is too long");
  }
  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(Code::invalid_argument, std::string(what_) + ", as another rank sent it, is malformed: " + reason);
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view what_;
};

}  // namespace tutti
