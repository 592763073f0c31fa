// Buffers that the user has registered with a communicator.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "memory/shared_memory.h"

namespace tutti {

// Thread-safe. What is left ends with it.
class Registrations {
 public:
  ~Registrations();

  // A handle. Throws Error(invalid_argument): the buffer begins in memory of tuttiMemAlloc and ends outside.
  void* add(const SharedMemory& memory, const void* buffer, size_t bytes);
  // Throws Error(invalid_argument).
  void remove(const void* handle);

 private:
  using Block = std::weak_ptr<const SharedBlock>;  // weak: whoever has a shared one uses the memory in a call
  static void end(const Block& block) noexcept;

  std::mutex mutex_;
  std::map<const void*, std::unique_ptr<Block>> blocks_;  // by handle
};

}  // namespace tutti
