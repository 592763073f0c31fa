// Memory of random programs: of several kinds, which comes, goes, and lies where other memory lay before.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tutti/tutti.h"

namespace tutti::test {

class MemoryPool {
 public:
  enum class From : uint8_t { heap, library, pages };  // pages: unmapped when they are freed
  struct Block {
    From from{};
    std::byte* data = nullptr;
    size_t bytes = 0;
  };

  explicit MemoryPool(uint32_t seed) : random_(seed) {}
  MemoryPool(const MemoryPool&) = delete;
  ~MemoryPool() {
    for (const Block& block : free_) release(block);
  }

  // One that has been used before, as a rule, if some free one suits.
  Block take(size_t bytes) {
    std::shuffle(free_.begin(), free_.end(), random_);
    const auto suits = [&](const Block& block) {
      const bool is_far_too_large = block.bytes / 4 > bytes + 4096 && block.bytes != shared_bytes_max + 1;
      return block.bytes >= bytes && !is_far_too_large;
    };
    const auto found = std::find_if(free_.begin(), free_.end(), suits);
    if (found != free_.end() && random_() % 4 != 0) {
      const Block block = *found;
      free_.erase(found);
      return block;
    }
    return allocate(bytes);
  }
  void give_back(const Block& block) {
    free_.push_back(block);
    while (free_.size() > 12 || (free_.size() > 2 && random_() % 8 == 0)) {
      std::swap(free_[random_() % free_.size()], free_.back());
      release(free_.back());
      free_.pop_back();
    }
  }
  // New pages in place of a block's own, if it has such; else it stays as it is. No other thread may map memory meanwhile
  // where the block is the library's, so these stay, too, where `alone` is false.
  static void replace(Block& block, bool alone) {
    if (block.from == From::library && alone && block.bytes > shared_bytes_max) {
      release(block);
      block.from = From::pages;
      if (pages(block.data, block.bytes, MAP_FIXED_NOREPLACE) != block.data) throw std::bad_alloc();
    } else if (block.from == From::pages) {
      pages(block.data, block.bytes, MAP_FIXED);
    }
  }

 private:
  static constexpr size_t shared_bytes_max = size_t{4} << 20;  // no larger blocks of tuttiMemAlloc share pages with others

  static void* pages(void* where, size_t bytes, int flags) {
    void* const memory = ::mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return memory;
  }
  Block allocate(size_t bytes) {
    Block block{From(random_() % 3), nullptr, bytes};
    if (block.from == From::library && bytes >= shared_bytes_max / 64 && random_() % 2 == 0)
      block.bytes = bytes = std::max(bytes, shared_bytes_max + 1);
    void* memory = nullptr;
    switch (block.from) {
      case From::heap: memory = ::operator new(bytes); break;
      case From::library:
        if (tuttiMemAlloc(&memory, bytes) != tuttiSuccess) throw std::bad_alloc();
        break;
      case From::pages: memory = pages(nullptr, bytes, 0);
    }
    block.data = static_cast<std::byte*>(memory);
    return block;
  }
  static void release(const Block& block) {
    switch (block.from) {
      case From::heap: return ::operator delete(block.data);
      case From::library: tuttiMemFree(block.data); return;
      case From::pages: ::munmap(block.data, block.bytes);
    }
  }

  std::mt19937 random_;
  std::vector<Block> free_;
};

// A buffer with guards around it, and an image of what it, guards and all, must hold.
class PooledBuffer {
 public:
  PooledBuffer(MemoryPool& pool, size_t bytes, size_t offset)
      : pool_(&pool),
        block_(pool.take(bytes + offset + 2 * guard_bytes)),
        at_(guard_bytes + offset),
        image_(bytes + offset + 2 * guard_bytes) {}
  PooledBuffer(PooledBuffer&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), block_(other.block_), at_(other.at_), image_(std::move(other.image_)) {}
  ~PooledBuffer() {
    if (pool_ != nullptr) pool_->give_back(block_);
  }

  std::byte* data() const { return block_.data + at_; }
  std::byte* image() { return image_.data() + at_; }
  void blank() { std::fill(image_.begin(), image_.end(), std::byte{0xa5}); }
  void apply() { std::memcpy(block_.data, image_.data(), image_.size()); }
  // As MemoryPool's replace().
  void lie_anew(bool alone) { MemoryPool::replace(block_, alone); }
  std::string wrong() const {
    if (std::memcmp(block_.data, image_.data(), image_.size()) == 0) return {};
    const auto at = std::mismatch(image_.begin(), image_.end(), block_.data);
    return fmt::format("byte {} of {} is {}, not {} (memory {} of {})", at.first - image_.begin() - long(at_),
                       image_.size() - at_ - guard_bytes, int(*at.second), int(*at.first),
                       static_cast<const void*>(block_.data), int(block_.from));
  }

 private:
  static constexpr size_t guard_bytes = 64;
  MemoryPool* pool_;
  MemoryPool::Block block_;
  size_t at_;
  std::vector<std::byte> image_;
};

}  // namespace tutti::test
