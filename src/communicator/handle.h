// Handles of the C interface: small cells that are never given back to the allocator, so that a call on a destroyed
// communicator or stream is told apart from one on a live one.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {

// A cell of object T. The pointer to it is the C handle.
template <class T>
struct Handle {
  // `live` while the object exists. A cell that never was a handle holds something else, most likely.
  static constexpr uint64_t live = 0x7475747469686e64;
  static constexpr uint64_t dead = 0x64656164686e646c;
  static constexpr uint64_t of_parent = 0x666f726b686e646c;  // the process that this one is a fork of has the object

  std::atomic<uint64_t> mark{dead};
  uint32_t number = 0;  // another for every cell of a store
  std::unique_ptr<T> object;

  bool is_live() const noexcept { return mark.load(std::memory_order_acquire) == live; }
  bool is_of_parent() const noexcept { return mark.load(std::memory_order_acquire) == of_parent; }
};

// The cells of one type; Cell is derived from Handle<T>. Cells are used again oldest first, and only when many others lie
// idle, so that a stale handle stays recognisable for long. This is the one kind of object that belongs to no
// communicator: what remembers that a communicator is gone must outlive it. Thread-safe.
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

  // Around a fork. The child has none of the threads behind its parent's objects, and their sockets are not its own:
  // there, objects are neither used nor destroyed, and their handles say so.
  void before_fork() {
    mutex_.lock();
    if constexpr (notices_forks)
      for (Cell& cell : cells_)
        if (cell.object != nullptr) cell.object->before_fork();
  }
  void after_fork(bool in_child) {
    for (Cell& cell : cells_) {
      if (cell.object == nullptr) continue;
      if constexpr (notices_forks) cell.object->after_fork(in_child);
      if (!in_child) continue;
      (void)cell.object.release();
      cell.mark.store(Handle<T>::of_parent, std::memory_order_release);
    }
    mutex_.unlock();
  }

 private:
  static constexpr bool notices_forks = requires(T& object) { object.before_fork(); };
  static constexpr size_t idle_min = 256;
  std::mutex mutex_;
  std::deque<Cell> cells_;  // a deque: cells never move
  std::deque<Cell*> idle_;
};

// The one store of a type, which looks after forks.
template <class Store>
Store& all_of() {
  static Store store;
  static const int error = ::pthread_atfork([] { store.before_fork(); }, [] { store.after_fork(false); },
                                            [] { store.after_fork(true); });
  if (error != 0) throw system_error("cannot prepare for forks", error);
  return store;
}

// Throws Error for a handle that is not live, and says which of its arguments that is.
template <class T>
[[noreturn]] void refuse_handle(const char* name, const Handle<T>& handle, const char* what_it_is) {
  if (handle.is_of_parent())
    throw Error(Code::invalid_usage, fmt::format("{} {} belongs to the process that this one was forked from, which alone "
                                                 "can use it", name, fmt::ptr(&handle)));
  throw Error(Code::invalid_argument, fmt::format("{} {} is {}", name, fmt::ptr(&handle), what_it_is));
}

}  // namespace tutti
