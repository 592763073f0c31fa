// A CPU allocator for PyTorch whose large blocks are Tutti's shared memory: the ranks of a host reduce such tensors in
// place, without copies.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "calls.h"

namespace tutti_torch {

// Blocks of at least block_bytes_min are shared; smaller ones come from PyTorch's own allocator. Freed blocks are kept
// for later ones of their size, since new pages cost more than the copy that they spare. Thread-safe; never destroyed,
// as tensors may outlive all else.
class SharedAllocator final : public c10::Allocator {
 public:
  static constexpr size_t block_bytes_min = size_t{64} << 10;

  static SharedAllocator& instance() {
    static SharedAllocator* const made = new SharedAllocator();
    return *made;
  }
  void use(bool on) {
    if (on == is_on_.exchange(on)) return;
    c10::SetAllocator(c10::DeviceType::CPU, on ? static_cast<c10::Allocator*>(this) : ordinary_, priority);
    if (!on) trim();
  }
  bool is_on() const { return is_on_; }
  // Gives blocks that are kept back to the system.
  void trim() {
    std::multimap<size_t, void*> kept;
    {
      const std::lock_guard lock(mutex_);
      kept.swap(kept_);
      for (const auto& [bytes, block] : kept) sizes_.erase(block);
    }
    for (const auto& [bytes, block] : kept) tuttiMemFree(block);
  }

  c10::DataPtr allocate(size_t bytes) { return allocate_block(bytes); }
  c10::DataPtr allocate(size_t bytes) const { return const_cast<SharedAllocator*>(this)->allocate_block(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &SharedAllocator::release; }
  void copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

 private:
  static constexpr uint8_t priority = 100;
  // Sizes are rounded up, so that blocks fit again: to a quarter of their power of two.
  static size_t rounded(size_t bytes) {
    size_t step = block_bytes_min / 4;
    while (step * 8 <= bytes) step *= 2;
    return (bytes + step - 1) / step * step;
  }

  SharedAllocator() : ordinary_(c10::GetCPUAllocator()) {}

  c10::DataPtr allocate_block(size_t bytes) {
    if (bytes < block_bytes_min) {
      void* const small = bytes == 0 ? nullptr : ordinary_->raw_allocate(bytes);
      return {small, small, &SharedAllocator::release, c10::Device(c10::DeviceType::CPU)};
    }
    const size_t size = rounded(bytes);
    void* block = take_kept(size);
    if (block == nullptr) {
      check(tuttiMemAlloc(&block, size));
      const std::lock_guard lock(mutex_);
      sizes_.emplace(block, size);
    }
    return {block, block, &SharedAllocator::release, c10::Device(c10::DeviceType::CPU)};
  }
  void* take_kept(size_t size) {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(size);
    if (found == kept_.end()) return nullptr;
    void* const block = found->second;
    kept_.erase(found);
    return block;
  }
  static void release(void* block) {
    if (block == nullptr) return;
    SharedAllocator& self = instance();
    {
      const std::lock_guard lock(self.mutex_);
      const auto size = self.sizes_.find(block);
      if (size != self.sizes_.end()) {
        if (self.is_on_) {
          self.kept_.emplace(size->second, block);
          return;
        }
        self.sizes_.erase(size);
      } else {
        return self.ordinary_->raw_deallocate(block);
      }
    }
    tuttiMemFree(block);
  }

  c10::Allocator* const ordinary_;
  std::atomic<bool> is_on_{false};
  std::mutex mutex_;
  std::map<void*, size_t> sizes_;      // of all blocks, kept ones too
  std::multimap<size_t, void*> kept_;  // freed, by size
};

}  // namespace tutti_torch
