// Registrations: a count on the block of each, which keeps it from being freed.
#include "communicator/registrations.h"

#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {

Registrations::~Registrations() {
  for (const auto& [handle, block] : blocks_) end(*block);
}

void* Registrations::add(const SharedMemory& memory, const void* buffer, size_t bytes) {
  const std::shared_ptr<const SharedBlock> block = memory.find(buffer, 1);
  if (block != nullptr && memory.find(buffer, bytes) == nullptr)
    throw Error(Code::invalid_argument,
                fmt::format("buff {} and size {}: it ends outside of the {} bytes of tuttiMemAlloc that it begins in",
                            fmt::ptr(buffer), bytes, block->bytes));
  auto registered = std::make_unique<Block>(block);
  void* const handle = registered.get();
  const std::lock_guard lock(mutex_);
  blocks_.emplace(handle, std::move(registered));
  if (block != nullptr) block->registrations.fetch_add(1, std::memory_order_relaxed);
  return handle;
}

void Registrations::remove(const void* handle) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(handle);
  if (found == blocks_.end())
    throw Error(Code::invalid_argument, fmt::format("handle {} is no registration of this communicator: it was "
                                                    "deregistered, or never made", fmt::ptr(handle)));
  end(*found->second);
  blocks_.erase(found);
}

void Registrations::end(const Block& block) noexcept {
  if (const auto held = block.lock()) held->registrations.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace tutti
