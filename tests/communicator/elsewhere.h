// Where the buffers of a test's calls lie, if not in the host's memory, and on what stream the calls go.
#pragma once

#include <cstddef>
#include <span>

#include "tutti/tutti.h"

namespace tutti::test {

class Elsewhere {
 public:
  virtual ~Elsewhere() = default;
  // A copy of these bytes there, at the same distance from a multiple of 64.
  virtual std::byte* bring(std::span<const std::byte> bytes) = 0;
  // What has become of it, once the stream has passed; the copy is gone then.
  virtual void fetch(std::byte* there, std::span<std::byte> bytes) = 0;
  virtual tuttiStream_t stream() const = 0;
};

}  // namespace tutti::test
