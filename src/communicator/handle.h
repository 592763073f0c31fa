// Handles of the C interface: small cells that are never given back to the allocator, so that a call on a destroyed
// communicator or stream is told apart from one on a live one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace tutti {

// A cell of object T. The pointer to it is the C handle.
template <class T>
struct Handle {
  // `live` while the object exists. A cell that never was a handle holds something else, most likely.
  static constexpr uint64_t live = 0x7475747469686e64;
  static constexpr uint64_t dead = 0x64656164686e646c;

  std::atomic<uint64_t> mark{dead};
  uint32_t number = 0;  // another for every cell of a store
  std::unique_ptr<T> object;

  bool is_live() const noexcept { return mark.load(std::memory_order_acquire) == live; }
};

// The cells of one type; Cell is derived from Handle<T>. Cells are used again oldest first, and only when many others lie idle, so that a stale handle
// stays recognisable for long. This is the one kind of object that belongs to no communicator: what remembers that a
// communicator is gone must outlive it. Thread-safe.
template <class T, class Cell>
class HandleStore {
 public:
  Cell* make(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    Cell* cell = nullptr;
    if (idle_.size() > idle_min) {
      cell = idle_.front();
      idle_.pop_front();
    } else {
      cell = &cells_.emplace_back();
      cell->number = uint32_t(cells_.size());
    }
    cell->object = std::move(object);
    cell->mark.store(Handle<T>::live, std::memory_order_release);
    return cell;
  }

  // Whether a pointer is a cell of this store, live or dead.
  bool has(const void* pointer) {
    const std::lock_guard lock(mutex_);
    return std::any_of(cells_.begin(), cells_.end(), [pointer](const Cell& cell) { return &cell == pointer; });
  }

  // The object of a live handle, which is dead from then on; null where it was not live.
  std::unique_ptr<T> take(Cell* cell) {
    uint64_t expected = Handle<T>::live;
    if (!cell->mark.compare_exchange_strong(expected, Handle<T>::dead, std::memory_order_acq_rel)) return nullptr;
    const std::lock_guard lock(mutex_);
    std::unique_ptr<T> object = std::move(cell->object);
    idle_.push_back(cell);
    return object;
  }

 private:
  static constexpr size_t idle_min = 256;
  std::mutex mutex_;
  std::deque<Cell> cells_;  // a deque: cells never move
  std::deque<Cell*> idle_;
};

}  // namespace tutti
